# SPDX-License-Identifier: GPL-3.0-or-later
"""A load of our own, by consent, while the host is read: a fault of the power supply shows under load only.

programs/gpu_load.py runs in a container of an image that is there, without a network, for some seconds. It never runs
beside a service that works, and ends where one begins to.
"""

from __future__ import annotations

import contextlib
import inspect
import queue
import secrets
import subprocess
import threading
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from ansible_collections.gb10.fleet.plugins.module_utils.programs import gpu_load
from ansible_collections.gb10.fleet.plugins.module_utils.reading import unit_names as units
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import document, quoted

NAME = "gb10-load"
GIB = 2**30
END_S = 30.0  # for Docker to remove the container
_RUNNING = "/run/systemd/units/invocation:"
_LONGEST_LINE, _MOST_LINES = 4096, 1000  # characters, and lines that wait to be read
_MOST = 2**53  # of a figure
_LATE = 124  # as timeout says it
_OPTIONS = (
    *("--rm", "--interactive", "--pull=never", "--network=none", "--gpus=all"),
    *("--read-only", "--tmpfs=/tmp", "--env=HOME=/tmp", "--cap-drop=ALL", "--security-opt=no-new-privileges"),
)
_ENDS = {
    gpu_load.NO_TORCH: "its Python has no torch",
    gpu_load.NO_GPU: "its torch sees no GPU",
    gpu_load.NO_MEMORY: "the GPU gave no memory",
    _LATE: "it was not ready in time",
}
Sample = Mapping[str, Any]


class Wish(NamedTuple):
    """`image`: of a service of this host, where none is named. `start_s`: till torch and its kernels are loaded."""

    image: str | None
    seconds: float
    size: int
    free_gib: float
    start_s: float
    idle_percent: float


