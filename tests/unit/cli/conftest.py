"""Each answer with --json is held to its schema."""

from __future__ import annotations

from tests.support.held import held

__all__ = ["held"]
