"""`python -m benchmarks.shards`: a fleet in shards, over ansible-runner's transmit, worker and process.

All shards run at the same time, each through examples/receptor/shard. One host of the second shard answers with 64 MiB
that are no answer. All processes of the third are killed a few seconds after its hosts were first asked. Then the third
runs once more. The hosts are simulated (a program in place of ssh that answers at once), so what is measured is the
controller. Needs no root and no lab; takes five minutes on 2 cores.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from benchmarks.meter import controller_words
from benchmarks.report import document
from benchmarks.rollout import RESULTS, ROOT
from benchmarks.simulated.instant import answer

SHARD = ROOT / "examples/receptor/shard"
HOSTILE, KILLED = 1, 2  # shards, from 0
KILLED_AFTER_S = 6.0  # its worker is at work then: to start and to import takes about three
PERIOD_S = 0.2  # of the memory samples
LIMIT_S = 900.0
SSH = """#!/bin/sh
case "$*" in
  *hostile*) exec head -c 67108864 /dev/zero;;
  *) read -r _; exec cat "${0%/*}/answer";;
esac
"""


@dataclass(frozen=True)
class Run:
    """Of one shard. MB = 1e6 bytes, resident, all its processes together: what they share counts once for each."""

    shard: int
    hosts: int
    status: int
    wall_s: float
    peak_mb: float
    ok: int
    failed: list[str]


def folder_of(parent: Path, number: int, hosts: int) -> Path:
    """A private data directory: an inventory of this shard's hosts, and nothing else."""
    folder = parent / f"shard-{number}"
    (folder / "inventory").mkdir(parents=True)
    names = [f"spark-{number}-{host:03d}" for host in range(hosts)]
    if number == HOSTILE:
        names[hosts // 2] = f"hostile-{number}"
    variables = {"ansible_ssh_executable": str(parent / "ssh"), "ansible_become": False, "gb10_roles": []}
    inventory = {"sparks": {"hosts": {name: {} for name in names}, "vars": variables}}
    (folder / "inventory/hosts.json").write_text(json.dumps(inventory))
    return folder


def environment(parent: Path, number: int) -> dict[str, str]:
    """Of a shard's own, as on a machine of its own; nothing of the user's but PATH."""
    home = parent / f"home-{number}"
    home.mkdir(exist_ok=True)
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(home), "TMPDIR": str(home), "LC_ALL": "C.UTF-8",
        "PYTHONPATH": f"{ROOT / 'collections'}:{ROOT}",
        "ANSIBLE_CONFIG": str(home / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORKS": "10",
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections"),
    }  # fmt: skip


class Running:
    """A shard that runs: a shell with transmit, worker and process as its children."""

    def __init__(self, parent: Path, number: int, hosts: int, folder: Path, playbook: str) -> None:
        self.number, self.hosts, self.folder, self.peak_mb = number, hosts, folder, 0.0
        self._log = (parent / f"log-{number}-{time.monotonic_ns()}").open("w+")
        self._started = time.monotonic()
        env = environment(parent, number)
        Path(env["ANSIBLE_CONFIG"]).touch()
        self._child = subprocess.Popen(
            [str(SHARD), str(folder), playbook], env=env, cwd=parent, stdin=subprocess.DEVNULL,
            stdout=self._log, stderr=self._log, start_new_session=True,
        )  # fmt: skip

    @property
    def age_s(self) -> float:
        return time.monotonic() - self._started

    def sample(self, tree: dict[int, tuple[int, float]]) -> None:
        self.peak_mb = max(self.peak_mb, sum(tree[pid][1] for pid in self._family(tree)))

    def kill(self, tree: dict[int, tuple[int, float]]) -> None:
        """Each process of it, by its number: as when the machine is gone."""
        for pid in self._family(tree):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def _family(self, tree: dict[int, tuple[int, float]]) -> list[int]:
        found = [self._child.pid] if self._child.pid in tree else []
        for pid in found:
            found += [child for child, (parent, _) in tree.items() if parent == pid]
        return found

    def ended(self) -> bool:
        return self._child.poll() is not None

    def run(self) -> Run:
        self._log.close()
        ok = 0
        failed: set[str] = set()
        for path in (self.folder / "artifacts").rglob("job_events/*.json"):
            event = json.loads(path.read_text())
            if event["event"] == "playbook_on_stats":
                ok = len(event["event_data"]["ok"])
                failed |= {*event["event_data"]["failures"], *event["event_data"]["dark"]}
        status = self._child.returncode
        wall = round(self.age_s, 1)
        return Run(self.number, self.hosts, status, wall, round(self.peak_mb), ok, sorted(failed))


def processes() -> dict[int, tuple[int, float]]:
    """`{pid: (parent, MB)}` of this machine."""
    page_mb, found = os.sysconf("SC_PAGE_SIZE") / 1e6, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            found[int(folder.name)] = (parent, int((folder / "statm").read_text().split()[1]) * page_mb)
        except OSError:
            continue
    return found


def watch(shards: list[Running], kill_after_s: float) -> list[Run]:
    """Until all have ended; the one to be killed is killed on its way."""
    runs: list[Run] = []
    deadline = time.monotonic() + LIMIT_S
    killed = kill_after_s <= 0
    while shards:
        tree = processes()
        for shard in shards:
            shard.sample(tree)
            if not killed and shard.number == KILLED and shard.age_s > kill_after_s:
                shard.kill(tree)
                killed = True
        if time.monotonic() > deadline:
            for shard in shards:
                shard.kill(tree)
        for shard in [shard for shard in shards if shard.ended()]:
            runs.append(shard.run())
            shards.remove(shard)
            print(runs[-1], flush=True)
        time.sleep(PERIOD_S)
    return sorted(runs, key=lambda run: run.shard)


def measured(parent: Path, hosts: int, count: int, playbook: str) -> tuple[list[Run], list[Run]]:
    """All shards at once, and then the killed one alone."""
    (parent / "answer").write_bytes(answer())
    (parent / "ssh").write_text(SSH)
    (parent / "ssh").chmod(0o755)
    each = hosts // count
    folders = [folder_of(parent, number, each) for number in range(count)]
    shards = [Running(parent, number, each, folders[number], playbook) for number in range(count)]
    first = watch(shards, KILLED_AFTER_S)
    again = watch([Running(parent, KILLED, each, folders[KILLED], playbook)], 0)
    return first, again


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shards", description=__doc__)
    parser.add_argument("--hosts", type=int, default=300, help="of all shards; default 300")
    parser.add_argument("--shards", type=int, default=4, help="at least 3; default 4")
    parser.add_argument("--playbook", default="gb10.fleet.site")
    args = parser.parse_args(argv)
    if args.shards < KILLED + 1 or args.hosts < args.shards:
        parser.error("--shards: at least 3, and a host for each")
    with tempfile.TemporaryDirectory(prefix="gb10-shards-") as name:
        first, again = measured(Path(name), args.hosts, args.shards, args.playbook)
    record = {
        "created": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "machine": controller_words(),
        "versions": {name: version(name) for name in ("ansible-core", "ansible-runner")},
        "playbook": args.playbook,
        "first": [asdict(run) for run in first],
        "again": [asdict(run) for run in again],
    }
    file = RESULTS / f"shards-{datetime.now(UTC):%Y-%m-%d}.json"
    file.write_text(document(record) + "\n")
    print(f"written: {file.relative_to(ROOT)}")
    wanted = [2 if n == HOSTILE else 0 for n in range(args.shards) if n != KILLED]
    held = [run.status for run in first if run.shard != KILLED] == wanted and again[0].status == 0
    return 0 if held and first[KILLED].status else 1


if __name__ == "__main__":
    sys.exit(main())
