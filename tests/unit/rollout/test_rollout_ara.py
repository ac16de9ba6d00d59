"""ARA beside a rollout: the callback that people have keeps working below `gb10`, and sees every wave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.ways import GB10, HOSTS, Rollout, Way


def ara(*words: str, environment: dict[str, str]) -> list[dict[str, Any]]:
    command = [str(Path(sys.executable).with_name("ara")), *words, "-f", "json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_ara_records_every_wave_and_every_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As docs/rollout.md says it: one variable, and nothing else."""
    place = [sys.executable, "-m", "ara.setup.callback_plugins"]
    plugins = subprocess.run(place, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    monkeypatch.setenv("ANSIBLE_CALLBACK_PLUGINS", plugins)
    monkeypatch.setenv("ARA_BASE_DIR", str(tmp_path / "ara"))
    rollout = Rollout(tmp_path / "fleet", HOSTS, Way("good", "done", "", 0, 0, False), HOSTS[0])
    sizes = ["--canary", "1", "--growth", "2", "--growth", "100%", "--soak", "0"]
    child = rollout.start(*GB10, "rollout", "play.yml", "-i", "inventory.yml", *sizes, "--no-prove", "--json")
    output, errors = child.communicate(timeout=110)
    assert child.returncode == 0, output + errors
    waves = [[host["host"] for host in wave["hosts"]] for wave in json.loads(output)["waves"]]
    assert rollout.touched() == HOSTS

    environment = {**os.environ, **rollout.environment}
    updates = ara("task", "list", "--name", "Update", environment=environment)
    assert [len(wave) for wave in waves] == [1, 2, 3] and len(updates) == 3, updates
    assert {task["status"] for task in updates} == {"completed"}
    names = {row["id"]: row["name"] for row in ara("host", "list", environment=environment)}
    results = [
        row for task in updates for row in ara("result", "list", "--task", str(task["id"]), environment=environment)
    ]
    assert sorted(names[row["host"]] for row in results) == HOSTS
    assert {row["status"] for row in results} <= {"ok", "changed"}
