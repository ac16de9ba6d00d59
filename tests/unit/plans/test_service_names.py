"""Names of services in other variables: a slip is refused, and a service of another host of the fleet is known."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import watchdog
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import planner as vllm

from tests.support.proofs import facts

HERE: dict[str, Any] = {"vllm_services": {"chat": {"model": "acme/chat", "memory_gib": 20}}}
THERE: dict[str, Any] = {"vllm_services": {"embed": {"model": "acme/embed"}}, "vllm_model": "acme/short"}


def view(**more: Any) -> View:
    mine = {**HERE, **more}
    return View("a", facts(), mine, inventory={"a": mine, "b": THERE})


@pytest.mark.parametrize("names", [[], ["chat"], ["chat", "embed", "vllm"]])
def test_services_of_the_fleet_are_known(names: list[str]) -> None:
    assert watchdog.plan(view(watchdog_services=names)).refusals == ()
    assert vllm.plan(view(gb10_layouts={"split": names} if names else {})).refusals == ()


def test_a_slip_is_refused() -> None:
    (text,) = watchdog.plan(view(watchdog_services=["caht"])).refusals
    assert text.startswith("watchdog_services names caht") and "there are chat, embed, vllm" in text
    (text,) = vllm.plan(view(gb10_layouts={"split": ["caht"]})).refusals
    assert text == "gb10_layouts.split: no service is called caht; there are chat, embed, vllm."
