"""Recipes of the community as inventories (examples/recipes), and what each of their hosts would get."""

from __future__ import annotations

from typing import Any

import yaml
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.vars.manager import VariableManager
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import planner as vllm
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.planner import VllmPlan

from tests.support.proofs import ROOT, facts

FOLDER = ROOT / "examples/recipes"
RECIPES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "tests/fixtures/engines/recipes.yml").read_text())


def plans(name: str) -> list[VllmPlan]:
    """What each host of the example would get, the head first."""
    loader = DataLoader()
    inventory = InventoryManager(loader=loader, sources=[str(FOLDER / f"{name}.yml")])
    variables = VariableManager(loader=loader, inventory=inventory)
    of = {host.name: variables.get_vars(host=host) for host in inventory.get_hosts("sparks")}
    seen = []
    for host in of:
        others = [each for each in of if each != host]
        peers, given = {each: facts(each) for each in others}, {each: of[each] for each in others}
        members = list(of) if "gb10_cluster" in of[host] else [host]
        seen.append(vllm.plan(View(host, facts(host), of[host], members, peers, given)))
    return seen


def engine_of(name: str) -> str:
    (entry,) = yaml.safe_load((FOLDER / f"{name}.yml").read_text())["sparks"]["vars"]["vllm_services"].values()
    engine: str = entry.get("engine", "vllm")
    return engine


OF_SGLANG = [name for name in RECIPES if engine_of(name) == "sglang"]
