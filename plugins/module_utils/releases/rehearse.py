# SPDX-License-Identifier: GPL-3.0-or-later
"""What apt would do on the way to a release: simulated on the host, by the lists that it has.

Two questions, as a move asks them. The host set: all versions named, without our own pins, for a move writes new ones
first. The rest of the packages: with the holds as they are. Nothing is installed, downloaded or updated.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.engine import apt_errors
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources import rebuilds
from ansible_collections.gb10.fleet.plugins.module_utils.reading.dpkg import read_database
from ansible_collections.gb10.fleet.plugins.module_utils.reading.driver_pins import OUR_PREFERENCES
from ansible_collections.gb10.fleet.plugins.module_utils.releases import host_set
from ansible_collections.gb10.fleet.plugins.module_utils.releases.host_set import HostSet
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError

NEWEST = "newest"
DEADLINE_S = 300.0
_LISTS = "/var/lib/apt/lists"
_PREFERENCES = "/etc/apt/preferences.d"
_SIMULATE = ("apt-get", "--simulate", "-y", "--no-install-recommends", "-oDebug::NoLocking=1")
_ANY_VERSION = ("--allow-downgrades", "--allow-change-held-packages")
# Inst NAME [OLD] (NEW SOURCE [ARCHITECTURE])
_INST = re.compile(r"Inst (\S+) (?:\[[^\]]+\] )?\((\S+)")
_GONE = re.compile(r"(?:Remv|Purg) (\S+)")


class Change(TypedDict):
    installs: dict[str, str]
    removes: list[str]
    error: str
    download_bytes: int
    disk_bytes: int


class Rehearsal(TypedDict):
    release: str | None
    set: str | None
    set_move: Change
    rest: Change
    offers_back: bool
    lists_age_s: int | None


def rehearse(host: HostReader, recipes: Sequence[Mapping[str, Any]], asked: Mapping[str, Any]) -> Rehearsal:
    """`asked`: `to`, a release or "newest"; `branch`; `releases`, {name: set}; `sets`, {name: fields of HostSet}."""
    release = chosen(str(asked["to"]), recipes)
    named = asked["releases"].get(release)
    answer: Rehearsal = {
        "release": release,
        "set": named,
        "set_move": _nothing(),
        "rest": _nothing(),
        "offers_back": False,
        "lists_age_s": _lists_age(host),
    }
    try:
        database = host.system.once(read_database)
    except HostError as error:
        answer["rest"] = _nothing(str(error))
        return answer
    packages = {name: each.version for name, each in database.installed.items()}
    branch = str(asked["branch"])
    answer["offers_back"] = _offers(host, f"nvidia-driver-{branch}-open", host_set.installed_userland(packages, branch))
    sets = {name: HostSet(each["userland"], each["kernel"], each["modules"]) for name, each in asked["sets"].items()}
    if named in sets:
        answer["set_move"] = _set_move(host, packages, branch, sets[named], sets)
    answer["rest"] = _simulated(host, [*_SIMULATE, "dist-upgrade"], [])
    return answer


def chosen(to: str, recipes: Sequence[Mapping[str, Any]]) -> str | None:
    """The name of the release: the newest one that is no pre-release, by the recipes of this host; or the one asked."""
    if to != NEWEST:
        return to
    told = [each["content"]["metadata"] for each in recipes if "ebeta" not in each["content"]["metadata"]["name"]]
    newest = max(told, key=lambda each: str(each["releaseDate"]), default=None)
    return None if newest is None else str(newest["name"])


def _nothing(error: str = "") -> Change:
    return {"installs": {}, "removes": [], "error": error, "download_bytes": 0, "disk_bytes": 0}


def _set_move(
    host: HostReader, packages: Mapping[str, str], branch: str, to: HostSet, sets: Mapping[str, HostSet]
) -> Change:
    wanted = host_set.installs(packages, branch, to)
    gone = [name for name in host_set.removes(packages, branch, to, sets) if name in packages]
    open_ = [name for name, version in wanted.items() if version.endswith("*")]
    shown = host.system.run(["apt-cache", "show", *open_], timeout=DEADLINE_S).stdout
    try:
        exact = {**wanted, **rebuilds.choose(wanted, rebuilds.parse(shown))}
    except rebuilds.NoneFits as none:
        return _nothing(f"{none.name}: no offered build fits the set: {none}")
    missing = [name for name, version in exact.items() if version.endswith("*")]
    if missing:
        return _nothing(f"no apt source offers {missing[0]} {exact[missing[0]]}")
    differs = {name: version for name, version in exact.items() if packages.get(name) != version}
    if not differs and not gone:
        return _nothing()
    words = [*(f"{name}={version}" for name, version in differs.items()), *(f"{name}-" for name in gone)]
    with tempfile.TemporaryDirectory(prefix="gb10-rehearse-") as folder:
        return _simulated(host, [*_SIMULATE, *_ANY_VERSION, *_without_our_pins(host, Path(folder)), "install"], words)


def _without_our_pins(host: HostReader, folder: Path) -> list[str]:
    """An option of apt: all preferences that are there, but for ours."""
    for name in host.names(_PREFERENCES):
        if f"{_PREFERENCES}/{name}" != OUR_PREFERENCES:
            (folder / name).symlink_to(host.path(f"{_PREFERENCES}/{name}"))
    return [f"-oDir::Etc::PreferencesParts={folder}"]


def _simulated(host: HostReader, command: Sequence[str], words: Sequence[str]) -> Change:
    done = host.system.run([*command, *words], timeout=DEADLINE_S)
    if done.rc != 0:
        return _nothing(apt_errors.explained(done, host.system))
    installs = {found[1]: found[2] for found in map(_INST.match, done.stdout.splitlines()) if found}
    removes = [found[1] for found in map(_GONE.match, done.stdout.splitlines()) if found]
    download, disk = _sizes(host, installs)
    return {"installs": installs, "removes": removes, "error": "", "download_bytes": download, "disk_bytes": disk}


def _sizes(host: HostReader, installs: Mapping[str, str]) -> tuple[int, int]:
    """What is downloaded, and the room of what is unpacked: an upper bound, for what goes is not counted."""
    if not installs:
        return 0, 0
    words = [f"{name}={version}" for name, version in installs.items()]
    text = host.system.run(["apt-cache", "show", *words], timeout=DEADLINE_S).stdout
    size = sum(map(int, re.findall(r"(?m)^Size: (\d{1,15})$", text)))
    return size, 1024 * sum(map(int, re.findall(r"(?m)^Installed-Size: (\d{1,12})$", text)))


def _offers(host: HostReader, name: str, version: str) -> bool:
    """Return whether a source still has the version that is installed, so that a way back exists."""
    text = host.system.run(["apt-cache", "madison", name], timeout=DEADLINE_S).stdout
    return bool(version) and version in [line.split("|")[1].strip() for line in text.splitlines() if "|" in line]


def _lists_age(host: HostReader) -> int | None:
    """Return how old apt's lists are: a release that came since is not in them."""
    times = [_changed(host.path(f"{_LISTS}/{name}")) for name in host.names(_LISTS) if name.endswith("_Packages")]
    newest = max((each for each in times if each is not None), default=None)
    return None if newest is None else max(0, int(host.time_of_day() - newest))


def _changed(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None
