"""Each playbook's recap and exit status beside those of Ansible's own ping."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.plays import Plays, recap

PING = yaml.safe_dump([{"hosts": "sparks", "gather_facts": False, "tasks": [{"ansible.builtin.ping": {}}]}])
ON_A_HOST = {
    *("drain", "fetch", "serve", "reboot", "older_kernel", "planned"),
    *("release_check", "release_update", "trial_boot", "wish"),
}
# They ask routers, one builder or one host, or keep connections of their own: most hosts of the run do nothing in them.
OF_OTHERS = {
    *("ask", "build_image", "bundle", "enrol", "glance", "hosts", "look", "notify", "rejoin", "retire", "seed"),
    *("services", "way", "withdraw"),
    *("power", "power_now", "power_prove", "power_refuse", "power_switch", "switch"),
}
PLAYBOOKS = {
    *("site", "doctor", "converge", "undo", "benchmark", "drift", "explain", "validate"),
    *("discover", "why", "release", "image"),
    *ON_A_HOST,
}
KINDS = ("ok", "away", "key", "nosudo", "nopython")
VARIABLES: dict[str, Any] = {
    "gb10_roles": ["page_cache"], "ansible_become": False, "gb10_undo": "all", "reboot_allow": True,
    "gb10_image": "i:1", "release_update_to": "newest", "release_update_allow": True, "trial_boot_allow": True,
    "trial_boot_kernel": "6.17.0-1014-nvidia", "gb10_wish": {"service": "vllm", "state": "stopped"},
    "gb10_planned": "begin", "reboot_leave": "6.17.0-1022-nvidia",
}  # fmt: skip


@pytest.fixture(scope="module")
def plays(tmp_path_factory: pytest.TempPathFactory) -> Plays:
    return Plays(tmp_path_factory.mktemp("recap"))


@pytest.fixture(scope="module")
def pinged(plays: Plays) -> tuple[int, dict[str, str]]:
    rc, output = plays.play({kind: {"ansible_host": f"kind-{kind}"} for kind in KINDS}, PING, **VARIABLES)
    return rc, recap(output)


def test_what_ansible_says_of_these_hosts(pinged: tuple[int, dict[str, str]]) -> None:
    states = {"ok": "ok", "away": "unreachable", "key": "unreachable", "nosudo": "failed", "nopython": "failed"}
    assert pinged == (4, states)


@pytest.mark.parametrize("playbook", sorted(PLAYBOOKS))
def test_who_is_unreachable_to_ansible_is_unreachable_to_us(
    plays: Plays, pinged: tuple[int, dict[str, str]], playbook: str
) -> None:
    rc, _states = pinged
    # The host that answers is this machine: it is none to stop a model on, or to reboot.
    kinds = ("away", "key") if playbook in ON_A_HOST else ("away", "key", "ok")
    fleet = {kind: {"ansible_host": f"kind-{kind}"} for kind in kinds}
    roles = ["vllm"] if playbook in ON_A_HOST else VARIABLES["gb10_roles"]
    of_the_command = {name: VARIABLES[name] for name in ("gb10_wish", "gb10_image")}
    play = f"- ansible.builtin.import_playbook: gb10.fleet.{playbook}\n  vars: {json.dumps(of_the_command)}\n"
    ours = plays.play(fleet, play, **{**VARIABLES, "gb10_roles": roles})
    assert ours[0] == rc, ours[1]
    found = recap(ours[1])
    assert found.keys() == fleet.keys()
    assert [kind for kind, state in found.items() if state == "unreachable"] == ["away", "key"], ours[1]


def test_an_update_to_no_release_is_refused_in_our_words(plays: Plays) -> None:
    play = "- ansible.builtin.import_playbook: gb10.fleet.release_update\n"
    rc, output = plays.play({"ok": {"ansible_host": "kind-ok"}}, play, ansible_become=False)
    assert rc == 2 and "say to which release" in output and '"release_update_to": "OTA2607"' in output, output
    assert "argument_errors" not in output and "Validating arguments" not in output


def test_every_playbook_is_here() -> None:
    folder = Path(__file__).parents[3] / "playbooks"
    assert {path.stem for path in folder.glob("*.yml")} == PLAYBOOKS | OF_OTHERS
