# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kernel and the units of the services wrote into the journal: lines that tell of a fault or of a change."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Optional

from ansible_collections.gb10.fleet.plugins.module_utils.reading import unit_names as units
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.service_failures import WAYS_OUT
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Completed
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import (
    LARGEST_TEXT,
    LATEST_S,
    Unknown,
    checked,
    quoted,
)

Event = dict[str, Any]  # {at_s, last_s, count, boot, kind, key, text}, and service for one of vllm_services
Line = tuple[float, str, str, Optional[str]]  # time, boot, message, and who says it, where the journal knows

DEADLINE_S = 20.0
MOST_LINES = 1500  # the newest of the kernel, and those of the units
SHORT_BOOT = 12  # characters of a boot id that are kept
# What a line tells. The first group is what it is about: equal ones in a row are one event. In the order of trial.
KINDS = (
    ("xid", r"NVRM: Xid \([^)]*\): (\d+)"),
    ("oom_kill", r"(?:Out of memory|Memory cgroup out of memory): Killed process \d+ \(([^)]*)\)"),
    ("driver_memory", r"NVRM: .*(NV_ERR_NO_MEMORY)"),
    ("pcie_error", r"(?:PCIe Bus Error: severity=|AER: )(Uncorrect\w*|Fatal)"),
    ("slot_power", r"(mlx5_core \S+): .*insufficient power on the PCIe slot"),
    ("hung_task", r"INFO: task ([\w/:.-]+) blocked for more than \d+ seconds"),
    ("panic", r"(Kernel panic|Internal error: Oops|BUG: soft lockup|watchdog: BUG)"),
    ("critical_temperature", r"(critical temperature reached|critical temperature \(\d+ C\))"),
    ("wifi_reset", r"(mt79\w+) .*(?:chip reset|driver own failed)"),
    ("kernel", r"\ALinux version (\S+)"),
    ("firmware", r"\ADMI: (.+, BIOS .+)"),
    ("driver", r"NVRM: loading NVIDIA UNIX .*?Kernel Module +(?:for \w+ +)?([\d.]+)"),
)
SERVICE = "service"
# Who says a line of a unit. What its container says is nobody's word: a client may have said it before.
UNIT, CONTAINER = "unit", "container"
OWN = "gb10-vllm: "  # as in vllm_unit/log.py, which lets no line of a container begin so; a test compares them
_SERVICE = re.compile(r"\Agb10-vllm(?:-([a-z0-9-]+))?: ([a-z_]+): ")
_UNIT = re.compile(r"(gb10-vllm-[a-z0-9-]+)\.service\Z")
_KINDS = tuple((kind, re.compile(pattern)) for kind, pattern in KINDS)
# journalctl's own search, so that a month of kernel messages stays on the host. \A is for Python alone.
GREP = "|".join(pattern.replace(r"\A", "^") for _kind, pattern in KINDS)
OWN_GREP = f"^{OWN}[a-z_]+: "
_DMESG = re.compile(r"^\[ *(\d{1,9}\.\d+)\] (.*)$", re.MULTILINE)
_FIELDS = "MESSAGE,_BOOT_ID,UNIT,MESSAGE_ID,_SYSTEMD_UNIT"
JOURNAL = ("journalctl", "--quiet", "--no-pager", "--output=json", f"--output-fields={_FIELDS}")


def read_events(host: HostReader, booted_s: float | None, since_s: float | None = None) -> list[Event]:
    """Of all boots from the journal; of this boot from the kernel's own buffer where there is no journal.

    Kernel and units are asked apart, and the units for their own lines alone: what a container logs, however much, must
    leave no line of the kernel out.
    """
    done = _asked(host, since_s, GREP, "_TRANSPORT=kernel")
    if done.stdout.strip() or (has_journal(host) and done.rc in (0, 1) and not done.stderr.strip()):
        own = _asked(host, since_s, OWN_GREP, *(f"_SYSTEMD_UNIT={unit}" for unit in units.names(host)))
        if own.rc not in (0, 1):
            raise Unknown(f"journalctl failed: {quoted(own.words)}")
        return parse_journal(done.stdout, own.stdout)
    buffer = host.system.run(["dmesg"], timeout=DEADLINE_S)
    if buffer.rc or booted_s is None:
        raise Unknown(
            f"neither journalctl ({quoted(done.words)}) nor dmesg ({quoted(buffer.words)}) gives a kernel log"
        )
    return parse_dmesg(buffer.stdout[-LARGEST_TEXT:], booted_s)


