#!/usr/bin/python3
"""A unit of systemd for a container, on a host of the lab: it runs a program that the host sees of the machine below.

Stands for Docker's client. As with Docker, what runs is no child of whoever asked for it. `@PROGRAMS@` is the folder of
the programs that the image has, `@LIBRARIES@` that of their libraries.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAMS, LIBRARIES = "@PROGRAMS@", "@LIBRARIES@"
FLAGS = {"--rm", "--init", "--detach"}  # of `docker run`, without a value
IMAGE = {
    **{"Id": "sha256:" + "1" * 64, "RepoDigests": [], "RootFS": {"Layers": ["sha256:1"]}, "Size": 1},
    **{"Os": "linux", "Architecture": "amd64", "Config": {}, "GraphDriver": {"Data": {}}},
}
STOP_S = 60  # then systemd kills it, as Docker does


def unit(name: str) -> str:
    return f"container-{name}.service"


def systemctl(*words: str) -> bool:
    return subprocess.run(["systemctl", *words], capture_output=True, check=False).returncode == 0


def runs(name: str) -> bool:
    return systemctl("is-active", "--quiet", unit(name))


def process(name: str) -> str:
    argv = ["systemctl", "show", "--property=MainPID", "--value", unit(name)]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()


def run(words: list[str]) -> None:
    said: dict[str, list[str]] = {}
    while words[0].startswith("-"):
        option = words.pop(0)
        said.setdefault(option, []).append("" if option in FLAGS else words.pop(0))
    properties = ["KillMode=mixed", f"TimeoutStopSec={STOP_S}"]
    properties += [f"OOMScoreAdjust={score}" for score in said.get("--oom-score-adj", [])]
    properties += [f"EnvironmentFile={path}" for path in said.get("--env-file", [])]
    for volume in said.get("--volume", []):
        outside, inside, *read_only = volume.split(":")
        properties.append(f"Bind{'ReadOnly' if read_only else ''}Paths={outside}:{inside}")
    path = f"{PROGRAMS}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    environment = ["HOME=/root", f"PATH={path}", f"LD_LIBRARY_PATH={LIBRARIES}", *said.get("--env", [])]
    argv = [
        *("systemd-run", "--quiet", "--collect", "--wait", "--pipe", f"--unit={unit(said['--name'][0])}"),
        *(f"--property={each}" for each in properties),
        *(f"--setenv={each}" for each in environment),
        # By env: systemd-run looks for a program where its caller has a /tmp of its own. The first word is the image.
        # A program with a whole path, as llama.cpp's, is on the host.
        *("/usr/bin/env", str(Path(PROGRAMS) / said["--entrypoint"][0]), *words[1:]),
    ]
    os.execvp(argv[0], argv)  # noqa: S606


def remove(name: str) -> None:
    systemctl("kill", "--signal=KILL", unit(name))
    systemctl("stop", unit(name))
    systemctl("reset-failed", unit(name))


def main(words: list[str]) -> int:
    match words:
        case ["run", *rest]:
            run(rest)
        case ["version", *_]:
            print("stand-in")
        case ["image", "inspect", "--format", *_]:
            print(json.dumps(IMAGE))
        case ["image", "inspect", *_]:
            print(json.dumps([IMAGE]))
        case ["container", "inspect", *how, name]:
            if not runs(name):
                print(f"Error response from daemon: No such container: {name}", file=sys.stderr)
                return 1
            print(process(name) if "{{.State.Pid}}" in how else "true")
        case ["inspect", *_, name]:
            print("running" if runs(name) else "exited")
        case ["stop", *_, name]:
            systemctl("stop", unit(name))
        case ["rm", "--force", "--volumes", name]:
            remove(name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
