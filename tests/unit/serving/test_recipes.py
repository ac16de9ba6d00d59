"""The vendor's recipes: each one as an inventory would say it, and what the role makes of it."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
import yaml
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.service import ServicePlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import inventory_text, models, recipes, vllm_cli

from tests.support.proofs import facts
from tests.support.services import only_service

ALL = recipes.recipes()
MEASURED = [each for each in ALL if each.measured]


def named(recipe: recipes.Recipe) -> str:
    return recipe.id


def pasted(recipe: recipes.Recipe, consented: bool = True) -> dict[str, Any]:
    """The lines as an inventory reads them; a consent is a line that the reader takes out of its comment."""
    lines = recipe.inventory_lines
    if consented:
        lines = [line.removeprefix("# ") for line in lines]
    found: dict[str, Any] = yaml.safe_load("\n".join(lines))
    return found


def planned(recipe: recipes.Recipe, said: dict[str, Any], rank: int = 0) -> ServicePlan:
    members = [f"spark-{name}" for name in "abcd"[: recipe.hosts]]
    said = {**said, "fabric_topology": "pair"} if recipe.hosts > 1 else said
    known = {name: facts(name) for name in members}
    host = members[rank]
    others = [name for name in members if name != host]
    return only_service(
        View(host, known[host], said, members, {name: known[name] for name in others}, dict.fromkeys(others, said))
    )


@pytest.mark.parametrize("recipe", ALL, ids=named)
def test_the_role_takes_every_recipe_as_its_lines_say_it(recipe: recipes.Recipe) -> None:
    for rank in range(recipe.hosts):
        made = planned(recipe, pasted(recipe), rank)
        assert made.refusals == made.joint_refusals == ()
        assert made.argv


@pytest.mark.parametrize("recipe", ALL, ids=named)
def test_the_unit_says_to_vllm_what_the_recipe_says(recipe: recipes.Recipe) -> None:
    argv = list(planned(recipe, pasted(recipe)).argv)
    at = argv.index("serve")
    read = vllm_cli.words(recipe.version or None, argv[at + 2 :]).values
    assert argv[at + 1] == recipe.model
    for flag, value in recipe.arguments.items():
        positive = flag if flag in read else flag.replace("--no-", "--")
        assert read[positive] == [value or ("true" if positive == flag else "false")], flag
    lengths = {0: None, recipes.AUTO: ["auto"]}
    assert read.get("--max-model-len") == lengths.get(recipe.max_model_len, [str(recipe.max_model_len)])
    assert float(read["--gpu-memory-utilization"][0]) == recipe.utilization
    assert read.get("--revision", [""]) == [recipe.revision]
    drafts = json.loads(read["--speculative-config"][0]) if "--speculative-config" in read else {}
    if "model" not in recipe.draft:  # its own layers, which the role has read at the same revision
        assert drafts.pop("revision", recipe.revision) == recipe.revision
    assert drafts == dict(recipe.draft)
    environment = dict(word.split("=", 1) for before, word in itertools.pairwise(argv) if before == "--env")
    assert dict(recipe.environment).items() <= environment.items()


@pytest.mark.parametrize("recipe", [each for each in ALL if inventory_text.consents(each.variables)], ids=named)
def test_what_widens_the_container_is_refused_until_it_is_consented(recipe: recipes.Recipe) -> None:
    refused = " ".join(planned(recipe, pasted(recipe, consented=False)).refusals)
    for consent in inventory_text.consents(recipe.variables):
        assert f"set {consent} to true" in refused


@pytest.mark.parametrize("recipe", MEASURED, ids=named)
def test_the_catalog_of_images_knows_the_digest_and_its_vllm(recipe: recipes.Recipe) -> None:
    image = models.image(recipe.reference)
    assert image and image.version == recipe.version


@pytest.mark.parametrize("recipe", MEASURED, ids=named)
def test_a_measured_recipe_is_not_refused_by_the_plan_either(recipe: recipes.Recipe) -> None:
    found = recipes.judged(recipe, {})
    assert not found.refused and "for the inventory" in "\n".join(found.lines())
    assert not {"model_unmeasured", "version_unknown"} & {
        each.id for each in found.fired if not recipe.version.startswith("0.1.dev")
    }


@pytest.mark.parametrize(
    ("name", "hosts", "found"),
    [
        ("Qwen/Qwen3.6-27B", 0, "qwen3.6-27b-1"),
        ("nvidia/qwen3.6-27b-nvfp4", 2, "qwen3.6-27b-2"),
        ("Qwen/Qwen3.8-27B", 1, "qwen3.8-27b-1"),
        ("Qwen/Qwen3.5-122B-A10B", 0, "qwen3.5-122b-a10b-1"),
        ("deepseek-ai/DeepSeek-V4-Flash", 0, "deepseek-v4-flash-2"),
        ("minimax-m2.7-2", 2, "minimax-m2.7-2"),
    ],
)
def test_a_recipe_is_found_by_checkpoint_model_or_id(name: str, hosts: int, found: str) -> None:
    assert recipes.find(name, hosts).id == found


@pytest.mark.parametrize(
    ("name", "hosts", "says"),
    [
        ("Qwen/Qwen3.6-27B", 4, "for 4 hosts; it has one for --hosts 1, --hosts 2"),
        ("nvidia/Qwen3.6-27B-NVFP", 0, "near it: nvidia/Qwen3.6-27B-NVFP4"),
        ("openai/gpt-oss-120b", 0, "no recipe of openai/gpt-oss-120b"),
    ],
)
def test_what_there_is_not_is_said_with_what_there_is(name: str, hosts: int, says: str) -> None:
    with pytest.raises(recipes.RecipeError, match=says):
        recipes.find(name, hosts)


def test_a_recipe_that_leaves_the_context_to_vllm_says_auto() -> None:
    recipe = recipes.find("deepseek-ai/DeepSeek-V4-Flash-0731")
    argv = list(planned(recipe, pasted(recipe)).argv)
    assert recipe.variables["vllm_max_model_len"] == -1 and argv[argv.index("--max-model-len") + 1] == "auto"


def test_json_has_all_of_it() -> None:
    found = recipes.judged(recipes.find("deepseek-ai/DeepSeek-V4-Flash-0731"), {}).as_dict()
    assert json.loads(json.dumps(found))["measured"]["decode"] == 40.65
    assert found["variables"]["vllm_image"].endswith(found["digest"]) and found["consents"] == ["vllm_allow_mounts"]
    assert "--privileged" in found["not_taken"]


def test_the_vendors_recipes_of_the_reference_are_all_there() -> None:
    """14 measured, and one for two Sparks that was not."""
    assert len(MEASURED) == 14 and len(ALL) == 15
    assert sum(bool(each.draft) for each in MEASURED) == 12


def test_a_model_of_a_recipe_is_a_known_one() -> None:
    assert models.in_recipes("nvidia/minimax-m2.7-nvfp4") and not models.in_recipes("acme/zyx")
    assert models.nearest("nvidia/MiniMax-M2.7-NVFP")[0] == "nvidia/MiniMax-M2.7-NVFP4"


@pytest.mark.parametrize("recipe", [each for each in ALL if "model" in each.draft], ids=named)
def test_a_second_model_is_fetched_as_the_model_is(recipe: recipes.Recipe) -> None:
    """Where its method is said; else vLLM reads that from the second model, and loads both by itself."""
    files = planned(recipe, pasted(recipe)).files
    assert files.fetch is ("method" in recipe.draft)
    if files.fetch:
        assert files.draft and files.draft["model"] == recipe.draft["model"]


def test_a_recipe_shows_the_revision_that_it_pins() -> None:
    one = next(each for each in recipes.recipes() if each.revision)
    at = one.served.index("--revision")
    assert one.served[at + 1] == one.revision and "--revision" not in one.variables["vllm_extra_args"]
