"""ansible-playbook without its start: one process has imported Ansible, and each play is a fork of it.

To import Ansible takes more CPU seconds than all else in a play with one task. A fork is the same program with the same
arguments. It reads the whole configuration again, from its own environment. What Ansible has read before that, its own
files, where plugins are and which colours there are, is the same for all plays; one that has it otherwise starts the
real program, as do the tests of commands, of rollouts, of the fleet and of the lab.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

TIMEOUT_S = 120
_SERVER = Path(__file__).with_name("play_server.py")


def run(folder: Path, environment: Mapping[str, str], *words: str) -> tuple[int, str]:
    """Exit code and output of ansible-playbook in a folder."""
    argv = [str(Path(sys.executable).with_name("ansible-playbook")), *words]
    if any(name.startswith("ANSIBLE_") for name in os.environ):  # a test has a configuration of its own
        done = subprocess.run(
            argv, cwd=folder, env=dict(environment), text=True, timeout=TIMEOUT_S, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return done.returncode, done.stdout
    output = folder / "output"
    output.write_bytes(b"")
    code = _asked(json.dumps([str(folder), dict(environment), argv]), environment)
    return code, output.read_text()


_servers: list[subprocess.Popen[str]] = []  # one, or none yet
_OF_A_RUN = ("GB10_ROLLOUT",)  # words of a play's own environment, which our modules read where they are imported


def _asked(order: str, environment: Mapping[str, str]) -> int:
    """The exit code of a play, from the server; the first play starts it, and the next one if it has died."""
    if _servers and _servers[0].poll() is not None:
        end()
    if not _servers:
        given = {name: value for name, value in environment.items() if name not in _OF_A_RUN}
        _servers.append(
            subprocess.Popen(
                [sys.executable, "-P", str(_SERVER)], env=given, text=True, process_group=0,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )
        )  # fmt: skip
        atexit.register(end)
    (server,) = _servers
    assert server.stdin is not None and server.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        print(order, file=server.stdin, flush=True)
    if not select.select([server.stdout], [], [], TIMEOUT_S)[0]:
        _servers.clear()
        os.killpg(server.pid, signal.SIGKILL)
        raise subprocess.TimeoutExpired(order, TIMEOUT_S)
    if not (code := server.stdout.readline()):
        end()
        raise ChildProcessError(f"the server of plays has ended with {server.returncode}, during {order}")
    return int(code)


def end() -> None:
    """The process goes; the next play starts another."""
    while _servers:
        _servers.pop().communicate()  # with the end of its input it ends, too
