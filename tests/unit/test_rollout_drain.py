"""What a rollout does with a model around its work: drain.yml and serve.yml, on hosts whose systemctl is made up."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.plays import Plays

# Keeps a unit's state in a file of the host, and notes what changed it.
SYSTEMCTL = """#!/bin/bash
cd "$GB10_TEST_HOST"
read -r active enabled < unit
case "$*" in
  *is-active*) echo "$active"; [ "$active" = active ] || exit 3;;
  *is-enabled*) echo "$enabled"; [ "$enabled" = enabled ] || exit 1;;
  *show*) printf 'LoadState=loaded\\nActiveState=%s\\nSubState=x\\nUnitFileState=%s\\n' "$active" "$enabled";;
  *stop*) echo stop >>done; echo "inactive $enabled" >unit;;
  *start*) echo start >>done; echo "active $enabled" >unit;;
esac
"""
UNITS = {
    "serving": "active enabled", "loading": "activating enabled", "stopped": "inactive enabled",
    "masked": "inactive masked", "other": "active enabled", "mate": "inactive enabled", "gone": "inactive enabled",
}  # fmt: skip


@pytest.fixture
def plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plays:
    made = Plays(tmp_path)
    for host, unit in UNITS.items():
        made.host(host)
        (tmp_path / "hosts" / host / "unit").write_text(f"{unit}\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/systemctl").write_text(SYSTEMCTL)
    (tmp_path / "bin/systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return made


def done(plays: Plays, playbook: str, *args: str, **away: str) -> dict[str, list[str]]:
    """What was done on which host. The role vllm is on all but `other`; `mate` and `gone` are a cluster."""
    hosts = {host: {"ansible_host": f"kind-{host}", "gb10_roles": ["vllm"]} for host in UNITS}
    hosts["other"]["gb10_roles"] = ["docker"]
    for host in ("mate", "gone"):
        hosts[host]["gb10_cluster"] = "pair"
    for host, address in away.items():
        hosts[host]["ansible_host"] = address
    (plays.tmp_path / "pair.yml").write_text("pair: {hosts: {mate: {}, gone: {}}}\n")
    play = f"- ansible.builtin.import_playbook: gb10.fleet.{playbook}\n"
    _, output = plays.play(hosts, play, "-i", "pair.yml", *args, ansible_become=False)
    assert "PLAY RECAP" in output, output
    notes = {host: plays.tmp_path / "hosts" / host / "done" for host in UNITS}
    return {host: file.read_text().split() for host, file in notes.items() if file.exists()}


def test_a_model_that_runs_or_loads_is_stopped_and_no_other_unit(plays: Plays) -> None:
    assert done(plays, "drain") == {"serving": ["stop"], "loading": ["stop"]}


def test_a_model_is_started_where_it_is_enabled_and_its_whole_cluster_is_there(plays: Plays) -> None:
    started = done(plays, "serve", gone="kind-away")
    assert started == {"stopped": ["start"]}