def _asked(host: HostReader, since_s: float | None, pattern: str, *sources: str) -> Completed:
    words = [*JOURNAL, f"--lines={MOST_LINES}", f"--grep={pattern}", "--case-sensitive=yes"]
    words += [] if since_s is None else [f"--since=@{since_s:.0f}"]
    return host.system.run([*words, *sources], timeout=DEADLINE_S)


def has_journal(host: HostReader) -> bool:
    return any(host.names(folder) for folder in ("/var/log/journal", "/run/log/journal"))


def lines(text: str) -> Iterator[dict[str, Any]]:
    """The entries of `journalctl --output=json` that are whole, each with `at_s` and MESSAGE as text.

    The line of one of vllm_services gets its unit's name in front. `speaker` is None of a line of no unit.
    """
    for line in text.splitlines():
        try:
            entry = json.loads(line)
            at_s = int(entry["__REALTIME_TIMESTAMP"]) / 1e6
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            continue
        if not 0 <= at_s < LATEST_S:
            continue
        message = entry.get("MESSAGE")
        if isinstance(message, list):  # bytes that are no UTF-8
            message = bytes(byte for byte in message if isinstance(byte, int) and 0 <= byte < 256).decode(
                "utf-8", "replace"
            )
        boot, text = str(entry.get("_BOOT_ID"))[:SHORT_BOOT], str(message or "")
        told = {"boot": boot, "MESSAGE": _of_unit(text, entry), "speaker": _speaker(text, entry)}
        yield {**entry, "at_s": at_s, **told}


def _speaker(message: str, entry: dict[str, Any]) -> str | None:
    if entry.get("_SYSTEMD_UNIT") is None:  # journald says whose a line is, and nobody else can
        return None
    return UNIT if message.startswith(OWN) else CONTAINER


def _of_unit(message: str, entry: dict[str, Any]) -> str:
    named = _UNIT.match(str(entry.get("_SYSTEMD_UNIT")))
    if not named:
        return message
    return f"{named[1]}: {message[len(OWN) :] if message.startswith(OWN) else message}"


def parse_journal(*texts: str) -> list[Event]:
    """Of several answers."""
    entries = [entry for text in texts for entry in _entries(text)]
    entries.sort(key=lambda entry: float(entry["at_s"]))
    return _events((entry["at_s"], entry["boot"], entry["MESSAGE"], entry["speaker"]) for entry in entries)


def _entries(text: str) -> list[dict[str, Any]]:
    """With --grep and --lines the newest comes first, so what is cut off is the oldest."""
    entries = list(lines(text[:LARGEST_TEXT]))
    if text.strip() and not entries:
        raise Unknown(f"journalctl gave no entries: {quoted(text[:200])}")
    return entries


def parse_dmesg(text: str, booted_s: float) -> list[Event]:
    found = _DMESG.findall(checked(text, "dmesg"))
    if not found:
        raise Unknown(f"dmesg gave no lines with a time: {quoted(text[:200])}")
    return _events((booted_s + float(seconds), "this boot", message, None) for seconds, message in found)


def _events(found: Iterator[Line]) -> list[Event]:
    """One event for each line that tells something; equal ones in a row of a boot are counted."""
    events: list[Event] = []
    for at_s, boot, message, speaker in found:
        told = _kind(message, speaker)
        if told is None:
            continue
        kind, key, name = told
        before = events[-1] if events else None
        if before and (before["boot"], before["kind"], before["key"], before.get("service")) == (boot, kind, key, name):
            before.update(last_s=at_s, count=before["count"] + 1)
        else:
            events.append(
                {
                    "at_s": at_s,
                    "last_s": at_s,
                    "count": 1,
                    "boot": boot,
                    "kind": kind,
                    "key": key,
                    "text": quoted(message),
                    **({"service": name} if name else {}),
                }
            )
    return events


def _kind(message: str, speaker: str | None) -> tuple[str, str, str | None] | None:
    """What it tells, what of, and by which of vllm_services. Of the kernel, what no unit says."""
    said = _SERVICE.match(message) if speaker != CONTAINER else None
    if said:
        return (SERVICE, said[2], said[1]) if said[2] in WAYS_OUT else None
    for kind, pattern in _KINDS if speaker is None else ():
        found = pattern.search(message)
        if found:
            return kind, quoted(found[1]), None
    return None
