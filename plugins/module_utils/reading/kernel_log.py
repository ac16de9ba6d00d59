# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kernel and the units of the services wrote into the journal: lines that tell of a fault or of a change."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Optional, TypedDict, TypeVar

from ansible_collections.gb10.fleet.plugins.module_utils.reading import running, stacked
from ansible_collections.gb10.fleet.plugins.module_utils.reading import unit_names as units
from ansible_collections.gb10.fleet.plugins.module_utils.reading.journal import (
    CONTAINER,
    GUARD,
    GUARDS,
    OWN,
    SHORT_BOOT,
    lines,
)
from ansible_collections.gb10.fleet.plugins.module_utils.reading.kernel_lines import (
    KINDS,
    RECOVERY,
    SHARE,
    XIDS_IN_WORDS,
)
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.service_failures import WAYS_OUT
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import (
    LARGEST_TEXT,
    Unknown,
    checked,
    quoted,
)

if TYPE_CHECKING:  # a host may have Python 3.9
    from typing import NotRequired

Topic = tuple[int, str]
_Item = TypeVar("_Item")
Line = tuple[float, str, str, Optional[str]]  # time, boot, message, and who says it, where the journal knows

DEADLINE_S = 20.0
MOST_LINES = 1500  # of an answer: the newest
MOST_QUESTIONS = 12
GAP_S = 3600.0  # equal lines that are further apart are two events
# Lines of a device, which journald marks with the device: nothing but a driver can write that field.
_OF_DEVICE = re.compile(r"(?:mlx5_core|pcieport) ")
SERVICE, SERVES = "service", "serves"  # a service failed, or its container began to serve
_SERVICE = re.compile(r"\Agb10-vllm(?:-([a-z0-9-]+))?: ([a-z_]+): ")
LISTENS = "the container listens: "  # as in vllm_unit/life.py; a test compares them
_LISTENS = re.compile(rf"\Agb10-vllm(?:-([a-z0-9-]+))?: {LISTENS}")
_KINDS = tuple((kind, re.compile(pattern)) for kind, pattern in KINDS)
# journalctl's own search, so that a month of kernel messages stays on the host. \A is for Python alone.
_GREPS = tuple(pattern.replace(r"\A", "^").replace(r"\Z", "$") for _kind, pattern in KINDS)
GREP = "|".join(_GREPS)
_GROUP = re.compile(r"(?<!\\)\((?!\?)")  # where the first group of a pattern begins
_PLAIN = re.compile(r"[!-~]{1,80}(?: [!-~]{1,40}){0,8}\Z")
# Kinds whose key is a name that somebody gave, such as to a program.
_NAMED = ("oom_kill", "oom_daemon", "hung_task", SHARE)
GUARD_GREP = "^(?:sending SIG(?:TERM|KILL) to process|Killed|Marked) "  # a unit's line begins without its name
OWN_GREP = f"^{OWN}(?:[a-z_]+: |{LISTENS})"
_DMESG = re.compile(r"^\[ *(\d{1,9}\.\d+)\](?:\[ *[CT]\d{1,7}\])? (.*)$", re.MULTILINE)
_FIELDS = "MESSAGE,_BOOT_ID,UNIT,MESSAGE_ID,_SYSTEMD_UNIT,_KERNEL_DEVICE,SYSLOG_IDENTIFIER"
JOURNAL = ("journalctl", "--quiet", "--no-pager", "--output=json", f"--output-fields={_FIELDS}")


class Event(TypedDict):
    at_s: float
    last_s: float
    count: int
    boot: str
    kind: str
    key: str
    text: str
    service: NotRequired[str]


def read_events(
    host: HostReader, booted_s: float | None, since_s: float | None = None, *, this_boot: bool = False
) -> list[Event]:
    """Of all boots from the journal; of this boot from the kernel's own buffer on a host that has no journal.

    `this_boot`: all of it, too, whatever the clock said at its beginning, when it may have been far behind.

    Kernel and units are asked apart, and the units for their own lines alone: what a container logs or a login makes,
    however much, must leave no fault out. For that the buffer is no second choice: the newest lines fill it.
    """
    if not has_journal(host):
        buffer = host.system.run(["dmesg"], timeout=DEADLINE_S)
        if buffer.rc or booted_s is None:
            raise Unknown(f"there is no journal, and dmesg gives no kernel log: {quoted(buffer.words)}")
        return stacked.of_this_host(host, parse_dmesg(buffer.stdout[-LARGEST_TEXT:], booted_s))
    answers = [
        *_of_kernel(host, since_s),
        _asked(host, since_s, OWN_GREP, *(f"_SYSTEMD_UNIT={unit}" for unit in units.names(host))),
        _asked(host, since_s, GUARD_GREP, *(f"_SYSTEMD_UNIT={unit}" for unit in GUARDS)),
        *(_of_kernel(host, None, "--boot") if this_boot else ()),
    ]
    boot = (running.read_boot_id(host) or "").replace("-", "")[:SHORT_BOOT]
    began = (boot, host.time_of_day() - host.system.clock.now())
    return stacked.of_this_host(host, parse_journal(*answers, began=began))


def _of_kernel(host: HostReader, since_s: float | None, *which: str) -> Iterator[str]:
    """Answers, until one is not full. What fills one is not asked for again: it takes the room of no other topic."""
    told: list[str] = []
    for __ in range(MOST_QUESTIONS):
        others = f"(?!{'|'.join(told)})" if told else ""
        text = _asked(host, since_s, f"^{others}(?:{GREP})", "_TRANSPORT=kernel", *which)
        yield text
        if text.count("\n") < MOST_LINES - 1 and len(text) <= LARGEST_TEXT:
            return
        topics = Counter(filter(None, (topic(entry["MESSAGE"]) for entry in _entries(text))))
        told += [_pattern(*each) for each, count in topics.items() if count >= sum(topics.values()) / len(topics) / 2]
    raise Unknown(f"the kernel's log fills {MOST_QUESTIONS} answers of {MOST_LINES} lines")


