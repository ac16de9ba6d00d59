# SPDX-License-Identifier: GPL-3.0-or-later
"""What an image is, by what `docker image inspect` says of it, whatever store it lies in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.before_start import OF_A_CONTAINER
from ansible_collections.gb10.fleet.plugins.module_utils.serving.transfer_errors import FilesError

_BEGIN = len("sha256:") + 12  # what of a digest is in the name that a host gives an image


def its_own(image: dict[str, Any] | None, wanted: str) -> dict[str, Any] | None:
    """The image that has our name for `wanted`. FilesError where it is one whose digest only begins alike."""
    digest = wanted.partition("@")[2]
    held = [str(each).partition("@")[2] for each in (image or {}).get("RepoDigests") or []]
    if digest and digest not in held and any(each[:_BEGIN] == digest[:_BEGIN] for each in held):
        text = f"an image whose digest begins as that of {wanted} has its name here: {', '.join(held)}"
        raise FilesError("image_differs", text, "take another build of one of the two: somebody made them alike")
    return image


def fingerprint(image: Mapping[str, Any]) -> str:
    """What an image is, whatever store it lies in: a classic one gives it another id than one of containerd's."""
    config = {key: value for key, value in (image.get("Config") or {}).items() if value and key not in OF_A_CONTAINER}
    what = {"layers": image["RootFS"]["Layers"], "system": [image.get("Os"), image.get("Architecture")], **config}
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


def configuration(image: Mapping[str, Any]) -> str | None:
    """The digest of an image's configuration, which names its layers too: the image's id in Docker's classic store.

    None in containerd's, where the id is the pinned digest (`Files.is_pinned`); only a classic one has layers to mount.
    """
    return str(image["Id"]) if (image.get("GraphDriver") or {}).get("Data") else None
