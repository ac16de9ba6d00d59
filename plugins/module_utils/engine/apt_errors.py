# SPDX-License-Identifier: GPL-3.0-or-later
"""What went wrong when apt or dpkg failed: a name, and the way out, in front of apt's own words.

apt puts its own errors on stderr, and the packages that block an installation on stdout. dpkg gets a terminal from it,
so all words of dpkg and of packages' scripts come on stdout as well (without a terminal, on stderr).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from ansible_collections.gb10.fleet.plugins.module_utils.engine.apt_faults import (
    FAULTS,
    FOLLOWING,
    HALF_WAY_OUT,
    LOCKED,
    NAMELESS,
    Fault,
)
from ansible_collections.gb10.fleet.plugins.module_utils.reading.dpkg import STATUS, parse_status
from ansible_collections.gb10.fleet.plugins.module_utils.system.driver_packages import moves_on_purpose
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Completed, System

_MAX_WORDS = 600  # characters of apt's own text in a message
_ERRORS = ("E:", "Error:", "dpkg: error")
# What a sound run says as well: notices, warnings of dpkg, and how far it is.
_BESIDE = (
    r"(N|Notice|Audit|dpkg: warning|dpkg-preconfigure): |(Setting up|Unpacking|Preparing to unpack) |"
    r"(Get|Hit|Ign|Err):\d"
)
# ` cuda : Depends: driver (>= 2) but 1 is to be installed`; further lines of one package leave its name out.
_UNMET = r"(?m)^ +(?:(\S+) : +)?(?:Pre)?(?:Depends|Recommends|Conflicts|Breaks): (\S+).*$"
# apt 3 numbers its reasons, on stderr: `2. driver:arm64=1 Depends gl (= 1)`.
_UNMET_3 = r"(?m)^ +\d+\. ([^\s:=]+)\S* (?:Pre)?(?:Depends|Conflicts|Breaks) ([^\s:=]+).*$"
_IS_HELD = ("is on hold", "are on hold")
_UNMET_WAY_OUT = "`apt-cache policy` shows which source and pin offer these versions; ask for ones that fit together"
# dpkg names the package and, on the next line, the reason; apt's own last line has neither.
_DPKG_SAYS = r"(?m)^dpkg: error processing (?:archive|package) (?:\S*/)?(\S+) \(--\w+\):\n[ \t]*(.+)$"
# Of a script that failed dpkg knows the status alone. What the script said stands before; these only pass it on.
_PASSED_ON = (
    rf"\s|dpkg: |run-parts:|update-initramfs:|invoke-rc\.d:|Errors were encountered|Consult |needrestart|{_BESIDE}"
)
_DKMS_SAYS = r"(?:module build on kernel:|headers for kernel) (\S+)(?:.*\nConsult (\S+))?"
_BY_DPKG = "Sub-process /usr/bin/dpkg"  # so apt ends where dpkg did
_CHANGED = r"(?m)^The following held packages will be changed:\n((?: .*\n?)+)"


_AS_A_SET = "the driver and its kernel move only as a set: set driver_host_set and driver_allow_move, then run again"
_UNHOLD = "`apt-mark unhold NAMES` if it may change, then run again"
_SOME_LOG = "make.log below /var/lib/dkms"  # where DKMS names none


def ways_out() -> list[str]:
    """All that may stand behind `Fix:`, with a KERNEL, a LOG or NAMES of packages in it."""
    of_faults = [fault.way_out for fault in (*FAULTS, *FOLLOWING, *NAMELESS)]
    without_log = [way_out.replace("LOG", _SOME_LOG) for way_out in of_faults if "LOG" in way_out]
    return [*of_faults, *without_log, _AS_A_SET, _UNHOLD, HALF_WAY_OUT, _UNMET_WAY_OUT]


def find(text: str) -> Fault | None:
    """The fault that a command's words tell of: the one that it names first, for others may follow from it.

    Errors are asked before warnings: a source that did not answer comes early in the text and may have nothing to do
    with what made the command fail.
    """
    told = (line for line in text.splitlines() if not re.match(_BESIDE, line))
    lines = sorted(told, key=lambda line: not line.startswith(_ERRORS))
    found = (
        fault for faults in (FAULTS, FOLLOWING, NAMELESS) for line in lines for fault in faults if fault.is_in(line)
    )
    return next(found, None)


def is_locked(done: Completed) -> bool:
    """Return whether a command gave up because of a lock; that it has waited for one is no failure."""
    return done.rc != 0 and find(done.stderr) is LOCKED


def explained(done: Completed, system: System) -> str:
    """The name of what went wrong, the way out and what the command said; only the latter if nobody knows it."""
    told = f"{done.stdout}\n{done.stderr}" if _BY_DPKG in done.stderr else done.stderr
    fault = find(told)
    said = (_of_package(told, fault) or done.words)[:_MAX_WORDS].rstrip(".")
    if fault is None or re.search(_UNMET, done.stdout) or re.search(_UNMET_3, done.stderr):
        holds = parse_status(system.text(STATUS) or "").holds
        if blocked := _blocked(done.stdout, done.stderr, {name.partition(":")[0] for name in holds}):
            return blocked
    if fault is None:
        return said
    holder = _holder(told, system) if fault is LOCKED else ""
    built = re.search(_DKMS_SAYS, told)
    kernel, log = built.groups() if built else ("KERNEL", None)
    way_out = fault.way_out.replace("KERNEL", kernel).replace("LOG", log or _SOME_LOG)
    return f"{fault.name}: {said}{holder}. Fix: {way_out}"


def _of_package(told: str, fault: Fault | None) -> str:
    """The first package that dpkg could not handle, with dpkg's reason; and what its script said before, where nothing
    is known of that.
    """
    package = re.search(_DPKG_SAYS, told)
    if package is None:
        return ""
    said = f"{package[1]}: {package[2].strip()}"
    before = [line for line in told[: package.start()].splitlines() if line and not re.match(_PASSED_ON, line)]
    return f"{said} ({before[-1]})" if before and fault in FOLLOWING else said


def _blocked(stdout: str, stderr: str, holds: Collection[str]) -> str:
    """The packages that block, by name: those on hold among the named, else the dependencies that cannot be met."""
    changed = re.search(_CHANGED, stdout)
    unmet = [*re.finditer(_UNMET, stdout), *re.finditer(_UNMET_3, stderr)]
    told = "; ".join(" ".join(line[0].split()) for line in unmet)
    named = {name.partition(":")[0] for line in unmet for name in line.groups() if name}
    held = sorted(changed[1].split() if changed else named.intersection(holds))
    if held:
        reason = f"; apt says: {told[:_MAX_WORDS]}" if told else ""
        holding = f"{', '.join(held)} {_IS_HELD[len(held) > 1]}"
        return f"apt_hold_blocks: {holding}{reason}. Fix: {_unhold_way_out(held)}"
    if not told:
        return ""
    way_out = HALF_WAY_OUT if "--fix-broken" in stderr else _UNMET_WAY_OUT
    return f"apt_dependencies_unmet: {told[:_MAX_WORDS]}. Fix: {way_out}"


def _unhold_way_out(held: Sequence[str]) -> str:
    return _AS_A_SET if any(map(moves_on_purpose, held)) else _UNHOLD.replace("NAMES", " ".join(held))


def _holder(said: str, system: System) -> str:
    """The command line of the process that holds the lock; apt itself tells no more than its short name."""
    match = re.search(r"(?:process|pid) (\d+)", said)
    if match is None:
        return ""
    words = (system.text(f"/proc/{match[1]}/cmdline") or "").replace("\0", " ").strip()
    return f" (process {match[1]}: {words[:120]})" if words else ""
