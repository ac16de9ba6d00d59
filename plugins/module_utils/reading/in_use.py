# SPDX-License-Identifier: GPL-3.0-or-later
"""What somebody serves on a host by hand: containers that are not ours, and who listens at a port of ours."""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.reading.containers import OURS
from ansible_collections.gb10.fleet.plugins.module_utils.reading.sockets import LISTEN, PROC, end, owners, sockets
from ansible_collections.gb10.fleet.plugins.module_utils.system import folders
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Completed, System

DOCKER_DEADLINE_S = 10.0
MOST = 50  # containers that are named, and models
_MODEL = "models--"
_ANY = ("0.0.0.0", "127.0.0.1", "::", "::1")  # noqa: S104 - what is looked for


def read(system: System, ports: Iterable[int], home: str = "", proc: Path = PROC) -> dict[str, Any]:
    """`{containers: [{name, image}], listeners: [{port, who}], cache: {path, models: [id]}}`."""
    done = system.run(["docker", "ps", "--no-trunc", "--format", "{{json .}}"], timeout=DOCKER_DEADLINE_S)
    return {
        "containers": containers(done),
        "listeners": [row for port in ports for row in _listeners(port, proc)],
        "cache": cache(home),
    }


def cache(home: str) -> dict[str, Any]:
    """Return the models in a user's cache of the hub's library, by their folders; no file of them is read."""
    path = f"{home}/.cache/huggingface"
    try:
        names = folders.first_names(f"{path}/hub", folders.MOST_NAMES) if home else []
    except OSError:
        names = []
    found = [name[len(_MODEL) :].replace("--", "/", 1) for name in names if name.startswith(_MODEL)]
    return {"path": path, "models": found[:MOST]}


def home_of_the_user() -> str:
    """Return the home of whoever became root by sudo; empty where nobody did."""
    try:
        return pwd.getpwnam(os.environ.get("SUDO_USER", "")).pw_dir
    except KeyError:
        return ""


def containers(done: Completed) -> list[dict[str, str]]:
    """Return those that run and are not ours."""
    found = []
    for line in done.stdout.splitlines() if done.rc == 0 else ():
        try:
            said = json.loads(line)
            name, image = str(said["Names"]), str(said["Image"])
        except (ValueError, KeyError, TypeError):
            continue
        if not name.startswith(OURS):
            found.append({"name": name, "image": image})
    return found[:MOST]


def _listeners(port: int, proc: Path) -> list[dict[str, Any]]:
    """Who listens there, in words; of a container Docker's own proxy does."""
    marks = {each.mark for each in sockets([end(one, port) for one in _ANY], state=LISTEN, proc=proc) if each.mark}
    return [{"port": port, "who": ", ".join(owners(marks, proc)) or "a process that cannot be read"}] if marks else []
