# SPDX-License-Identifier: GPL-3.0-or-later
"""One step on the way of image, model and draft model, on one host."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Callable

from ansible_collections.gb10.fleet.plugins.module_utils.serving import host_files
from ansible_collections.gb10.fleet.plugins.module_utils.serving.host_files import Files
from ansible_collections.gb10.fleet.plugins.module_utils.serving.model_folder import Tell
from ansible_collections.gb10.fleet.plugins.module_utils.serving.transfer_errors import FilesError


def carry_out(
    step: str, request: Mapping[str, Any], secret: str, tell: Tell, load: Callable[[Path, str], None] | None = None
) -> dict[str, Any]:
    """One step that changes something; `secret` is the token of the hub or the password between hosts."""
    os.umask(0o022)  # the daemon and the model's server read what is written here
    files = Files(request["files"], tell)
    files.load = load
    if step == "download":
        move = bool(request.get("move"))
        changed = files.download(secret, request.get("pin"), move)
        if files.draft:
            changed = files.draft.fetch_model(secret, request.get("draft_pin"), move) or changed
        for each, pin in zip(files.loras, request.get("lora_pins") or [None] * len(files.loras)):
            changed = each.fetch_model(secret, pin, move) or changed
        return {"changed": changed, **files.read()}
    if step == "offer":
        said = files.offer(request["parts"], request["ways"], request["port"], secret, request["limit_s"])
        return {"changed": False, **said}
    if step == "take":
        files.take(request["offered"], request["parts"], request["address"], request["port"], secret)
    else:
        files.withdraw()
    return {"changed": step == "take"}


@contextlib.contextmanager
def alone() -> Iterator[Path]:
    """One run at a time on a host; gives the file where it says how far it is."""
    host_files.RUN.mkdir(mode=0o700, parents=True, exist_ok=True)
    progress = host_files.RUN / "progress.json"
    with (host_files.RUN / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = "another run is still fetching files on this host"
            way_out = f"wait for it (`cat {progress}` says how far it is), then run again"
            raise FilesError("busy", text, way_out) from None
        secrets = (each for kind in ("*token.env*", "*password*") for each in host_files.RUN.glob(kind))
        for former in (progress, *secrets):  # of a run that was killed
            former.unlink(missing_ok=True)
        try:
            yield progress
        finally:
            progress.unlink(missing_ok=True)
