# SPDX-License-Identifier: GPL-3.0-or-later
"""An image judged from itself: kernels for the chip of a GB10, security floors, known dead ends. Pure.

The facts are those of `gb10.fleet.image_info`; what they are judged by is in catalog/image_rules.yml, sm.yml,
security_floors.yml and images.yml. Where the catalog says otherwise of an image, the image's own files hold.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.images import kernels
from ansible_collections.gb10.fleet.plugins.plugin_utils.images.kernels import Kernels
from ansible_collections.gb10.fleet.plugins.plugin_utils.releases.floors import faults
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import models

with contextlib.suppress(ImportError):  # ansible-core brings it, but ansible-test imports plugins without it
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.version import InvalidVersion, Version

CUBINS = "sm120_cubins"  # the word of images.yml
_OF_THE_FABRIC = re.compile(r"(NCCL|GLOO|UCX)_")
_WRONG_ON_SOME = {"NCCL_IB_GID_INDEX", "NCCL_IB_DISABLE", "NCCL_NET", "NCCL_P2P_DISABLE"}  # what the role does not say
_LONGEST = 500  # characters of a requirement; Python makes no number of thousands of digits
SEVERITIES = ("error", "warn", "info")
Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Finding:
    """Something that speaks against an image, or that is to be known."""

    id: str
    severity: str
    fact: str
    way_out: str
    source: str = ""


@dataclass(frozen=True)
class Judgement:
    """`gap`: extensions of vLLM without code that the chip loads. None: it cannot be told."""

    image: models.Image
    kernels: tuple[Kernels, ...]  # of the extensions that matter
    gap: tuple[str, ...] | None
    build: str  # in words: whether there is something to build
    findings: tuple[Finding, ...]

    @property
    def refused(self) -> bool:
        return any(each.severity == "error" for each in self.findings)

    def as_dict(self) -> dict[str, Any]:
        found = asdict(self)
        parts = {key: sorted(getattr(self.image, key)) for key in ("contains", "lacks")}
        states = [{**asdict(each), "state": each.state} for each in self.kernels]
        return {**found, "image": {**found["image"], **parts}, "kernels": states, "refused": self.refused}


def judge(facts: Facts) -> Judgement:
    """What the facts of an image come down to."""
    found = _kernels(facts)
    gap = _gap(facts, found)
    findings = sorted(_findings(facts, found, gap), key=lambda each: SEVERITIES.index(each.severity))
    return Judgement(known(facts, gap), found, gap, _build(facts, gap), tuple(findings))


def known(facts: Facts, gap: tuple[str, ...] | None) -> models.Image:
    """The image as images.yml would have it; this is how an image that is not in the catalog is known."""
    parts: Mapping[str, str] = catalog.load("image_rules")["parts"]
    has = {word for word, package in parts.items() if package in facts["packages"]}
    lacks = set(parts) - has
    if gap is not None:
        (lacks if gap else has).add(CUBINS)
    __, __, digest = next(iter(facts["digests"]), "").rpartition("@")
    return models.Image(
        reference=facts["reference"],
        name=next(iter(facts["names"]), facts["reference"]),
        version=facts["versions"]["vllm"],
        digest=digest or None,
        contains=frozenset(has),
        lacks=frozenset(lacks),
        source="its own files",
        confidence="read",
        cuda=facts["versions"]["cuda"],
    )


def wanted(version: str | None) -> tuple[str, ...]:
    """Names of the extensions that need kernels in this version of vLLM; empty where nobody has counted."""
    for entry in catalog.load("image_rules")["extensions"]:
        if models.within(version, entry["versions"]):
            return tuple(entry["value"])
    return ()


def _kernels(facts: Facts) -> tuple[Kernels, ...]:
    """Of vLLM's extensions those that matter; all of them, where the version does not say which do."""
    own = [kernels.of(each) for each in facts["extensions"] if each["owner"] == "vllm"]
    names = wanted(facts["versions"]["vllm"])
    return tuple(each for each in own if each.name in names or not names)


