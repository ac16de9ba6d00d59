# SPDX-License-Identifier: GPL-3.0-or-later
"""What a recipe may be at most: the host's reader goes by it, and the controller once more, for a host may lie."""

from __future__ import annotations

import re

MAX_RECIPES, MAX_RECIPE, MAX_ENTRIES = 100, 1024 * 1024, 2000  # a real host has 11 of 13 KB, with 160 entries
MAX_ALL = 20_000  # entries of all recipes of a host: each is compared with those of all later recipes
# Recipes are sorted by it as text, so another notation would be the newest release of a whole fleet.
_DATE = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])(?![0-9])")


def is_date(text: str) -> bool:
    """Return whether it begins as 2026-07-15 does."""
    return _DATE.match(text) is not None
