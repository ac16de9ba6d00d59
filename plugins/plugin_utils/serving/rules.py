# SPDX-License-Identifier: GPL-3.0-or-later
"""The hard rules of serving on a GB10, judged over one profile: pure, and all of it data (catalog/rules.yml).

A rule matches when all its conditions do. Outside of the versions that its evidence was checked for it still fires and
says so; where the image's version is not known, a rule that depends on it warns at most.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import addresses, catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import host_count
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import (
    architectures,
    models,
    names,
    speculation,
    vllm_cli,
)
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.vllm_cli import Fired

with contextlib.suppress(ImportError):  # ansible-core brings it, but ansible-test imports plugins without it
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

__all__ = ["Fired", "Profile", "judge", "rules"]

SEVERITIES = ("error", "warn", "info")
# Objections to what was accepted, which nobody can accept.
OF_ACCEPTANCE = ("unknown_rule", "no_reason")
# What the role vllm refuses in its own words, whatever is accepted.
FIRM = ("utilization_above_090", "public_without_key", "key_in_argv", "world_too_large")
# What multiplies the ranks of a server.
_RANKS = (
    *("--data-parallel-size", "--tensor-parallel-size"),
    *("--pipeline-parallel-size", "--prefill-context-parallel-size"),
)
# Flags and variables whose values nobody may read in a report.
_SECRET = re.compile(r"^--(api-key|hf-token)$|(KEY|TOKEN|SECRET|PASSWORD)$")
Condition = Any  # of one value: see "values" in catalog/schema/rules.json
Rule = dict[str, Any]


@dataclass(frozen=True)
class Profile:
    """One serving profile as it would start."""

    model: str  # Hugging Face id or path
    traits: frozenset[str]  # dense | moe, gdn_hybrid, mla, sliding, multimodal; empty: unknown model
    quantization: str | None  # of the checkpoint; None: unknown
    image: str  # reference as given
    version: str | None  # vLLM's in that image; None: unknown
    contains: frozenset[str]  # of the image
    args: tuple[str, ...]  # words of `vllm serve MODEL ...` without the model
    environment: Mapping[str, str]
    hosts: int = 1
    executor: str = "mp"  # mp | ray
    driver: str | None = None
    listen: str = "127.0.0.1"
    gateway: bool = False  # in front of it, for clients on other machines
    api_key: bool = False
    container: frozenset[str] = field(default_factory=frozenset)  # words of "container" in catalog/rules.yml
    architecture: str = ""  # of the model's config.json; empty: unknown
    task: str = models.CHAT  # what the model does: that, or one of `tasks` of catalog/models.yml
    measured: bool = True  # the catalog has figures of this model
    speculation: tuple[tuple[str, str], ...] = ()  # (kind, fact): what speaks against the draft tokens
    fabric: tuple[tuple[str, str], ...] = ()  # (kind, fact): what speaks against names pinned for NCCL and Gloo
    memory: str = ""  # why the model does not fit the hosts; empty: it fits, or nobody has counted
    uneven: str = ""  # what of a layer does not divide by the hosts that are to share it; empty: all, or nobody knows
    context_parts: str = ""  # why they cannot share a request's context as asked; empty: they can, or nobody knows
    cuda: str | None = None  # of the image; None: unknown
    lacks: frozenset[str] = frozenset()  # of the image: what was looked for and not found
    encoder_missing: bool = False  # the weights lack the encoder for images that config.json names
    engine: str = ""  # why vLLM itself, asked before, does not take it
    doubts: tuple[str, ...] = ()  # what of its configuration was read with care, as it is not known here
    by_name: bool = False  # traits, quantization and memory are no more than what the model's name says


def rules() -> list[Rule]:
    found: list[Rule] = catalog.load("rules")["rules"]
    return found


def judge(profile: Profile, accepted: Mapping[str, str] | None = None) -> list[Fired]:
    """Every objection, errors first. `accepted` is {rule id: reason}; a reason is needed, and a rule of that id."""
    read = vllm_cli.words(profile.version, profile.args)
    fired = [
        *(_of_modelopt(each, profile) for each in vllm_cli.of_words(profile.version, read)),
        *vllm_cli.of_environment(profile.version, profile.environment, "--fail-on-environ-validation" in read.values),
        *(found for rule in rules() if (found := _judged(rule, _Facts(profile, read)))),
    ]
    reasons = {name: str(reason or "").strip() for name, reason in (accepted or {}).items()}
    fired = [replace(each, accepted=reasons.get(each.id) or None) for each in fired]
    return sorted([*_overrides(reasons), *fired], key=lambda each: SEVERITIES.index(each.severity))


def _overrides(reasons: Mapping[str, str]) -> Iterator[Fired]:
    known = [*(rule["id"] for rule in rules()), *catalog.load("rules")["command_line"]]
    for name, reason in reasons.items():
        if name not in known:
            text = f"{name!r} was accepted, and there is no such rule"
            close = names.nearest(name, known, 1)
            way_out = f"did you mean {close[0]}?" if close else "docs/rules.md has all of them"
            yield Fired("unknown_rule", "error", text, way_out, ("catalog/rules.yml",))
        if not reason:
            text = f"{name} was accepted without a reason"
            yield Fired("no_reason", "error", text, "write why this rule does not hold here", ("catalog/rules.yml",))


def _of_modelopt(fired: Fired, profile: Profile) -> Fired:
    """A format that vLLM does not know passes where ModelOpt wrote the checkpoint, whose own name goes before."""
    formats = catalog.load("rules")["command_line"].get(fired.id, {}).get("unless_of", [])
    if not formats or profile.quantization not in (None, *formats):
        return fired
    return replace(fired, severity="warn", verified=False, text=f"{fired.text}, unless ModelOpt wrote the checkpoint")


def _judged(rule: Rule, facts: _Facts) -> Fired | None:
    version, wanted = facts.version, rule.get("versions", "")
    if version and not _specifier(wanted).contains(version):
        return None
    if not version and wanted and (rule["severity"] == "info" or _of_version_alone(rule["match"]) or _is_far(wanted)):
        return None
    seen = _matched(rule["match"], facts)
    if seen is None:
        return None
    text = ": ".join(part for part in (", ".join(seen), rule["reason"]) if part)
    known = str(rule.get("verified", catalog.load("rules")["verified"]))
    verified = not wanted if version is None else _specifier(known).contains(version)
    later = vllm_cli.leads_to(facts.profile.version)
    ends = later is not None and not _specifier(wanted).contains(later) and not rule.get("of_builds")
    verified = verified and not ends
    if not verified:
        text += f" ({vllm_cli.unverified(facts.profile.version)})"
    guessed = facts.profile.by_name and _matched(rule["match"], facts.without_name) is None
    if guessed:
        text += " (by the model's name alone)"
    sure = verified or not wanted
    # A version older than all that were looked at is in the rule's own range: a name that is guessed adds no doubt.
    old = version is not None and bool(wanted) and version < Version(architectures.releases()[0])
    looked = facts.profile.lacks.issuperset(rule["match"].get("lacks", ()))
    severity = _milder(rule["severity"], (guessed and (sure or not old)) or ends, not sure) if looked else "info"
    return Fired(rule["id"], severity, text, rule["way_out"], tuple(rule["sources"]), verified)


@cache
def _is_far(wanted: str) -> bool:
    """Whether an image of which no release is known is likely none of a range: of old ones, or of a single one."""
    old = catalog.load("rules")["old"]["value"]
    near = [release for release in map(Version, architectures.releases()) if release in _specifier(wanted)]
    single = bool(wanted) and len({release.release[:2] for release in near}) == 1
    return single or not any(release not in _specifier(old) for release in near)


def _milder(severity: str, guessed: bool, unverified: bool) -> str:
    """What is not sure refuses nothing, and a warning about a guess and a version that nobody knows is a note."""
    if severity == "error":
        return "warn" if guessed or unverified else "error"
    return "info" if guessed and unverified else severity


def _of_version_alone(match: Mapping[str, Any]) -> bool:
    """Whether nothing that was said makes it match. Of an unknown version one rule speaks, and not all of these."""
    said = any(condition != "unset" for condition in match.get("environment", {}).values())
    return not said and not match.keys() & {"flags", "quantization", "model", "image", "executor", "any"}


@cache
def _specifier(text: str) -> SpecifierSet:
    return SpecifierSet(text, prereleases=True)


@dataclass(frozen=True)
class _Facts:
    profile: Profile
    read: vllm_cli.Words

    @property
    def version(self) -> Version | None:
        return vllm_cli.release(self.profile.version)

    @property
    def without_name(self) -> _Facts:
        """The same without what a name says."""
        return replace(self, profile=replace(self.profile, traits=frozenset(), quantization=None, memory=""))

    @property
    def host(self) -> str:
        """Where the API listens: --host goes before the profile's own word, and a headless rank has no API."""
        if "--headless" in self.read.values:
            return "localhost"
        return (self.read.values.get("--host") or [self.profile.listen])[0]

    @property
    def key(self) -> bool:
        return (
            self.profile.api_key
            or "--api-key" in self.read.values
            or bool(self.profile.environment.get("VLLM_API_KEY"))
        )