def _pattern(row: int, key: str) -> str:
    """Of the lines of a topic."""
    pattern = _GREPS[row]
    group = _GROUP.search(pattern)
    if not key or group is None:
        return pattern
    return f"{pattern[: group.start()]}(?={re.escape(key)}(?!\\d)){pattern[group.start() :]}"


def _asked(host: HostReader, since_s: float | None, pattern: str, *sources: str) -> str:
    """With 1 it ends where no line fits, and where it failed, which it says.

    A loss of power leaves a file that journald puts aside, and journalctl leaves it out from then on: no failure.
    """
    words = [*JOURNAL, f"--lines={MOST_LINES}", f"--grep={pattern}", "--case-sensitive=yes"]
    words += [] if since_s is None else [f"--since=@{since_s:.0f}"]
    done = host.system.run([*words, *sources], timeout=DEADLINE_S)
    said = [line for line in done.stderr.splitlines() if line.strip() and not line.endswith("ignoring file.")]
    if done.rc not in (0, 1) or (said and not done.stdout.strip()):
        raise Unknown(f"journalctl failed: {quoted(done.words)}")
    return done.stdout


def has_journal(host: HostReader) -> bool:
    return any(host.names(folder) for folder in ("/var/log/journal", "/run/log/journal"))


def parse_journal(*texts: str, began: tuple[str, float] | None = None) -> list[Event]:
    """Of several answers. `began`: the boot that runs, and when its own clock stood at 0, by the time of day of now.

    Somebody may set the time of day, and nobody that clock.
    """
    entries = list(_once(entry for text in texts for entry in _entries(text)))
    for entry in entries:
        steady = entry.get("__MONOTONIC_TIMESTAMP")
        if began and entry["boot"] == began[0] and isinstance(steady, str) and re.match(r"\d{1,18}\Z", steady):
            entry["at_s"] = began[1] + int(steady) / 1e6
    entries.sort(key=lambda entry: float(entry["at_s"]))
    marked = any("_KERNEL_DEVICE" in entry for entry in entries)
    entries = [entry for entry in entries if not marked or _of_its_device(entry)]
    return _events((entry["at_s"], entry["boot"], entry["MESSAGE"], entry["speaker"]) for entry in entries)


def _once(entries: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Each entry of the journal once, where several answers have it."""
    seen: set[str] = set()
    for entry in entries:
        cursor = entry.get("__CURSOR")
        if not isinstance(cursor, str) or cursor not in seen:
            yield entry
        if isinstance(cursor, str):
            seen.add(cursor)


def _of_its_device(entry: dict[str, Any]) -> bool:
    """Whether a line that begins with a device is of that device's driver. `entry`: of a journal that marks them."""
    return not _OF_DEVICE.match(entry["MESSAGE"]) or "_KERNEL_DEVICE" in entry


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
        same = before and (before["boot"], before["kind"], before["key"], before.get("service")) == (boot, *told)
        near = before and at_s - before["last_s"] <= GAP_S
        # What a GPU asks for, and whether a server answers, changes from one line to the next: the last one counts.
        turns = (kind, key) == ("xid", RECOVERY) or kind == SHARE
        if before and same and near and not (turns and before["text"] != quoted(message)):
            before["last_s"] = at_s
            before["count"] += 1
        else:
            text = quoted(message)
            events.append(
                {"at_s": at_s, "last_s": at_s, "count": 1, "boot": boot, "kind": kind, "key": key, "text": text}
            )
            if name:
                events[-1]["service"] = name
    return events


def topic(message: str) -> Topic | None:
    """What a line of the kernel is one of: the row of KINDS, and its key, where that is no name that somebody gave.

    Whoever makes the lines of one topic must take no room from another one.
    """
    for row, kind, found in _rows(message):
        return row, "" if kind in _NAMED or not _PLAIN.match(found[1]) else found[1]
    return None


def newest(lines: Sequence[_Item], topic_of: Callable[[_Item], Any], most: int, **more: int) -> list[_Item]:
    """Return the last `most` of each topic, in their order; `more` says it of some topics."""
    left: dict[Any, int] = defaultdict(lambda: most, more)
    kept = []
    for line in reversed(lines):
        told = topic_of(line)
        left[told] -= 1
        if left[told] >= 0:
            kept.append(line)
    return kept[::-1]


def _rows(message: str) -> Iterator[tuple[int, str, re.Match[str]]]:
    """The rows of KINDS that a line fits, in the order of trial."""
    for row, (kind, pattern) in enumerate(_KINDS):
        found = pattern.search(message)
        if found:
            yield row, kind, found


def _kind(message: str, speaker: str | None) -> tuple[str, str, str | None] | None:
    """What it tells, what of, and by which of vllm_services. Of the kernel, what no unit says."""
    if speaker != CONTAINER and (listens := _LISTENS.match(message)):
        return SERVES, "", listens[1]
    said = _SERVICE.match(message) if speaker != CONTAINER else None
    if said:
        return (SERVICE, said[2], said[1]) if said[2] in WAYS_OUT else None
    if speaker in (None, GUARD):
        for _row, kind, found in _rows(message):
            if speaker is None or kind == "oom_daemon":
                return kind, quoted(XIDS_IN_WORDS.get(found[1], found[1])), None
    return None


def kinds_of(text: str) -> set[str]:
    """What the lines of a kernel's log tell."""
    told = (_kind(line, None) for line in text.split("\n"))  # a login's control group may have U+2028 in its name
    return {each[0] for each in told if each}
