# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host's release is, in one word with its reason; and a cluster whose members have different firmware. Pure."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.reading.meanings import mount_of, upstream_version
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import some
from ansible_collections.gb10.fleet.plugins.plugin_utils.releases import boards
from ansible_collections.gb10.fleet.plugins.plugin_utils.releases import score as scores
from ansible_collections.gb10.fleet.plugins.plugin_utils.releases.floors import is_below
from ansible_collections.gb10.fleet.plugins.plugin_utils.releases.score import Check, Recipe, Score

GIB = 2**30
CURRENT, NEWER, BEHIND, TORN, WAITING, HELD, UNKNOWN = (
    "current", "newer", "behind", "torn", "waiting_for_firmware", "held_by_us", "unknown",
)  # fmt: skip
_GOOD = (CURRENT, NEWER)
NO_SMBIOS = (
    "the firmware inventory of SMBIOS cannot be read. Fix: `sudo dmidecode -t 45` on the host says why; a container or "
    "a virtual machine has none: leave it out with --limit"
)
# No partner's board can meet it: SMBIOS has no TPM, and the vendor's checker asks nothing else there.
_UNREACHABLE = {"TPM"}
# The firmware of a past driver stays in the recipe under its name, and is missed for ever by a host that skipped it.
_OF_A_DRIVER = "nvidia-firmware-"
# Bounded, because a host may say anything, and each digit is a place to begin.
_FIRMWARE_VERSION = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,18}){1,9}")
_COMPARED = {"FLASH": "SOCFW", "EC Firmware": "EC", "PD Firmware": "USBPD", "UEFI": "UEFI"}


@dataclass(frozen=True)
class Verdict:
    """`torn` names what lags behind the rest. Of the newest release: `set` is its host set, where the catalog knows it,
    and `blocks` what stands in its way.
    """

    state: str
    reason: str
    release: str | None = None
    shown: str | None = None
    next: str | None = None
    set: str | None = None
    score: Mapping[str, float | int] | None = None
    torn: Sequence[str] = ()
    missing: Mapping[str, Sequence[str]] = field(default_factory=dict)
    blocks: Sequence[str] = ()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def union(hosts: Mapping[str, Mapping[str, Any]], known: Sequence[Mapping[str, Any]] = ()) -> list[Recipe]:
    """The recipes of all hosts: one with a newer checker knows releases that the others do not.

    Of two texts of one recipe that of more hosts counts, else that of the newer checker.

    `known`: what is known without a host, for fleets whose hosts have no recipes.
    """
    found = {content["metadata"]["name"]: Recipe(content) for content in known}
    said = [  # by host: a text that one host says twice is no more than once
        {json.dumps(each["content"], sort_keys=True): (_checker(host), each) for each in host["recipes"]}
        for host in hosts.values()
    ]
    alike = Counter(text for texts in said for text in texts)
    every = [(alike[text], *of) for texts in said for text, of in texts.items()]
    for *__, each in sorted(every, key=lambda one: one[:2]):
        found[_name(each)] = Recipe(each["content"], each["sha256"])
    return sorted(found.values(), key=lambda recipe: recipe.date)


def shared(hosts: Mapping[str, Mapping[str, Any]], catalog: Mapping[str, Any]) -> list[Recipe]:
    """Those of `union` that all hosts are judged by: two hosts say them, or the catalog knows the release.

    Else one host could invent a release, and all others would be behind it; or an old one of today. `catalog`:
    catalog/releases.yml.
    """
    known = {(row["name"], row["released"]) for row in catalog["releases"]}
    told = Counter(name for host in hosts.values() for name in {_name(each) for each in host["recipes"]})
    return [one for one in union(hosts) if len(hosts) == 1 or told[one.name] > 1 or (one.name, one.date[:10]) in known]


def _name(said: Mapping[str, Any]) -> str:
    return str(said["content"]["metadata"]["name"])


