"""A service stands still by the operator's wish, and a real systemd ends it: on hosts with a unit in vLLM's place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fleet.fleet import Fleet
from tests.support.rig import ROOT

pytestmark = pytest.mark.lab

UNIT, TIMER = "gb10-vllm.service", "gb10-wish-gb10-vllm.timer"
FILE = f"/etc/systemd/system/{UNIT}"
SERVICE = "[Service]\nExecStart=/usr/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
DOCUMENTS: list[dict[str, Any]] = [
    {
        "role": "vllm",
        "resources": [
            {"file": FILE, "content": SERVICE},
            {"unit": UNIT, "enabled": True, "state": "started", "wait": False, "restart_on": [FILE]},
        ],
    }
]


@pytest.fixture
def host(cleared: Fleet) -> Iterator[str]:
    for host in cleared.hosts:
        assert cleared.converge(host, DOCUMENTS)["error"] is None
    yield cleared.hosts[0]
    for host in cleared.hosts:
        assert cleared.engine(host, "undo")["error"] is None
        assert cleared.manifest(host) is None
        assert cleared.shell(host, "ls -A /etc/systemd/system | grep -c gb10-wish || true").strip() == "0"


def stands(fleet: Fleet, host: str, unit: str = UNIT) -> list[str]:
    return fleet.shell(host, f"systemctl is-active {unit} || true; systemctl is-enabled {unit} || true").split()


def wish(fleet: Fleet, state: str, until: str = "") -> str:
    asked = json.dumps({"gb10_wish": {"service": "vllm", "state": state, "until": until}})
    run = fleet.site("-e", asked, playbook="playbooks/wish.yml")
    assert run.rc == 0
    return run.output


def test_it_stands_still_over_runs_and_a_new_systemd_until_it_is_started(cleared: Fleet, host: str) -> None:
    assert "memory_returned" in wish(cleared, "stopped", "+1d")
    for each in cleared.hosts:
        assert stands(cleared, each) == ["inactive", "disabled"]
        assert stands(cleared, each, TIMER) == ["active", "enabled"]
    drift = cleared.site(playbook="playbooks/drift.yml")
    found = json.loads((ROOT / "evidence/drift/drift.json").read_text())["hosts"]
    assert drift.rc == 0
    assert {name: [wish["unit"] for wish in said["wishes"]] for name, said in found.items()} == {
        each: [UNIT] for each in cleared.hosts
    }
    assert cleared.converge(host, DOCUMENTS)["changes"] == []
    # What a boot does: systemd reads everything anew, and starts what its targets want.
    cleared.shell(host, "systemctl daemon-reexec; systemctl start multi-user.target timers.target")
    assert stands(cleared, host) == ["inactive", "disabled"]
    wish(cleared, "started")
    for each in cleared.hosts:
        assert stands(cleared, each) == ["active", "enabled"]
    assert cleared.engine(host, "drift")["wishes"] == []


def test_the_timer_of_a_host_that_was_off_at_the_time_starts_it_at_the_boot(cleared: Fleet, host: str) -> None:
    until = cleared.shell(host, "date -u -d '+6 sec' +%Y-%m-%dT%H:%M:%SZ").strip()
    said = cleared.engine(host, "wish", wish={"unit": UNIT, "state": "stopped", "until": until})
    assert said["error"] is None, said["error"]
    now = "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
    cleared.shell(host, f"systemctl stop {TIMER}; while [ {now} '<' {until} ]; do sleep 0.5; done")
    assert stands(cleared, host) == ["inactive", "disabled"]
    there = f'[ "$(systemctl show --property=LoadState --value {TIMER})" = loaded ]'
    cleared.shell(host, f"systemctl start {TIMER}; timeout 30 sh -c 'while {there}; do sleep 0.2; done'")
    assert stands(cleared, host) == ["active", "enabled"]
    found = cleared.engine(host, "drift")
    assert (found["changes"], found["wishes"]) == ([], [])
    assert cleared.converge(host, DOCUMENTS)["changes"] == []


def test_undo_takes_a_wish_with_its_timer_away(cleared: Fleet, host: str) -> None:
    """What is looked for stands in the fixture, after its undo."""
    said = cleared.engine(host, "wish", wish={"unit": UNIT, "state": "stopped", "until": "+1h"})
    assert said["error"] is None and stands(cleared, host, TIMER) == ["active", "enabled"]
