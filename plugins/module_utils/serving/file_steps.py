# SPDX-License-Identifier: GPL-3.0-or-later
"""One step on the way of image, model and draft model, on one host."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.serving.host_files import Files
from ansible_collections.gb10.fleet.plugins.module_utils.serving.model_folder import Tell


def carry_out(step: str, request: Mapping[str, Any], secret: str, tell: Tell) -> dict[str, Any]:
    """One step that changes something; `secret` is the token of the hub or the password between hosts."""
    os.umask(0o022)  # the daemon and the model's server read what is written here
    files = Files(request["files"], tell)
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
