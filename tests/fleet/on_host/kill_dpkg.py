"""Kill apt and dpkg in the middle of a package: at the first STATUS that the dpkg of apt's that does ACTION reports.

`python3 -c SOURCE ACTION STATUS <SOURCE` puts it in dpkg's place. The kill takes it away again, and leaves what dpkg
reported in /run/gb10-killed.
"""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

PROGRAM, KILLED = Path("/run/gb10-kill-dpkg"), Path("/run/gb10-killed")
CONFIGURATION = Path("/etc/apt/apt.conf.d/99gb10-kill-dpkg")
PAGE = 4096


def arm(source: str, action: str, status: str) -> None:
    KILLED.unlink(missing_ok=True)
    PROGRAM.write_text(f"#!/usr/bin/python3\n{source}")
    PROGRAM.chmod(0o755)
    CONFIGURATION.write_text(
        f'Dir::Bin::dpkg "{PROGRAM}";\nDPkg::Options {{ "--gb10-action={action}"; "--gb10-status={status}"; }};\n'
    )


def run(words: "list[str]") -> int:
    """In dpkg's place."""
    ours = [word for word in words if word.startswith("--gb10-")]
    words = [word for word in words if word not in ours]
    asked = dict(word.removeprefix("--gb10-").split("=") for word in ours)
    if not asked or asked["action"] not in words:
        return subprocess.call(["dpkg", *words], close_fds=False)
    # One message at a time: dpkg waits for whoever reads, so it cannot be further than the next message.
    reading, writing = os.pipe2(os.O_DIRECT)
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PAGE)
    os.set_inheritable(writing, True)
    child = subprocess.Popen(["dpkg", f"--status-fd={writing}", *words], close_fds=False)
    os.close(writing)
    while message := os.read(reading, PAGE):
        if message.decode().strip().endswith(f": {asked['status']}"):
            kill(message.decode().strip())
    return child.wait()


def kill(report: str) -> None:
    """Every apt-get and dpkg at work; before it, what was put on the host goes."""
    CONFIGURATION.unlink()
    PROGRAM.unlink()
    KILLED.write_text(json.dumps(report))
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = entry.read_text().split("\0")
            if words[0].rpartition("/")[2] in ("apt-get", "dpkg"):
                os.kill(int(entry.parent.name), signal.SIGKILL)


if sys.argv[0] == str(PROGRAM):
    sys.exit(run(sys.argv[1:]))
arm(sys.stdin.read(), *sys.argv[1:])
