# SPDX-License-Identifier: GPL-3.0-or-later
"""How the vendor's checker scores a host against a recipe, and which release it then takes the host for. Pure.

Described from outside and written anew; docs/releases.md says what each figure means. Packages by floor tell what is
torn, packages by range which release it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.checks.coherence import numbers
from ansible_collections.gb10.fleet.plugins.module_utils.system.debian_version import order
from ansible_collections.gb10.fleet.plugins.plugin_utils.releases import boards

WEIGHTS = {"firmware": 0.35, "software": 0.25, "package": 0.40}  # of the rank, in shares of 100
# The component of SMBIOS that tells each firmware; the TPM has none.
_COMPONENTS = {"SOCFW": "FLASH", "EC": "EC Firmware", "EC Unfused": "EC Firmware"}
_EC = ("EC", "EC Unfused")
_PORTS = ("PD0", "PD1")


@dataclass(frozen=True, eq=False)  # each is itself, so that what follows from it is computed once for all hosts
class Recipe:
    """What NVIDIA calls a release."""

    content: Mapping[str, Any]
    sha256: str = ""

    @property
    def name(self) -> str:
        return str(self.content["metadata"]["name"])

    @property
    def shown(self) -> str:
        return str(self.content["metadata"].get("external_name") or self.name)

    @property
    def date(self) -> str:
        return str(self.content["metadata"]["releaseDate"])

    @property
    def stable(self) -> bool:
        return "ebeta" not in self.name

    @property
    def required(self) -> Sequence[str]:
        return self.content["metadata"].get("required_match") or ()

    def entries(self, key: str) -> Sequence[Mapping[str, str]]:
        return self.content.get(key) or ()

    def versions(self, key: str) -> dict[str, str]:
        return {entry["name"]: entry["version"] for entry in self.entries(key)}


@dataclass(frozen=True)
class Check:
    """One entry of a recipe on one host. `in_range` differs from `passes` for packages only."""

    kind: str
    name: str
    wanted: str
    found: str | None
    passes: bool
    in_range: bool


@dataclass(frozen=True)
class Score:
    """All checks of one recipe on one host."""

    recipe: Recipe
    checks: Sequence[Check]

    @cached_property
    def failed(self) -> list[Check]:
        return [check for check in self.checks if not check.passes]

    @property
    def torn(self) -> float:
        """The share that fails, in per cent."""
        return 100 * len(self.failed) / len(self.checks) if self.checks else 0.0

    @property
    def match(self) -> float:
        return _share(self.checks)

    @property
    def rank(self) -> float:
        kinds = {kind: [check for check in self.checks if check.kind == kind] for kind in WEIGHTS}
        return sum(weight * _share(kinds[kind]) for kind, weight in WEIGHTS.items())

    @property
    def required_met(self) -> bool:
        """By range, as the published figures show: a later release's dgx-dashboard is not the one that is required."""
        failed = {check.name for check in self.checks if not check.in_range}
        return not failed.intersection(self.recipe.required)

    def failing(self, kind: str) -> list[Check]:
        return [check for check in self.failed if check.kind == kind]


def ahead(check: Check) -> bool:
    """Return whether a host has firmware that is newer than the entry, so no recipe that is known here is its own.

    Packages, kernel and driver run ahead of every release by ordinary updates, and their floors let them.
    """
    if check.kind != "firmware" or not check.found:
        return False
    wanted = numbers(check.wanted.removeprefix("0.") if check.name == "USBPD" else check.wanted)
    same = map(numbers, re.findall(r"[0-9]{1,18}(?:[.-][0-9]{1,18})+", three(check.found)))
    return any(len(each) == len(wanted) and each > wanted for each in same)


def _share(checks: Sequence[Check]) -> float:
    return 100 * sum(check.in_range for check in checks) / len(checks) if checks else 100.0


def score(recipe: Recipe, recipes: Sequence[Recipe], host: Mapping[str, Any]) -> Score:
    """`recipes`: all that are known; the next one that raises a package ends its range."""
    later = sorted((other for other in recipes if other.date > recipe.date), key=lambda other: other.date)
    checks = [
        *_packages(recipe, _ceilings(recipe, tuple(later)), host["packages"]),
        *_firmware(recipe, host),
        *_connectx(recipe, host),
    ]
    return Score(recipe, [*checks, *_software(recipe, host)])


def detect(scores: Sequence[Score]) -> Score | None:
    """The release that the host is taken for: the best rank, then the later date, whose required entries all pass."""
    ranked = sorted(scores, key=lambda each: (each.rank, each.recipe.date), reverse=True)
    return next((each for each in ranked if each.required_met), ranked[0] if ranked else None)


def newest(recipes: Sequence[Recipe]) -> Recipe | None:
    stable = [recipe for recipe in recipes if recipe.stable]
    return max(stable, key=lambda recipe: recipe.date, default=None)


