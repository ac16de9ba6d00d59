# SPDX-License-Identifier: GPL-3.0-or-later
"""What others see of the unit: systemd, the journal, and readers of /run/gb10-vllm/status.json."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.system import saying
from ansible_collections.gb10.fleet.plugins.module_utils.system.service_failures import (
    LASTING,
    OUTSIDE,
    Failure,
    way_out,
)
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import document_in

# In the order of a life, which only goes forward.
PHASES = ("starting", "waiting", "formation", "weights", "graphs", "ready")
_OF_A_LOAD = ("starting", "formation", "weights", "graphs")  # all but the waiting for others
LAST_LOG = "last-log"  # beside the status: what the log said when the last life failed
LONGEST_TEXT = 300  # of a line in the status, and of what a peer says
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")


class Notify:
    """systemd's protocol for services of Type=notify, over the socket that it names in the environment."""

    def __init__(self, address: str) -> None:
        self.address = "\0" + address[1:] if address.startswith("@") else address

    def __call__(self, *lines: str) -> None:
        if self.address:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.sendto("\n".join(lines).encode(), self.address)


class Status:
    """What every login and `serving_probe` read: the phase, the seconds of each, and why the last life failed.

    It outlives the process, so that a verdict is still there when the next life has begun. `failures` counts lives in a
    row that ended before the model was ready, `faults` has the times of those that were the host's own; other settings
    begin anew.
    """

    def __init__(self, path: Path, notify: Notify, digest: str, unit: str = "gb10-vllm") -> None:
        self.path, self.notify, self.unit = path, notify, unit
        former = document_in(path)
        same = former.get("settings") == digest
        load_s = former.get("load_s")
        self.load_s: float | None = load_s if same and isinstance(load_s, (int, float)) else None
        self.attempt = _count(former.get("attempt")) + 1
        self.failures = _count(former.get("failures")) if same else 0
        self.faults = _times(former.get("faults")) if same else []
        self.failure: dict[str, Any] | None = former.get("failure") if same else None
        self.settings = digest
        self.phase, self.text = "", ""
        self.waiting: dict[str, str] | None = None
        self.phases: dict[str, float] = {}
        self.warm: dict[str, Any] | None = None  # how this start is, where a warm cache is wished
        self.remark: dict[str, str] | None = None  # what is not as it should be, though it runs
        self.entered = time.monotonic()

    def enter(self, phase: str, text: str) -> None:
        now = time.monotonic()
        if self.phase and phase != self.phase:
            self.phases[self.phase] = round(self.phases.get(self.phase, 0.0) + now - self.entered, 1)
        if phase != self.phase:
            self.entered, self.since = now, _utc()
        self.phase, self.text, self.waiting = phase, text, None
        if phase == "ready":
            self.failures = 0
            loads = [seconds for name, seconds in self.phases.items() if name in _OF_A_LOAD]
            self.load_s = round(sum(loads), 1)
        self.show()

    def wait(self, verdict: str, text: str) -> None:
        """What is missing; nothing has failed."""
        waiting = {"verdict": verdict, "text": text, "way_out": self.way_out(verdict)}
        if (self.phase, self.waiting) != ("waiting", waiting):
            self.enter("waiting", text)
            self.waiting = waiting
            self.show()

    def hold(self, failure: Failure) -> None:
        """It serves and gets no requests. Who reads failures sees it; no start has failed."""
        if not self.waiting or self.waiting["text"] != failure.text:
            self._keep(failure, [])
            self.wait(failure.verdict, failure.text)
            say(f"the gateway lets no request through: {failure}; {self.way_out(failure.verdict)}")

    def notice(self, remark: Failure) -> None:
        """It runs, and not as it could: no failure, and nothing to wait for."""
        self.remark = {"verdict": remark.verdict, "text": remark.text, "way_out": self.way_out(remark.verdict)}
        self.show()
        say(f"it runs, and not as it could: {remark}; {self.way_out(remark.verdict)}")

    def fail(self, failure: Failure, lines: Sequence[str]) -> None:
        self.failures += 1
        if failure.verdict not in OUTSIDE:
            self.faults.append(time.monotonic())
        self._keep(failure, lines)
        self.enter("failed", str(failure))

    def gives_up(self, most: int, within_s: float) -> bool:
        """Tell whether it has failed too often by itself; then forget it: whoever starts it next has mended it."""
        self.faults = [at for at in self.faults if time.monotonic() - at < within_s]
        spent = len(self.faults) >= most
        if spent:
            self.faults = []
        self.show()
        return spent

    def _keep(self, failure: Failure, lines: Sequence[str]) -> None:
        self.failure = {
            "verdict": failure.verdict,
            "text": failure.text,
            "way_out": self.way_out(failure.verdict),
            "lasting": failure.verdict in LASTING,
            "at": _utc(),
            "attempt": self.attempt,
        }
        if lines:
            self._keep_log(lines)

    def _keep_log(self, lines: Sequence[str]) -> None:
        """The log may quote a client, so only root reads it."""
        new = self.path.with_name(f".{LAST_LOG}.new")
        with contextlib.suppress(OSError):  # as below
            new.unlink(missing_ok=True)
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in lines)
            new.replace(self.path.with_name(LAST_LOG))

    def way_out(self, verdict: str) -> str:
        return way_out(verdict, self.unit)

    def stop(self) -> None:
        self.failures, self.faults = 0, []
        self.enter("stopped", "stopped in good order")

    def show(self) -> None:
        # A line of the container may be in it: a line break would be a message to systemd of its own.
        self.notify(f"STATUS={_UNPRINTABLE.sub('?', self.text)}")
        names = (
            "phase", "text", "since", "attempt", "failures", "faults", "phases", "waiting", "failure", "load_s",
            "settings", "warm", "remark",
        )  # fmt: skip
        text = json.dumps({name: getattr(self, name) for name in names}, ensure_ascii=False) + "\n"
        new = self.path.with_name(f".{self.path.name}.new")
        with contextlib.suppress(OSError):  # a full /run must not take the model down
            try:
                new.write_text(text, encoding="utf-8")
                new.chmod(0o644)
                new.replace(self.path)
            except OSError:  # no word is better than that of an earlier life
                self.path.unlink(missing_ok=True)


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value >= 0 else 0


def _times(value: Any) -> list[float]:
    return [float(at) for at in value if isinstance(at, (int, float))] if isinstance(value, list) else []


def _utc() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def say(text: str) -> None:
    saying.say(f"gb10-vllm: {text}")


def printable(value: Any) -> str:
    """What somebody else said, short and fit for a line of a log."""
    return _UNPRINTABLE.sub("?", str(value))[:LONGEST_TEXT]
