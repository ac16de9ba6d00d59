"""A gate: a named check with a time, a count, and a log that is shown only when it fails.

`make check` and `make test` are lists of gates; this file runs such a list and sums it up.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / ".work"  # logs and caches of the gates
BIN = Path(sys.executable).parent  # of the virtual environment that runs this
CI = os.environ.get("GB10_CI") == "true"

# "12 passed, 1 failed, 2 skipped in 3.21s", with or without the frame of equal signs, or a margin of molecule's
_PYTEST_SUMMARY = re.compile(r"^[^\w\n]*((?:\d+ \w+(?:, )?)+) in [\d.]+s", re.MULTILINE)
_PYTEST_SKIP = re.compile(r"^[^\w\n]*SKIPPED \[\d+\] (.+)$", re.MULTILINE)
_FAILED_TEST = re.compile(r"(FAILED|ERROR) \S+::\S+")  # of pytest's short summary
_PROGRESS = re.compile(r"[.sxFEX]+ +\[ *\d+%\]$")  # pytest's dots
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
# Some machines forbid Python to keep its bytecode. Then each process of a gate compiles our files anew, and a run has
# thousands of processes: a lab command needs 0.55 CPU seconds instead of 0.12.
_NOT_HANDED_ON = ("PYTHONDONTWRITEBYTECODE",)


class GateFailed(Exception):
    """The gate says no; the text says why."""


@dataclass
class Gate:
    """One check: `work` runs commands through the gate and raises GateFailed."""

    name: str
    work: Callable[[Gate], None]
    minutes: float = 1.0  # about how long, for the list that is printed before the start
    live: bool = False  # pass the output through while it comes: for what takes minutes
    patient: bool = False  # nothing in it has a time limit: it may run beside machines that have one

    log: list[str] = field(default_factory=list)
    passed: int = 0
    failed: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0  # of its commands with all that they started and waited for: no containers, no machines
    skips: list[str] = field(default_factory=list)  # unexpected ones: a failure in continuous integration
    excused: list[str] = field(default_factory=list)  # what this machine cannot offer, and need not

    def run(
        self, *argv: str | Path, cwd: Path = ROOT, env: Mapping[str, str] | None = None, tests: bool = False
    ) -> str:
        """Run a command, keep its output, and fail with it. `tests` reads pytest's own count out of the output."""
        command = [str(word) for word in argv]
        self.say("$ " + " ".join(command))
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**_own_environment(), "PATH": f"{BIN}:{os.environ['PATH']}", **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        lines = []
        assert process.stdout is not None  # noqa: S101  we asked for a pipe
        for line in process.stdout:
            lines.append(line)
            self.say(line.rstrip("\n"))
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = code = os.waitstatus_to_exitcode(status)
        self.cpu_seconds += used.ru_utime + used.ru_stime
        output = "".join(lines)
        if tests:
            self._count(output)
        if code != 0:
            raise GateFailed(f"exit status {code}: {' '.join(command)}")
        return output

    def side_by_side(self, works: Sequence[Callable[[Gate], None]]) -> None:
        """Do these at the same time, each to its end; what one says stays together."""
        parts = [Gate(self.name, work) for work in works]
        with ThreadPoolExecutor(len(parts)) as pool:
            ends = [pool.submit(part.work, part) for part in parts]
        for part in parts:
            self.log += part.log
            self.skips += part.skips
            self.passed += part.passed
            self.failed += part.failed
            self.cpu_seconds += part.cpu_seconds
        for end in ends:
            end.result()

    def say(self, line: str) -> None:
        self.log.append(line)
        if self.live:
            print(f"   {self.name.partition(' ')[0]:>9} | {line}", flush=True)  # two lanes may speak at once

    def failed_tests(self) -> list[str]:
        return [line for line in self.log if _FAILED_TEST.match(line)][:20]

    def _count(self, output: str) -> None:
        output = _COLOUR.sub("", output)
        summaries = _PYTEST_SUMMARY.findall(output)
        if not summaries:
            raise GateFailed("the test run printed no summary")
        counts = Counter[str]()
        for number, word in re.findall(r"(\d+) (\w+)", "\n".join(summaries)):  # molecule has one for each scenario
            counts[word] += int(number)
        self.passed += counts["passed"]
        self.failed += counts["failed"] + counts["error"] + counts["errors"]
        self.skips += _PYTEST_SKIP.findall(output)
        if not self.passed and not self.failed and not self.skips:
            raise GateFailed("no test ran")


def _own_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _NOT_HANDED_ON}


def execute(gate: Gate) -> Gate:
    """Run one gate and print its one line of result (and its log, if it failed)."""
    started = time.monotonic()
    if gate.live:
        print(f"-- {gate.name}: about {gate.minutes:.0f} min", flush=True)
    reason = ""
    try:
        gate.work(gate)
        if CI and gate.skips:
            raise GateFailed("skipped, and nothing excuses it here: " + "; ".join(gate.skips))
    except GateFailed as error:
        reason = str(error)
        gate.failed = gate.failed or 1
    except Exception as error:  # a gate that breaks is a gate that fails; the others still get their turn
        reason = f"{type(error).__name__}: {error}"
        gate.failed = gate.failed or 1
    gate.seconds = time.monotonic() - started
    if not gate.failed and not gate.passed and not gate.skips and not gate.excused:
        gate.passed = 1
    word = "FAIL" if gate.failed else "ok" if gate.passed else "SKIPPED"
    count = f"  {gate.passed} passed" if gate.passed > 1 else ""
    lines = [f"{word:7} {gate.name:<46} {gate.seconds:6.1f} s {gate.cpu_seconds:6.1f} CPU s{count}"]
    WORK.mkdir(exist_ok=True)
    log = WORK / f"{re.sub(r'[^a-z0-9.]+', '-', gate.name.lower())}.log"
    log.write_text("\n".join(gate.log) + "\n", encoding="utf-8")
    if gate.failed:
        lines.append(f"    = {reason}")
        lines += [f"    = {line}" for line in gate.failed_tests()]
        told = [line for line in gate.log if not _PROGRESS.match(line)]
        lines += [] if gate.live else [f"    | {line}" for line in told[-80:]]
        lines.append(f"    = whole log: {log.relative_to(ROOT)}")
    print("\n".join(lines), flush=True)
    return gate


def run_all(gates: Sequence[Gate], workers: int) -> list[Gate]:
    """Run gates side by side, in the order given (put the long ones first)."""
    with ThreadPoolExecutor(max_workers=workers) as pool:
        return list(pool.map(execute, gates))


def summarise(gates: Sequence[Gate], started: float) -> int:
    """Print the closing lines; the last one is the plain count. Returns the exit status."""
    passed, failed = sum(gate.passed for gate in gates), sum(gate.failed for gate in gates)
    print()
    for gate in gates:
        for reason in [*gate.skips, *gate.excused]:
            print(f"SKIPPED: {gate.name}: {reason}")
    for gate in gates:
        if gate.failed:
            print("\n    ".join([f"FAILED:  {gate.name}", *gate.failed_tests()]))
    print(f"{'FAILED' if failed else 'PASSED'} in {time.monotonic() - started:.0f} s")
    count = f"{passed} passed, {failed} failed"
    WORK.mkdir(exist_ok=True)
    (WORK / "count").write_text(count + "\n", encoding="utf-8")
    print(count)
    return 1 if failed else 0
