"""`gb10 plan --service`: the lines of an entry of vllm_services, planned for the memory that it may take."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import planner as vllm
from typer.testing import CliRunner

from gb10_fleet import cli
from gb10_fleet.playbook import Outcome
from tests.support.service_plans import view

pytestmark = pytest.mark.usefixtures("no_hub")
EXAMPLES = Path(__file__).parents[3] / "inventory/example"
EMBED = "Qwen/Qwen3-Embedding-0.6B"
SMALL = {  # as its config.json says it
    "architecture": "Qwen3ForCausalLM", "context": 32768, "weights": {"gib": 1.11}, "hidden": 1024,
    "vocabulary": 151669, "query_heads": 16,
    "attention": [{"kind": "full", "layers": 28, "kv_heads": 8, "key_dim": 128, "value_dim": 128}],
}  # fmt: skip


def planned(tmp_path: Path, *words: str, model: str = EMBED, **facts: Any) -> tuple[int, dict[str, Any], str]:
    """Exit status, what the lines for the inventory say, and what went wrong."""
    file = tmp_path / "facts.json"
    file.write_text(json.dumps({"id": model, **SMALL, **facts}))
    ran = CliRunner().invoke(cli.app, ["plan", model, "--facts", str(file), *words])
    _, _, lines = ran.stdout.partition("  for the inventory")
    return ran.exit_code, yaml.safe_load(lines.partition("\n")[2]) or {}, " ".join(ran.stderr.split())


def example() -> dict[str, Any]:
    read = yaml.safe_load((EXAMPLES / "many/hosts.yml").read_text())
    services: dict[str, Any] = read["all"]["children"]["sparks"]["children"]["pair1"]["vars"]["vllm_services"]
    return services


def test_the_lines_are_an_entry_that_the_role_takes(tmp_path: Path) -> None:
    status, said, _ = planned(tmp_path, "--service", "embed=8", "--image", "acme/vllm:1", task="embed")
    entry = said["vllm_services"]["embed"]
    assert status == Outcome.done and entry["memory_gib"] == 8 and entry["span"] == "host"
    assert "gpu_memory_utilization" not in entry and not any(key.startswith("vllm_") for key in entry)
    plan = vllm.plan(view({"embed": {**entry, "allow_tag": True}}))
    assert plan.refusals == () and plan.services[0].memory_gib == 8


def test_without_a_memory_the_entry_says_what_the_plan_takes(tmp_path: Path) -> None:
    _, said, _ = planned(tmp_path, "--service", "embed", task="embed")
    entry = said["vllm_services"]["embed"]
    assert entry["max_model_len"] == 32768 and 16 < entry["memory_gib"] < 18


@pytest.mark.parametrize(
    ("name", "facts"),
    [("embed", {"task": "embed"}), ("rerank", {})],
)
def test_the_example_says_what_a_plan_for_its_memory_says(name: str, facts: dict[str, Any], tmp_path: Path) -> None:
    entry = example()[name]
    flags = iter(entry.get("extra_args", []))
    words = [word for flag, value in zip(flags, flags, strict=True) for word in ("--set", f"{flag}={value}")]
    asked = f"{name}={entry['memory_gib']}"
    status, said, _ = planned(tmp_path, "--service", asked, *words, model=entry["model"], **facts)
    assert status == Outcome.done
    assert said["vllm_services"][name]["max_model_len"] == entry["max_model_len"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--service", "Embed"], "is no name of a service"),
        (["--service", "vllm=8"], "is no name of a service"),
        (["--service", "embed=much"], "much is no number of GiB above 0 and below MemTotal, which is 121.6"),
        (["--service", "embed=200"], "below MemTotal, which is 121.6"),
        (["--service", "embed=8", "--set", "gpu_memory_utilization=0.1"], "say the same; leave one out"),
    ],
)
def test_a_service_that_cannot_be_is_a_wrong_question(words: list[str], says: str, tmp_path: Path) -> None:
    status, _, said = planned(tmp_path, *words)
    assert status == 2 and says in said.replace(" │ │ ", " ")


def test_too_little_for_a_service_names_the_option_that_was_typed() -> None:
    ran = CliRunner().invoke(cli.app, ["plan", "openai/gpt-oss-120b", "--service", "chat=30"])
    assert ran.exit_code == Outcome.refused and "gpu-memory-utilization" not in ran.stdout
    assert "Fix: ask for what fits: --service chat=76" in ran.stdout
    both = ["--service", "chat=30", "--max-model-len", "4096"]
    shown = CliRunner().invoke(cli.app, ["plan", "openai/gpt-oss-120b", *both]).stdout
    assert "Fix: ask for what fits: --service chat=67" in shown


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "these lines would be one more service; say --service NAME"),
        (["--service", "embed=8"], "a second one would hide it; write the entry of embed below it there"),
    ],
)
@pytest.mark.parametrize("group", ["pair1", "sparks"])
def test_an_inventory_with_services_gets_no_other_file(words: list[str], says: str, group: str, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(EXAMPLES / "many", mine)
    status, said, error = planned(tmp_path, "--into", str(mine), "--group", group, *words)
    assert status == Outcome.refused and "hosts.yml has vllm_services already" in error and says in error
    assert said and [path.name for path in mine.rglob("*") if path.is_file()] == ["hosts.yml"]


def test_an_inventory_without_services_gets_the_entry(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(EXAMPLES / "pair", mine)
    status, said, error = planned(tmp_path, "--into", str(mine), "--group", "pair1", "--service", "embed=8")
    written = yaml.safe_load((mine / "group_vars/pair1/gb10-plan.yml").read_text())
    assert status == Outcome.done and written == said, error


def test_services_of_another_group_are_no_concern(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(EXAMPLES / "fleet", mine)
    groups = yaml.safe_load((mine / "hosts.yml").read_text())["all"]["children"]["sparks"]["children"]
    other, mine_too = list(groups)[:2]
    (mine / "group_vars").mkdir()
    (mine / f"group_vars/{other}.yml").write_text("vllm_services: {chat: {model: a/b}}\n")
    status, _, error = planned(tmp_path, "--into", str(mine), "--group", mine_too, "--service", "embed=8")
    assert status == Outcome.done, error
