"""Which models a rollout has stopped, so that whoever ends it on the way hears who does not serve now.

The drain may stop a model from the moment at which its ansible-playbook begins. So that is written down first, and what
its events say after it. A gb10 that is killed leaves `maybe` where it has not heard.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gb10_fleet.playbook import DRAIN, SERVE
from gb10_fleet.rollout.journal import MODELS, Journal
from gb10_fleet.stopping import Stop

# Of a host's model: `maybe` stopped, `stopped`, `started` (it loads, or serves), or `kept` as it was.
MAYBE, STOPPED, STARTED, KEPT = "maybe", "stopped", "started", "kept"
DOWN = (STOPPED, MAYBE)
_WORDS = {STOPPED: "does not serve now", MAYBE: "may not serve now"}


class Models:
    """Hears the events of one ansible-playbook, on a thread of their own, and notes them from the main one."""

    def __init__(self, journal: Journal, run: str, wave: int, serving: Iterable[str]) -> None:
        """`serving`: hosts whose model is going to be stopped."""
        self.journal, self.run, self.wave = journal, run, wave
        known = journal.models(run)
        self.open = {host for host in serving if known.get(host) not in DOWN}
        self.heard, self.noted = dict[str, str](), dict[str, str]()
        if self.open:
            journal.note(run, MODELS, wave, models=dict.fromkeys(sorted(self.open), MAYBE))

    def hear(self, event: Mapping[str, Any]) -> None:
        data, kind = event.get("event_data", {}), event.get("event")
        if data.get("step") not in (DRAIN, SERVE):
            return
        if kind == "runner_on_ok" and data.get("res", {}).get("changed"):  # of these plays, what stops or starts
            self.heard[data["host"]] = STOPPED if data["step"] == DRAIN else STARTED
        elif kind in ("runner_on_failed", "runner_on_unreachable") and data["step"] == DRAIN:
            self.open.discard(data["host"])  # who knows

    def canceled(self, stop: Stop) -> bool:
        """Tell playbook.run, which asks once a second on the thread that may write."""
        self.note()
        return stop.is_set()

    def note(self, *, ended: bool = False) -> None:
        """Write down what is new. After the end, a host of which nothing was heard has kept its model."""
        heard = {**self.heard}
        if ended:
            heard = {**dict.fromkeys(self.open, KEPT), **heard}
        new = {host: state for host, state in heard.items() if self.noted.get(host) != state}
        if new:
            self.journal.note(self.run, MODELS, self.wave, models=new)
            self.noted |= new


def down(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """`{cluster, hosts, state}` of each cluster (or host alone) whose model a rollout has stopped."""
    found: dict[str, dict[str, Any]] = {}
    for wave in record["waves"]:
        for host in wave["hosts"]:
            state = record["models"].get(host["host"])
            if state in DOWN:
                unit = host["cluster"] or f"host {host['host']}"
                item = found.setdefault(unit, {"cluster": host["cluster"], "hosts": [], "state": MAYBE})
                item["hosts"].append(host["host"])
                item["state"] = STOPPED if STOPPED in (state, item["state"]) else MAYBE
    return [*found.values()]


def words(record: Mapping[str, Any]) -> list[str]:
    """A line for each cluster that does not serve."""
    lines = []
    for item in down(record):
        hosts = ", ".join(item["hosts"])
        who = f"cluster {item['cluster']} ({hosts})" if item["cluster"] else hosts
        lines.append(f"{_WORDS[item['state']]}: {who}")
    return lines
