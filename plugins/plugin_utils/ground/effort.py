# SPDX-License-Identifier: GPL-3.0-or-later
"""How long something may be worked on or waited for, and with how much memory, where a stranger has a say in it."""

from __future__ import annotations

import contextlib
import json
import queue
import resource
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

MEMORY_LIMIT = 256 * 2**20  # bytes; Ansible keeps an answer several times over
FILES_LIMIT = 1024 * 2**20  # bytes, for all files of somebody else that a command reads; a thousand hosts take half
DIFF_LIMIT = 2**22  # lines before times lines after, some seconds; the longest file of ours has 1,741
WORK_LIMIT_S = 30.0  # of computing for what one host says; a real answer takes less than one
_Item = TypeVar("_Item")
_Found = TypeVar("_Found")


class TooMuch(Exception):
    """More was sent or worked on than may be; the text says what."""


def too_much(stream: str, limit: int) -> str:
    return f"it wrote more than {limit / 2**20:g} MiB to {stream}, and was not read to the end"


@contextlib.contextmanager
def memory(limit: int | None = None, text: str = "") -> Iterator[None]:
    """What runs within may take so many bytes more than now, MEMORY_LIMIT by default; TooMuch where it wants more.

    `text` is for what is no answer. Only what is written to counts, so a proxy command that reserves address space runs
    all the same.
    """
    limit = limit or MEMORY_LIMIT
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    taken = _taken()
    if taken is None:
        yield
        return
    own = taken + limit if soft == resource.RLIM_INFINITY else min(soft, taken + limit)
    resource.setrlimit(resource.RLIMIT_DATA, (own, hard))
    try:
        yield
    except MemoryError:
        raise TooMuch(text or too_much("standard output or error", limit)) from None
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def files() -> contextlib.AbstractContextManager[None]:
    """What somebody may have handed over is read and shown within: a bound of each file is none of their sum."""
    return memory(FILES_LIMIT, f"what it says takes more than {FILES_LIMIT // 2**20} MiB of memory, and was left")


@contextlib.contextmanager
def work(limit_s: float | None = None) -> Iterator[None]:
    """What runs within may compute for so long, WORK_LIMIT_S by default; TooMuch where it wants more.

    Only what is computed counts, so a slow machine or a wait is no fault of the host. None stands within another one.
    In a thread nothing is counted, for a signal reaches the main one alone.
    """
    limit_s = limit_s or WORK_LIMIT_S
    text = f"what it says takes more than {limit_s:g} s of computing, and was left"
    with _timed(signal.SIGPROF, signal.ITIMER_PROF, limit_s, text):
        yield


@contextlib.contextmanager
def wait(limit_s: float) -> Iterator[None]:
    """What runs within may last so long, waits counted; TooMuch where it wants more.

    In the main thread alone, as `work`. Not within a task of Ansible that has a timeout: both set one clock.
    """
    with _timed(signal.SIGALRM, signal.ITIMER_REAL, limit_s, "it came to no end in time"):
        yield


def at_once(do: Callable[[_Item], _Found], items: Sequence[_Item], most: int) -> list[_Found]:
    """What each of these comes to, so many at a time. The first error is the caller's, and so is the end of `wait`.

    Then nobody waits for the other threads: one may wait for a stranger for ever, and Python for all but daemons.
    """
    left = deque(enumerate(items))
    said: queue.SimpleQueue[tuple[int, Any, BaseException | None]] = queue.SimpleQueue()

    def go_on() -> None:
        with contextlib.suppress(IndexError):  # nothing is left
            while True:
                number, item = left.popleft()
                said.put(_tried(do, number, item))

    for __ in range(min(most, len(items))):
        threading.Thread(target=go_on, daemon=True).start()
    found: dict[int, _Found] = {}
    try:
        while len(found) < len(items):
            number, one, error = said.get()
            if error:
                raise error
            found[number] = one
    finally:
        left.clear()
    return [found[number] for number in range(len(items))]


def _tried(do: Callable[[_Item], _Found], number: int, item: _Item) -> tuple[int, _Found | None, BaseException | None]:
    try:
        return number, do(item), None
    except BaseException as error:  # whoever waits for it raises it
        return number, None, error


@contextlib.contextmanager
def _timed(number: signal.Signals, timer: int, limit_s: float, text: str) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        raise TooMuch(text)

    before = signal.signal(number, end)
    signal.setitimer(timer, limit_s, 1)  # again, should somebody within take it for an error of his
    try:
        yield
    finally:
        signal.setitimer(timer, 0)
        signal.signal(number, before)


def _taken() -> int | None:
    """Bytes of data of this process; None where the system is no Linux."""
    try:
        rows = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return int(rows["VmData"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None


def quick(diff: Any) -> Any:
    """The diff of a task. Ansible compares each line before with those after, in its main process: all hosts wait."""
    parts = [part for part in (diff if isinstance(diff, list) else [diff]) if isinstance(part, Mapping)]
    lines = [[_lines(part.get(side)) for side in ("before", "after")] for part in parts]
    if sum(before * after for before, after in lines) <= DIFF_LIMIT:
        return diff
    return [{"prepared": f"a diff of {sum(map(sum, lines))} lines is not shown: it would take minutes\n"}]


def _lines(text: object) -> int:
    return len((text if isinstance(text, str) else json.dumps(text, indent=0, default=str)).splitlines())
