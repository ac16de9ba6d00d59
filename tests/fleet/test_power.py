"""A host is cycled through its plug: `gb10 power` halts it, cuts its power, gives it back, and has the proof.

Real: the command, the plug's protocol over loopback, the halt of a systemd, its start from its disk, SSH. Made up: the
plug, whose meter reads whether the container's process lives. Its power is that process: a container shares a kernel,
so no firmware and no ConnectX-7 starts cold here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

from lab import plugs, process
from lab.shell import STATE
from tests.fleet.fleet import HERE, Fleet
from tests.support.rig import ROOT

pytestmark = [pytest.mark.lab, pytest.mark.long]

GB10 = str(Path(sys.executable).parent / "gb10")
BOOT = "cat /proc/sys/kernel/random/boot_id"


class Wall:
    """The plug of a lab host: what is behind it goes with it. `cut_alive`: how often it was cut while the host ran."""

    def __init__(self, fleet: Fleet, host: str) -> None:
        self.fleet, self.host, self.cut_alive = fleet, host, 0
        self.at_s = list[float]()
        self.outlet = plugs.Outlet(watts=lambda: 41.0 if self.runs else 2.0, switched=self.switched)

    @property
    def runs(self) -> bool:
        return process.pid(STATE / "hosts" / self.host / "pid.json") is not None

    def switched(self, on: bool) -> None:
        """A plug answers at once, however long what is behind it takes."""
        self.at_s.append(time.monotonic())
        self.cut_alive += not on and self.runs
        word = "power-on" if on else "power-off"
        threading.Thread(target=self.fleet.lab, args=(word, self.host), daemon=True).start()


@pytest.fixture
def wall(cleared: Fleet) -> Iterator[Wall]:
    found = Wall(cleared, cleared.hosts[0])
    yield found
    if not found.runs:
        cleared.lab("power-on", found.host)


def gb10(wall: Wall, port: int, folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    secret, inventory, said = folder / "secret", folder / "plug.yml", folder / "roles.json"
    secret.touch(mode=0o600)
    secret.write_text(plugs.PASSWORD)
    plug = {"kind": "shelly", "address": "127.0.0.1", "port": port, "secret_file": str(secret)}
    inventory.write_text(json.dumps({"all": {"hosts": {wall.host: {"gb10_power_plug": plug}}}}))
    said.write_text(json.dumps({"gb10_roles": ["page_cache"], "gb10_evidence_directory": str(folder / "evidence")}))
    argv = [GB10, "power", wall.host, *words, "--json", "-i", str(wall.fleet.inventory), "-i", str(inventory)]
    argv += ["--", "-e", f"@{HERE / 'vars.yml'}", "-e", f"@{said}"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False, env={**os.environ})
    print(f"$ {' '.join(argv)}\n{done.stdout[-6000:]}{done.stderr[-3000:]}\nrc={done.returncode}")
    assert plugs.PASSWORD not in done.stdout + done.stderr
    return done.returncode, json.loads(done.stdout)


def test_a_host_is_halted_cut_and_back(wall: Wall, tmp_path: Path) -> None:
    before = wall.fleet.shell(wall.host, f"touch /var/lib/of-before; {BOOT}")
    with plugs.serving(plugs.Shelly, wall.outlet) as (port, _):
        assert gb10(wall, port, tmp_path, "cycle", "--check")[0] == 0
        assert wall.outlet.orders == [] and wall.fleet.shell(wall.host, BOOT) == before, "a check changes nothing"
        status, said = gb10(wall, port, tmp_path, "cycle", "--yes")
        assert (status, said["outcome"]) == (0, "done"), said
        assert said["hosts"][wall.host]["on"] and said["hosts"][wall.host]["watts"] == 41
        assert wall.outlet.orders == [False, True]
        assert wall.cut_alive == 0, "it was cut before it had halted"
        assert wall.at_s[1] - wall.at_s[0] >= catalog.load("plugs")["off_s"]["value"]
        assert wall.fleet.shell(wall.host, f"test -e /var/lib/of-before; {BOOT}") != before
        status, said = gb10(wall, port, tmp_path, "off", "--yes")
        assert (status, said["hosts"][wall.host]["on"], wall.runs) == (0, False, False)
        assert wall.cut_alive == 0
        assert gb10(wall, port, tmp_path, "cycle", "--yes")[0] == 4, "it is off"
        assert gb10(wall, port, tmp_path, "on", "--yes")[0] == 0
    assert wall.fleet.shell(wall.host, BOOT)
