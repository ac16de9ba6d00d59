"""The timer of `gb10 layout --at` under a real systemd: its switch runs, and the proof also where the switch failed."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gb10_fleet import layout_timer
from gb10_fleet.layout_timer import NEVER, Timer
from tests.fleet.fleet import Fleet

pytestmark = pytest.mark.lab

UNITS = "/etc/systemd/system"
FOLDER, PROGRAM, SAID = Path("/opt/a place"), "/opt/a place/gb10", "/run/gb10-layout-said"
# In gb10's place: it says where it is and what it was told, and a switch fails.
STAND_IN = f"""#!/bin/sh
echo "$PWD: $@" >>{SAID}
test "$1" != layout
"""
SECONDS = "[Timer]\nAccuracySec=1s\n"  # systemd puts timers of one minute together otherwise
WAIT_S = 60


class Controller:
    """A container as the machine with the inventory. Its units are the files of a folder here."""

    def __init__(self, fleet: Fleet, folder: Path) -> None:
        self._fleet, self._host, self.folder = fleet, fleet.hosts[0], folder
        self._sent: set[str] = set()

    def __call__(self, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        units = {path.name: path.read_text() for path in self.folder.glob("*")}
        gone = [f"rm -f {UNITS}/{shlex.quote(name)}" for name in self._sent - set(units)]
        there = [f"printf %s {shlex.quote(text)} >{UNITS}/{shlex.quote(name)}" for name, text in units.items()]
        self._sent = set(units)
        return subprocess.CompletedProcess(argv, 0, self.shell("\n".join([*gone, *there, shlex.join(argv)])), "")

    def shell(self, script: str) -> str:
        return self._fleet.shell(self._host, script)

    def put(self, timer: Timer) -> str:
        return layout_timer.put(timer, [], self.folder, ["systemctl"], self)


@pytest.fixture
def controller(fleet: Fleet, tmp_path: Path) -> Iterator[Controller]:
    made = Controller(fleet, tmp_path)
    drop_in = f"{UNITS}/gb10-layout-split.timer.d"
    made.shell(
        f"mkdir -p {drop_in} {shlex.quote(str(FOLDER))}\n"
        f"printf %s {shlex.quote(SECONDS)} >{drop_in}/seconds.conf\n"
        f"printf %s {shlex.quote(STAND_IN)} >{shlex.quote(PROGRAM)}; chmod 755 {shlex.quote(PROGRAM)}"
    )
    yield made
    made.shell(f"rm -rf {drop_in} {shlex.quote(str(FOLDER))} {SAID}; systemctl daemon-reload")


def test_it_switches_at_its_time_proves_a_switch_that_failed_and_goes(controller: Controller) -> None:
    every = Timer("split", "*-*-* *:*:0/5", ("inventory/100%",), None, FOLDER, (PROGRAM,))
    assert "gb10-layout-split.timer" in controller.put(every)
    until = time.monotonic() + WAIT_S
    while len(said := controller.shell(f"cat {SAID} 2>/dev/null || true").splitlines()) < 4:
        assert time.monotonic() < until, said
        time.sleep(1)
    inventory = f"-i {FOLDER}/inventory/100%"
    switch, proof = f"layout split --yes --by-timer {inventory}", f"validate {inventory}"
    assert said[:4] == [f"{FOLDER}: {each}" for each in (switch, proof) * 2], "a failed switch does not end the timer"

    assert controller.put(Timer("split", NEVER, ("inventory/100%",), None, FOLDER, (PROGRAM,))).endswith("removed")
    left = controller.shell("systemctl list-timers --all --no-legend 'gb10-layout-*'; ls /etc/systemd/system")
    assert "gb10-layout-split.service" not in left and "gb10-layout-split.timer " not in left
    assert "gb10-layout-split.timer\n" not in left
