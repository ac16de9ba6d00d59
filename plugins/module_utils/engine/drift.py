# SPDX-License-Identifier: GPL-3.0-or-later
"""What differs on a host from what the roles declared in their last runs: the manifest, planned again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.engine import next_boot, wishes
from ansible_collections.gb10.fleet.plugins.module_utils.engine.engine import (
    Document,
    Outcome,
    as_changes,
    read_states,
    remembered,
)
from ansible_collections.gb10.fleet.plugins.module_utils.engine.kinds import KINDS
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.common import Pending, Plan, Step
from ansible_collections.gb10.fleet.plugins.module_utils.reading import stop_requests
from ansible_collections.gb10.fleet.plugins.module_utils.system import manifest as manifests
from ansible_collections.gb10.fleet.plugins.module_utils.system.manifest import Manifest
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError, System


def drift(system: System) -> Outcome | None:
    """What differs, to be read only; None where nothing was ever declared.

    Pending is only what waits for consent since somebody changed the host, not what has waited since the last run.
    """
    known = system.once(manifests.load)
    if not known.resources:
        return None
    current = [label for label, entry in known.resources.items() if not entry.orphan]
    now = system.clock.utc()
    document = Document(wishes.heeded(remembered(known, current, {}), known.wishes, now), {})
    states = read_states(document, system)
    plan = _plan_each(document, states)
    # A restart follows from another difference, which is in the list. So does what is read again.
    steps = [step for step in plan.steps if step.action not in ("restart", "read again")]
    differs = {step.resource.label for step in steps}
    later = [step for step in next_boot.found(system, document.resources) if step.resource.label not in differs]
    pending = [item for item in plan.pending if item.action != "restart" and _is_news(item, known, states)]
    return Outcome(
        changes=as_changes([*steps, *later]),
        pending=[{**item.as_result(), "detail": item.detail} for item in pending],
        diff=[step.as_diff() for step in steps],
        orphans=[
            {"role": next(iter(entry.roles)), "resource": label}
            for label, entry in known.resources.items()
            if entry.orphan
        ],
        recorded=known.unfinished is None,
        wishes=[*stop_requests.told(known.wishes, now), *stop_requests.asleep(known, system)],
    )


def _plan_each(document: Document, states: Mapping[str, Any]) -> Plan:
    """The plan; where a kind refuses, its resources one by one, so that one of them does not hide the others."""
    plan = Plan(consents=document.consents, document=document.resources)
    for name in states:
        resources = document.of_kind(name)
        steps, pending = len(plan.steps), len(plan.pending)
        try:
            KINDS[name].plan(resources, states[name], plan)
        except HostError:
            del plan.steps[steps:], plan.pending[pending:]
            for resource in resources:
                try:
                    KINDS[name].plan([resource], states[name], plan)
                except HostError as error:
                    plan.steps.append(Step(resource, "refuse", str(error)))
    plan.steps.sort(key=lambda step: step.resource.index)
    return plan


def _is_news(pending: Pending, known: Manifest, states: Mapping[str, Any]) -> bool:
    resource = pending.resource
    entry = known.resources[resource.label]
    as_left = entry.left == KINDS[resource.KIND].record(resource, states[resource.KIND])
    return pending.action not in entry.pending or not as_left
