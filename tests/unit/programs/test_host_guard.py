"""The guard of a host: what is a wedge and what a spike, the reason before the reboot, and no reboot for ever."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.programs import host_guard
from ansible_collections.gb10.fleet.plugins.module_utils.programs.host_guard import (
    LAST,
    PRESSURE,
    REASON,
    REBOOT,
    REPORT,
    STATE,
    Rules,
    World,
    may_arm,
    watch,
)

RULES = Rules(full_percent=10, sustained_s=300, every_s=30, per_day=2)
BOOT = "boot-1"


class Host:
    """A host whose pressure goes through a series, a look each; it ends with the series."""

    def __init__(self, root: Path, series: list[float | None]) -> None:
        self.root, self.series, self.at_s = root, iter(series), 0.0
        self.told: list[str] = []
        self.said: list[str] = []
        for name in (STATE, "/proc/pressure", "/proc/sys/kernel/random", "/run/gb10-fleet"):
            (root / name.lstrip("/")).mkdir(parents=True, exist_ok=True)
        (root / "proc/sys/kernel/random/boot_id").write_text(f"{BOOT}\n")
        self.next()

    def next(self) -> bool:
        try:
            full = next(self.series)
        except StopIteration:
            return False
        text = "" if full is None else f"full avg10={full:.2f} avg60=0.00 avg300=0.00 total=1\n"
        (self.root / PRESSURE.lstrip("/")).write_text(text)
        return True

    def wait(self, seconds: float) -> bool:
        self.at_s += seconds
        return not self.next() or "WATCHDOG=trigger" in self.told

    def guard(self, mode: str = REBOOT) -> list[str]:
        watch(
            mode, RULES, World(self.root, self.told.append, self.wait, lambda: self.at_s, lambda: 1e9, self.said.append)
        )
        return self.told

    def kept(self, name: str = REASON) -> Any:
        path = self.root / STATE.lstrip("/") / name
        return json.loads(path.read_text()) if path.exists() else None


# What owners read: a wedge that dipped once, and healthy spikes of two minutes (blackbox, 2026-09-22 to 10-02).
WEDGE: list[float | None] = [0.0, 0.08, 19.28, 92.42, *[95.0] * 5, 48.8, *[98.0] * 10]
SPIKES: list[float | None] = [0.0, *[98.53] * 4, 0.3, *[97.0] * 4, 2.0, *[60.0] * 9, 0.0, 0.0]


def test_a_wedge_ends_in_a_reboot_with_its_reason_on_the_disk(tmp_path: Path) -> None:
    host = Host(tmp_path, WEDGE)
    assert host.guard()[-1] == "WATCHDOG=trigger" and host.told[0] == "READY=1"
    assert host.at_s == 30 * 13, "12 looks of a wedge after two healthy ones: 300 s, then the next"
    kept = host.kept()
    assert (kept["found"], kept["reboots"], kept["full_percent"]) == ("wedged", True, 98.0)
    Host(tmp_path, [0.0]).guard()
    assert host.kept() is not None, "the same boot: it may still come"
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("boot-2\n")


def test_after_the_reboot_the_reason_is_history(tmp_path: Path) -> None:
    host = Host(tmp_path, [0.0])
    (tmp_path / STATE.lstrip("/") / REASON).write_text(json.dumps({"boot": "boot-0", "found": "wedged"}))
    host.guard()
    assert host.kept() is None and host.kept(LAST) == {"boot": "boot-0", "found": "wedged"}


def test_the_reason_of_the_last_reboot_of_a_day_is_history_too(tmp_path: Path) -> None:
    """After it the guard is not armed, and its reason is read all the same."""
    host = Host(tmp_path, WEDGE)
    for _ in range(RULES.per_day):
        assert may_arm(tmp_path, RULES, 1000)
    (tmp_path / STATE.lstrip("/") / REASON).write_text(json.dumps({"boot": "boot-0", "found": "wedged"}))
    assert not may_arm(tmp_path, RULES, 2000)
    assert host.kept() is None and host.kept(LAST) == {"boot": "boot-0", "found": "wedged"}


@pytest.mark.parametrize(
    ("series", "mode"), [(SPIKES, REBOOT), (WEDGE, REPORT), ([None, *[0.0] * 20], REBOOT), ([5.0] * 40, REBOOT)]
)
def test_what_is_no_wedge_or_is_only_reported_reboots_nothing(
    tmp_path: Path, series: list[float | None], mode: str
) -> None:
    host = Host(tmp_path, series)
    assert set(host.guard(mode)) == {"READY=1", "WATCHDOG=1"}
    assert any("300 s" in line for line in host.said) == (mode == REPORT)


def test_a_spike_leaves_no_reason(tmp_path: Path) -> None:
    host = Host(tmp_path, SPIKES)
    host.guard()
    assert host.kept() is None and host.said[-1] == "the host comes to work again"


@pytest.fixture
def run_at_work(tmp_path: Path) -> Iterator[None]:
    lock = tmp_path / "run/gb10-fleet/lock"
    lock.parent.mkdir(parents=True)
    lock.write_text(json.dumps({"run": "site of ops", "since": "x", "pid": 1, "boot": BOOT}))
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


@pytest.mark.usefixtures("run_at_work")
def test_a_host_that_a_run_changes_is_left_alone(tmp_path: Path) -> None:
    host = Host(tmp_path, WEDGE)
    assert "WATCHDOG=trigger" not in host.guard()
    assert any("left alone while the run site of ops changes this host" in line for line in host.said)


def test_the_reboots_of_a_day_are_counted_and_a_stop_in_good_order_costs_none(tmp_path: Path) -> None:
    host = Host(tmp_path, [0.0])
    assert may_arm(tmp_path, RULES, 1000)
    host.guard()  # ends in good order
    assert may_arm(tmp_path, RULES, 2000) and may_arm(tmp_path, RULES, 3000)
    assert not may_arm(tmp_path, RULES, 4000), "two that did not end in good order"
    assert may_arm(tmp_path, RULES, 3000 + host_guard.DAY_S), "a day later"


def test_a_start_that_only_reports_changes_no_count(tmp_path: Path) -> None:
    host = Host(tmp_path, [0.0])
    assert may_arm(tmp_path, RULES, 1000)  # and then it rebooted
    host.guard(REPORT)
    assert host.kept("starts.json") == {"starts": [{"at_s": 1000, "ended": False}]}


def test_a_full_disk_is_no_failure_which_would_reboot_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(tmp_path, SPIKES)
    assert may_arm(tmp_path, RULES, 1000)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(host_guard, "_write", full)
    assert set(host.guard()) == {"READY=1", "WATCHDOG=1"}
    assert not may_arm(tmp_path, RULES._replace(per_day=1), 2000), "this start stays spent"


def test_a_systemd_that_does_not_listen_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    host_guard._tell("WATCHDOG=1")


@pytest.mark.parametrize(
    "content",
    [
        *("[", "[" * 100_000, "[1]", '{"starts": 5}', '{"starts": {"a": 1}}', '{"starts": [1, {}]}'),
        '{"starts": [{"at_s": "now", "ended": 0}]}',
    ],
)
def test_a_damaged_file_of_its_own_stops_nothing(tmp_path: Path, content: str) -> None:
    host = Host(tmp_path, [0.0])
    (tmp_path / STATE.lstrip("/") / "starts.json").write_text(content)
    assert may_arm(tmp_path, RULES, 1000)
    host.guard()


# A stop comes again and again, wherever the guard is then. A lock that its handler wants hangs within a moment.
STOPPED = """
import os, signal, sys, threading, time
from pathlib import Path
from ansible_collections.gb10.fleet.plugins.module_utils.programs import host_guard
host_guard.CONFIG = sys.argv[1]
heard = []
def watch(mode, rules, world):
    main = threading.get_ident()
    over = time.monotonic() + 1.0
    def strike():
        while time.monotonic() < over:
            signal.pthread_kill(main, signal.SIGTERM)
            time.sleep(0.0002)
    threading.Thread(target=strike, daemon=True).start()
    while time.monotonic() < over:
        heard.append(world.wait(0.00001))
    assert world.wait(5) or any(heard)
host_guard.watch = watch
print(host_guard.main(), any(heard))
"""


def test_a_stop_may_come_at_any_moment(tmp_path: Path) -> None:
    """One that hung would be killed by systemd, and would count as a reboot by this guard."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"mode": REPORT, "rules": RULES._asdict()}))
    argv = [sys.executable, "-c", STOPPED, str(config)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    assert done.stdout == "0 True\n", done.stderr
