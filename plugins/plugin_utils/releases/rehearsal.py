# SPDX-License-Identifier: GPL-3.0-or-later
"""What a move to a release would do to one host, before anybody makes it: what comes, and what is in the way.

Pure. It goes by what the host read of itself, and by what apt simulated there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.reading.meanings import upstream_version
from ansible_collections.gb10.fleet.plugins.module_utils.system.driver_packages import moves_on_purpose
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import some
from ansible_collections.gb10.fleet.plugins.plugin_utils.releases import boards, verdict
from ansible_collections.gb10.fleet.plugins.plugin_utils.releases import score as scores
from ansible_collections.gb10.fleet.plugins.plugin_utils.releases.score import Check, Recipe

READY, CURRENT, WAITING, HELD, BLOCKED, UNKNOWN = (
    "ready", "current", "waiting_for_firmware", "held", "blocked", "unknown",
)  # fmt: skip
MIB = 2**20
_DRIVER = "nvidia-driver-580-open"  # its version is the userland of a host set
DOWNGRADE = "downgrade"  # what a plan that goes back is accepted by, beside the ids of known_bad
_OF_A_KERNEL = ("package", "software")  # what apt brings, and what runs


@dataclass(frozen=True)
class Rehearsed:
    """`torn`: entries of the release that fail afterwards, with the reason. `held`: known troubles of the release that
    fit this host and are not accepted. `rollback`: the way back, as far as there is one.
    """

    state: str
    reason: str
    release: str | None = None
    set: str | None = None
    packages: Mapping[str, str] = field(default_factory=dict)
    removes: Sequence[str] = ()
    firmware: Sequence[str] = ()
    parameters: Sequence[str] = ()
    below_floors: Sequence[str] = ()
    torn: Sequence[str] = ()
    blocks: Sequence[str] = ()
    held: Sequence[str] = ()
    rollback: Sequence[str] = ()
    download_mib: int = 0
    disk_mib: int = 0
    minutes: int = 0
    reboots: int = 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Known:
    """What the catalog says: releases.yml, host_sets, minimum_free_disk of platforms.yml, floors of
    security_floors.yml; and what the operator accepts, {id of a known trouble: reason}."""

    releases: Mapping[str, Any]
    sets: Mapping[str, Mapping[str, Any]]
    minimums: Sequence[Mapping[str, Any]]
    floors: Sequence[Mapping[str, Any]]
    accepted: Mapping[str, str]

    def seconds(self, step: str) -> int:
        return next(int(row["value"]) for row in self.releases["durations"] if row["step"] == step)


def row_of(release: str, rows: Any) -> Mapping[str, Any] | None:
    """By either name; a release may have no external one."""
    return next((row for row in rows if release and release in (row["name"], row["external_name"])), None)


def target(to: str, recipes: Sequence[Recipe], known: Known) -> Recipe | None:
    """The release that is asked for: a recipe of any host, or what the catalog knows of one."""
    if to == "newest":
        return scores.newest(recipes)
    row = row_of(to, known.releases["releases"])
    names = (to, row["name"]) if row else (to,)  # a recipe may lack the external name that the catalog has
    found = next((recipe for recipe in recipes if recipe.name in names or recipe.shown == to), None)
    return found or (Recipe(_content(row, known)) if row else None)


def _content(row: Mapping[str, Any], known: Known) -> dict[str, Any]:
    """A recipe of what the catalog has: few packages, and no more firmware than was seen."""
    guids = known.releases["firmware_guids"]
    named = known.sets.get(row["set"] or "")
    return {
        "metadata": {"name": row["name"], "external_name": row["external_name"], "releaseDate": row["released"]},
        "package": [{"name": _DRIVER, "version": named["userland"]}] if named else [],
        "firmware": [
            {"name": name, "version": version, "guid": guids.get(name, "")}
            for name, version in row["firmware"].items()
            if name != "CX7"
        ],
        "connectx": [{"name": name, "version": row["firmware"][name]} for name in ("CX7",) if name in row["firmware"]],
        "software": [{"name": name, "version": row[name]} for name in ("kernel", "driver")],
    }


def held(host: Mapping[str, Any], to: Recipe, known: Known) -> list[str]:
    """The known troubles of a release, under either of its names, that fit this host and are not accepted."""
    row = row_of(to.name, known.releases["releases"])
    names = {to.name, to.shown, *((row["name"], row["external_name"]) if row else ())}
    return [
        f"{row['id']}: {row['symptom']} ({row['source']}, {row['date']}); --accept {row['id']}=REASON"
        for row in known.releases["known_bad"]
        if row["release"] in names
        and row["id"] not in known.accepted
        and (not row["boards"] or boards.named(host["board_vendor"], row["boards"]))
        and row.get("unless_parameter") not in host["command_line"]
    ]


def rehearsed(
    host: Mapping[str, Any], simulated: Mapping[str, Any], to: Recipe | None, recipes: Sequence[Recipe], known: Known
) -> Rehearsed:
    """`simulated`: what the host's apt answered."""
    if to is None:
        return Rehearsed(UNKNOWN, "no recipe of a release is known: name one with --to")
    if host["firmware"] is None:
        return Rehearsed(UNKNOWN, verdict.NO_SMBIOS, to.name)
    if simulated["release"] not in (to.name, to.shown):
        own = simulated["release"] or "none"
        return Rehearsed(
            UNKNOWN,
            f"its own newest recipe is {own}, so apt was not asked about {to.name}: say --to {to.name}",
            to.name,
        )
    return _Move(host, simulated, to, recipes, known).told()


