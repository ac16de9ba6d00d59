"""The same desired state for every contestant: what our roles' documents ask of a host, as plain lists.

It comes from the very documents that `site.yml` sends, so a role that grows makes every way grow with it.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.documents import render as documents
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View

# What a container can carry: Docker's engine and the rails need a kernel of their own.
ROLES = ("kernel_parameters", "driver", "coherence", "container_toolkit", "page_cache", "memory_protection", "fabric")


@dataclass(frozen=True)
class File:
    path: str
    content: str
    mode: str


@dataclass(frozen=True)
class Unit:
    name: str
    enabled: bool | None
    started: bool


@dataclass
class Desired:
    """What a host has when all roles are applied."""

    files: list[File] = field(default_factory=list)
    sysctls: dict[str, str] = field(default_factory=dict)
    packages: dict[str, str | None] = field(default_factory=dict)  # name -> version
    holds: list[str] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)  # files that units make
    absent: list[str] = field(default_factory=list)  # files


def of_host(host: str, variables: Mapping[str, Any], facts: Mapping[str, Any], installed: Iterable[str]) -> Desired:
    """What the documents ask of this host. `installed`: the names of its packages, which holds are chosen from."""
    view = View(host, facts, variables)
    rendered = [documents.render(role, view) for role in ROLES]
    if refusals := [text for document in rendered for text in document.refusals]:
        raise ValueError(f"{host}: {' '.join(refusals)}")
    return gather((entry for document in rendered for entry in document.resources), installed)


def gather(resources: Iterable[Mapping[str, Any]], installed: Iterable[str]) -> Desired:
    """Pure. A kind that is not known here is an error: a way that leaves it out would only seem to be faster."""
    desired, names = Desired(), sorted(installed)
    for entry in resources:
        if "package" in entry:
            desired.packages[entry["package"]] = entry.get("version")
        elif "sysctl" in entry:
            desired.sysctls[entry["sysctl"]] = entry["value"]
        elif "unit" in entry:
            desired.units.append(Unit(entry["unit"], entry.get("enabled"), entry.get("state") == "started"))
        elif "hold" in entry:
            left_out = entry.get("except", ())
            desired.holds += [name for name in names if _any(entry["match"], name) and not _any(left_out, name)]
        elif entry.get("state") == "expected":
            desired.expected.append(entry["file"])
        elif "file" in entry and entry.get("state") == "absent":
            desired.absent.append(entry["file"])
        elif "file" in entry and isinstance(entry.get("content"), str):
            desired.files.append(File(entry["file"], entry["content"], entry.get("mode", "0644")))
        else:
            raise ValueError(f"the benchmarks know no {next(iter(entry))} like {entry}: teach them in {__name__}")
    # To stock modules, a unit without a file is none that can be stopped.
    gone = {path.rpartition("/")[2] for path in desired.absent}
    desired.units = [unit for unit in desired.units if unit.name not in gone]
    return desired


def _any(patterns: Iterable[str], name: str) -> bool:
    return any(re.search(pattern, name) for pattern in patterns)


def floor(desired: Desired) -> str:
    """The same checks as one shell script: nothing that answers these questions over SSH can be much faster.

    It only checks. Its exit status is not 0 where something differs, so a broken host does not look fast. The
    last lines ask what our one call brings home, too: what the doctor judges a host by.
    """
    quoted = shlex.quote
    packages, holds, units = (
        " ".join(map(quoted, names))
        for names in (desired.packages, desired.holds, [unit.name for unit in desired.units])
    )
    live = "".join(f"{value}\n" for value in desired.sysctls.values())
    sums = "".join(f"{hashlib.sha256(file.content.encode()).hexdigest()}  {file.path}\n" for file in desired.files)
    stats = "".join(f"root:root {file.mode.lstrip('0')} {file.path}\n" for file in desired.files)
    paths = " ".join(quoted(file.path) for file in desired.files)
    versions = "".join(f"{name} {version or ''}".rstrip() + "\n" for name, version in sorted(desired.packages.items()))
    selections = "".join(f"{name} hold\n" for name in sorted(desired.holds))
    shown = "${Package} ${Version}\\n" if all(desired.packages.values()) else "${Package}\\n"
    lines = [
        "set -eu",
        f"printf %s {quoted(sums)} | sha256sum --check --quiet",
        _same(f"stat -c '%U:%G %a %n' {paths}", stats),
        _same(f"sysctl -n {' '.join(map(quoted, desired.sysctls))}", live),
        _same(f"dpkg-query -W -f '{shown}' {packages}", versions),
        _same(f"dpkg-query -W -f '${{Package}} ${{db:Status-Want}}\\n' {holds}", selections),
        _same(
            f"systemctl show --property=UnitFileState,ActiveState --value {units}"
            " | grep -c -x -e enabled -e active || true",
            f"{sum((unit.enabled is True) + unit.started for unit in desired.units)}\n",
            least=True,
        ),
        *(f"test -e {quoted(path)}" for path in desired.expected),
        *(f"test ! -e {quoted(path)}" for path in desired.absent),
        "uname -r; cat /etc/os-release /etc/dgx-release /proc/sys/kernel/random/boot_id",
        "ip -j address show; ip -j route show table main; df -P / /boot; modinfo nvidia || true",
        "nvidia-smi --query-gpu=name,driver_version --format=csv,noheader",
    ]
    return "\n".join(lines) + "\n"


def packages_alone(desired: Desired) -> str:
    """What no way to converge fresh hosts can do without: apt's own work, in one command."""
    wanted = (f"{name}={version}" if version else name for name, version in desired.packages.items())
    return f"exec env DEBIAN_FRONTEND=noninteractive apt-get install -y {shlex.join(wanted)}\n"


def _same(command: str, wanted: str, least: bool = False) -> str:
    """A line of shell: the command's output is what is wanted (or a number not below it)."""
    test = f'test "$({command})" {"-ge" if least else "="} {shlex.quote(wanted.rstrip())}'
    return f"{test} || {{ echo differs: {shlex.quote(command.split()[0])} >&2; exit 1; }}"


def as_variables(desired: Desired) -> dict[str, Any]:
    """For the playbook of stock modules and for pyinfra."""
    return {
        "desired_files": [vars(file) for file in desired.files],
        "desired_absent": desired.absent,
        "desired_sysctls": [{"name": name, "value": value} for name, value in desired.sysctls.items()],
        "desired_packages": [
            {"name": name, "version": version, "spec": f"{name}={version}" if version else name}
            for name, version in desired.packages.items()
        ],
        "desired_holds": desired.holds,
        "desired_units": [vars(unit) for unit in desired.units],
    }
