# SPDX-License-Identifier: GPL-3.0-or-later
"""A command that is watched, what the hub's library is asked, and a word on how far it is."""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from io import FileIO
from pathlib import Path

from ansible_collections.gb10.fleet.plugins.module_utils.serving.model_folder import Tell, gigabytes, write
from ansible_collections.gb10.fleet.plugins.module_utils.serving.transfer_errors import FilesError
from ansible_collections.gb10.fleet.plugins.module_utils.system import commands

TELL_S = 1.0
MORE = 256 << 20  # bytes beyond what was announced: blocks of a disk, and what the hub's tool writes beside
Command = Callable[..., "subprocess.CompletedProcess[str]"]  # as `command`
# Runs in the image. What it is asked is on the command line, the token in its environment, its answer one line of JSON.
HUB = r"""
import json, sys
asked = json.loads(sys.argv[1])
said = {}
try:
    from huggingface_hub import HfApi, snapshot_download
    if asked["step"] == "list":
        info = HfApi().model_info(asked["model"], revision=asked["revision"], files_metadata=True)
        said = {"commit": info.sha, "files": []}
        for file in info.siblings:
            lfs = file.lfs and (file.lfs["sha256"] if isinstance(file.lfs, dict) else file.lfs.sha256)
            said["files"].append({"path": file.rfilename, "size": file.size, "hash": lfs or file.blob_id})
    else:
        snapshot_download(asked["model"], revision=asked["revision"], allow_patterns=asked["paths"])
except Exception as error:
    if type(error).__name__ == "LocalEntryNotFoundError":  # the hub did not answer, and nothing is here
        error = error.__cause__ or error
    response = getattr(error, "response", None)
    said = {"error": {"kinds": [kind.__name__ for kind in type(error).__mro__], "text": str(error),
                      "status": getattr(response, "status_code", None)}}
print(json.dumps(said))
"""


def bytes_of(path: Path) -> int:
    """Of what has arrived; 0 where nothing has."""
    with contextlib.suppress(OSError):
        return path.lstat().st_size
    return 0


def command(
    argv: Sequence[str],
    *,
    input: str | None = None,  # noqa: A002
    watch: Callable[[], None] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, and look at what it does every second. One that says too much is ended, and so it is
    where `watch` raises an error."""
    try:
        child = subprocess.Popen(  # pylint: disable=ansible-bad-function
            list(argv),
            stdin=subprocess.DEVNULL if input is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C"},
            bufsize=0,
        )
    except OSError as error:
        return subprocess.CompletedProcess(list(argv), 127, "", f"{argv[0]}: {error.strerror}")
    with child:
        try:
            pipes = [pipe for pipe in (child.stdout, child.stderr) if isinstance(pipe, FileIO)]
            fed = child.stdin if isinstance(child.stdin, FileIO) else None
            said = commands.talk(fed, memoryview((input or "").encode()), pipes, math.inf, watch)
        except commands.TooMuch as error:
            child.kill()
            return subprocess.CompletedProcess(list(argv), 125, "", f"{argv[0]} {error}")
        except BaseException:  # of whoever watches
            child.kill()
            raise
    return subprocess.CompletedProcess(list(argv), child.returncode, *map(commands.text, said))


def counted(tell: Tell, what: str, source: str, arrived: Callable[[], int], size: int) -> Callable[[], None]:
    """Says how far it is. FilesError where more comes than `size`, as announced: it would end with the disk."""
    before = arrived()

    def look() -> None:
        came = arrived()
        if came - before > size + MORE:
            text = f"of {what}, more came from {source} than the {gigabytes(size)} that were announced"
            raise FilesError("too_large", text, "see who it is: no sound one sends more than it has announced")
        tell(f"{what} from {source}", min(came, size), size)

    return look


class Teller:
    """Writes to a file how far it is, for the task that waits."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last = ("", 0.0)

    def __call__(self, doing: str, done: int, total: int) -> None:
        now = time.monotonic()
        if doing == self._last[0] and now - self._last[1] < TELL_S:
            return
        self._last = (doing, now)
        write(self._path, json.dumps({"doing": doing, "done": done, "total": total, "at": now}))
