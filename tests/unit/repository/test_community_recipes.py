"""Recipes of the community as inventories (examples/recipes): the plan's command line against the recipe's own."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.settings import SettingsError
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.engines import rules
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.engines.known import ENGINES

from tests.support.community_recipes import FOLDER, OF_SGLANG, RECIPES, engine_of, plans

CANNOT = {
    "atlas-minimax-m2.7-two": f"vllm_services.minimax.engine must be one of: {', '.join(ENGINES)}, got: atlas",
}
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


def test_thirteen_of_fourteen_are_written() -> None:
    assert {path.stem for path in FOLDER.glob("*.yml")} == {*RECIPES, *CANNOT}
    assert len(RECIPES) == 13 and len(CANNOT) == 1
    assert {engine_of(name) for name in RECIPES} == set(OURS) <= set(ENGINES)


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


@pytest.mark.parametrize("name", OF_SGLANG)
def test_sglang_takes_all_flags_and_values_of_all_ranks(name: str) -> None:
    fork, version = set(RECIPES[name].get("fork", ())), RECIPES[name]["reads"]
    ranks = [plan.services[0].argv for plan in plans(name)]
    assert [int(flags(rank).get("--node-rank", ["0"])[0]) for rank in ranks] == list(range(len(ranks)))
    for rank in ranks:
        line = [word for word in bare(rank) if word.partition("=")[0] not in fork]
        assert [each for each in rules.judge("sglang", "", version, line, len(ranks), {}) if each.refuses] == []


@pytest.mark.parametrize("name", CANNOT)
def test_what_cannot_be_written_is_refused_by_name(name: str) -> None:
    with pytest.raises(SettingsError) as raised:
        plans(name)
    assert CANNOT[name] in str(raised.value)