def for_host(host: Mapping[str, Any], recipes: Sequence[Recipe]) -> list[Recipe]:
    """Those of all hosts for one of them: what it has itself, in its own text. Others may say what they like."""
    named = {recipe.name: recipe for recipe in union({"": host})}
    # With the same text it stays the same object: what follows from it is computed once for all hosts.
    for theirs in recipes:
        if theirs.content == named.get(theirs.name, theirs).content:
            named[theirs.name] = theirs
    return sorted(named.values(), key=lambda recipe: recipe.date)


def _checker(host: Mapping[str, Any]) -> tuple[int, ...]:
    version = host["packages"].get("nvidia-spark-ota-check", "0")
    return tuple(int(part) for part in re.findall(r"(?:^|(?<=[.-]))[0-9]{1,18}(?=[.-]|$)", version))


def judge(
    host: Mapping[str, Any],
    recipes: Sequence[Recipe],
    catalog: Mapping[str, Any],
    minimums: Sequence[Mapping[str, Any]] = (),
) -> Verdict:
    """`catalog`: catalog/releases.yml. `minimums`: minimum_free_disk of catalog/platforms.yml.

    `recipes` of other hosts may tell of a newer release. None makes a host better than its own do.
    """
    recipes = for_host(host, recipes)
    found = _judged(host, recipes, catalog, minimums)
    names = {_name(each) for each in host["recipes"]}
    own = [recipe for recipe in recipes if recipe.name in names]
    if found.state in _GOOD and len(own) < len(recipes) and scores.newest(own):
        alone = _judged(host, own, catalog, minimums)
        return found if alone.state in _GOOD else alone
    return found


def _judged(
    host: Mapping[str, Any],
    recipes: Sequence[Recipe],
    catalog: Mapping[str, Any],
    minimums: Sequence[Mapping[str, Any]],
) -> Verdict:
    accepted = accepted_absent(catalog)
    unread = _unread(host, recipes)
    if unread:
        return Verdict(UNKNOWN, unread)
    latest, all_scores = scores.newest(recipes), [scores.score(each, recipes, host) for each in recipes]
    detected = scores.detect(all_scores)
    if latest is None or detected is None:
        return Verdict(UNKNOWN, "no recipe of a release that is not a pre-release")
    target = next(each for each in all_scores if each.recipe is latest)
    missing = {kind: missing_entries(target, kind, host, accepted) for kind in ("package", "software", "firmware")}
    state, reason, torn = _state(missing, detected, target, host)
    if state == UNKNOWN and boards.by_nvidia(host["board_vendor"]):
        return Verdict(UNKNOWN, reason)  # the detected release would be a guess, too
    return Verdict(
        state,
        reason,
        release=detected.recipe.name,
        shown=detected.recipe.shown,
        next=None if state in (CURRENT, NEWER) else latest.name,
        score=told(detected),
        torn=torn,
        missing={
            kind: [f"{check.name} {check.found or 'missing'}, wanted {check.wanted}" for check in checks]
            for kind, checks in missing.items()
            if checks
        },
        set=next((entry["set"] for entry in catalog["releases"] if entry["name"] == latest.name), None),
        blocks=[*_blocks(missing, host, state, catalog["kernel_parameters"]), *full(host["disks"], minimums)],
    )


def told(score: Score) -> dict[str, float | int]:
    return {
        "checks": len(score.checks),
        "passed": len(score.checks) - len(score.failed),
        "torn": round(score.torn, 1),
        "match": round(score.match, 1),
        "rank": round(score.rank, 2),
    }


def _unread(host: Mapping[str, Any], recipes: Sequence[Recipe]) -> str:
    """Return why no release can be told; a guess without these facts is worse than none."""
    if not recipes:
        return (
            "no recipe of a release is known: the host lacks nvidia-spark-ota-check: it is no DGX OS, "
            "or one of March 2026 or older; there `sudo apt-get install nvidia-spark-ota-check`, "
            "elsewhere `gb10 release plan --to RELEASE` goes by the catalog"
        )
    if host["firmware"] is None:
        return f"{NO_SMBIOS}. Packages alone would name a wrong release"
    if host["reboot_required"]:
        return "a reboot is missing: until then kernel and driver are not those of the packages"
    if not host["packages"]:
        return "no package of the recipes is installed: this is no DGX OS"
    return ""


