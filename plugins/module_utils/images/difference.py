# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an image has that its base has not: the layers on top of the base's, file by file. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.images.layers import Layer

# What `docker run` uses of an image's configuration, and a build on top of it must leave alone.
_SETTINGS = ("Cmd", "Entrypoint", "Env", "ExposedPorts", "StopSignal", "User", "Volumes", "WorkingDir")


def of(base: Mapping[str, Any], image: Mapping[str, Any], found: Sequence[Layer]) -> dict[str, Any]:
    """`base` and `image` are what `docker image inspect` says, `found` the image's layers, the lowest first.

    `on_base`: the base's layers are the lowest ones. Where they are not, nothing else can be said.
    """
    below, all_ = base["RootFS"]["Layers"], image["RootFS"]["Layers"]
    on_base = all_[: len(below)] == below and len(found) == len(all_)
    above = found[len(below) :] if on_base else []
    changed = {path for layer in above for path in layer.taken}
    removed = {path for layer in above for path in layer.gone}
    emptied = {f"{path}/" for layer in above for path in layer.emptied}
    own, other = base.get("Config") or {}, image.get("Config") or {}
    return {
        "on_base": on_base,
        "changed": [f"/{path}" for path in sorted(changed)],
        "removed": [f"/{path}" for path in sorted(removed | emptied)],
        "settings": [key for key in _SETTINGS if (own.get(key) or None) != (other.get(key) or None)],
    }
