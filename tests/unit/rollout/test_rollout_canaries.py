"""Seven ways for a canary to be bad: what plain ansible-playbook does with each, and what `gb10 rollout` does.

The same playbook on the same hosts in both, in the same waves: one canary, then two hosts, then the rest.
`pytest -s` prints the table.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gb10_fleet.rollout.waves import FleetHost, plan
from gb10_fleet.rollout.waves import policy as chosen
from tests.support.ways import BAD, GB10, HOSTS, Rollout, Way, fail, update

RESCUED = {"name": "Try", "block": [fail()], "rescue": [{"name": "Go on", "ansible.builtin.raw": "true"}]}
HANG = 'while ! test -e "$GB10_TEST_HOST/go"; do sleep 0.05; done'
WAYS = [
    Way("failed", "failed", "Check it", 2, 2, True, (update(), fail())),
    Way("unreachable", "unreachable", "No route to host", 3, 4, False, address="kind-away"),
    Way("rescued", "rescued", "rescue", 2, 0, False, (update(), RESCUED)),
    Way("ignored", "ignored", "ignore", 2, 0, False, (update(), fail(ignore_errors=True))),
    Way("absent", "absent", "has a result", 2, 0, False, where="sparks:!{bad}"),
    Way("unhealthy", "unhealthy", "architecture", 2, 0, False, facts={"architecture": "x86_64"}),
    Way(
        "timed out", "timed_out", "time", 2, 0, False,
        (update(), {"name": "Wait for it", "ansible.builtin.raw": HANG, "when": BAD}), hangs=True,
    ),
]  # fmt: skip


def plain(rollout: Rollout) -> subprocess.Popen[str]:
    return rollout.start(str(Path(sys.executable).with_name("ansible-playbook")), "-i", "inventory.yml", "play.yml")


def plain_end(rollout: Rollout, child: subprocess.Popen[str]) -> tuple[int, bool]:
    """Exit status of ansible-playbook, and whether it stopped before the second batch."""
    if rollout.way.hangs:
        assert child.poll() is None, "it waits as long as the host does not answer"
        rollout.let_go()
    output, errors = child.communicate(timeout=60)
    later = set(rollout.touched()) - {rollout.bad}
    assert later in (set(), set(rollout.hosts) - {rollout.bad}), output + errors
    return child.returncode, not later


def gb10(rollout: Rollout, canary: str, *words: str) -> tuple[int, dict[str, Any]]:
    """Exit status and report of `gb10 rollout`, whose first wave is that host."""
    sizes = ["--canary", canary, "--growth", "2", "--growth", "100%", "--soak", "0"]
    child = rollout.start(*GB10, "rollout", "play.yml", "-i", "inventory.yml", *sizes, *words, "--json")
    try:
        output, errors = child.communicate(timeout=110)
    finally:
        child.kill()
        rollout.let_go()
    assert output.startswith("{"), output + errors
    return child.returncode, json.loads(output)


def waves(report: Mapping[str, Any]) -> list[dict[str, tuple[str, str | None]]]:
    """Of each wave {host: (state, reason)}."""
    return [{host["host"]: (host["state"], host["reason"]) for host in wave["hosts"]} for wave in report["waves"]]


# Each is some ten seconds of a core. Most others are of how Ansible counts: `make test-all` has them. It has two more
# that others show here: a host that is away (tests/fleet/test_rollout.py), and a sick one (the last test below).
SHORT = ("failed",)


@pytest.mark.parametrize(
    "way",
    [pytest.param(way, id=way.state, marks=() if way.state in SHORT else (pytest.mark.long,)) for way in WAYS],
)
def test_a_bad_canary_stops_the_rollout_before_anybody_else(tmp_path: Path, way: Way) -> None:
    """Beside it, what plain Ansible does. If that differs, Ansible has changed, and so has the table of the docs."""
    bare = Rollout(tmp_path / "plain", HOSTS, way, HOSTS[0])
    child = plain(bare)
    bad = HOSTS[3]
    rollout = Rollout(tmp_path / "gb10", HOSTS, way, bad)
    try:
        # Only of the one that is sick after all went well the proof has something to say; it costs a second and a half.
        words = [] if way.state == "unhealthy" else ["--no-prove"]
        status, report = gb10(rollout, bad, *words, *(("--timeout", "3") if way.hangs else ()))
    finally:
        rc, stops = plain_end(bare, child)
    first, *later = waves(report)
    state, reason = first.pop(bad)
    print(f"{way.name:12} ansible-playbook: exit status {rc}, {'stops' if stops else 'goes on to all hosts'}")
    print(f"{way.name:12} gb10 rollout: exit status {status}, stops: {report['reason']}: {reason}")
    assert (status, state) == (way.outcome, way.state), report
    assert way.reason in str(reason), reason
    assert bad in str(report["reason"])
    assert first == {} and [len(wave) for wave in later] == [2, 3]
    assert {state for wave in later for state, _ in wave.values()} == {"planned"}
    assert set(rollout.touched()) <= {bad}, "a host of a later wave was touched"
    assert (rc, stops) == (way.rc, way.stops)


def test_the_bad_one_of_a_wave_is_named_and_not_its_neighbour(tmp_path: Path) -> None:
    """A task that is run once for all fails as the first host of a wave, whoever is sick."""
    hosts = HOSTS[:2]
    (wave,) = plan([FleetHost(name) for name in hosts], chosen(canary=2, growth=(2, "100%"), soak_s=0))
    neighbour, bad = wave.hosts
    rollout = Rollout(tmp_path, hosts, next(way for way in WAYS if way.name == "unhealthy"), bad)
    status, report = gb10(rollout, "2")
    assert status == 6, report
    (found,) = waves(report)
    assert found[neighbour] == ("done", None) and found[bad][0] == "unhealthy", found
    assert rollout.touched() == hosts