def _matched(match: Mapping[str, Any], facts: _Facts) -> list[str] | None:
    """The words that matched, if every condition did."""
    seen: list[str] = []
    for key, wanted in match.items():
        found = _MATCHERS[key](wanted, facts)
        if found is None:
            return None
        seen += [word for word in found if word not in seen]
    return seen


def _flags(wanted: Mapping[str, Condition], facts: _Facts) -> list[str] | None:
    said = facts.read.values
    compared = {name: _beside(condition, said) for name, condition in wanted.items()}
    return _values(compared, {name: said.get(name) for name in wanted}, " ")


def _beside(condition: Condition, said: Mapping[str, list[str]]) -> Condition:
    """The condition with the number of another flag in the place of its name; None where that says no number."""
    if not isinstance(condition, dict):
        return condition
    return {word: _number(said.get(what)) if str(what).startswith("--") else what for word, what in condition.items()}


def _environment(wanted: Mapping[str, Condition], facts: _Facts) -> list[str] | None:
    given = facts.profile.environment
    return _values(wanted, {name: [str(given[name])] if name in given else None for name in wanted}, "=")


def _values(wanted: Mapping[str, Condition], given: Mapping[str, list[str] | None], glue: str) -> list[str] | None:
    seen = []
    for name, condition in wanted.items():
        value = given[name]
        if not _holds(condition, value):
            return None
        if value is None:
            seen.append(f"no {name}")
        elif _SECRET.search(name):
            seen.append(name)
        else:
            seen.append(name if value in ([], ["true"]) and glue == " " else f"{name}{glue}{' '.join(value)}")
    return seen


