"""What docs/services.md has for pasting, can be served and woken."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import planner as vllm
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import models

from tests.support.proofs import facts

ROOT = Path(__file__).parents[3]
ASKED = "/v1/chat/completions"
GATEWAY = {"gateway_address": "192.0.2.11", "gateway_plain_http": True, "gateway_keys": {"laptop": "a" * 40}}


def example(heading: str) -> dict[str, Any]:
    section = (ROOT / "docs/services.md").read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    found: dict[str, Any] = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)[0])
    return found


def test_what_sleeps_is_asked_by_a_path_that_clients_have_by_default() -> None:
    given = example("A start when asked")
    paths = yaml.safe_load((ROOT / "roles/gateway/defaults/main.yml").read_text())["gateway_paths"]
    tasks = catalog.load("models")["tasks"]
    asleep = [entry["model"] for entry in given["vllm_services"].values() if entry.get("on_demand")]
    assert asleep
    for model in asleep:
        task = models.task_of_name(model)
        assert f"POST {tasks[task]['path'] if task in tasks else ASKED}" in paths, model
    plan = vllm.plan(View("spark-a", facts(), {**given, **GATEWAY}))
    assert (plan.refusals, plan.joint_refusals) == ((), ())
    assert [each.name for each in plan.services] == [*given["vllm_services"]]
