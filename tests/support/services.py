"""The plan of the one service that `vllm_model` and its siblings declare."""

from __future__ import annotations

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import planner as vllm
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.service import ServicePlan


def only_service(view: View) -> ServicePlan:
    made = vllm.plan(view)
    (only,) = made.services
    assert (made.refusals, made.joint_refusals) == (only.refusals, only.joint_refusals)
    assert made.findings == tuple(only.findings)
    return only
