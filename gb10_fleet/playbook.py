"""One playbook run through ansible-runner, and its outcome as one of five words.

ansible-runner keeps what it ran, its environment and every event in files, secrets included. So each run gets a
private directory (mode 0700) that is removed afterwards, events are looked at and never stored, and Ansible's output
goes to the terminal only.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

from ansible_runner.interface import run as ansible_run

# What changes nothing and runs before what does, by the beginning of its name: a failure in it is a refusal.
DOCTOR_PLAY, REFUSING_TASK = "Doctor", "Refuse"
# Findings of the doctor that say: nobody could even look at the host.
_NO_CONTACT = {"host_key", "unreachable"}


class Outcome(IntEnum):
    """How a run ended; the value is the exit status of `gb10`."""

    done = 0
    failed = 2
    unreachable = 3
    refused = 4
    drift = 5


@dataclass(frozen=True)
class Order:
    """What to run, where, and how."""

    playbook: str
    inventory: str
    limit: str | None = None
    check: bool = False
    diff: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def cmdline(self) -> str:
        words = ["--check"] if self.check else []
        words += ["--diff"] if self.diff else []
        words += ["--extra-vars", json.dumps(dict(self.variables))] if self.variables else []
        return shlex.join(words)


@dataclass
class Report:
    """What the events of a run said."""

    stats: dict[str, dict[str, int]] = field(default_factory=dict)  # {"ok": {host: count}, "dark": {...}, ...}
    findings: list[dict[str, Any]] = field(default_factory=list)
    refused: bool = False
    evidence: str | None = None
    drift: dict[str, Any] = field(default_factory=dict)  # the result of gb10.fleet.drift

    def take(self, event: dict[str, Any]) -> bool:
        """Look at one event of ansible-runner. Returns False: do not store it."""
        data = event.get("event_data", {})
        result = data.get("res", {})
        kind, action = event.get("event"), data.get("resolved_action")
        if kind == "playbook_on_stats":
            self.stats = {key: value for key, value in data.items() if isinstance(value, dict)}
        elif action == "gb10.fleet.doctor":
            self.findings += result.get("findings", [])
        elif action == "gb10.fleet.evidence":
            self.evidence = result.get("directory", self.evidence)
        elif action == "gb10.fleet.drift" and "hosts" in result:
            self.drift = result
        if kind == "runner_on_failed" and (
            data.get("play", "").startswith(DOCTOR_PLAY) or data.get("task", "").startswith(REFUSING_TASK)
        ):
            self.refused = True
        return False

    def outcome(self, status: int) -> Outcome:
        """The one word for Ansible's exit status and what the events said."""
        if status == 0:
            # No host at all is no success: a mistyped inventory, or one without the group that the playbooks work on.
            return Outcome.done if self.hosts else Outcome.failed
        if self.drift:
            return Outcome.unreachable if self.drift["silent"] else Outcome.drift
        open_errors = {f["id"] for f in self.findings if f.get("severity") == "error" and not f.get("accepted")}
        if self.stats.get("dark") or open_errors & _NO_CONTACT:
            return Outcome.unreachable
        return Outcome.refused if self.refused else Outcome.failed

    @property
    def hosts(self) -> dict[str, dict[str, int]]:
        """Counts by host, under the names that Ansible's recap uses."""
        words = {"ok": "ok", "changed": "changed", "dark": "unreachable", "failures": "failed"}
        names = sorted({host for key in words for host in self.stats.get(key, {})})
        return {host: {word: self.stats.get(key, {}).get(host, 0) for key, word in words.items()} for host in names}


Runner = Callable[..., Any]


def run(order: Order, *, quiet: bool = False, runner: Runner = ansible_run) -> tuple[Outcome, Report]:
    """Run a playbook from the current folder, so that its ansible.cfg and its relative paths hold."""
    report = Report()
    # The command's own Ansible comes first: `gb10` may be called by path, without an activated environment.
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"}
    if not sys.stdout.isatty():
        environment |= {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0"}
    source = Path(order.inventory)
    with tempfile.TemporaryDirectory(prefix="gb10-") as private:
        result = runner(
            private_data_dir=private,
            project_dir=str(Path.cwd()),
            playbook=order.playbook,
            inventory=str(source.resolve()) if source.exists() else order.inventory,
            limit=order.limit,
            cmdline=order.cmdline or None,
            envvars=environment,
            settings={"suppress_output_file": True},
            event_handler=report.take,
            quiet=quiet,
        )
    return report.outcome(int(result.rc)), report
