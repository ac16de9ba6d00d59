"""A host below a temporary directory, with commands that answer from a script and a clock that never waits."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.engine.converge import converge
from ansible_collections.gb10.fleet.plugins.module_utils.engine.engine import Outcome, Run, parse_documents
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Clock, Completed, System

from tests.support.rooted import held, place

RUN = Run("somebody@controller 1 2026-11-21T05:00:00Z", "0.2.0")

Answer = str | Completed | Callable[[list[str], str | None], str | Completed]


class FakeClock(Clock):
    def __init__(self) -> None:
        self.time = 0.0
        self.at_sleep: Callable[[], None] = lambda: None

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        self.at_sleep()


class FakeHost:
    """`on(prefix, answer)` says what a command answers; the longest prefix wins, and an unexpected command fails."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = FakeClock()
        self.calls: list[list[str]] = []
        self.inputs: list[str | None] = []
        self.answers: dict[str, Answer] = {}
        # Whoever runs the tests is root of this host, so that no test needs to be root.
        self.file("/etc/passwd", f"root:x:{os.getuid()}:{os.getgid()}::/root:/bin/sh\n")
        self.file("/etc/group", f"root:x:{os.getgid()}:\n")
        for directory in ("/run", "/var/lib"):
            self.path(directory).mkdir(parents=True, exist_ok=True)

    def file(self, path: str, content: str, mode: int = 0o644) -> Path:
        target = place(self.root, path, follow=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
        target.chmod(mode)
        return target

    def path(self, path: str) -> Path:
        return place(self.root, path)

    def on(self, prefix: str, answer: Answer) -> None:
        self.answers[prefix] = answer

    def run(self, argv: Sequence[str], stdin: str | None, timeout: float) -> Completed:
        assert timeout > 0
        line = " ".join(argv)
        self.calls.append(list(argv))
        self.inputs.append(stdin)
        known = [prefix for prefix in self.answers if line.startswith(prefix)]
        assert known, f"unexpected command: {line}"
        answer = self.answers[max(known, key=len)]
        if callable(answer):
            answer = answer(list(argv), stdin)
        return answer if isinstance(answer, Completed) else Completed(tuple(argv), 0, answer)

    @property
    def system(self) -> System:
        return System(self.root, self.run, self.clock)

    def commands(self, prefix: str = "") -> list[str]:
        return [line for line in map(" ".join, self.calls) if line.startswith(prefix)]

    def converge(self, resources: list[dict[str, Any]], check_mode: bool = False, **consents: bool) -> Outcome:
        return converge(parse_documents([("demo", resources)], consents), self.system, RUN, check_mode=check_mode)

    def both(self, resources: list[dict[str, Any]], **consents: bool) -> Outcome:
        """Check mode first: it must touch nothing and foretell what the real run then changes."""
        before = self.digest()
        foretold = self.converge(resources, check_mode=True, **consents)
        assert self.digest() == before
        outcome = self.converge(resources, **consents)
        assert outcome.changes == foretold.changes
        assert outcome.pending == foretold.pending
        return outcome

    def digest(self) -> dict[str, tuple[int, bytes]]:
        """All files, without what the engine keeps for itself."""
        return {
            str(path.relative_to(self.root)): (path.lstat().st_mode, held(path))
            for path in sorted(self.root.rglob("*"))
            if "gb10-fleet" not in path.relative_to(self.root).parts[1:3]
        }


def failed(text: str, rc: int = 1) -> Completed:
    return Completed((), rc, stderr=text)


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


@pytest.fixture
def fail() -> Callable[..., Completed]:
    return failed
