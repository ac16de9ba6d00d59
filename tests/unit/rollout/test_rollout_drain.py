"""What a rollout does with a model around its work: drain.yml and serve.yml, on hosts whose systemctl is made up."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.plays import Plays

# Keeps a unit's state in a file of the host, and notes what changed it.
SYSTEMCTL = """#!/bin/bash
cd "$GB10_TEST_HOST"
read -r active enabled < unit
case "$*" in
  *is-active*) echo "$active"; [ "$active" = active ] || exit 3;;
  *is-enabled*) echo "$enabled"; [ "$enabled" = enabled ] || exit 1;;
  *show*) printf 'LoadState=loaded\\nActiveState=%s\\nSubState=x\\nUnitFileState=%s\\n' "$active" "$enabled";;
  reset-failed*) echo reset-failed >>done;;
  *stop*) echo stop >>done; echo "inactive $enabled" >unit;;
  *start*) echo start >>done; echo "active $enabled" >unit;;
esac
"""
UNITS = {
    "serving": "active enabled", "loading": "activating enabled", "stopped": "inactive enabled",
    "masked": "inactive masked", "other": "active enabled", "mate": "inactive enabled", "once": "inactive enabled",
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


def test_a_model_that_runs_is_stopped_and_started_where_it_is_enabled_and_its_cluster_is_there(plays: Plays) -> None:
    """All but `other` have the role vllm; of the cluster of `mate`, `once` answers once, so the model stays stopped."""
    hosts = {host: {"ansible_host": f"kind-{host}", "gb10_roles": ["vllm"]} for host in UNITS}
    hosts["other"]["gb10_roles"] = ["docker"]
    hosts["mate"]["gb10_cluster"] = hosts["once"]["gb10_cluster"] = "pair"
    (plays.tmp_path / "pair.yml").write_text("pair: {hosts: {mate: {}, once: {}}}\n")
    play = [{"ansible.builtin.import_playbook": f"gb10.fleet.{name}"} for name in ("drain", "serve")]
    _, output = plays.play(hosts, play, "-i", "pair.yml", ansible_become=False)
    assert "once                       : ok=1" in output, output
    notes = {host: plays.tmp_path / "hosts" / host / "done" for host in UNITS}
    assert {host: file.read_text().split() for host, file in notes.items() if file.exists()} == {
        "serving": ["stop", "reset-failed", "start"], "loading": ["stop", "reset-failed", "start"],
        "stopped": ["reset-failed", "start"],
    }  # fmt: skip
