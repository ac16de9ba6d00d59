"""What of examples/ can run here, runs here. The signed pull bundle: tests/unit/rollout/test_rollout_pull.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

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
    assert "github.com/gb10-fleet/gb10-fleet.git@v" in (tmp_path / "context/_build/requirements.txt").read_text()
    assert "git-core [compile " in (tmp_path / "context/_build/bindep.txt").read_text()


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


def _awx_arguments(module: str) -> dict[str, Any]:
    """What a module of awx.awx takes, by its own documentation."""
    argv = [str(Path(sys.executable).with_name("ansible-doc")), "--json", "-t", "module", f"awx.awx.{module}"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    options: dict[str, Any] = json.loads(done.stdout)[f"awx.awx.{module}"]["doc"]["options"]
    return options


def _unknown(values: dict[str, Any], options: dict[str, Any], where: str) -> list[str]:
    found = []
    for key, value in values.items():
        if key not in options:
            found.append(f"{where}.{key}")
        elif below := options[key].get("suboptions"):
            for one in value if isinstance(value, list) else [value]:
                found += _unknown(one, below, f"{where}.{key}")
    return found


def test_the_workflow_of_awx_has_an_approval_between_waves_and_only_fields_that_awx_takes(tmp_path: Path) -> None:
    """AWX itself runs in no container here: its collection says which fields there are."""
    (play,) = yaml.safe_load((EXAMPLES / "awx/workflow.yml").read_text())
    job, workflow = (next(value for key, value in task.items() if key.startswith("awx.")) for task in play["tasks"])
    show = {"hosts": "localhost", "connection": "local", "gather_facts": False, "vars": play["vars"]}
    show["tasks"] = [{"ansible.builtin.copy": {"content": "{{ nodes | to_json }}", "dest": str(tmp_path / "nodes")},
                      "vars": play["tasks"][1]["vars"]}]  # fmt: skip
    (tmp_path / "show.yml").write_text(yaml.safe_dump([show], width=1000))
    argv = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "localhost,", "show.yml"]
    argv += ["-e", '{"waves": ["canaries", "rack1", "rack2"]}']
    argv += ["-e", f"ansible_python_interpreter={sys.executable}"]
    done = subprocess.run(argv, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    nodes = json.loads((tmp_path / "nodes").read_text())
    way, at = [], "wave-canaries"
    named = {node["identifier"]: node for node in nodes}
    while at:
        way.append(at)
        following = named[at]["related"]["success_nodes"]
        at = following[0]["identifier"] if following else ""
    assert way == ["wave-canaries", "approve-rack1", "wave-rack1", "approve-rack2", "wave-rack2"] and len(way) == len(
        nodes
    )
    assert [named[it]["limit"] for it in way[::2]] == ["canaries", "rack1", "rack2"]
    kinds = [named[it]["unified_job_template"]["type"] for it in way]
    assert kinds == ["job_template", "workflow_approval"] * 2 + ["job_template"]
    assert job["ask_variables_on_launch"] is True, "else AWX drops the artifacts of the wave before"
    assert _unknown(job, _awx_arguments("job_template"), "job") == []
    whole = {**workflow, "workflow_nodes": nodes}
    assert _unknown(whole, _awx_arguments("workflow_job_template"), "workflow") == []
