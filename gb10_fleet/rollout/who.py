"""With whom a run works: the hosts of the inventory as Ansible sees them, and those of a run that has begun."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import clusters, reserved
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import some

from gb10_fleet.playbook import Order, Outcome, Report
from gb10_fleet.rollout.journal import hosts_of, utc
from gb10_fleet.rollout.recipes import Recipe
from gb10_fleet.rollout.waves import FleetHost, Refused, Wave

Playbook = Callable[..., tuple[Outcome, Report]]  # playbook.run
# In a limit these are no names: Ansible would take other hosts, too.
_PATTERN = re.compile(r"[!&~@-]|.*[*?\[\],;\s]")


def of(recipe: Recipe, run: Playbook) -> list[FleetHost]:
    """The hosts of a rollout, as Ansible sees them: groups, limit, vault and all. Refuses a part of a cluster."""
    all_hosts = everyone(recipe, run) if recipe.limit else []
    hosts = _hosts(recipe, run)
    named, clusters = {host.name for host in hosts}, {host.cluster for host in hosts if host.cluster}
    if missing := [host for host in all_hosts if host.cluster in clusters and host.name not in named]:
        name, cluster = missing[0].name, missing[0].cluster
        raise Refused(
            f"--limit leaves out {name} of cluster {cluster}: its hosts are down together, so name all of them"
        )
    return hosts


def everyone(recipe: Recipe, run: Playbook) -> list[FleetHost]:
    """All hosts of the inventory, asked for no consent."""
    return _hosts(replace(recipe, limit=None, steps=()), run)


def _hosts(recipe: Recipe, run: Playbook) -> list[FleetHost]:
    heard: dict[str, Any] = {}

    def listen(event: Mapping[str, Any]) -> None:
        data = event.get("event_data", {})
        if event.get("event") == "runner_on_ok" and data.get("task") == "List the hosts":
            heard.update(json.loads(data["res"]["msg"]))

    wanted = {"gb10_consent": recipe.consent} if recipe.consent else {}
    order = Order("gb10.fleet.hosts", recipe.inventories, recipe.limit, variables=wanted, words=recipe.words)
    _, report = run(order, quiet=True, watch=listen)
    if report.canceled:
        raise Refused("interrupted while the hosts were listed")
    if not heard.get("hosts"):
        said = [
            *map(_in_a_file, report.errors),
            *(f"{host}: {text}" for host, texts in report.messages.items() for text in texts),
        ]
        raise Refused("; ".join(said) or "there is no host to roll out to")
    if odd := [name for name in heard["hosts"] if _PATTERN.match(name)]:
        raise Refused(f"host {odd[0]!r}: to Ansible that is a pattern and not a name; rename it in the inventory")
    _refuse_strangers(heard)
    if recipe.consent:
        _refuse_without(recipe.consent, heard)
    columns = zip(heard["hosts"], heard["clusters"], heard["roles"], heard["reserved"], strict=True)
    return [
        FleetHost(name, cluster or None, "vllm" in roles, _reserved(name, said))
        for name, cluster, roles, said in columns
    ]


def _reserved(name: str, said: str) -> str:
    try:
        return reserved.now_for(said, utc())
    except reserved.WrongReservation as error:
        raise Refused(f"{name}: {error}") from None


def _in_a_file(text: str) -> str:
    """Put an advised extra variable into a file.

    The journal keeps no value, so a rollout takes it from nowhere else.
    """
    text = text.replace(" (with gb10: -- -e gb10_hosts=GROUP)", "")
    return re.sub(r"-e (gb10_hosts)=(\w+)", r"a file with the line `\1: \2`, said as `-- -e @FILE`,", text)


def _refuse_strangers(heard: Mapping[str, Any]) -> None:
    """A host whose gb10_cluster is mistyped would have a wave of its own, and take half of a cluster down."""
    for name, cluster, mine in zip(heard["hosts"], heard["clusters"], heard["in_groups"], strict=True):
        if cluster and cluster not in (*mine, "all"):  # of which Ansible says nothing there
            fact, way_out = clusters.not_its_group(str(cluster), heard["groups"])
            raise Refused(f"{name}: {fact}: {way_out}")


def _refuse_without(consent: str, heard: Mapping[str, Any]) -> None:
    """Before any wave: the playbook itself refuses such a host only when its model is stopped."""
    lacking = [name for name, consent_given in zip(heard["hosts"], heard["consents"], strict=True) if not consent_given]
    if lacking:
        raise Refused(
            f"{some(lacking, 5)}: {consent} is not true, and without this consent the playbook refuses: set it in the"
            f" inventory, or put it into a file with the line `{shlex.quote(consent)}: true`, said as `-- -e @FILE`"
        )


def touched(record: Mapping[str, Any]) -> tuple[list[FleetHost], list[Wave]]:
    """The hosts that a run has begun to work on, in its own waves: what a rollback works on."""
    waves, hosts = list[Wave](), list[FleetHost]()
    for wave in record["waves"]:
        ours = [host for host in wave["hosts"] if host["started"]]
        if ours:
            hosts += map(_planned, ours)
            waves.append(Wave(len(waves) + 1, tuple(host["host"] for host in ours), tuple(wave["clusters"])))
    return hosts, waves


def left(record: Mapping[str, Any]) -> list[FleetHost]:
    """Return the hosts of a run that it still works on: a cluster is done or not as a whole."""
    hosts = [(host["state"], _planned(host)) for host in hosts_of(record)]
    open_ones = {host.cluster or host.name for state, host in hosts if state != Outcome.done.name}
    return [host for _, host in hosts if (host.cluster or host.name) in open_ones]


def _planned(host: Mapping[str, Any]) -> FleetHost:
    """A host as its run has it."""
    return FleetHost(host["host"], host["cluster"], host["serves"])
