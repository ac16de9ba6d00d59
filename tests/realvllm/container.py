#!/usr/bin/python3
"""A process of this machine for a container: with a /root/.cache of its own, and a network where it has none.

Stands for Docker's client. Its state is in the folder that it lies in: `image.json` is the image, NAME.pid a container.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
STOP_S = 120.0
# Options of `docker run` without a value; all others have one, or are unknown.
FLAGS = {"--rm", "--init", "--detach"}
ENTER = """
[ "$NETWORK" = host ] || ip link set lo up
mount --bind "$CACHE" /root/.cache && unset NETWORK CACHE && exec "$@"
"""


def pid(name: str) -> int:
    """0 where it does not run."""
    try:
        number = int((HERE / f"{name}.pid").read_text())
        os.kill(number, 0)
        if Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return 0
    except (OSError, ValueError):
        return 0
    return number


def run(words: list[str]) -> int:
    said: dict[str, list[str]] = {}
    while words[0].startswith("-"):
        option = words.pop(0)
        said.setdefault(option, []).append("" if option in FLAGS else words.pop(0))
    name, (entrypoint,) = said["--name"][0], said["--entrypoint"]
    mounts = dict(reversed(each.split(":")[:2]) for each in said.get("--volume", []))
    layer = Path(tempfile.mkdtemp(prefix="real-"))  # a short path: sockets are in it
    (HERE / f"{name}.layer").write_text(str(layer))
    (layer / "cache").mkdir()
    (layer / "tmp").mkdir()
    cache = mounts.get("/root/.cache", str(layer / "cache"))
    inner = [entrypoint, *words[1:]]  # the first word is the image
    for inside, outside in mounts.items():
        if Path(outside).is_file():
            inner = [word.replace(inside, outside) for word in inner]
    network = said.get("--network", ["host"])[0]
    environment = {**os.environ, **dict(each.split("=", 1) for each in said.get("--env", []))}
    environment |= {"HOME": "/root", "NETWORK": network, "CACHE": cache, "TMPDIR": str(layer / "tmp")}
    spaces = ["--mount", "--propagation", "private", *(["--net"] if network == "none" else [])]
    argv = ["unshare", *spaces, "sh", "-c", ENTER, "sh", *inner]
    if "--detach" not in said:
        (HERE / f"{name}.pid").write_text(str(os.getpid()))
        os.execvpe(argv[0], argv, environment)  # noqa: S606
    with (HERE / f"{name}.log").open("wb") as log:
        child = subprocess.Popen(argv, stdin=-3, stdout=log, stderr=log, env=environment, start_new_session=True)
    (HERE / f"{name}.pid").write_text(str(child.pid))
    return 0


def remove(name: str) -> None:
    """Also what the main process has left, and its layer."""
    if not (HERE / f"{name}.pid").exists():
        return
    with contextlib.suppress(OSError):
        os.killpg(int((HERE / f"{name}.pid").read_text()), signal.SIGKILL)
    shutil.rmtree((HERE / f"{name}.layer").read_text(), ignore_errors=True)
    (HERE / f"{name}.pid").unlink()


def stop(name: str) -> None:
    if pid(name):
        os.kill(pid(name), signal.SIGTERM)
    until = time.monotonic() + STOP_S
    while pid(name) and time.monotonic() < until:
        time.sleep(0.1)


def main(words: list[str]) -> int:
    match words:
        case ["run", *rest]:
            return run(rest)
        case ["version", *_]:
            print("stand-in")
        case ["image", "inspect", *_]:
            print(json.dumps(json.loads((HERE / "image.json").read_text())))
        case ["container", "inspect", *_, name]:
            print(pid(name))
            if not pid(name):
                print(f"Error response from daemon: No such container: {name}", file=sys.stderr)
            return 0 if pid(name) else 1
        case ["inspect", *_, name]:
            print("running" if pid(name) else "exited")
        case ["logs", *_, name]:
            print("\n".join((HERE / f"{name}.log").read_text(errors="replace").splitlines()[-3:]))
        case ["exec", "--interactive", name, *inner]:
            os.execvp("nsenter", ["nsenter", "--target", str(pid(name)), "--mount", "--net", *inner])  # noqa: S606
        case ["stop", *_, name]:
            stop(name)
        case ["rm", "--force", "--volumes", name]:
            remove(name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