def accepted_absent(catalog: Mapping[str, Any]) -> list[str]:
    return [entry["value"] for entry in catalog["accepted_absent"]]


def missing_entries(target: Score, kind: str, host: Mapping[str, Any], accepted: Sequence[str]) -> list[Check]:
    """What fails and could be met on this host."""
    by_vendor = boards.by_nvidia(host["board_vendor"])
    return [
        check
        for check in target.failing(kind)
        if check.name not in accepted
        and not scores.ahead(check)
        and not (kind == "package" and check.name.startswith(_OF_A_DRIVER))
        and not (kind == "firmware" and check.name in _UNREACHABLE and not by_vendor)
    ]


def _state(
    missing: Mapping[str, Sequence[Check]], detected: Score, target: Score, host: Mapping[str, Any]
) -> tuple[str, str, list[str]]:
    latest = target.recipe.name
    packages, software, firmware = (missing[kind] for kind in ("package", "software", "firmware"))
    if not (packages or software or firmware):
        beyond = [f"{check.name} {check.found}" for check in target.checks if scores.ahead(check)]
        if not beyond:
            return CURRENT, f"every entry of {latest} is met", []
        asked = "update nvidia-spark-ota-check, which brings the recipes, and ask again"
        return NEWER, f"{', '.join(beyond)}: ahead of {latest}, the newest release that is known here; {asked}", []
    if not packages and software:
        names = [check.name for check in software]
        runs = "another kernel or driver runs; reboot into that of the packages"
        return TORN, f"the packages are those of {latest}, {_listed(software)}: {runs}", names
    if not packages and any(map(offers_capsule, host["fwupd"] or ())):
        offer = "fwupd offers newer firmware: `fwupdmgr update` and a reboot"
        return TORN, f"the packages are those of {latest}, {_listed(firmware)}; {offer}", ["firmware"]
    if not packages:
        said = f"the packages are those of {latest}, {_listed(firmware)}; {no_offer(host)}"
        if host["fwupd"] is None and boards.by_nvidia(host["board_vendor"]):
            # Such a board is asked by fwupd too, so each firmware fails here, also one whose version is the wanted.
            return UNKNOWN, f"the packages are those of {latest}; {no_offer(host)}", []
        if boards.by_nvidia(host["board_vendor"]):
            return TORN, said, ["firmware"]
        return (UNKNOWN if host["fwupd"] is None else WAITING), said, []
    held = [check.name for check in packages if check.name in host["held"]]
    if host["pinned_by_us"] and held and len(held) == len(packages):
        at = f"driver {host['driver'] or 'not loaded'} and kernel {host['kernel']}"
        return HELD, f"held by gb10-fleet at {at}: {len(held)} packages of {latest} ({_named(held)})", []
    return (
        BEHIND,
        f"{len(packages)} packages of {latest} are older or missing: {_named(each.name for each in packages)}",
        [],
    )


def no_offer(host: Mapping[str, Any]) -> str:
    """Why nothing newer is known of a board's firmware. Its lists may be old, and nothing here refreshes them."""
    if host["fwupd"] is None:
        return "fwupd does not answer, so nobody knows of newer firmware: `systemctl status fwupd`"
    return "fwupd offers none, by the lists that this host has: `sudo fwupdmgr refresh`, and ask again"


def offers_capsule(device: Mapping[str, Any]) -> bool:
    """A capsule of the board; certificates and disks are no part of a release."""
    return device["plugin"] == "uefi_capsule" and device["offers"] is not None


