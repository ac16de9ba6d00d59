"""A rollout that stopped tells people of itself: by gb10_notify, which the inventory has and a vault may hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import notify

from gb10_fleet.playbook import Order, Outcome, Report
from gb10_fleet.rollout.journal import hosts_of
from gb10_fleet.rollout.recipes import Recipe

LIMIT_S = 120  # for Ansible's start and the hook


def tell(record: Mapping[str, Any], page: Path | None, run: Callable[..., tuple[Outcome, Report]]) -> str | None:
    """Tell of a rollout that ended and is not done. Returns why nobody may have heard of it."""
    if record["ended"] is None or record["outcome"] == Outcome.done.name:
        return None
    bad = [host["host"] for host in hosts_of(record) if host["state"] not in ("planned", "done")]
    counts = ", ".join(f"{count} {state}" for state, count in record["counts"].items())
    text = "\n".join([f"{record['run']}: {counts}", *([str(record["reason"])] if record["reason"] else [])])
    event = notify.event(notify.ROLLOUT, record["outcome"], text, bad, str(page.resolve()) if page else None, bad)
    recipe = Recipe.of(record)
    order = Order(
        "gb10.fleet.notify",
        recipe.inventories,
        variables={"__notify_event": event},
        words=recipe.words,
        timeout_s=LIMIT_S,
    )
    outcome, report = run(order, quiet=True, watch=lambda _event: None)
    if outcome == Outcome.done:
        return None
    reasons = [*(text for texts in report.messages.values() for text in texts), *report.errors]
    return reasons[0] if reasons else "nobody was told of it: the playbook gb10.fleet.notify failed"
