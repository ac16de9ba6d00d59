"""What nobody set comes from the plan of the model: the same by hand, by `gb10 plan --into`, and on each host."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.service import ServicePlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import models
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.memory_fit import GIB
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import document, sources
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.serving_plan import plan, usual_memory_gib

from tests.support.model_folders import CASES
from tests.support.plan_and_role import lines, role

MODEL = "openai/gpt-oss-120b"
SPARK = usual_memory_gib()
GIBS = (SPARK, SPARK)


def served(made: ServicePlan) -> list[str]:
    assert made.refusals == () and made.joint_refusals == ()
    return list(made.argv[made.argv.index("serve") :])


def texts(made: ServicePlan) -> list[str]:
    return [each.text for each in made.added]


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize("model", models.models(), ids=lambda model: model.id)
def test_the_model_alone_and_the_lines_of_its_plan_are_one_command_line(model: models.Model, hosts: int) -> None:
    found = plan(model.id, [SPARK * GIB] * hosts)
    if found.checkpoint is None:
        return  # it takes more hosts
    said = lines(found)
    by_hand = role({"vllm_model": found.checkpoint.id}, hosts, GIBS)
    into = role(said, hosts, GIBS)
    assert by_hand.argv == into.argv
    assert into.added == () and by_hand.added != ()
    assert set(found.args) - {f"{found.utilization:.2f}"} <= set(served(by_hand))


def test_nothing_is_added_where_that_was_said() -> None:
    made = role({"vllm_model": MODEL, "vllm_flags": "none"})
    assert made.added == () and "--tool-call-parser" not in made.argv and "--max-model-len" not in made.argv
    words = served(made)
    assert words[words.index("--gpu-memory-utilization") + 1] == "0.8"


@pytest.mark.parametrize(
    ("variables", "flag", "value"),
    [
        ({"vllm_max_model_len": 4096}, "--max-model-len", "4096"),
        ({"vllm_max_model_len": -1}, "--max-model-len", "auto"),
        ({"vllm_gpu_memory_utilization": 0.7}, "--gpu-memory-utilization", "0.7"),
        ({"vllm_extra_args": ["--max-num-seqs", "2"]}, "--max-num-seqs", "2"),
        ({"vllm_extra_args": ["--max_num_seqs=2"]}, "--max_num_seqs=2", None),
        ({"vllm_extra_args": ["--no-enable-auto-tool-choice"]}, "--no-enable-auto-tool-choice", None),
    ],
)
def test_what_the_inventory_says_goes_before_it(variables: dict[str, Any], flag: str, value: str | None) -> None:
    made = role({"vllm_model": MODEL} | variables)
    words = served(made)
    assert words.count(flag) == 1 and (value is None or words[words.index(flag) + 1] == value)
    named = flag.removeprefix("--no-").removeprefix("--").partition("=")[0].replace("_", "-")
    assert not [text for text in texts(made) if text.startswith(f"--{named}")]
    assert "--reasoning-parser openai_gptoss" in texts(made), "the rest is still the plan's"


def test_each_has_a_reason() -> None:
    for found in models.models():
        for checkpoint in found.checkpoints:
            made = role({"vllm_model": checkpoint.id}, 2)
            assert all(each.because for each in made.added)


def test_some_mib_more_or_less_change_nothing() -> None:
    """An update of the kernel moves MemTotal."""
    said = {"vllm_model": "Qwen/Qwen3.6-27B"}
    assert role(said, gib=(121.63,)).argv == role(said, gib=(121.69,)).argv
    assert role(said, gib=(119.2,)).argv != role(said, gib=(90.0,)).argv


@pytest.mark.parametrize(
    "variables",
    [
        {"vllm_model": "acme/new"},
        {"vllm_model": MODEL, "vllm_image": "registry.example/mine:1"},
        {"vllm_model": MODEL, "vllm_extra_args": ["--max-num-seqs", "many"]},
    ],
    ids=["no catalog has it", "of an unknown version", "what is wrong is said elsewhere"],
)
def test_of_what_nobody_knows_nothing_is_said(variables: dict[str, Any]) -> None:
    assert role(variables).added == ()


def test_both_hosts_of_a_pair_go_by_the_smaller_one() -> None:
    said = {"vllm_model": "Qwen/Qwen3.6-27B"}
    uneven = role(said, 2, (121.69, 60.0))
    assert texts(uneven) == texts(role(said, 2, (60.0, 60.0))) and texts(uneven) != texts(role(said, 2))


def test_room_for_adapters_is_counted(tmp_path: Path) -> None:
    """128 experts in each of 48 layers: 1.6 GiB for one adapter of rank 16."""
    model = "Qwen/Qwen3-30B-A3B"
    found = sources.find(str(next(case for case in CASES if case.id == model).folder(tmp_path / "m")))
    file = tmp_path / "facts.json"
    file.write_text(document.written(replace(found, id=model)), encoding="utf-8")
    said = {"vllm_model": model, "vllm_model_facts": str(file), "vllm_max_model_len": 16384}
    without, with_one = (served(role(said | more)) for more in ({}, {"vllm_lora": [{"name": "a", "model": "x/y"}]}))
    share = "--gpu-memory-utilization"
    taken = [float(words[words.index(share) + 1]) * SPARK for words in (without, with_one)]
    assert 0.5 < taken[1] - taken[0] < 2.7 and with_one.count("--enable-lora") == 1
