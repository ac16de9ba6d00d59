"""The one screen before anything changes: what was found, what changes, what may restart, and the models. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.security_floors import FLOOR, components
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import counted, some
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import host

from gb10_fleet.discover.machines import Machine
from gb10_fleet.playbook import Report
from gb10_fleet.up.cables import Cluster
from gb10_fleet.up.offers import Offer

_KINDS = {
    "package": "package",
    "file": "file",
    "unit": "systemd unit",
    "sysctl": "kernel setting",
    "hold": "package hold",
    "nm_profile": "network profile",
    "kernel_module": "kernel module",
}
_ANSWERS = ("unit:gb10-vllm", "unit:gb10-gateway", "unit:gb10-router")  # requests of others
_MARKUP = re.compile(r"\b[A-Z]\(([^)]*)\)")


@dataclass(frozen=True)
class Preview:
    """What the doctor said a run would do, by host; `consents`: hosts by the variable that has to allow it."""

    changes: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    consents: Mapping[str, Sequence[str]] = field(default_factory=dict)
    warnings: Sequence[Mapping[str, Any]] = ()


def lacking(report: Report) -> dict[str, list[str]]:
    """Return the hosts by the consent that they wait for: as our own decisions say, and not by what a host writes."""
    found: dict[str, list[str]] = {}
    for name, consents in report.lacks.items():
        for consent in consents:
            found.setdefault(consent, []).append(name)
    return found


def meaning(consent: str) -> str:
    """Say what a consent allows, in the words of its role."""
    said = catalog.declared_variables().variables[consent]["description"]
    first = said[0] if isinstance(said, list) else said
    words = _MARKUP.sub(r"\1", first).removeprefix("Consent to ").split(" Without it")[0]
    return words.rstrip(".")


def lines(
    sparks: Sequence[Machine], clusters: Sequence[Cluster], foreign: Mapping[str, Sequence[str]], preview: Preview,
    offers: Sequence[Offer], caches: Mapping[str, Mapping[str, Any]] | None = None,
) -> Iterator[str]:  # fmt: skip
    """All of it, for a person. A host's words name no consent beside those that are asked for."""
    seen = _seen(sparks, clusters, foreign, preview, offers, caches or {})
    asked_for = re.compile(rf"\b({'|'.join(host.asked_for())})\b")
    yield from (asked_for.sub("...", line) for line in seen)
    for consent, names in preview.consents.items():
        yield f"May restart  {some(sorted(names))}: {meaning(consent)} ({consent})"
    if not preview.consents:
        yield f"May restart  nothing {'else ' if _cut(preview.changes) else ''}that runs now"
    yield "Later        `gb10 undo --all` puts everything back; `gb10 site --check --diff` shows each line of a change"
    yield ""
    yield "Models that fit:" if len(offers) > 1 else "Model:"
    advice = " (what we would take)" if len(offers) > 1 else ""
    yield from (f"  {number}  {offer.line}{'' if number > 1 else advice}" for number, offer in enumerate(offers, 1))


def _seen(
    sparks: Sequence[Machine], clusters: Sequence[Cluster], foreign: Mapping[str, Sequence[str]], preview: Preview,
    offers: Sequence[Offer], caches: Mapping[str, Mapping[str, Any]],
) -> Iterator[str]:  # fmt: skip
    """What the hosts say of themselves, and what changes there."""
    yield ""
    yield from (f"Found        {spark.name} ({spark.place}): {spark.product}" for spark in sparks)
    yield from (f"Cables       {cluster.words}" for cluster in clusters if len(sparks) > 1)
    yield from (f"Left alone   {name}: {', '.join(containers)}" for name, containers in foreign.items() if containers)
    for name, cache in caches.items():
        served = {plan.checkpoint.id for one in offers for plan in one.plans if plan.checkpoint}
        if mine := sorted(served & set(cache["models"])):
            yield f"Weights      {name}: {', '.join(mine)}: copied from {cache['path']}, checked, and not changed there"
    yield from _changes(preview.changes)
    for unit, names in _cut(preview.changes).items():
        yield f"Restarts     {some(names)}: {unit}: its requests are cut, and it answers again when it is ready"
    yield from _warnings(preview.warnings)


def _warnings(findings: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """One line for each fact, and one for all that is below its security floor: default versions are, on each host."""
    old = [each for each in findings if each["id"] == FLOOR]
    hosts: dict[str, list[str]] = {}
    for each in findings:
        if each["id"] != FLOOR:
            hosts.setdefault(str(each["fact"]), []).append(each["host"])
    if old:
        what = components(str(each["fact"]) for each in old)
        hosts[f"published vulnerabilities in {what}"] = [*dict.fromkeys(each["host"] for each in old)]
    yield from (f"Warning      {some(sorted(names))}: {fact}" for fact, names in hosts.items())
    if findings:
        yield "             No warning stops the set-up; `gb10 doctor` says the fix of each afterwards"


def _changes(changes: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    same: dict[str, list[str]] = {}
    for name, rows in sorted(changes.items()):
        if rows:
            same.setdefault(_counts(rows), []).append(name)
    yield from (f"Changes      {some(names)}: {what}" for what, names in same.items())


def _cut(changes: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, list[str]]:
    """Our units that answer requests and restart, with their hosts: that needs no consent, and cuts who asks them."""
    found: dict[str, list[str]] = {}
    for name, rows in sorted(changes.items()):
        for row in rows:
            if row.get("action") == "restart" and str(row["resource"]).startswith(_ANSWERS):
                found.setdefault(str(row["resource"]).removeprefix("unit:"), []).append(name)
    return found


def _counts(rows: Sequence[Mapping[str, Any]]) -> str:
    resources = dict.fromkeys(str(row["resource"]) for row in rows)
    kinds = Counter(_KINDS.get(label.partition(":")[0], "other thing") for label in resources)
    packages = [label.partition(":")[2] for label in resources if label.startswith("package:")]
    said = ", ".join(counted(number, what) for what, number in kinds.items())
    return f"{said}; packages: {', '.join(packages)}" if packages else said


def question(offers: Sequence[Offer], consents: Sequence[str]) -> str:
    """The last one: its yes is the consent to what the screen names under "May restart"."""
    allowing = f" and allow {', '.join(consents)}" if consents else ""
    if len(offers) == 1:
        return f"Set up{allowing}? [y]es or [n]o:"
    numbers = ", ".join(str(number) for number in range(1, len(offers))) + f" or {len(offers)}"
    return f"Set up with model {numbers}{allowing}? The number, or [n]o:"
