"""What one command costs: wall time, CPU of the controller and of the hosts, peak memory.

The command runs in cgroups of its own, so that everything it leaves behind counts too (ssh's masters are daemons, which
getrusage never sees). The lab's containers have theirs. CPU is read from cgroup2's cpu.stat, which every kernel since
4.15 keeps, memory from whichever version has the controller.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.container import CGROUP as LAB

GROUP = "gb10-bench"
PERIOD_S = 0.05  # of the memory samples
TAIL = 2000  # characters of a failed command's output


class MeterError(Exception):
    """A command failed or the machine cannot measure; the text says which and why."""


@dataclass(frozen=True)
class Cost:
    """Of one run. Seconds, and MB = 1e6 bytes of anonymous memory of all processes together."""

    wall_s: float
    controller_cpu_s: float
    hosts_cpu_s: float
    memory_mb: float


@dataclass(frozen=True)
class Hierarchies:
    """Where the cgroups are: of cgroup2 (CPU), and of the memory controller, with the name of its anonymous memory."""

    unified: Path
    memory: Path
    anonymous: str

    @classmethod
    def found(cls) -> Hierarchies:
        mounts = [line.split()[1:4] for line in Path("/proc/mounts").read_text().splitlines()]
        unified = next((Path(mount) for mount, kind, _ in mounts if kind == "cgroup2"), None)
        if unified is None:
            raise MeterError("no cgroup2 is mounted, which the CPU time is read from: mount it at /sys/fs/cgroup")
        for mount, kind, options in mounts:
            if kind == "cgroup" and "memory" in options.split(","):
                # Below our own group, so that limits which apply to us apply to what we start.
                own = Path("/proc/self/cgroup").read_text().split(":memory:")[1].splitlines()[0]
                return cls(unified, Path(mount) / own.lstrip("/"), "rss")
        control = unified / "cgroup.subtree_control"
        if "memory" not in control.read_text().split():
            control.write_text("+memory")
        return cls(unified, unified, "anon")

    def hosts_cpu_s(self) -> float:
        """CPU seconds of all hosts of the lab since it is up."""
        return _cpu_s(self.unified / LAB)


def measure(
    argv: Sequence[str], log: Path, env: Mapping[str, str], cwd: Path, time_limit_s: float = 1800, ends: int = 0
) -> Cost:
    """Run a command and say what it cost. Its output goes to `log`; MeterError if it ends with another exit status."""
    trees = Hierarchies.found()
    groups = sorted({trees.unified / GROUP, trees.memory / GROUP})
    for group in groups:
        _remove(group)
        group.mkdir()
    joins = [group / "cgroup.procs" for group in groups]
    hosts_before, started = trees.hosts_cpu_s(), time.monotonic()
    with log.open("wb") as output:
        # A shell that joins the groups and then becomes the command: nothing is forked before it is counted.
        script = "".join(f"echo $$ >{join} && " for join in joins) + 'exec "$@"'
        process = subprocess.Popen(
            ["sh", "-c", script, "sh", *argv], stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=env, cwd=cwd
        )
        with _Peak(trees.memory / GROUP / "memory.stat", trees.anonymous) as peak:
            try:
                status = process.wait(time_limit_s)
            except subprocess.TimeoutExpired:
                process.kill()
                raise MeterError(f"{argv[0]} took longer than {time_limit_s} s; its output: {log}") from None
    wall = time.monotonic() - started
    cost = Cost(wall, _cpu_s(trees.unified / GROUP), trees.hosts_cpu_s() - hosts_before, peak.bytes / 1e6)
    if status != ends:
        tail = log.read_text(errors="replace")[-TAIL:]
        raise MeterError(f"{' '.join(argv[:3])} ... ended with status {status}, not {ends} ({log}):\n{tail}")
    return cost


def _cpu_s(group: Path) -> float:
    try:
        lines = (group / "cpu.stat").read_text().split()
    except FileNotFoundError:
        raise MeterError(f"{group} is missing: start the hosts with this checkout's lab") from None
    return int(lines[lines.index("usage_usec") + 1]) / 1e6


class _Peak:
    """The highest of many samples of a cgroup's anonymous memory, which is counted once however many fork it."""

    def __init__(self, file: Path, key: str) -> None:
        self.bytes = 0
        self._file, self._key = file, key
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> _Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._over.wait(PERIOD_S):
            words = self._file.read_text().split()
            self.bytes = max(self.bytes, int(words[words.index(self._key) + 1]))


def _remove(group: Path) -> None:
    """An ssh master that was told to exit needs a moment."""
    for _ in range(100):
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.05)
        else:
            return
    pids = (group / "cgroup.procs").read_text().split()
    raise MeterError(f"{group} still has processes of an earlier run: {', '.join(pids)}")


def close_masters(folder: Path) -> None:
    """End the ssh masters whose sockets lie in a folder, so that the next run starts cold."""
    for socket in folder.iterdir():
        subprocess.run(["ssh", "-O", "exit", "-o", f"ControlPath={socket}", "any"], capture_output=True, check=False)
    deadline = time.monotonic() + 5
    while any(folder.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.02)


def controller_words() -> dict[str, str | int]:
    """What this machine is, for the report."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    done = subprocess.run(["ssh", "-V"], capture_output=True, text=True, check=False)
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": model[0] if model else os.uname().machine,
        "cores": os.cpu_count() or 0,
        "memory_gb": round(pages / 1e9),
        "kernel": os.uname().release,
        "ssh": done.stderr.strip(),
    }