class Load:
    """From `begin` to `end`; `state` is running, ended, refused or failed."""

    def __init__(self, host: HostReader, wish: Wish, docker: str = "docker") -> None:
        self._host, self._wish, self._docker = host, wish, docker
        self.state, self.reason, self.image = "refused", "", wish.image
        self.told: dict[str, Any] = {}
        self._process: subprocess.Popen[str] | None = None
        self._over = False
        # Of this run alone: at its end the container of that name is removed, and another's must not be.
        self._name = f"{NAME}-{secrets.token_hex(4)}"
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def begin(self, before: Sample) -> None:
        """Start it, and wait till the GPU is busy. `before`: how the host is without it."""
        self.image = self.image or own_image(self._host)
        self.reason = self._why_not(before) or ""
        if self.reason or self.image is None:
            return
        self.state = "failed"
        limit = f"{self._wish.start_s + 2 * self._wish.seconds:g}"  # its own end, should nobody be left to end it
        words = ["-k", "5", limit, "python3", "-", f"{self._wish.seconds:g}", str(self._wish.size)]
        argv = [self._docker, "run", f"--name={self._name}", *_OPTIONS, "--entrypoint=timeout", self.image, *words]
        try:
            self._process = subprocess.Popen(  # pylint: disable=ansible-bad-function
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
        except OSError as error:
            self.reason = f"{self._docker}: {error.strerror}"
            return
        threading.Thread(target=self._hear, args=(self._process,), daemon=True).start()
        with contextlib.suppress(OSError), self._process.stdin as program:  # type: ignore[union-attr]
            program.write(inspect.getsource(gpu_load))  # Ansible carries it in an archive
        self._await_busy()

    def _why_not(self, before: Sample) -> str | None:
        gpu, memory = before["gpu"] or {}, before["memory"] or {}
        if self.image is None:
            return "no service of this host has an image: name one with --image"
        if self.image.startswith("-"):
            return f"the image '{self.image}' begins with a dash, so Docker would read it as an option"
        if gpu.get("state") != "ok":
            return f"the GPU does not answer ({gpu.get('state')})"
        if gpu.get("utilization_percent") is None:
            return "the GPU does not say whether it works already: its utilization is unknown"
        if gpu["utilization_percent"] > self._wish.idle_percent:
            return f"the GPU works already, {gpu['utilization_percent']:.0f} % of the time"
        if (memory.get("available_bytes") or 0) < self._wish.free_gib * GIB:
            return f"less than {self._wish.free_gib:g} GiB of memory are available"
        return at_work(before) or self._silent(before) or self._absent()

    def _silent(self, before: Sample) -> str | None:
        """A service that is up and does not say what it does: it may load, or be none of vLLM."""
        told = before.get("servings", {units.SHORT: before["serving"]})
        for name in units.installed(self._host):
            up = self._host.path(f"{_RUNNING}{units.long_name(name)}.service").is_symlink()
            if up and not told.get(name):
                return f"{units.long_name(name)} is up and does not say whether it works"
        return None

    def _absent(self) -> str | None:
        done = self._host.system.run(
            [self._docker, "image", "inspect", "--format={{.Id}}", str(self.image)], timeout=END_S
        )
        return None if done.rc == 0 else f"the image {self.image} is not on this host: {quoted(done.words)}"

    def _hear(self, process: subprocess.Popen[str]) -> None:
        """Read all, and keep as much as our program says: the image may be anybody's."""
        said = iter(lambda: process.stdout.readline(_LONGEST_LINE) if process.stdout else "", "")
        for line in said:
            if self._lines.qsize() < _MOST_LINES:
                self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def _await_busy(self) -> None:
        until, said = time.monotonic() + self._wish.start_s, list[str]()
        while (line := self._next(until - time.monotonic())) is not None:
            if line == gpu_load.BUSY:
                self.state = "running"
                return
            said = [*said, line][-3:]
        late = time.monotonic() >= until
        self.end(at_once=True)
        self.state = "failed"
        known = _ENDS[_LATE] if late else _ENDS.get(self._process.returncode if self._process else _LATE)
        self.reason = known or quoted(" / ".join(said)) or "it ended without a word"

    def watch(self, sample: Sample) -> None:
        """A service that begins to work has the GPU for itself."""
        working = at_work(sample)
        if self.state == "running" and working:
            self.reason = f"it was ended early: {working}"
            self.end(at_once=True)

    def end(self, *, at_once: bool = False) -> None:
        """No container is left, whatever happened."""
        if self._process is None or self._over:
            return
        self._over = True
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0 if at_once else 2 * self._wish.seconds)
        self._host.system.run([self._docker, "rm", "--force", "--volumes", self._name], timeout=END_S)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        while (line := self._next(0 if at_once else 1.0)) is not None:
            if line.startswith(gpu_load.DONE):
                self.told = _figures(document(line[len(gpu_load.DONE) :]))
        if self.state == "running":
            self.state = "ended"

    def _next(self, seconds: float) -> str | None:
        """None after the last line, or where none comes in time."""
        try:
            return self._lines.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None

    def as_dict(self) -> dict[str, Any]:
        return {"state": self.state, "reason": self.reason or None, "image": self.image, "told": self.told}


def _figures(said: Mapping[str, Any]) -> dict[str, Any]:
    """Those that the program says, where they are figures."""
    kinds: dict[str, tuple[type, ...]] = {"products": (int,), "seconds": (int, float), "teraflops": (int, float)}
    found = {name: said[name] for name, kind in kinds.items() if type(said.get(name)) in kind}
    return {name: value for name, value in found.items() if 0 < value < _MOST}


def at_work(sample: Sample) -> str | None:
    """Return which service of the host has requests."""
    for name, counted in sample.get("servings", {units.SHORT: sample["serving"]}).items():
        if counted and (counted["running"] or counted["waiting"]):
            return f"requests run on {units.long_name(name)}"
    return None


def own_image(host: HostReader) -> str | None:
    """Of the first service that has one."""
    for name in units.installed(host):
        image = document(host.read(units.settings_of(name))).get("image")
        if isinstance(image, str) and image and not image.startswith("-"):
            return image
    return None
