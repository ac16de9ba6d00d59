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

# Several commands of `ara` in one process: to start it takes longer than to answer.
ARA = """
import sys
from ara.cli.base import AraCli
for command in sys.argv[1:]:
    if AraCli().run([*command.split(), "-f", "json"]):
        sys.exit(f"ara {command} failed")
    print("\\f", flush=True)  # which JSON has in no text
"""


def ara(*commands: str, environment: dict[str, str]) -> list[list[dict[str, Any]]]:
    """What each command lists."""
    done = subprocess.run(
        [sys.executable, "-c", ARA, *commands],
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(found) for found in done.stdout.split("\f")[:-1]]


def test_ara_records_every_wave_and_every_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As docs/rollout.md says it: one variable, and nothing else."""
    place = [sys.executable, "-m", "ara.setup.callback_plugins"]
    plugins = subprocess.run(place, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    monkeypatch.setenv("ANSIBLE_CALLBACK_PLUGINS", plugins)
    monkeypatch.setenv("ARA_BASE_DIR", str(tmp_path / "ara"))
    rollout = Rollout(tmp_path / "fleet", HOSTS, Way("good", "done", "", 0, 0, False), HOSTS[0])
    sizes = ["--canary", "1", "--growth", "100%", "--soak", "0"]
    child = rollout.start(*GB10, "rollout", "play.yml", "-i", "inventory.yml", *sizes, "--no-prove", "--json")
    output, errors = child.communicate(timeout=110)
    assert child.returncode == 0, output + errors
    waves = [[host["host"] for host in wave["hosts"]] for wave in json.loads(output)["waves"]]
    assert rollout.touched() == HOSTS

    environment = {**os.environ, **rollout.environment}
    updates, hosts, every = ara(
        "task list --name Update", "host list", "result list --limit 1000", environment=environment
    )
    assert [len(wave) for wave in waves] == [1, 5] and len(updates) == 2, updates
    assert {task["status"] for task in updates} == {"completed"}
    names = {row["id"]: row["name"] for row in hosts}
    results = [row for row in every if row["task"] in {task["id"] for task in updates}]
    assert sorted(names[row["host"]] for row in results) == HOSTS
    assert {row["status"] for row in results} <= {"ok", "changed"}
