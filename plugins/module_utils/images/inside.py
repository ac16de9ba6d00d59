# SPDX-License-Identifier: GPL-3.0-or-later
"""What the Python of an image says of itself: versions, imports, operators, and libraries that are not found.

It runs in a container without a GPU and without a network, so nothing that serves loses memory to it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.images.errors import ImageError
from ansible_collections.gb10.fleet.plugins.module_utils.serving.engine_answer import BOUNDS
from ansible_collections.gb10.fleet.plugins.module_utils.serving.host_tools import Command, command
from ansible_collections.gb10.fleet.plugins.module_utils.serving.transfer_errors import last_words
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import document

CONTAINER = "gb10-image-inside"
MARK = "gb10-inside: "  # what else an import prints goes by
LONGEST_S = 900.0  # imports take a minute or two, from a cold disk some more; code of an image may never end
# What it is asked is on the command line: names of modules and paths of files.
SCRIPT = r"""
import importlib, json, subprocess, sys
asked = json.loads(sys.argv[1])
said = {"versions": {}, "imports": {}, "operators": [], "libraries": {}}
def schemas():
    try:
        import torch
        return {str(each) for each in torch._C._jit_get_all_schemas()}
    except Exception:
        return set()
before = schemas()
for name in ("torch", "vllm", *asked["modules"]):
    try:
        module = importlib.import_module(name)
        said["imports"][name] = None
        version = getattr(module, "__version__", None)
        if "." not in name and version:
            said["versions"][name] = str(version)
    except BaseException as error:
        said["imports"][name] = (type(error).__name__ + ": " + str(error))[:300]
said["operators"] = sorted(schemas() - before)
for path in asked["files"]:
    try:
        done = subprocess.run(["ldd", path], capture_output=True, text=True)
        lines = [each.strip() for each in done.stdout.splitlines()]
        said["libraries"][path] = [each.split(" ")[0] for each in lines if each.endswith("not found")]
        if done.returncode and not lines:
            said["libraries"][path] = [done.stderr.strip()[:200]]
    except OSError as error:
        said["libraries"][path] = ["ldd: " + str(error)]
print("gb10-inside: " + json.dumps(said))
"""


def ask(
    image: str, asked: Mapping[str, Any], run: Command = command, clock: Callable[[], float] = time.monotonic
) -> dict[str, Any]:
    """`asked`: `modules` to import and `files` to look through."""
    remove = ["docker", "rm", "--force", "--volumes", CONTAINER]
    argv = [
        *("docker", "run", "--rm", "--name", CONTAINER, "--pull", "never", "--network", "none", "--cap-drop", "ALL"),
        # Code of a stranger, beside a model that serves.
        *BOUNDS,
        *("--security-opt", "no-new-privileges", "--entrypoint", "python3", image, "-c", SCRIPT, json.dumps(asked)),
    ]
    run(remove)  # of a run that was killed
    until = clock() + LONGEST_S

    def end_if_late() -> None:
        if clock() >= until:
            run(remove)

    done = run(argv, watch=end_if_late)
    line = next((each for each in reversed(done.stdout.splitlines()) if each.startswith(MARK)), "")
    said = document(line[len(MARK) :])
    if not _is_sound(said):
        late = f"did not end within {LONGEST_S:.0f} s, and was ended"
        text = late if clock() >= until else f"did not run ({last_words(done.stderr)})"
        raise ImageError("failed", f"the Python of {image} {text}", "see `docker info`, then run again")
    return said


def _is_sound(said: Mapping[str, Any]) -> bool:
    """Tell whether it is what the script says: all that runs there may print the same mark."""
    if not all(isinstance(said.get(name), dict) for name in ("versions", "imports", "libraries")):
        return False
    words = [*said["versions"].values(), *(each for each in said["imports"].values() if each is not None)]
    lists = [said.get("operators"), *said["libraries"].values()]
    return all(isinstance(each, list) for each in lists) and all(
        isinstance(each, str) for each in (*words, *(word for one in lists for word in one))
    )
