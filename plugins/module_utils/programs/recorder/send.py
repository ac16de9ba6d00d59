# SPDX-License-Identifier: GPL-3.0-or-later
"""gb10-recorder-send: a small sample each second, and the kernel's log, to the host that keeps them.

nvidia-smi and journalctl run all the time, for to start them each second would cost more than all else here. What
cannot be sent waits, up to a bound; the oldest goes first. Each line proves the secret that these two hosts have and no
third one. So does the keeper, before it hears one, and each time that it has kept one: any user may listen at a port
that is free.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ansible_collections.gb10.fleet.plugins.module_utils.reading import gpu, kernel_log, memory
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import System
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import Unknown

from ..vllm_unit.seal import Seal, read_secret

CONFIG = "/etc/gb10-fleet/recorder.json"
KEY = "/etc/gb10-fleet/recorder.key"
EVERY_S = 1.0
AGAIN_S = 2.0
PATIENCE_S = 5.0  # of a write, of the opening, and until a line is kept
UNHEARD_S = 10.0  # so long the peer's kernel may confirm nothing: a host that lost its power says no goodbye
SHARES = 32  # of what a host may send: one for each topic of the kernel
MOST_WAITING = 900  # lines: a quarter of an hour of samples
MOST_OF_A_TOPIC = 20  # beside them
LONGEST_TEXT = 400  # characters of a line of the kernel
LONGEST_LINE = 4096  # bytes, of either side
LARGEST_TEXT = 2400  # bytes of it as JSON, where an odd character takes up to 12; the keeper takes 4096 of a whole line
_FIGURES = ("clock_mhz", "power_w", "temperature_c", "utilization_percent")
GPU_FIELDS = (*(gpu.NUMBERS[name][0] for name in _FIGURES), gpu.REASON_BITS)
GPU = (*gpu.argv(GPU_FIELDS), "--loop-ms=1000")
KERNEL = ("journalctl", "--dmesg", "--follow", "--lines=0", "--output=short-unix", "--no-pager", "--quiet")
KEPT = {"kept": True}  # what the keeper says of each line
_KERNEL = re.compile(r"(\d+\.\d+) \S+ kernel: (.*)")
_MEMORY = {"MemAvailable": "available_kib", "CmaTotal": "cma_total_kib", "CmaFree": "cma_free_kib"}


class Budget:
    """Bytes that may be sent: so many a second, and for a moment some more."""

    def __init__(self, bytes_per_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = bytes_per_s, clock
        self._left, self._seen = bytes_per_s * 4, clock()

    def take(self, size: int) -> bool:
        now = self._clock()
        self._left = min(self._rate * 4, self._left + (now - self._seen) * self._rate)
        self._seen = now
        fits = size <= self._left
        self._left -= size if fits else 0
        return fits

    def share(self) -> Budget:
        return Budget(self._rate / SHARES, self._clock)


class Outbox:
    """Lines that wait to be sent, within the budget. A sample always finds room; a flood of the kernel does not.

    A login can make one, such as by a limit of its own. So each topic has a share besides, and room of its own.
    """

    def __init__(self, budget: Budget) -> None:
        self._waiting: dict[kernel_log.Topic | str, collections.deque[tuple[int, dict[str, Any]]]] = {}
        self._numbers = itertools.count()
        self._budget, self._dropped = budget, 0
        self._shares: dict[kernel_log.Topic, Budget] = collections.defaultdict(budget.share)
        self._there = threading.Condition()

    def put(self, line: dict[str, Any]) -> None:
        size, text = len(json.dumps(line)) + 70, str(line.get("text", ""))
        topic = kernel_log.topic(text)
        with self._there:
            fits = self._budget.take(size) or not text
            if not fits and not (topic and self._shares[topic].take(size)):
                self._dropped += 1
                return
            most = MOST_OF_A_TOPIC if topic else MOST_WAITING
            room = topic or ("other lines" if text else "samples")
            queue = self._waiting.setdefault(room, collections.deque(maxlen=most))
            queue.append((next(self._numbers), {**line, "dropped": self._dropped} if self._dropped else line))
            self._there.notify()

    def first(self, seconds: float) -> dict[str, Any] | None:
        """The oldest one; it stays until `sent`."""
        with self._there:
            self._there.wait_for(lambda: any(self._waiting.values()), seconds)
            return min((queue[0] for queue in self._waiting.values() if queue), default=(0, None))[1]

    def sent(self, line: dict[str, Any]) -> None:
        with self._there:
            for queue in self._waiting.values():
                if queue and queue[0][1] is line:
                    queue.popleft()


class Peer(NamedTuple):
    host: str
    address: str
    port: int


def sample(root: Path, line: str, now_s: float) -> dict[str, Any]:
    """One second of this host. What cannot be read is not in it."""
    found: dict[str, Any] = {"at_s": round(now_s, 2)}
    cells = gpu.row(line, GPU_FIELDS)
    if cells:
        values, _reasons = gpu.values(cells)
        found.update({name: values[name] for name in _FIGURES if values[name] is not None})
        found["reasons"] = cells[gpu.REASON_BITS].strip()[:20]
    host = HostReader(system=System(root))
    bytes_of = memory.lines(host.system)
    found.update({name: bytes_of[line] // 1024 for line, name in _MEMORY.items() if line in bytes_of})
    with contextlib.suppress(Unknown, KeyError):
        found["pressure_percent"] = memory.read_pressure(host, "memory")["some"]["avg10"]
    return found


def kernel_line(text: str) -> dict[str, Any] | None:
    """A line of the kernel's log, as journalctl shows it."""
    found = _KERNEL.match(text)
    return {"at_s": round(float(found[1]), 3), "text": _cut(found[2][:LONGEST_TEXT])} if found else None