def _gap(facts: Facts, found: tuple[Kernels, ...]) -> tuple[str, ...] | None:
    names = wanted(facts["versions"]["vllm"])
    if not names or any(each.error for each in found):
        return None
    # With several environments in one image the worst one counts: nobody knows which one starts.
    poor = {each.name for each in found if not each.native}
    return tuple(name for name in names if name in poor or name not in {each.name for each in found})


def _build(facts: Facts, gap: tuple[str, ...] | None) -> str:
    version = facts["versions"]["vllm"]
    if version is None:
        return "no vLLM in it: nothing to build"
    if gap is None:
        return f"not known: which extensions of vLLM {version} need kernels was never counted, or one cannot be read"
    if gap:
        return f"a gap: no kernels that a GB10 loads in {', '.join(gap)}"
    return f"no gap: nothing to build; {' and '.join(wanted(version))} have kernels that a GB10 loads"


def _findings(facts: Facts, found: tuple[Kernels, ...], gap: tuple[str, ...] | None) -> Iterator[Finding]:
    yield from _platform(facts)
    yield from _floors(facts)
    yield from _toolkit(facts)
    yield from _drift(facts)
    yield from _code(facts, found, gap)
    yield from _left_over(facts)
    yield from _catalog(facts, gap)


def _platform(facts: Facts) -> Iterator[Finding]:
    rule = catalog.load("image_rules")["platform"]
    is_there = f"{facts['os']}/{facts['architecture']}"
    if is_there != rule["value"]:
        way_out = "take the image of that platform; `docker pull --platform` names it"
        yield Finding(
            "platform", "error", f"it is for {is_there}, and a GB10 is {rule['value']}", way_out, rule["source"]
        )


def _floors(facts: Facts) -> Iterator[Finding]:
    for entry in catalog.load("security_floors")["floors"]:
        version = facts["versions"].get(entry["component"].lower())
        if entry["packages"] or not version:
            continue
        of_it = (each for each in faults(entry) if _below(version, str(each["value"])))
        fault = next((each for each in of_it if not _below(version, str(each.get("since", "0")))), None)
        if fault:
            fact = f"{fault['component']} {version} is below {fault['value']}: {fault['advisory']}"
            way_out = f"take an image with {fault['value']} or later; keep vllm_host on loopback"
            yield Finding("security_floor", "warn", fact, way_out, fault["source"])


def _toolkit(facts: Facts) -> Iterator[Finding]:
    rules, versions = catalog.load("image_rules"), facts["versions"]
    rule, toolkit, torch = rules["cuda"], versions["cuda"], versions["torch_cuda"]
    way_out = f"take an image with CUDA {rule['value']} or later"
    for what, version in (("the CUDA toolkit", toolkit), ("torch's CUDA", torch)):
        if version and _below(version, rule["value"]):
            fact = f"{what} is {version}, below {rule['value']}: {rule['meaning']}"
            yield Finding("cuda_floor", "warn", fact, way_out, rule["source"])
    rule = rules["one_cuda"]
    if toolkit and torch and toolkit.split(".")[0] != torch.split(".")[0]:
        fact = f"torch was built with CUDA {torch}, and the toolkit is {toolkit}: {rule['meaning']}"
        yield Finding("cuda_drift", "warn", fact, "take an image with one CUDA", rule["source"])


def _drift(facts: Facts) -> Iterator[Finding]:
    for rule in catalog.load("image_rules")["drift"]:
        version, asked = facts["packages"].get(rule["value"]), _asked(facts, rule["value"])
        if not version or asked is None or not _valid(version) or asked.specifier.contains(version, prereleases=True):
            continue
        fact = f"{rule['value']} is {version}, and vLLM {facts['versions']['vllm']} asks for {asked.specifier}"
        way_out = "take the image that vLLM's makers built, or one that was rebuilt with --no-deps"
        yield Finding("drift", "warn", f"{fact}: {rule['meaning']}", way_out, rule["source"])


def _asked(facts: Facts, package: str) -> Requirement | None:
    """What vLLM's package says of another one, without conditions."""
    for text in (each for each in facts["vllm_requires"] if len(each) <= _LONGEST):
        with contextlib.suppress(InvalidRequirement):
            found = Requirement(text)
            if found.name.lower().replace("_", "-") == package and found.marker is None and found.specifier:
                return found
    return None