@dataclass(frozen=True)
class _Move:
    """One host on its way."""

    host: Mapping[str, Any]
    simulated: Mapping[str, Any]
    to: Recipe
    recipes: Sequence[Recipe]
    known: Known

    def told(self) -> Rehearsed:
        packages, removes = self.packages, self.simulated["set_move"]["removes"] + self.simulated["rest"]["removes"]
        missing, offered = self._firmware()
        torn, blocks, troubles = (
            [*self._torn(missing)],
            [*self._blocks()],
            [*held(self.host, self.to, self.known), *self._downgrades()],
        )
        boots = int(bool(offered or self._moves or self._boots_what_is_there or self._parameters(self._kernel)))
        comes = self._comes(len(packages) + len(removes), len(offered), boots)
        done = not (comes or torn)
        if not done and self.simulated["set"] is None:
            blocks.append(f"no host set of {self.to.name} is known, so no rollout goes there: docs/driver.md")
        state, reason = self._state(blocks, troubles, missing, torn, comes)
        return Rehearsed(
            state,
            reason,
            release=self.to.name,
            set=self.simulated["set"],
            packages=packages,
            removes=removes,
            firmware=[f"{check.name} {check.found or 'unknown'} -> {version}" for check, version in offered],
            parameters=self._parameters(self._kernel),
            below_floors=verdict.below_floors(self._after, None, self.known.releases, self.known.floors),
            torn=torn,
            blocks=blocks,
            held=troubles,
            rollback=[] if done else [*self._rollback(firmware=bool(offered))],
            download_mib=round(self._bytes("download_bytes") / MIB),
            disk_mib=round((self._bytes("download_bytes") + self._bytes("disk_bytes")) / MIB),
            minutes=0 if done else self._minutes(len(packages), len(offered), boots),
            reboots=boots,
        )

    def _downgrades(self) -> Iterator[str]:
        """Yield what would go back, unless a reason for it was given."""
        here = self.host["packages"]
        back = [
            f"{name} {here[name]} -> {version}"
            for name, version in self.packages.items()
            if name in here and scores.newer(here[name], version)
        ]
        if back and DOWNGRADE not in self.known.accepted:
            yield f"{DOWNGRADE}: {some(sorted(back), 4)}; --accept {DOWNGRADE}=REASON"

    def _bytes(self, key: str) -> int:
        return int(self.simulated["set_move"][key]) + int(self.simulated["rest"][key])

    @property
    def packages(self) -> dict[str, str]:
        return {**self.simulated["rest"]["installs"], **self.simulated["set_move"]["installs"]}

    @property
    def _set(self) -> Mapping[str, Any] | None:
        return self.known.sets.get(self.simulated["set"] or "")

    @property
    def _moves(self) -> bool:
        """Return whether another kernel or driver boots afterwards."""
        return bool(self.simulated["set_move"]["installs"] or self.simulated["set_move"]["removes"])

    @cached_property
    def _boots_what_is_there(self) -> bool:
        """Return whether the driver's packages are those of the release, and an older kernel or driver still runs."""
        if self._moves or _DRIVER not in self.host["packages"]:
            return False
        packages, software = (verdict.missing_entries(self._score, kind, self._after, ()) for kind in _OF_A_KERNEL)
        return bool(software) and _DRIVER not in {check.name for check in packages}

    @property
    def _kernel(self) -> str:
        """The one that runs afterwards."""
        named = self._set
        return f"{named['kernel']}-nvidia" if named and self._moves else str(self.host["kernel"] or "")

    @property
    def _after(self) -> dict[str, Any]:
        gone = {*self.simulated["set_move"]["removes"], *self.simulated["rest"]["removes"]}
        packages = {**self.host["packages"], **self.packages}
        named = self._set if self._moves else None
        return {
            **self.host,
            "packages": {name: version for name, version in packages.items() if name not in gone},
            "kernel": self._kernel,
            "driver": upstream_version(named["userland"]) if named else self.host["driver"],
        }

    def _firmware(self) -> tuple[list[Check], list[tuple[Check, str]]]:
        """What nobody offers, and what fwupd offers with its version."""
        accepted = verdict.accepted_absent(self.known.releases)
        failing = verdict.missing_entries(self._score, "firmware", self.host, accepted)
        guids = {entry["name"]: entry.get("guid", "") for entry in self.to.entries("firmware")}
        offers = {
            guid: scores.three(device["offers"])
            for device in self.host["fwupd"] or ()
            if device["offers"] is not None
            for guid in device["guids"]
        }
        met = [(check, offers[guids[check.name]]) for check in failing if guids.get(check.name) in offers]
        here = {check.name for check, version in met if version == check.wanted}
        return [check for check in failing if check.name not in here], met

    @cached_property
    def _score(self) -> scores.Score:
        return scores.score(self.to, self.recipes, self._after)

    def _torn(self, missing: Sequence[Check]) -> Iterator[str]:
        accepted = verdict.accepted_absent(self.known.releases)
        for check in missing:
            where = "fwupd offers none" if self.host["fwupd"] is not None else "fwupd does not answer"
            yield f"firmware {check.name} stays {check.found or 'unknown'}, wanted {check.wanted}: {where}"
        for kind in ("package",) if self._boots_what_is_there else _OF_A_KERNEL:
            for check in verdict.missing_entries(self._score, kind, self._after, accepted):
                held = "; it is on hold" if check.name in self.host["held"] else ""
                why = f"no source of this host brings it{held}" if kind == "package" else "the set brings no newer"
                yield f"{kind} {check.name} stays {check.found or 'missing'}, wanted {check.wanted}: {why}"

    def _parameters(self, kernel: str) -> list[str]:
        return [
            f"{row['parameter']} for kernel {kernel}: {row['reason']}"
            for row in self.known.releases["kernel_parameters"]
            if kernel.startswith(row["kernel"]) and row["parameter"] not in self.host["command_line"]
        ]

    def _blocks(self) -> Iterator[str]:
        if self.host["reboot_required"]:
            yield "a reboot is missing: reboot first, so that kernel and driver are those of the packages"
        if other := re.search("-nvidia-([a-z0-9]+)$", self.host["kernel"] or ""):
            yield f"kernel {self.host['kernel']} is of the flavour nvidia-{other[1]}, and sets have the flavour nvidia"
        if self._set is None and self.simulated["set"]:
            yield f"the catalog has no host set {self.simulated['set']}"
        for part, words in (("set_move", "the host set"), ("rest", "the rest of the packages")):
            if self.simulated[part]["error"]:
                yield f"apt cannot bring {words}: {self.simulated[part]['error']}"
        # What the set exchanges stays once the set has moved: its holds are there then.
        if gone := sorted(name for name in self.simulated["rest"]["removes"] if not moves_on_purpose(name)):
            yield f"the rest of the packages would remove {', '.join(gone)}; decide that by hand"
        yield from verdict.full(self.host["disks"], self.known.minimums, self._bytes("disk_bytes"))

    def _comes(self, packages: int, capsules: int, boots: int) -> str:
        if packages:
            return f"{packages} package{'' if packages == 1 else 's'} come"
        if capsules:
            return "firmware comes"
        return "only a reboot is missing: what it brings is there" if boots else ""

    def _state(
        self, blocks: Sequence[str], held: Sequence[str], missing: Sequence[Check], torn: Sequence[str], comes: str
    ) -> tuple[str, str]:
        if held:
            return HELD, held[0]
        if blocks:
            return BLOCKED, blocks[0]
        if not (comes or torn):
            return CURRENT, f"every entry of {self.to.name} is met"
        partner = not boards.by_nvidia(self.host["board_vendor"])
        if missing and (partner or not comes):
            names = ", ".join(check.name for check in missing)
            state = UNKNOWN if self.host["fwupd"] is None else WAITING
            return state, f"{names} of {self.to.name}: {verdict.no_offer(self.host)}"
        if not comes:
            return BLOCKED, f"nothing comes, and {torn[0]}"
        return READY, comes

    def _rollback(self, *, firmware: bool) -> Iterator[str]:
        if self._moves:
            old = upstream_version(self.host["packages"].get(_DRIVER, ""))
            if self.simulated["offers_back"]:
                yield f"the set: gb10 rollback RUN, for a source still offers driver {old}"
            else:
                yield f"the set: none by apt, for no source offers driver {old} any more; keep its packages"
            yield f"the kernel: {self.host['kernel']} stays in GRUB's menu"
        if firmware:
            yield "the firmware: none, it does not go back"

    def _minutes(self, packages: int, capsules: int, boots: int) -> int:
        seconds = self.known.seconds("packages") if packages else 0
        seconds += self.known.seconds("capsules") if capsules else 0
        if boots:
            seconds += self.known.seconds("reboot_that_flashes" if capsules else "reboot")
        return -(-seconds // 60)
