# SPDX-License-Identifier: GPL-3.0-or-later
"""The load of our own that `gb10 why --load` asks for, with its figures from catalog/health.yml."""

from __future__ import annotations

from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.checks.patient import Rules

# Options of the load in gb10.fleet.spark_facts, and which limit each is.
_FIGURES = {
    "seconds": "load_s", "size": "load_size", "free_gib": "load_free_gib", "start_s": "load_start_s",
    "idle_percent": "load_idle_percent",
}  # fmt: skip


def wish(rules: Rules, image: str | None) -> dict[str, Any]:
    """`image`: None leaves the choice to the host."""
    figures = {name: rules.limits[limit] for name, limit in _FIGURES.items()}
    return {**figures, **({"image": image} if image else {})}