def _blocks(
    missing: Mapping[str, Sequence[Check]], host: Mapping[str, Any], state: str, parameters: Sequence[Mapping[str, str]]
) -> list[str]:
    held = [check.name for check in missing["package"] if check.name in host["held"]]
    found = [f"on hold: {_named(held)}"] if held else []
    if state == WAITING:
        found.append(
            f"no firmware offered for the board of {host['board_vendor'] or 'an unknown maker'}: "
            f"{_named(each.name for each in missing['firmware'])}"
        )
    for entry in parameters:
        if (host["kernel"] or "").startswith(entry["kernel"]) and entry["parameter"] not in host["command_line"]:
            found.append(f"kernel {host['kernel']} runs without {entry['parameter']}: {entry['reason']}")
    return found


def full(disks: Sequence[Mapping[str, Any]], minimums: Sequence[Mapping[str, Any]], more: int = 0) -> list[str]:
    """File systems that are too full. `more`: bytes that an update needs on / beside the minimum."""
    free = {disk["mount"]: disk["free_bytes"] / GIB for disk in disks}
    wanted = [
        (each["path"], mount_of(each["path"], set(free)), each["value"] + (more / GIB if each["path"] == "/" else 0))
        for each in minimums
    ]
    return [
        f"{path} has {free[mount]:.1f} GiB free, needed are {round(gib, 1):g} GiB"
        for path, mount, gib in wanted
        if mount in free and free[mount] < gib
    ]


def below_floors(
    host: Mapping[str, Any], newest: Recipe | None, catalog: Mapping[str, Any], floors: Sequence[Mapping[str, Any]]
) -> list[str]:
    """What stays below a security floor, and whether the newest release changes that. `floors`: security_floors.yml."""
    found = []
    offered = newest.versions("package") if newest else {}
    for floor in floors:
        name = next((each for each in floor["packages"] if each in host["packages"]), None)
        installed = upstream_version(host["packages"][name]) if name else ""
        if name and is_below(installed, str(floor["value"])):
            said = f"{floor['component']} {installed} is below {floor['value']} ({floor['advisory']})"
            brings = upstream_version(offered[name]) if name in offered else ""
            still = newest is not None and bool(brings) and is_below(brings, str(floor["value"]))
            found.append(
                f"{said}; {newest.name}, the newest release, still brings {brings}" if newest and still else said
            )
    for floor in catalog["firmware_floors"]:
        texts = _versions(host["firmware"] or (), floor["component"])
        version = _FIRMWARE_VERSION.search(texts)
        if (
            boards.named(host["board_vendor"], [floor["board_vendor"]])
            and version
            and is_below(version[0], floor["value"])
        ):
            found.append(f"{floor['component']} {version[0]} is below {floor['value']} ({floor['advisory']})")
    return found


def mixed_firmware(cluster: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Firmware that differs between the members of a cluster: they serve one model on two levels."""
    found = []
    for component, name in _COMPARED.items():
        said = {host: _versions(facts["firmware"] or (), component) for host, facts in cluster.items()}
        versions = {host: text for host, text in said.items() if text}
        if name == "UEFI" and len({facts["board_vendor"] for facts in cluster.values()}) > 1:
            continue  # each maker counts for itself
        if len(set(versions.values())) > 1:
            found.append(f"{name}: {', '.join(f'{host} {text}' for host, text in versions.items())}")
    rails = {host: facts["connectx"][0]["version"] for host, facts in cluster.items() if facts["connectx"]}
    if len(set(rails.values())) > 1:
        found.append(f"CX7: {', '.join(f'{host} {text}' for host, text in rails.items())}")
    return found


def _versions(inventory: Sequence[Mapping[str, str]], component: str) -> str:
    return "; ".join(entry["version"] for entry in inventory if entry["component"] == component)


def _listed(checks: Sequence[Check]) -> str:
    return "and " + ", ".join(f"{check.name} is {check.found or 'unknown'} (wanted {check.wanted})" for check in checks)


def _named(names: Iterable[str]) -> str:
    return some(sorted(names), 4)
