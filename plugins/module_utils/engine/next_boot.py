# SPDX-License-Identifier: GPL-3.0-or-later
"""What others have put beside our files, so that the next boot, login or call of apt is not as declared.

Our file stands as we wrote it, and what runs is right; so no resource differs. But a later file of the same folder
wins, and a drop-in changes a unit. No run of ours repairs that: the file is somebody else's.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Container, Iterator, Sequence

from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.common import Resource, Step
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.file_resource import File
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.kernel import Sysctl
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.units import Unit
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import System

ACTION = "overridden"
# systemd-sysctl reads all of these by their names alone; of one name the first folder's counts (sysctl.d(5)).
_SYSCTLS = ("/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d")
_UNITS = "/etc/systemd/system"
_CONTROL = "/etc/systemd/system.control"  # systemctl set-property
_CONF = re.compile(r"[^.].*\.conf\Z")  # nobody takes a hidden file
# A pattern as a name, which systemd-sysctl takes, is none: ours is written out, and that counts whatever comes later.
_SETTING = re.compile(r"(?m)^[ \t]*-?([A-Za-z][\w./-]*?)[ \t]*=[ \t]*(.*?)[ \t]*$")
_LIMIT = re.compile(r"(?m)^[ \t]*([^#\s]\S*)[ \t]+(soft|hard|-)[ \t]+(\S+)[ \t]+(\S+)")
_VARIABLE = re.compile(r"(?m)^[ \t]*(?:export[ \t]+)?([A-Z_][A-Z0-9_]*)=(.*)$")
_PLAIN = re.compile(r"(\"[^\"]*\")|'[^']*'|\s#.*")  # all but the first: there the shell takes no $ for a name
_APT_KEY = re.compile(r"(?m)^[ \t]*([A-Za-z][\w:-]*)[ \t]*(\{|\"[^\"]*\")")
_APT_CLEAR = re.compile(r"(?m)^[ \t]*#clear[ \t]+([\w:-]+)")


def found(system: System, resources: Sequence[Resource]) -> list[Step[Resource]]:
    """A step for each resource that will not hold; nobody carries it out."""
    files = {resource.name: resource for resource in resources if isinstance(resource, File)}
    return [
        *_sysctls(system, files, [resource for resource in resources if isinstance(resource, Sysctl)]),
        *(step for name, file in files.items() if file.state == "present" for step in _beside(system, name, file)),
        *_drop_ins(system, files, [resource.name for resource in resources if isinstance(resource, Unit)]),
    ]


def _step(resource: Resource, file: str, does: str) -> Step[Resource]:
    return Step(resource, ACTION, f"{file} {does}; it is not ours, so take it out there")


def _sysctls(system: System, files: Container[str], wanted: Sequence[Sysctl]) -> Iterator[Step[Resource]]:
    if not wanted:
        return
    paths: dict[str, str] = {}
    for folder in _SYSCTLS:
        for name in system.names(folder):
            if _CONF.match(name):
                paths.setdefault(name, f"{folder}/{name}")
    last: dict[str, tuple[str, str]] = {}
    for name in sorted(paths):
        for setting, value in _SETTING.findall(system.text(paths[name]) or ""):
            last[_sysctl_path(setting)] = paths[name], " ".join(value.split())
    for resource in wanted:
        file, value = last.get(resource.path, ("", resource.value))
        if value != resource.value and file not in files:  # of ours itself its own drift is told
            yield _step(resource, file, f"comes later and sets {value} at the next boot, instead of {resource.value}")


def _sysctl_path(name: str) -> str:
    """As the kernel has it. Where the first separator is a slash, dots are part of a name."""
    first = re.search(r"[./]", name)
    slashed = first is not None and first[0] == "/"
    return "/proc/sys/" + (name if slashed else name.translate(str.maketrans("./", "/.")))


def _beside(system: System, path: str, resource: File) -> Iterator[Step[Resource]]:
    folder, name = posixpath.split(path)
    if folder not in _LATER:
        return
    taken, spoils = _LATER[folder]
    ours = system.text(path) or ""
    for other in sorted(system.names(folder)):
        if other > name and taken.match(other) and (does := spoils(ours, system.text(f"{folder}/{other}") or "")):
            yield _step(resource, f"{folder}/{other}", does)


def _limits(ours: str, theirs: str) -> str:
    for domain, kind, item, value in _LIMIT.findall(theirs):
        for mine in _LIMIT.findall(ours):
            same = (domain, item) == (mine[0], mine[2]) and (kind == mine[1] or "-" in (kind, mine[1]))
            if same and value != mine[3]:
                return f"comes later and gives {domain} {item} {value} at the next login, instead of {mine[3]}"
    return ""


def _grub(ours: str, theirs: str) -> str:
    mine = {name for name, __ in _VARIABLE.findall(ours)}
    for name, value in _VARIABLE.findall(theirs):
        if name in mine and not re.search(rf"\$(?:{name}(?!\w)|{{{name}\}})", _PLAIN.sub(r"\1", value)):
            return f"comes later and sets {name} anew, without what our file adds for the next boot"
    return ""


def _apt(ours: str, theirs: str) -> str:
    mine = {name.lower(): (value, name) for name, value in _APT_KEY.findall(ours)}
    for name in _APT_CLEAR.findall(theirs):
        if name.lower() in mine:
            return f"comes later and clears {name}"
    for name, value in _APT_KEY.findall(theirs):
        former, __ = mine.get(name.lower(), (value, name))
        if "{" not in (former, value) and value != former:
            return f"comes later and sets {name} to {value}, instead of {former}"
    return ""


# By folder: which names its reader takes, none of them hidden; and what is wrong with a later file.
_LATER = {
    "/etc/security/limits.d": (_CONF, _limits),
    "/etc/default/grub.d": (re.compile(r"[^.].*\.cfg\Z"), _grub),
    "/etc/apt/apt.conf.d": (re.compile(r"(?!\.)(?:[\w.:-]+\.conf|[\w:-]+)\Z", re.ASCII), _apt),
}


# `systemctl revert` would take our own drop-ins away as well.
_CHANGES = "changes this unit (`rm` it, then `systemctl daemon-reload`)"


def _drop_ins(system: System, files: dict[str, File], units: Sequence[str]) -> Iterator[Step[Resource]]:
    """Of a unit whose file is ours, with the instances of a template that are declared."""
    for path, resource in files.items():
        folder, name = posixpath.split(path)
        if folder != _UNITS or resource.state != "present":
            continue
        stem, at, suffix = name.partition("@.")
        instances = [unit for unit in units if at and unit.startswith(f"{stem}@") and unit.endswith(f".{suffix}")]
        for unit in (name, *instances):
            for place in (f"{_UNITS}/{unit}.d", f"{_CONTROL}/{unit}.d"):
                for other in sorted(system.names(place)):
                    if _CONF.match(other) and f"{place}/{other}" not in files:
                        yield _step(resource, f"{place}/{other}", _CHANGES)
