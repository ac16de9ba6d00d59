# SPDX-License-Identifier: GPL-3.0-or-later
"""The boots that the journal knows, and whether each ended in good order.

A boot ended well when its journal says so near its end: journald stopped, or systemd reached its shutdown target. A
host that lost its power has neither, and may lack its last seconds besides: they never reached the disk.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.reading import journal
from ansible_collections.gb10.fleet.plugins.module_utils.reading import unit_names as units
from ansible_collections.gb10.fleet.plugins.module_utils.reading.journal import SHORT_BOOT
from ansible_collections.gb10.fleet.plugins.module_utils.reading.kernel_log import DEADLINE_S, JOURNAL
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import LATEST_S, Unknown, checked, quoted

Row = dict[str, Any]  # a boot with its whole `id`

MOST_BOOTS = 30
# journald is one of the last to stop; a mark that is older is of a journald that was restarted.
END_S = 120.0
STOPPED = "d93fb3c9c24d451a97cea615ce59c00b"  # MESSAGE_ID of "Journal stopped": sd-messages.h
SHUTDOWN = "shutdown.target"
# Any user may send a message with both fields; whose it is, journald says itself.
MARKS = (f"MESSAGE_ID={STOPPED}", "_UID=0", "+", f"UNIT={SHUTDOWN}", "_UID=0")
UNCLEAN_READ, LAST_LINES = 3, 6  # of so many unclean boots so many lines
_TIME = r"\w{3} (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC"
_ROW = re.compile(rf"^ *-?\d+ ([0-9a-f]{{32}}) {_TIME} *(?:—|-| ) *{_TIME}$", re.MULTILINE)


class Line(TypedDict):
    at_s: float
    text: str


class Boot(TypedDict):
    boot: str
    first_s: float
    last_s: float
    clean: bool | None
    last_lines: list[Line]


def read_boots(host: HostReader, boot_id: str | None) -> list[Boot]:
    """From the oldest to this one."""
    if not host.names("/var/log/journal"):
        raise Unknown("the journal is not kept over boots: there is no /var/log/journal")
    listing = ["journalctl", "--quiet", "--no-pager", "--utc", "--list-boots", "--output=json"]
    done = host.system.run(listing, timeout=DEADLINE_S)
    if done.rc:
        raise Unknown(f"journalctl --list-boots failed: {quoted(done.words)}")
    boots = parse_boots(done.stdout)[-MOST_BOOTS:]
    marks = host.system.run([*JOURNAL, *MARKS], timeout=DEADLINE_S)
    if marks.rc not in (0, 1):
        raise Unknown(f"journalctl failed: {quoted(marks.words)}")
    judged = judge(boots, marks.stdout, (boot_id or "").replace("-", "")[:SHORT_BOOT])
    for boot in [boot for boot in judged if boot["clean"] is False][-UNCLEAN_READ:]:
        boot["last_lines"] = _last_lines(host, boot["id"])
    found: list[Any] = [{key: value for key, value in boot.items() if key != "id"} for boot in judged]
    return found


def parse_boots(text: str) -> list[Row]:
    """From the oldest to the newest. JSON where journalctl gives it, else its table in UTC."""
    checked(text, "journalctl --list-boots")
    try:
        rows = json.loads(text)
        found = [(row["boot_id"], row["first_entry"] / 1e6, row["last_entry"] / 1e6) for row in rows]
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        found = [(row[0], _utc(row[1]), _utc(row[2])) for row in _ROW.findall(text)]
    boots = [
        {
            "id": str(name),
            "boot": str(name)[:SHORT_BOOT],
            "first_s": first,
            "last_s": last,
            "clean": None,
            "last_lines": [],
        }
        for name, first, last in found
        if re.match(r"[0-9a-f]{32}\Z", str(name)) and 0 <= first < LATEST_S and 0 <= last < LATEST_S
    ]
    if not boots:
        raise Unknown(f"journalctl --list-boots gave no boots: {quoted(text[:200])}")
    return boots  # in journalctl's order: one whose clock was dead begins in 1970


def _utc(text: str) -> float:
    import calendar
    import time

    return float(calendar.timegm(time.strptime(text, "%Y-%m-%d %H:%M:%S")))


def judge(boots: Sequence[Row], marks: str, current: str) -> list[Row]:
    """`clean` is None for the boot that runs."""
    ends = [(entry["boot"], entry["at_s"]) for entry in journal.lines(marks)]
    judged = []
    for boot in boots:
        near = any(name == boot["boot"] and boot["last_s"] - at_s <= END_S for name, at_s in ends)
        judged.append({**boot, "clean": None if boot["boot"] == current else near})
    return judged


def _last_lines(host: HostReader, boot_id: str) -> list[Line]:
    """What the kernel and the units of the services said last; others may have said what is nobody's business."""
    sources = [
        f"_BOOT_ID={boot_id}",
        "_TRANSPORT=kernel",
        "+",
        f"_BOOT_ID={boot_id}",
        *(f"_SYSTEMD_UNIT={unit}" for unit in units.names(host)),
    ]
    done = host.system.run([*JOURNAL, f"--lines={LAST_LINES}", *sources], timeout=DEADLINE_S)
    return [{"at_s": entry["at_s"], "text": quoted(entry["MESSAGE"])} for entry in journal.lines(done.stdout)]