def _holds(condition: Condition, value: list[str] | None) -> bool:
    if isinstance(condition, str):
        return (value is None) == (condition == "unset")
    if isinstance(condition, list):
        wanted = [_plain(item) for item in condition]
        return any(_plain(item) in wanted for item in value or [])
    return all(_holds_one(word, operand, value) for word, operand in condition.items())


def _holds_one(word: str, operand: Any, value: list[str] | None) -> bool:
    if word == "other_than":
        return not _holds(operand, value)
    if word == "matches":
        return any(re.fullmatch(operand, item, re.IGNORECASE) for item in value or [])
    if word == "kernel":
        return any(_kernel(operand, item) for item in value or [])
    number = _number(value)
    if number is None or operand is None:
        return False
    return bool({"above": number > operand, "below": number < operand, "at_most": number <= operand}[word])


def _kernel(status: str, name: str) -> bool:
    """Return whether catalog/sm.yml says so of the kernel of that name."""
    kernels = catalog.load("sm")["kernels"]
    plain = _plain(name)
    return any(kernel["status"] == status and re.fullmatch(kernel["value"], plain, re.IGNORECASE) for kernel in kernels)


def _plain(value: Any) -> str:
    return str(value).lower().replace("-", "_")


def _number(value: list[str] | None) -> float | None:
    """Of the last of its values, as the last of two equal flags holds; 32k is one, too."""
    for read in (float, vllm_cli.size):
        with contextlib.suppress(ValueError):
            return float(read(value[-1])) if value else None
    return None


