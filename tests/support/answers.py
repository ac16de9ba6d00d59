"""What the engine says where nothing is to be said: every answer of a host has all of these keys."""

from __future__ import annotations

from typing import Any

EMPTY: dict[str, Any] = {
    "facts": None, "stale": [], "changes": [], "pending": [], "orphans": [], "diff": [], "wishes": [], "known": True,
    "recorded": True, "guard": None, "error": None, "subprocesses": 0,
}  # fmt: skip
