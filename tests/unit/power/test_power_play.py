"""The playbook of `gb10 power` over an ssh that knows one command: nothing here can halt anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import plugs
from tests.support.plays import Plays, put_ssh, run_playbook
from tests.support.rig import ROOT

# The boot id is another one after each order to the plug, as the file of the plug says.
SSH = """#!/bin/bash
for word in "$@"; do command=$word; done
case "$command" in *boot_id*) echo 5b0a0a44-6a51-4b21-9a3c-2f60c3d0a001;;
  *) echo "unexpected: $command" >&2; exit 1;;
esac
"""
PLAY = "- ansible.builtin.import_playbook: gb10.fleet.power_now\n"


def played(
    folder: Path, outlet: plugs.Outlet, host: dict[str, Any] | None = None, play: str = PLAY, **more: Any
) -> tuple[int, str]:
    put_ssh(folder, SSH)
    said = {"hosts": ["spark-a"], "cuts": True, "restores": True, "hard": True, "off_s": 1}
    said["sharing"] = {"spark-a": ["spark-a"]}
    with plugs.serving(plugs.Shelly, outlet) as (port, _):
        plug = {"kind": "shelly", "address": "127.0.0.1", "port": port, "secret": "{{ hidden }}"}
        mine = {"ansible_host": "kind-fine", "gb10_power_plug": plug, "hidden": plugs.PASSWORD, **(host or {})}
        code, output = run_playbook(
            folder, {"spark-a": mine}, play, __power_order={**said, **more}, gb10_roles=["page_cache"]
        )
    assert plugs.PASSWORD not in output
    return code, output


def test_a_host_that_hangs_is_cut_and_waited_for(tmp_path: Path) -> None:
    outlet = plugs.Outlet()
    code, output = played(tmp_path, outlet)
    assert code == 0, output
    assert outlet.orders == [False, True] and "unexpected" not in output


def test_one_that_cannot_be_read_before_keeps_its_power(tmp_path: Path) -> None:
    outlet = plugs.Outlet()
    code, output = played(tmp_path, outlet, play=PLAY.replace("_now", ""), hard=False)
    assert code != 0 and outlet.orders == [] and "Halt the host" not in output


def test_this_machine_is_never_cut(tmp_path: Path) -> None:
    outlet = plugs.Outlet()
    code, output = played(tmp_path, outlet, {"ansible_connection": "local"})
    assert code != 0 and outlet.orders == []
    assert "nobody would give it power again" in " ".join(output.split())


def test_a_wrong_plug_is_refused_before_anything(tmp_path: Path) -> None:
    code, output = played(tmp_path, plugs.Outlet(), {"gb10_power_plug": {"kind": "tasmota"}})
    assert code != 0 and "gb10_power_plug.kind is 'tasmota'" in " ".join(output.split())
    assert "Cut its power" not in output


def test_nothing_is_switched_unasked(tmp_path: Path) -> None:
    put_ssh(tmp_path, SSH)
    code, output = run_playbook(tmp_path, {"spark-a": {"ansible_host": "kind-fine"}}, PLAY)
    assert code != 0 and "the order is missing" in output


@pytest.mark.parametrize(("shared", "orders"), [(False, [False, True]), (True, [])], ids=["own plug", "one plug"])
def test_a_host_that_does_not_halt_leaves_no_other_one_off(tmp_path: Path, shared: bool, orders: list[bool]) -> None:
    """The others had halted, and their plugs were never switched off and on. One with the same plug keeps its power."""
    plays = yaml.safe_load((ROOT / "playbooks/power_switch.yml").read_text())
    stands_in = {
        "Halt the host": {"ansible.builtin.meta": "noop"},
        "Wait until it has halted": {"ansible.builtin.assert": {"that": "inventory_hostname != 'spark-b'"}},
        "Require that everything is back": {"ansible.builtin.meta": "noop"},
        "Have alerts wait no longer": {"ansible.builtin.debug": {"msg": "over of {{ inventory_hostname }}"}},
    }
    for play in plays:
        kept = [task for task in play["tasks"] if not {"ansible.builtin.pause", "gb10.fleet.await_boot"} & task.keys()]
        play["tasks"] = [{"name": task["name"], **stands_in.get(task["name"], task)} for task in kept]
    both = ["spark-a", "spark-b"]
    said = {"hosts": both, "cuts": True, "restores": True, "hard": False, "off_s": 1}
    said["sharing"] = {name: both if shared else [name] for name in both}
    outlet = plugs.Outlet()
    put_ssh(tmp_path, SSH)
    with plugs.serving(plugs.Shelly, outlet) as (port, _):
        plug = {"kind": "shelly", "address": "127.0.0.1", "port": port, "secret": plugs.PASSWORD}
        hosts = {name: {"ansible_host": "kind-fine", "gb10_power_plug": plug} for name in both}
        code, output = run_playbook(tmp_path, hosts, yaml.safe_dump(plays), __power_order=said)
    assert code != 0 and outlet.orders == orders, output
    assert "over of spark-a" in output and "over of spark-b" not in output


def test_what_serves_nothing_is_proven_and_rejoins(tmp_path: Path) -> None:
    plays = Plays(tmp_path)
    host = {"spark-a": {"ansible_host": "kind-ok", "gb10_roles": ["page_cache"], "ansible_become": False}}
    for name, words in (("power_prove", "healthy: 1 host"), ("rejoin", "Name those that still keep it out")):
        code, output = plays.play(host, PLAY.replace("power_now", name))
        assert code == 0 and words in output, output