def _quantization(wanted: Sequence[str], facts: _Facts) -> list[str] | None:
    value = facts.profile.quantization
    return [f"a checkpoint in {value}"] if value in wanted else None


def _executor(wanted: Sequence[str], facts: _Facts) -> list[str] | None:
    value = facts.profile.executor
    return [f"executor {value}"] if value in wanted else None


def _model(wanted: str, facts: _Facts) -> list[str] | None:
    return [facts.profile.model] if re.search(wanted, facts.profile.model, re.IGNORECASE) else None


def _image(wanted: str, facts: _Facts) -> list[str] | None:
    return [facts.profile.image] if re.search(wanted, facts.profile.image) else None


def _all_of(wanted: Sequence[str], facts: _Facts) -> list[str] | None:
    return [f"a model that is {' and '.join(wanted)}"] if facts.profile.traits.issuperset(wanted) else None


def _contains(wanted: Sequence[str], facts: _Facts) -> list[str] | None:
    return [f"{facts.profile.image} with {' and '.join(wanted)}"] if facts.profile.contains.issuperset(wanted) else None


def _lacks(wanted: Sequence[str], facts: _Facts) -> list[str] | None:
    missing = [word for word in wanted if word not in facts.profile.contains]
    known = "has no" if facts.profile.lacks.issuperset(missing) else "is not known to contain"
    return [f"{facts.profile.image} {known} {', '.join(missing)}"] if missing else None


def _container(wanted: Sequence[str], facts: _Facts) -> list[str] | None:
    found = sorted(facts.profile.container.intersection(wanted))
    return [str(catalog.load("rules")["container"][word]) for word in found] or None


def _driver(wanted: str, facts: _Facts) -> list[str] | None:
    return [f"driver {facts.profile.driver}"] if _in(facts.profile.driver, wanted) else None


def _cuda(wanted: str, facts: _Facts) -> list[str] | None:
    return [f"{facts.profile.image} with CUDA {facts.profile.cuda}"] if _in(facts.profile.cuda, wanted) else None


def _in(version: str | None, wanted: str) -> bool:
    try:
        return _specifier(wanted).contains(Version(version or ""))
    except ValueError:  # no version, or a number of thousands of digits
        return False


def _hosts(wanted: Condition, facts: _Facts) -> list[str] | None:
    count = facts.profile.hosts
    return [f"{count} host{'s' if count > 1 else ''}"] if _holds(wanted, [str(count)]) else None


def _listen(wanted: str, facts: _Facts) -> list[str] | None:
    """`public`: to other machines by itself; `shared`: also through the gateway."""
    if wanted == "shared" and facts.profile.gateway:
        return ["stands behind the gateway"]
    return None if addresses.is_loopback(facts.host) else [f"listens on {facts.host}"]


def _api_key(wanted: bool, facts: _Facts) -> list[str] | None:
    return [f"{'an' if wanted else 'no'} API key"] if facts.key == wanted else None


def _version(wanted: str, facts: _Facts) -> list[str] | None:
    said = facts.profile.version
    if wanted == "released":
        return [f"vLLM {said}"] if facts.version and not vllm_cli.is_development(said) else None
    if facts.version is not None:
        return None
    depend = f"{sum('versions' in rule for rule in rules())} of {len(rules())} rules depend on it"
    unknown = f"{said} says nothing of the release that it is near" if said else ""
    unknown = unknown or f"vLLM's version in {facts.profile.image} is not known"
    left = [rule["id"] for rule in rules() if _is_left_out(rule, facts)]
    return [f"{unknown}, and {depend}" + (f"; not judged are {', '.join(left)}" if left else "")]


def _is_left_out(rule: Rule, facts: _Facts) -> bool:
    """Whether nothing but its versions, which are far, keeps a rule from what is said here; silence says nothing."""
    if rule["severity"] == "info" or not _is_far(rule.get("versions", "")):
        return False
    return any(not word.startswith("no ") for word in _matched(rule["match"], facts) or ())


