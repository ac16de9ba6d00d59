# SPDX-License-Identifier: GPL-3.0-or-later
"""What it may cost to read one image, in all its layers and files."""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.images.errors import ImageError
from ansible_collections.gb10.fleet.plugins.module_utils.system.budget import Budget

# A large image has 40 GB, some hundred thousand files with names of 80 characters, 5 MB of packages' own words, and
# some hundred thousand kernels.
MOST = {
    "bytes": 64 << 30,  # that gzip and zstd unpack
    "characters": 64 << 20,  # of names, texts and documents
    "nodes": 2_000_000,  # files, once when read and once when their layer is laid on the others; sections and kernels
}


LONGEST_DOCUMENT = 8 << 20  # bytes, in JSON


def document(raw: bytes, budget: Budget) -> Any:
    """What JSON says; a list takes sixteen times its text when it is read, so it is paid before.

    ValueError or RecursionError where it is none.
    """
    budget.spend("characters", len(raw))
    budget.spend_json(raw)
    return json.loads(raw)


def of_image() -> Budget:
    way_out = "no image has so many, so it was made to cost time and memory: take another one"
    return Budget(MOST, lambda text: ImageError("too_much", f"the image: {text}", way_out))
