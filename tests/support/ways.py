"""A fleet in a folder, of which one host is bad in some way, for ansible-playbook and for `gb10 rollout` alike.

The playbook has both brakes that Ansible offers, max_fail_percentage 0 and any_errors_fatal.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.support.plays import ROOT, Plays, environment, put_playbook

GB10 = [sys.executable, "-c", "from gb10_fleet.cli import main; main()"]
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


class Rollout:
    """Hosts in a folder, of which one is bad, and the playbook for them."""

    def __init__(self, folder: Path, hosts: Sequence[str], way: Way, bad: str) -> None:
        folder.mkdir(exist_ok=True)
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

    @property
    def environment(self) -> dict[str, str]:
        python = [str(ROOT / "collections"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {
            **environment(self.folder, self.folder / "collections"),
            "PYTHONPATH": os.pathsep.join(python),
        }

    def start(self, *argv: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*argv], cwd=self.folder, env=self.environment, text=True,
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
