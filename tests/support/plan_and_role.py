"""The same service, judged by `gb10 plan` and by the role."""

from __future__ import annotations

from typing import Any

import yaml
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.service import ServicePlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.memory_fit import GIB
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.serving_plan import Plan

from tests.support.proofs import facts as host_facts
from tests.support.services import only_service

HOSTS = ("spark-a", "spark-b")
# The inventory says more of these than a plan is told, or the unit does.
_OF_THE_ROLE = {"environment_unchecked", "driver_unknown"}


def role(variables: dict[str, Any], hosts: int = 1, gib: tuple[float, ...] = (121.69, 121.69)) -> ServicePlan:
    said = variables | {"vllm_allow_tag": True, "fabric_topology": "pair"}
    facts = {
        name: {**host_facts(name), "memory_bytes": int(size * GIB)}
        for name, size in zip(HOSTS[:hosts], gib, strict=False)
    }
    others = {name: facts[name] for name in HOSTS[1:hosts]}
    return only_service(View("spark-a", facts["spark-a"], said, HOSTS[:hosts], others, dict.fromkeys(others, said)))


def lines(found: Plan) -> dict[str, Any]:
    """As the reader of the inventory gets them."""
    read: dict[str, Any] = yaml.safe_load("\n".join(found.inventory_lines))
    return read


def judged(found: Plan) -> set[str]:
    return {rule.id for rule in found.fired if rule.severity != "info"} - _OF_THE_ROLE


def by_the_role(made: ServicePlan) -> set[str]:
    return {each["id"] for each in made.findings} - _OF_THE_ROLE
