"""What of examples/ can run here, runs here. The signed pull bundle: tests/unit/rollout/test_rollout_pull.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.plays import ROOT, Plays, environment, put_playbook

EXAMPLES = ROOT / "examples"


def test_ansible_builder_accepts_the_execution_environment(tmp_path: Path) -> None:
    pytest.importorskip("ansible_builder")
    definition = EXAMPLES / "execution-environment/execution-environment.yml"
    argv = [sys.executable, "-m", "ansible_builder", "create", "-f", str(definition), "-c", "context"]
    argv += ["--output-filename", "Containerfile"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    recipe = (tmp_path / "context/Containerfile").read_text()
    assert "ansible-core>=2.19,<2.23" in recipe and "ansible-runner>=2.4" in recipe
    wanted = (tmp_path / "context/_build/requirements.yml").read_text()
    assert "github.com/gb10-fleet/gb10-fleet.git" in wanted


@pytest.mark.parametrize(("kind", "status"), [("ok", 0), ("nosudo", 2)])
def test_a_shard_runs_in_the_worker_of_this_machine(tmp_path: Path, kind: str, status: int) -> None:
    """transmit, worker, process: what a receptor mesh would carry goes through a pipe."""
    plays, folder = Plays(tmp_path), tmp_path / "rack1"
    own: dict[str, Any] = {"gb10_roles": ["page_cache"], "ansible_become": False}
    put_playbook(tmp_path, {"spark-a": {"ansible_host": f"kind-{kind}"}}, "", **own)
    (folder / "inventory").mkdir(parents=True)
    (tmp_path / "inventory.yml").rename(folder / "inventory/hosts.yml")
    environ = environment(tmp_path, plays.tmp_path / "collections")
    environ |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    argv = [str(EXAMPLES / "receptor/shard"), str(folder), "gb10.fleet.doctor"]
    done = subprocess.run(argv, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == status, done.stdout + done.stderr
    (events,) = (folder / "artifacts").rglob("job_events")
    said = [json.loads(path.read_text()) for path in events.glob("*.json")]
    assert any(event["event"] == "playbook_on_stats" for event in said)