def _code(facts: Facts, found: tuple[Kernels, ...], gap: tuple[str, ...] | None) -> Iterator[Finding]:
    if gap:
        way_out = "take an image of upstream's or NVIDIA's with this or a later version; their builds have them"
        yield Finding("no_kernels", "warn", f"{', '.join(gap)} of vLLM have no cubins that a GB10 loads", way_out)
    for owner, name in _locked(facts, gap):
        fact = f"{name} of {owner} has no kernels that a GB10 loads: those of its family are locked to another chip"
        yield Finding("locked_kernels", "warn", fact, f"take an image whose {owner} was built for sm_120f or sm_121a")
    patch, version = catalog.load("image_rules")["locked_patch"], facts["versions"]["vllm"]
    for each in found:
        if each.locked.get(patch["value"]) and models.within(version, patch["versions"]):
            fact = (
                f"{each.name} has {each.locked[patch['value']]} cubins for {patch['value']}, which a GB10 does not load"
            )
            way_out = f"build without the patch of CMakeLists.txt: it exchanges {patch['instead']} for {patch['value']}"
            yield Finding("locked_kernels", "warn", fact, way_out, patch["source"])
    for extension in facts["extensions"]:
        if extension["error"]:
            way_out = "pull the image again; if it stays, its kernels are not known"
            yield Finding("unread", "warn", f"{extension['path']}: {extension['error']}", way_out)
    if len(facts["vllm_folders"]) > 1:
        fact = f"it has vLLM more than once: {', '.join(facts['vllm_folders'])}"
        yield Finding("several", "warn", fact, "see which one its entrypoint starts")


def _locked(facts: Facts, gap: tuple[str, ...] | None) -> Iterator[tuple[str, str]]:
    """Package and extension, where no file of that name has code that a GB10 loads, and one has some of its family."""
    passed = {each["name"] for each in facts["caches"]}  # what does not fit there is made anew
    files: dict[tuple[str, str], list[Kernels]] = {}
    for each in map(kernels.of, facts["extensions"]):
        if each.owner not in passed and not (each.owner == "vllm" and each.name in (gap or ())):
            files.setdefault((each.owner, each.name), []).append(each)
    for key, found in files.items():
        if any(each.locked for each in found) and all(each.state == "none" for each in found):
            yield key


def _left_over(facts: Facts) -> Iterator[Finding]:
    for path, lines in facts["nccl"]["conf"].items():
        if lines:
            way_out = "a variable of the same name in vllm_environment goes before it"
            yield Finding("nccl_conf", "info", f"{path} sets {', '.join(lines)}", way_out)
    pinned = {name: value for name, value in facts.get("environment", {}).items() if _OF_THE_FABRIC.match(name)}
    if pinned:
        fact = f"its environment sets {', '.join(f'{name}={value}' for name, value in sorted(pinned.items()))}"
        way_out = (
            "a variable of the same name in vllm_environment goes before it, and so does what the role says itself"
        )
        severity = "warn" if pinned.keys() & _WRONG_ON_SOME else "info"
        yield Finding("nccl_environment", severity, fact, way_out)


def _catalog(facts: Facts, gap: tuple[str, ...] | None) -> Iterator[Finding]:
    """Where images.yml says something else."""
    told = next(filter(None, map(models.image, (facts["reference"], *facts["names"]))), None)
    if told is None:
        return
    own, differs = known(facts, gap), []
    if told.version and own.version and told.version != own.version:
        differs.append(f"vLLM {told.version}")
    differs += [f"with {word}" for word in sorted(told.contains & own.lacks)]
    differs += [f"without {word}" for word in sorted(told.lacks & own.contains)]
    if differs:
        way_out = "what was read in the image holds; tell us, so that the catalog becomes right"
        fact = f"the catalog says of it ({told.name}): {', '.join(differs)}; its files say otherwise"
        yield Finding("catalog_differs", "warn", fact, way_out, told.source)


def _below(version: str, floor: str) -> bool:
    """A release candidate or a nightly counts as what it leads to, as in all our ranges."""
    return _valid(version) and Version(Version(version).base_version) < Version(floor)


def _valid(version: str) -> bool:
    try:
        return bool(Version(version))
    except InvalidVersion:
        return False