def _memory(_too_small: str, facts: _Facts) -> list[str] | None:
    return [facts.profile.memory] if facts.profile.memory else None


def _architecture(wanted: str, facts: _Facts) -> list[str] | None:
    name = facts.profile.architecture
    found = architectures.objection(name, facts.profile.version) if name else None
    return [found[1]] if found and found[0] == wanted else None


def _speculation(wanted: str, facts: _Facts) -> list[str] | None:
    found = dict(facts.profile.speculation).get(wanted)
    return [found] if found else None


def _fabric(wanted: str, facts: _Facts) -> list[str] | None:
    found = dict(facts.profile.fabric).get(wanted)
    return [found] if found else None


def _drafts(wanted: Sequence[str], facts: _Facts) -> list[str] | None:
    config = speculation.said({name: (value or [""])[-1] for name, value in facts.read.values.items()})
    method = speculation.method(config)
    if not config or (method not in wanted and "any" not in wanted):
        return None
    return [f"draft tokens by {method or 'a second model'}"]


def _world(_too_large: str, facts: _Facts) -> list[str] | None:
    """Each rank takes a GPU, and a host has one."""
    said = {name: value for name in _RANKS if (value := _number(facts.read.values.get(name)))}
    ranks = math.prod(said.values())
    if ranks <= facts.profile.hosts:
        return None
    given = ", ".join(f"{name} {value:g}" for name, value in said.items())
    return [f"{given}: {ranks:g} ranks on {host_count(facts.profile.hosts)}"]


def _shares(wanted: str, facts: _Facts) -> list[str] | None:
    found = {"uneven": facts.profile.uneven, "context": facts.profile.context_parts}[wanted]
    return [found] if found else None


def _encoder(_missing: str, facts: _Facts) -> list[str] | None:
    return [f"the weights of {facts.profile.model} have no encoder"] if facts.profile.encoder_missing else None


def _doubts(_any: str, facts: _Facts) -> list[str] | None:
    return list(facts.profile.doubts) or None


def _engine(_refused: str, facts: _Facts) -> list[str] | None:
    return [facts.profile.engine] if facts.profile.engine else None


def _task(wanted: Sequence[str], facts: _Facts) -> list[str] | None:
    task = facts.profile.task
    if task not in wanted:
        return None
    called = "chat" if task == models.CHAT else catalog.load("models")["tasks"][task]["value"]
    return [f"{facts.profile.model} is for {called}"]


def _measured(wanted: bool, facts: _Facts) -> list[str] | None:
    if facts.profile.measured != wanted:
        return None
    near = names.nearest(facts.profile.model, models.ids(), at_least=names.CLOSE)
    return [f"{facts.profile.model} is not in the catalog" + (f"; near it: {', '.join(near)}" if near else "")]


def _any(wanted: Sequence[Mapping[str, Any]], facts: _Facts) -> list[str] | None:
    return next((found for match in wanted if (found := _matched(match, facts)) is not None), None)


def _not(wanted: Mapping[str, Any], facts: _Facts) -> list[str] | None:
    return [] if _matched(wanted, facts) is None else None


_MATCHERS: dict[str, Any] = {
    "flags": _flags,
    "environment": _environment,
    "model": _model,
    "image": _image,
    "quantization": _quantization,
    "executor": _executor,
    "traits": _all_of,
    "contains": _contains,
    "lacks": _lacks,
    "container": _container,
    "driver": _driver,
    "cuda": _cuda,
    "drafts": _drafts,
    "world": _world,
    "shares": _shares,
    "encoder": _encoder,
    "doubts": _doubts,
    "engine": _engine,
    "fabric": _fabric,
    "hosts": _hosts,
    "listen": _listen,
    "api_key": _api_key,
    "version": _version,
    "memory": _memory,
    "architecture": _architecture,
    "measured": _measured,
    "task": _task,
    "speculation": _speculation,
    "any": _any,
    "not": _not,
}
