"""Hosts of the lab as tests use them: what an operator does, and what came of it."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SNAPSHOT = ROOT / "tests/fleet/on_host/snapshot.py"
BASELINE = ROOT / "tests/fleet/on_host/baseline.py"


@dataclass(frozen=True)
class Play:
    """What one ansible-playbook run said."""

    rc: int
    output: str

    @property
    def tasks(self) -> str:
        """What it said before the PLAY RECAP: the failures, without the lines of the profile."""
        return self.output.partition("PLAY RECAP")[0]

    @property
    def recap(self) -> dict[str, dict[str, int]]:
        """`{host: {ok, changed, unreachable, failed, ...}}` from the PLAY RECAP."""
        lines = self.output.rpartition("PLAY RECAP")[2].splitlines()
        rows = (re.match(r"^(\S+)\s+:\s+(ok=.*)$", line) for line in lines)
        return {
            row[1]: {key: int(value) for key, value in (pair.split("=") for pair in row[2].split())}
            for row in rows
            if row
        }

    @property
    def changed(self) -> int:
        return sum(host["changed"] for host in self.recap.values())


class Rig:
    """A running topology of the lab; `inventory` and `hosts` say which."""

    inventory: Path
    hosts: tuple[str, ...]

    def lab(self, *args: str, timeout: int = 900, check: bool = True) -> str:
        """One lab command; with check=False its output ends in a line `rc=N`."""
        argv = [sys.executable, "-m", "lab", *args]
        done = subprocess.run(
            argv, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL
        )
        if not check:
            return f"{done.stdout}{done.stderr}\nrc={done.returncode}"
        assert done.returncode == 0, f"lab {' '.join(args)}: {done.stdout}{done.stderr}"
        return done.stdout

    def ssh(self, host: str, command: str, timeout: int = 120) -> str:
        return self.lab("ssh", host, command, timeout=timeout)

    def snapshot(self, host: str) -> dict[str, str]:
        """The state of a host, by name, for `differences`."""
        state: dict[str, str] = json.loads(self.on_host(host, SNAPSHOT))
        return state

    def baseline(self, host: str) -> dict[str, list[str]]:
        """What the host offers, by kind, for tests/support/baseline.py."""
        state: dict[str, list[str]] = json.loads(self.on_host(host, BASELINE))
        return state

    def on_host(self, host: str, program: Path) -> str:
        """What a program of tests/fleet/on_host says there, as root."""
        text = base64.b64encode(program.read_bytes()).decode()
        return self.ssh(host, f"echo {text} | base64 -d | sudo python3 -", timeout=600)

    def ansible(self, *args: str, playbook: str = "site.yml") -> tuple[list[str], dict[str, str]]:
        """argv and environment of an ansible-playbook run."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        argv = ["ansible-playbook", "-i", str(self.inventory), *args, playbook]
        return argv, {**os.environ, "ANSIBLE_NOCOLOR": "1", "PATH": path}

    def play(
        self,
        *args: str,
        playbook: str = "site.yml",
        timeout: int = 1200,
        show: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> Play:
        argv, env = self.ansible(*args, playbook=playbook)
        started = time.monotonic()
        done = subprocess.run(
            argv, cwd=ROOT, env={**env, **(environment or {})}, text=True, timeout=timeout, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        if show:
            print(
                f"$ {' '.join(argv)}\n{done.stdout[-12000:]}\nrc={done.returncode} {time.monotonic() - started:.0f} s"
            )
        return Play(done.returncode, done.stdout)

    def ask(
        self, folder: Path, module: str, arguments: Mapping[str, Any], *, hosts: str = "sparks", **variables: Any
    ) -> dict[str, Any]:
        """What one module says, by host. `arguments` may be expressions; `variables` are those of the task."""
        task = {module: dict(arguments), "vars": variables, "register": "said"}
        kept = {"content": "{{ said | to_json }}", "dest": f"{folder}/said-{{{{ inventory_hostname }}}}.json"}
        keep = {"ansible.builtin.copy": {**kept, "mode": "0600"}, "delegate_to": "localhost", "become": False}
        play = {"hosts": hosts, "gather_facts": False, "become": True, "tasks": [task, keep]}
        playbook = folder / "ask.json"
        playbook.write_text(json.dumps([play]))
        run = self.play(playbook=str(playbook))
        assert run.rc == 0, f"{module} failed"
        return {path.stem.removeprefix("said-"): json.loads(path.read_text()) for path in folder.glob("said-*.json")}

    def evidence(self) -> dict[str, Any]:
        """What the latest proof wrote down."""
        data: dict[str, Any] = json.loads((ROOT / "evidence/latest/evidence.json").read_text())
        return data


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """What is not the same in two snapshots, for a test's message."""
    names = sorted({*before, *after})
    return [f"{name}: {before.get(name)} -> {after.get(name)}" for name in names if before.get(name) != after.get(name)]
