"""What was not told before, of what comes more than once: findings of a look and of a host, changes of two tasks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any


class Untold:
    """Known by their texts. A host may say hundreds of thousands: each compared with all took hours."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()

    def of(self, what: str, items: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return those that are new, in their order; `what`: where they belong."""
        found = {(what, json.dumps(item, sort_keys=True)): dict(item) for item in items}
        new = [item for mark, item in found.items() if mark not in self._told]
        self._told |= found.keys()
        return new