def _cut(text: str) -> str:
    if len(json.dumps(text)) <= LARGEST_TEXT:
        return text
    sizes = itertools.accumulate(len(json.dumps(char)) - 2 for char in text)
    return text[: sum(size <= LARGEST_TEXT for size in sizes)]


def deliver(outbox: Outbox, peer: Peer, own: str, secret: bytes, going: Callable[[], bool]) -> None:
    """Send what waits, over one connection after the other."""
    while going():
        try:
            with socket.create_connection((peer.address, peer.port), PATIENCE_S) as connection:
                _deliver(outbox, connection, own, secret, going)
        except (OSError, ValueError):
            pass  # what waits, waits
        _pause(AGAIN_S, going)


def _deliver(outbox: Outbox, connection: socket.socket, own: str, secret: bytes, going: Callable[[], bool]) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(UNHEARD_S * 1000))
    seal, call = Seal(secret, calls=True), Call(connection)
    until = time.monotonic() + PATIENCE_S
    call.say(seal.opening)
    if not seal.meet(call.hear(until) or b"") or seal.open(call.hear(until) or b"") != {"keeps": own}:
        raise ValueError("who answers is no keeper")
    call.say(seal.seal({"host": own}))
    while going():
        line = outbox.first(EVERY_S)
        if line is not None:
            call.say(seal.seal(line))
            if seal.open(call.hear(time.monotonic() + PATIENCE_S) or b"") != KEPT:
                raise ValueError("nobody says that it is kept")
            outbox.sent(line)


class Call:
    """One connection, with a limit for each line, however slowly it comes or goes."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._held = connection, b""

    def say(self, data: bytes) -> None:
        self._connection.settimeout(PATIENCE_S)
        self._connection.sendall(data)

    def hear(self, until: float) -> bytes | None:
        """The next line; None after the last one, one that is too long, and one that does not come in time."""
        while b"\n" not in self._held:
            left = until - time.monotonic()
            if left <= 0 or len(self._held) >= LONGEST_LINE:
                return None
            self._connection.settimeout(left)
            chunk = self._connection.recv(LONGEST_LINE)
            if not chunk:
                return None
            self._held += chunk
        line, __, self._held = self._held.partition(b"\n")
        return line if len(line) < LONGEST_LINE else None


def _pause(seconds: float, going: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while going() and time.monotonic() < until:
        time.sleep(0.2)


class Follower:
    """A program that says a line now and then; started anew where it ends."""

    def __init__(self, argv: Sequence[str], hear: Callable[[str], None]) -> None:
        self._argv, self._hear = list(argv), hear
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            with contextlib.suppress(OSError):
                child = subprocess.Popen(  # pylint: disable=ansible-bad-function
                    self._argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
                )
                for line in child.stdout or ():
                    self._hear(line.decode("utf-8", "replace").rstrip("\n"))
                child.wait()
            self._hear("")
            time.sleep(30)


def main() -> int:
    config = json.loads(Path(CONFIG).read_text(encoding="utf-8"))
    secret = read_secret(KEY)
    if not secret:
        sys.stderr.write(f"gb10-recorder: {KEY} has no key of 32 characters or more; run site.yml\n")
        return 1
    outbox = Outbox(Budget(config["bytes_per_s"]))
    latest = {"gpu": "", "heard": 0.0}

    def hear_gpu(line: str) -> None:
        latest.update(gpu=line, heard=time.monotonic())

    def hear_kernel(text: str) -> None:
        line = kernel_line(text)
        if line:
            outbox.put(line)

    Follower(GPU, hear_gpu)
    Follower(KERNEL, hear_kernel)
    peer = Peer(**config["to"])
    without_end = (outbox, peer, config["host"], secret, lambda: True)
    threading.Thread(target=deliver, args=without_end, daemon=True).start()
    root = Path("/")
    while True:
        fresh = time.monotonic() - float(latest["heard"]) < 3 * EVERY_S  # type: ignore[arg-type]
        outbox.put(sample(root, str(latest["gpu"]) if fresh else "", time.time()))
        time.sleep(EVERY_S)


if __name__ == "__main__":
    raise SystemExit(main())
