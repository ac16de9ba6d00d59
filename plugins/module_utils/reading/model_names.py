# SPDX-License-Identifier: GPL-3.0-or-later
"""What a model is called where a name may only have small letters, digits and `-`: by a router, and in metrics."""

from __future__ import annotations

import re

_OTHERS = re.compile(r"[^a-z0-9]+")


def place(model: str) -> str:
    return _OTHERS.sub("-", model.lower()).strip("-")
