"""Seven ways for a canary to be bad: what plain ansible-playbook does with each, and what `gb10 rollout` does.

The same playbook on the same hosts in both, in the same waves: one canary, then two hosts, then the rest. The playbook
has both brakes that Ansible offers, max_fail_percentage 0 and any_errors_fatal. `pytest -s` prints the table.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.plays import Plays, environment, put_playbook

HOSTS = [f"spark-{number}" for number in range(1, 7)]
NOTE = 'echo touched >>"$GB10_TEST_HOST/touched"'
BAD = "inventory_hostname == bad"
Task = dict[str, Any]


def update(**more: Any) -> Task:
    return {"name": "Update", "ansible.builtin.raw": NOTE, **more}


def fail(**more: Any) -> Task:
    return {"name": "Check it", "ansible.builtin.raw": "exit 1", "when": BAD, **more}


@dataclass(frozen=True)
class Way:
    """A way to be bad. `state` and `reason`: what `gb10` has to call it; `rc` and `stops`: what plain Ansible does."""

    name: str
    state: str
    reason: str
    outcome: int
    rc: int
    stops: bool
    tasks: Sequence[Task] = (update(),)
    where: str = "sparks"
    address: str | None = None  # of the bad host; None: one that answers
    facts: Mapping[str, Any] = field(default_factory=dict)
    hangs: bool = False


RESCUED = {"name": "Try", "block": [fail()], "rescue": [{"name": "Go on", "ansible.builtin.raw": "true"}]}
HANG = 'while ! test -e "$GB10_TEST_HOST/go"; do sleep 0.05; done'
WAYS = [
    Way("failed", "failed", "Check it", 2, 2, True, (update(), fail())),
    Way("unreachable", "unreachable", "No route to host", 3, 4, False, address="kind-away"),
    Way("rescued", "rescued", "rescue", 2, 0, False, (update(), RESCUED)),
    Way("ignored", "ignored", "ignore", 2, 0, False, (update(), fail(ignore_errors=True))),
    Way("absent", "absent", "no task", 2, 0, False, where="sparks:!{bad}"),
    Way("unhealthy", "unhealthy", "architecture", 2, 0, False, facts={"architecture": "x86_64"}),
    Way(
        "timed out", "timed_out", "time", 2, 0, False,
        (update(), {"name": "Wait for it", "ansible.builtin.raw": HANG, "when": BAD}), hangs=True,
    ),
]  # fmt: skip


class Rollout:
    """Hosts in a folder, of which one is bad, and the playbook for them."""

    def __init__(self, folder: Path, hosts: Sequence[str], way: Way, bad: str) -> None:
        self.plays, self.way, self.bad = Plays(folder), way, bad
        self.folder, self.hosts = folder, list(hosts)
        for host in hosts:
            self.plays.host(host, facts=dict(way.facts) if host == bad else None)
        addresses = {host: f"kind-{host}" for host in hosts}
        if way.address:
            addresses[bad] = way.address
        play = {
            "name": "Update the fleet",
            "hosts": way.where.format(bad=bad),
            "gather_facts": False,
            "serial": [1, 2, "100%"],
            "max_fail_percentage": 0,
            "any_errors_fatal": True,
            "tasks": list(way.tasks),
        }
        put_playbook(
            folder, {host: {"ansible_host": addresses[host]} for host in hosts}, yaml.safe_dump([play]),
            bad=bad, gb10_roles=[], ansible_become=False,
        )  # fmt: skip

    def start(self, *argv: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*argv], cwd=self.folder, env=environment(self.folder, self.folder / "collections"), text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def touched(self) -> list[str]:
        """The hosts on which the playbook did its work, each once: a second time would be another line."""
        lines = {host: self.folder / "hosts" / host / "touched" for host in self.hosts}
        done = {host: len(file.read_text().split()) for host, file in lines.items() if file.exists()}
        assert set(done.values()) <= {1}, f"done twice: {done}"
        return list(done)

    def let_go(self) -> None:
        (self.folder / "hosts" / self.bad / "go").touch()


def plain(rollout: Rollout) -> tuple[int, bool]:
    """Exit status of ansible-playbook, and whether it stopped before the second batch."""
    playbook = str(Path(sys.executable).with_name("ansible-playbook"))
    child = rollout.start(playbook, "-i", "inventory.yml", "play.yml")
    if rollout.way.hangs:
        with pytest.raises(subprocess.TimeoutExpired):  # as long as the host does not answer
            child.wait(3)
        rollout.let_go()
    output, errors = child.communicate(timeout=60)
    later = set(rollout.touched()) - {rollout.bad}
    assert later in (set(), set(rollout.hosts) - {rollout.bad}), output + errors
    return child.returncode, not later


def test_what_plain_ansible_does_with_a_bad_canary(tmp_path: Path) -> None:
    """If this fails, Ansible has changed, and the table in docs/rollout.md is to be written anew."""
    found = {}
    for way in WAYS:
        folder = tmp_path / way.state
        folder.mkdir()
        found[way.name] = plain(Rollout(folder, HOSTS, way, HOSTS[0]))
    for name, (rc, stops) in found.items():
        print(f"{name:12} ansible-playbook: exit status {rc}, {'stops' if stops else 'goes on to all hosts'}")
    assert found == {way.name: (way.rc, way.stops) for way in WAYS}
