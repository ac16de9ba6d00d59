"""The third ring: real machines of the lab, real apt, systemd, NetworkManager, Docker and kernel RDMA."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Play:
    """What one ansible-playbook run said."""

    rc: int
    output: str

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


class Pair:
    """Two fresh virtual Sparks, one cable from p0 to p0."""

    inventory = ROOT / "inventory/lab/pair"
    hosts = ("spark-a", "spark-b")

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

    def reboot(self) -> None:
        """As an operator would: over SSH. Comes back when every host is up again, with another boot id."""
        ask = "cat /proc/sys/kernel/random/boot_id"
        before = {host: self.ssh(host, ask) for host in self.hosts}
        for host in self.hosts:
            self.lab("ssh", host, "sudo systemctl reboot", check=False)
        for host in self.hosts:
            self._until(host, f"test $({ask}) != {before[host].strip()} && systemctl is-system-running --wait")

    def _until(self, host: str, command: str, limit_s: int = 300) -> None:
        deadline = time.monotonic() + limit_s
        while self.lab("ssh", host, command, check=False, timeout=limit_s).rpartition("\n")[2] != "rc=0":
            assert time.monotonic() < deadline, f"{host}: {command}: not within {limit_s} s"
            time.sleep(3)

    def play(self, *args: str, playbook: str = "site.yml", timeout: int = 1200, show: bool = True) -> Play:
        argv = ["ansible-playbook", "-i", str(self.inventory), *args, playbook]
        env = {**os.environ, "ANSIBLE_NOCOLOR": "1", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        started = time.monotonic()
        done = subprocess.run(
            argv, cwd=ROOT, env=env, text=True, timeout=timeout, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        if show:
            print(
                f"$ {' '.join(argv)}\n{done.stdout[-12000:]}\nrc={done.returncode} {time.monotonic() - started:.0f} s"
            )
        return Play(done.returncode, done.stdout)

    def evidence(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads((ROOT / "evidence/latest/evidence.json").read_text())
        return data


@pytest.fixture(scope="session")
def pair() -> Any:
    if os.geteuid() != 0:
        pytest.skip("the lab needs root")
    lab = Pair()
    lab.lab("up", "pair")
    yield lab
    lab.lab("down")
