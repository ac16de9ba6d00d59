"""What a playbook does to each host, in numbers without noise: remote calls, tasks, bytes sent, commands there."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.ways import HERE, ROOT, Way


@dataclass(frozen=True)
class Counts:
    """Of one host. `sent` are bytes on the standard input of its ssh calls."""

    calls: int
    tasks: int
    sent: int
    subprocesses: int


def count(way: Way, hosts: Mapping[str, str], log: Path) -> dict[str, Counts]:
    """Run one of our playbooks with an ssh that counts, and a callback that names every task of every host."""
    log.unlink(missing_ok=True)
    env = {
        **way.env,
        "ANSIBLE_SSH_EXECUTABLE": str(HERE / "ssh_log"),
        "GB10_SSH_LOG": str(log),
        "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
    }
    done = subprocess.run(way.argv, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(way.argv)} failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    calls = [json.loads(line) for line in log.read_text().splitlines()]
    plays = json.loads(done.stdout)["plays"]
    return {
        host: _of_host(host, [call for call in calls if call["host"] == address], plays)
        for host, address in hosts.items()
    }


def _of_host(host: str, calls: list[dict[str, Any]], plays: list[dict[str, Any]]) -> Counts:
    return Counts(
        calls=len(calls),
        tasks=sum(host in task["hosts"] for play in plays for task in play["tasks"]),
        sent=sum(call["bytes"] for call in calls),
        subprocesses=sum(call["subprocesses"] or 0 for call in calls),
    )