@lru_cache(maxsize=256)
def _ceilings(recipe: Recipe, later: tuple[Recipe, ...]) -> Mapping[str, str]:
    """Of each package the version of the next release that raises it. The same for all hosts."""
    floors, found = recipe.versions("package"), dict[str, str]()
    for other in later:
        for name, version in other.versions("package").items():
            if name in floors and name not in found and version != floors[name] and newer(version, floors[name]):
                found[name] = version
    return found


def _packages(recipe: Recipe, ceilings: Mapping[str, str], installed: Mapping[str, str]) -> Iterator[Check]:
    for name, wanted in recipe.versions("package").items():
        found = installed.get(name)
        floor = found is not None and not newer(wanted, found)
        ceiling = ceilings.get(name)
        yield Check("package", name, wanted, found, floor, floor and not (ceiling and not newer(ceiling, found or "")))


def newer(version: str, other: str) -> bool:
    """Return whether a version is the newer one; False where one of them is none."""
    one, two = _order(version), _order(other)
    return one is not None and two is not None and one > two


@lru_cache(maxsize=65536)
def _order(version: str) -> tuple[Any, ...] | None:
    """None where it is no version. Each is compared with many others."""
    try:
        return order(version)
    except ValueError:
        return None


def _firmware(recipe: Recipe, host: Mapping[str, Any]) -> Iterator[Check]:
    known = {guid: device["version"] for device in host["fwupd"] or () for guid in device["guids"]}
    entries = recipe.entries("firmware")
    by_vendor = boards.by_nvidia(host["board_vendor"])
    if by_vendor:
        guids = {entry["name"]: entry.get("guid", "") for entry in entries}
        of_ec = [name for name in _EC if guids.get(name) in known]
        left_out = {"TPM"} if guids.get("TPM") not in known else set()
        left_out |= set(_EC) - set(of_ec) if of_ec else set()
        entries = [entry for entry in entries if entry["name"] not in left_out]
    for entry in entries:
        name, wanted = entry["name"], entry["version"]
        found = _inventory(name, host["firmware"] or ())
        passes = _in_smbios(name, wanted, host["firmware"] or ())
        if by_vendor:
            version = three(known.get(entry.get("guid", ""), ""))
            # The TPM is in no inventory of SMBIOS: there fwupd's word alone counts.
            passes = _stands_in(wanted, version) and (passes or name == "TPM")
            found = found or version or None
        yield Check("firmware", name, wanted, found, passes, passes)


def _connectx(recipe: Recipe, host: Mapping[str, Any]) -> Iterator[Check]:
    """Left out where no ConnectX is on the bus: without a cable its functions are not."""
    versions = [device["version"] for device in host["connectx"]]
    for entry in recipe.entries("connectx") if versions else ():
        passes = _stands_in(entry["version"], versions[0])
        yield Check("firmware", entry["name"], entry["version"], versions[0], passes, passes)


def _software(recipe: Recipe, host: Mapping[str, Any]) -> Iterator[Check]:
    for entry in recipe.entries("software"):
        found = host.get(entry["name"]) if entry["name"] in ("kernel", "driver") else None
        passes = found is not None and _pieces(found) >= _pieces(entry["version"])
        yield Check("software", entry["name"], entry["version"], found, passes, passes)


def _pieces(version: str) -> list[tuple[int, int, str]]:
    """Compared piece by piece at `.` and `-`; a number is more than a word."""
    return [
        (1, int(each), "") if re.fullmatch("[0-9]{1,18}", each) else (0, 0, each) for each in re.split(r"[.-]", version)
    ]


def _inventory(name: str, inventory: Sequence[Mapping[str, str]]) -> str | None:
    wanted = "PD Firmware" if name == "USBPD" else _COMPONENTS.get(name)
    texts = [entry["version"] for entry in inventory if entry["component"] == wanted]
    return "; ".join(texts) or None


def _in_smbios(name: str, wanted: str, inventory: Sequence[Mapping[str, str]]) -> bool:
    if name == "USBPD":
        ports = [entry["version"] for entry in inventory if entry["component"] == "PD Firmware"]
        bare = wanted.removeprefix("0.")
        return all(any(text.startswith(port) and bare in text for text in ports) for port in _PORTS)
    component = _COMPONENTS.get(name)
    return any(_stands_in(wanted, entry["version"]) for entry in inventory if entry["component"] == component)


def _stands_in(version: str, text: str) -> bool:
    """Not as part of a longer number."""
    return re.search(rf"(?<![0-9.]){re.escape(version)}(?![0-9]|\.[0-9])", text) is not None


def three(version: str) -> str:
    """fwupd's `0xAABBCCDD` as the three numbers of a recipe: 0x02980F00 is 2.152.15."""
    found = re.fullmatch(r"0x([0-9a-fA-F]{2})([0-9a-fA-F]{2})([0-9a-fA-F]{2})[0-9a-fA-F]{2}", version)
    return ".".join(str(int(part, 16)) for part in found.groups()) if found else version
