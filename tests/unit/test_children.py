"""Children that are never left behind, and those that cannot be taken along."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.system import children
from ansible_collections.gb10.fleet.plugins.module_utils.system.children import Child, Children, StuckError


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float | None]]:
    """The first child hangs in the kernel: it was killed and cannot be reaped."""
    asked: list[float | None] = []
    real, hanging = subprocess.Popen.wait, list[Any]()

    def wait(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        if process.args[-1] != "hang":  # type: ignore[index]
            return real(process, timeout)
        asked.append(timeout)
        hanging.append(process)
        raise subprocess.TimeoutExpired("x", timeout or 0)

    monkeypatch.setattr(subprocess.Popen, "wait", wait)
    yield asked
    for process in {process.pid: process for process in hanging}.values():
        real(process)


def start(group: Children, word: str) -> Child:
    return group.start(["sh", "-c", "sleep 60; :", word])


def test_a_child_that_outlives_sigkill_is_not_waited_for(waits: list[float | None]) -> None:
    with (
        pytest.raises(StuckError, match=r"sh \(process \d+\) has not ended 5 s after it was killed: .* reboot"),
        Children() as group,
    ):
        start(group, "hang")
        other = start(group, "end")
    assert waits == [children.KILL_S]
    assert other.close() == -9, "the others are taken along all the same"


def test_what_went_wrong_first_is_what_is_said(waits: list[float | None]) -> None:
    with pytest.raises(KeyError), Children() as group:
        start(group, "hang")
        raise KeyError
    assert waits == [children.KILL_S]


def test_a_child_that_ends_is_reaped() -> None:
    with Children() as group:
        child: Any = start(group, "end")
    assert child.finished() and child.close() == -9
