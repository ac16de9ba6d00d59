"""Recipes of the community as inventories (examples/recipes): the plan's command line against the recipe's own."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import yaml
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.vars.manager import VariableManager
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.settings import SettingsError
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import planner as vllm
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.planner import VllmPlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.engines import rules
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.engines.known import ENGINES

from tests.support.proofs import ROOT, facts

FOLDER = ROOT / "examples/recipes"
RECIPES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "tests/fixtures/engines/recipes.yml").read_text())
CANNOT = {"atlas-minimax-m2.7-two": "vllm_services.minimax.engine must be one of: vllm, sglang, llama_cpp, got: atlas"}
SHORT = {"-tp": "--tensor-parallel-size", "-pp": "--pipeline-parallel-size", "--tp": "--tp-size"}
ONE = {"--tensor-parallel-size", "--pipeline-parallel-size", "--tp-size", "--pp-size"}  # of 1: as if nobody said it
# Where it listens and where its ranks meet: the fleet's own, by which no recipe is judged.
PLACES = {"--host", "--port", "--dist-init-addr", "--master-addr", "--master-port"}
# What the role says beside a recipe.
OURS = {
    "vllm": {"--served-model-name", "--revision", "--distributed-executor-backend", "--nnodes", "--node-rank"},
    "sglang": {
        *("--served-model-name", "--revision", "--nnodes", "--node-rank", "--enable-metrics", "--chunked-prefill-size"),
    },
    "llama_cpp": {"--alias", "--parallel", "--n-gpu-layers", "--spec-draft-ngl", "--metrics"},
}  # fmt: skip


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


@cache
def words(name: str) -> tuple[str, ...]:
    """The words of its first host after `docker run ... IMAGE`; nothing of it may be refused."""
    for plan in plans(name):
        assert (*plan.refusals, *plan.joint_refusals) == ()
    head = plans(name)[0].services[0]
    return head.argv[head.argv.index(head.image_name) + 1 :]


def bare(line: Sequence[str]) -> Sequence[str]:
    """Without `python3 -m MODULE`."""
    return line[line.index("-m") + 2 :] if "-m" in line else line


def flags(line: Sequence[str]) -> dict[str, list[Any]]:
    """The values of each flag, those in JSON as what they mean."""
    found: dict[str, list[Any]] = {}
    last: list[Any] = []
    for word in line:
        flag, equals, value = word.partition("=")
        if flag.startswith("-"):
            last = found[SHORT.get(flag, flag)] = [value] if equals else []
        else:
            last.append(word)
    for said in found.values():
        said[:] = [json.loads(each) if each.startswith("{") else each for each in said]
    return {flag: said for flag, said in found.items() if flag not in ONE or said != ["1"]}


def engine_of(name: str) -> str:
    (entry,) = yaml.safe_load((FOLDER / f"{name}.yml").read_text())["sparks"]["vars"]["vllm_services"].values()
    engine: str = entry.get("engine", "vllm")
    return engine


def test_thirteen_of_fourteen_are_written() -> None:
    assert {path.stem for path in FOLDER.glob("*.yml")} == {*RECIPES, *CANNOT}
    assert len(RECIPES) == 13 and len(CANNOT) == 1
    assert {engine_of(name) for name in RECIPES} == set(ENGINES)


@pytest.mark.parametrize("name", RECIPES)
def test_the_plan_has_the_command_line_of_the_recipe(name: str) -> None:
    theirs, ours = flags(bare(shlex.split(RECIPES[name]["words"]))), flags(bare(words(name)))
    apart = {*RECIPES[name].get("apart", {}), *PLACES}
    share = "--mem-fraction-static"
    if share in theirs and share not in apart:  # GiB of ours against a share of theirs: never more, and hardly less
        assert 0 <= float(theirs[share][0]) - float(ours[share][0]) < 0.01
        apart.add(share)
    assert {flag: said for flag, said in theirs.items() if flag not in apart and ours.get(flag) != said} == {}
    assert ours.keys() - theirs.keys() - OURS[engine_of(name)] - PLACES - ONE == set()


@pytest.mark.parametrize("name", [name for name in RECIPES if engine_of(name) == "sglang"])
def test_sglang_has_all_flags_of_all_ranks(name: str) -> None:
    known = rules._flags("sglang")[RECIPES[name]["reads"]] | set(RECIPES[name].get("fork", ()))
    ranks = [plan.services[0].argv for plan in plans(name)]
    assert [int(flags(rank).get("--node-rank", ["0"])[0]) for rank in ranks] == list(range(len(ranks)))
    for rank in ranks:
        line = rank[rank.index("sglang.launch_server") + 1 :]
        assert {flag for flag in flags(line) if flag not in known} == set()


@pytest.mark.parametrize("name", CANNOT)
def test_what_cannot_be_written_is_refused_by_name(name: str) -> None:
    with pytest.raises(SettingsError) as raised:
        plans(name)
    assert CANNOT[name] in str(raised.value)
