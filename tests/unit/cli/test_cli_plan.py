"""`gb10 plan`: exit statuses, and what it prints."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from gb10_fleet import cli, inventory_lines
from gb10_fleet.playbook import Outcome
from tests.support.model_folders import CASES

OWN = next(case for case in CASES if case.id == "Qwen/Qwen3-30B-A3B")
DRAFT = next(case for case in CASES if case.id == "Qwen/Qwen3-0.6B")
# As docs/models.md says that facts can be written by hand.
HAND = {
    "id": "acme/x",
    "architecture": "LlamaForCausalLM",
    "context": 32768,
    "weights": {"gib": 61},
    "attention": [{"kind": "full", "layers": 40, "kv_heads": 8, "key_dim": 128, "value_dim": 128}],
}

pytestmark = pytest.mark.usefixtures("no_hub")
CLI = CliRunner()


def test_all_models_fit_the_terminal() -> None:
    lines = CLI.invoke(cli.app, ["plan", "--all"]).stdout.splitlines()
    assert max(map(len, lines)) <= 80, lines
    found = {line.split()[0]: line for line in lines}
    assert found["Qwen/Qwen3-235B-A22B"].split()[2] == "-", "it takes two"
    assert found["openai/gpt-oss-120b"].split()[2] == "33.81" and "~" in found["Qwen/Qwen3-8B"]
    document = json.loads(CLI.invoke(cli.app, ["plan", "--all", "--json"]).stdout)
    assert [len(pair) for pair in document["models"]] == [2] * len(document["models"])


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["openai/gpt-oss-120b"], Outcome.done, "utilization  0.62"),
        (["Qwen/Qwen3-235B-A22B"], Outcome.refused, "no checkpoint of it can be served like this"),
        (["Qwen/Qwen3-235B-A22B", "--hosts", "2"], Outcome.done, "57.6"),
        (["openai/gpt-oss-120b", "--set", "gpu-memory-utilization=0.95"], Outcome.refused, "error: utilization"),
        (["openai/gpt-oss-120b", "--set", "max-modell-len=1"], Outcome.refused, "error: unknown_flag"),
        (["openai/gpt-oss-120b", "--memory-gib", "64"], Outcome.refused, "of 64.0 GiB"),
        (["openai/gpt-oss-120b", "--explain"], Outcome.done, "for the inventory"),
        (["openai/gpt-oss-120b", "--max-model-len", "4096"], Outcome.done, "4096 tokens for each of 4"),
        (["openai/gpt-oss-120b", "--concurrency", "2"], Outcome.done, "131072 tokens for each of 2"),
        (["--all"], Outcome.done, "MODEL"),
    ],
)  # fmt: skip
def test_exit_status_by_severity(words: list[str], status: Outcome, says: str) -> None:
    ran = CLI.invoke(cli.app, ["plan", *words])
    assert ran.exit_code == status, ran.output
    assert says in ran.output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "name a model, or say --all"),
        (["openai/gpt-oss-120b", "--all"], "name a model, or say --all"),
        (["openai/gpt-oss"], "near it: openai/gpt-oss-120b"),
        (["openai/gpt-oss-120b", "--set", "=1"], "write NAME=VALUE"),
        (["openai/gpt-oss-120b", "--executor", "uni"], "none of mp, ray"),
        (["openai/gpt-oss-120b", "--hosts", "0"], "hosts"),
    ],
)
def test_a_wrong_question_is_a_usage_error(words: list[str], says: str) -> None:
    ran = CLI.invoke(cli.app, ["plan", *words])
    assert ran.exit_code == 2 and says in " ".join(ran.output.split())


def test_a_model_of_ones_own_is_planned_by_its_path(tmp_path: Path) -> None:
    folder = str(OWN.folder(tmp_path / "mine"))
    ran = CLI.invoke(cli.app, ["plan", folder, "--set", "max-model-len=32k"])
    assert (
        ran.exit_code == Outcome.done and f"vllm serve {folder} \\\n" in ran.output and "model_unmeasured" in ran.output
    )
    assert "32000 tokens for each of 4" in ran.output and "weights 56.9 (index)" in ran.output


def test_facts_are_written_and_read_again(tmp_path: Path) -> None:
    folder = str(OWN.folder(tmp_path / "mine"))
    written = CLI.invoke(cli.app, ["plan", folder, "--write-facts"])
    file = tmp_path / "facts.json"
    file.write_text(written.stdout, encoding="utf-8")
    first, again = (
        CLI.invoke(cli.app, ["plan", *words, "--json"]).stdout for words in ([folder], [folder, "--facts", str(file)])
    )
    assert written.exit_code == 0 and json.loads(first)["fit"] and first == again


def test_facts_of_another_model_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "facts.json"
    file.write_text(json.dumps(HAND), encoding="utf-8")
    ran = CLI.invoke(cli.app, ["plan", "openai/gpt-oss-120b", "--facts", str(file), "--json"])
    assert ran.exit_code == 2 and "has the facts of acme/x, and not of openai/gpt-oss-120b" in ran.stdout


def test_facts_by_hand_need_no_parameters(tmp_path: Path) -> None:
    """docs/models.md says that these fields are enough."""
    file = tmp_path / "facts.json"
    file.write_text(json.dumps(HAND), encoding="utf-8")
    ran = CLI.invoke(cli.app, ["plan", "acme/x", "--facts", str(file)])
    assert ran.exit_code == 0 and "expected     not measured; its active parameters are not known" in ran.stdout


def test_layers_that_keep_nothing_are_no_facts(tmp_path: Path) -> None:
    file = tmp_path / "facts.json"
    file.write_text(json.dumps(HAND | {"attention": [{"kind": "full", "layers": 40}]}), encoding="utf-8")
    ran = CLI.invoke(cli.app, ["plan", "acme/x", "--facts", str(file), "--json"])
    assert ran.exit_code == 2 and "attention[0].kind is full, and needs kv_heads, key_dim and value_dim" in ran.stdout


def test_a_folder_is_named_as_a_host_can_find_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = CASES[0].folder(tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    lines = CLI.invoke(cli.app, ["plan", "./mine"]).stdout.splitlines()
    assert f'vllm_model: "{folder}"' in lines
    assert any(line.startswith(f'# vllm_mounts: ["{folder}:{folder}:ro"]   # with vllm_allow_mounts') for line in lines)


def test_the_hubs_cache_goes_before_the_figures_of_the_catalog(tmp_path: Path) -> None:
    commit = "c0ffee" * 7
    repository = tmp_path / "hf" / "hub" / f"models--{OWN.id.replace('/', '--')}"
    OWN.folder(repository / "snapshots" / commit)
    before = CLI.invoke(cli.app, ["plan", OWN.id, "--only", OWN.id]).output
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit, encoding="utf-8")
    after = CLI.invoke(cli.app, ["plan", OWN.id]).output
    assert "weights 56.8 (files)" in before and "weights 56.9 (index)" in after and "model_unmeasured" not in after


def test_a_draft_model_is_counted(tmp_path: Path) -> None:
    folder, draft = str(OWN.folder(tmp_path / "mine")), str(DRAFT.folder(tmp_path / "draft"))
    said = f'speculative-config={{"model": "{draft}", "num_speculative_tokens": 4}}'
    ran = CLI.invoke(cli.app, ["plan", folder, "--set", said])
    assert "draft 1.4 (index)" in ran.output, ran.output
    assert "draft kv cache 8.8 (computed)" in ran.output
    pasted = yaml.safe_load(ran.stdout.partition("  for the inventory\n")[2])
    assert pasted["vllm_speculative"] == {"method": "draft_model", "model": draft, "tokens": 4}
    assert "--speculative-config" not in pasted["vllm_extra_args"]


def recipe(*words: str) -> Any:
    return CLI.invoke(cli.app, ["plan", *words, "--recipe", "vendor"])


def test_a_recipe_of_the_vendor_is_said_as_it_is() -> None:
    ran = recipe("Qwen/Qwen3.6-27B")
    assert ran.exit_code == Outcome.done and "28.41 tok/s" in ran.output
    pasted = yaml.safe_load(ran.stdout.partition("  for the inventory\n")[2])
    assert pasted["vllm_model"] == "nvidia/Qwen3.6-27B-NVFP4" and pasted["vllm_gpu_memory_utilization"] == 0.5
    assert pasted["vllm_image"].startswith("vllm/vllm-openai:v0.28.0@sha256:61fc8a89")
    two = recipe("Qwen/Qwen3.6-27B", "--hosts", "2", "--json")
    assert json.loads(two.stdout)["variables"]["vllm_mounts"] == ["/var/cache/gb10-triton:/root/.triton"]
    assert json.loads(two.stdout)["measured"]["decode"] == 43.58


def test_a_recipe_goes_into_an_inventory(tmp_path: Path) -> None:
    file = tmp_path / "hosts.yml"
    file.write_text("all: {children: {pair1: {hosts: {a: {}, b: {}}}}}", encoding="utf-8")
    assert recipe("Qwen/Qwen3.8-27B", "--hosts", "2", "--into", str(file), "--group", "pair1").exit_code == 0
    written = (tmp_path / "group_vars/pair1/gb10-plan.yml").read_text(encoding="utf-8")
    assert "--recipe vendor" in written and "# vllm_allow_mounts: true   # consent" in written


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["openai/gpt-oss-120b", "--recipe", "vendor"], "has no recipe of openai/gpt-oss-120b"),
        (["Qwen/Qwen3.6-27B", "--recipe", "vendor", "--hosts", "4"], "one for --hosts 1, --hosts 2"),
        (["Qwen/Qwen3.6-27B", "--recipe", "vendor", "--only", "fp8", "--set", "seed=1"], "leave --only, --set out"),
        (["Qwen/Qwen3.6-27B", "--recipe", "mine"], "there is vendor"),
    ],
)
def test_a_recipe_cannot_be_another_one(words: list[str], says: str) -> None:
    ran = CLI.invoke(cli.app, ["plan", *words], terminal_width=300)
    assert ran.exit_code == 2 and says in " ".join(ran.output.replace("│", "").split())


@pytest.mark.parametrize("words", [["acme/nothing"], ["/no/such/folder"], ["openai/gpt-oss-120b", "--executor", "uni"]])
def test_a_program_gets_one_object_for_a_wrong_question(words: list[str]) -> None:
    ran = CLI.invoke(cli.app, ["plan", *words, "--json"])
    assert ran.exit_code == 2 and list(json.loads(ran.stdout)) == ["error"]


def test_what_a_file_says_does_not_steer_the_terminal(tmp_path: Path) -> None:
    folder = OWN.folder(tmp_path / "mine")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["\x1b[2JX"]}), encoding="utf-8")
    ran = CLI.invoke(cli.app, ["plan", str(folder), "--explain"])
    assert "architecture_unknown" in ran.output and "\x1b" not in ran.output


def test_what_is_needed_without_a_network_is_named() -> None:
    ran = CLI.invoke(cli.app, ["plan", "acme/nothing"])
    text = " ".join(ran.output.replace("│", " ").split())
    assert ran.exit_code == 2 and "HF_HUB_OFFLINE is set" in text and "config.json" in text and "--facts FILE" in text


def test_an_accepted_rule_lets_it_pass_and_needs_a_reason() -> None:
    firm = ["plan", "openai/gpt-oss-120b", "--set", "gpu-memory-utilization=0.95", "--json"]
    tight = CLI.invoke(cli.app, [*firm, "--accept", "utilization_above_090=a test bench"])
    assert tight.exit_code == Outcome.refused, "the role refuses it, whatever is accepted"
    old = ["--image", "nvcr.io/nvidia/vllm:26.04-py3"]
    words = ["plan", "openai/gpt-oss-120b", "--set", "load-format=fastsafetensors", "--json", *old]
    fired = json.loads(CLI.invoke(cli.app, words).stdout)["fired"]
    (broken,) = [rule["id"] for rule in fired if rule["severity"] == "error"]
    assert CLI.invoke(cli.app, [*words, "--accept", f"{broken}=a test bench"]).exit_code == Outcome.done
    assert CLI.invoke(cli.app, [*words, "--accept", broken]).exit_code == Outcome.refused
    assert CLI.invoke(cli.app, [*words, "--accept", "no_such=x"]).exit_code == Outcome.refused


def test_the_lines_can_be_pasted_and_a_consent_is_not_among_them() -> None:
    tag = ["--image", "nvcr.io/nvidia/vllm:26.04-py3"]
    shown = CLI.invoke(cli.app, ["plan", "openai/gpt-oss-120b", "--hosts", "2", *tag]).stdout
    pasted = yaml.safe_load(shown.partition("  for the inventory\n")[2])
    assert pasted["vllm_model"] == "openai/gpt-oss-120b" and pasted["vllm_max_model_len"] == 131072
    assert not [name for name in pasted if "allow" in name] and "# vllm_allow_tag: true" in shown


@pytest.mark.parametrize(
    ("words", "says", "never"),
    [
        (["--max-model-len", "900000"], "Fix: ask for what fits: --max-model-len 131072", "--hosts 1"),
        (["--memory-gib", "64"], "Fix: 2 hosts of this memory (--hosts 2)", "ask for less"),
        (["--hosts", "2", "--max-model-len", "900000"], "ask for what fits: --max-model-len 131072", "--hosts"),
    ],
)
def test_a_way_out_is_never_what_was_asked(words: list[str], says: str, never: str) -> None:
    shown = CLI.invoke(cli.app, ["plan", "openai/gpt-oss-120b", *words]).stdout
    ways = [line for line in shown.splitlines() if "Fix: " in line]
    assert [line for line in ways if says in line] and not [line for line in ways if never in line], shown


@pytest.mark.parametrize(
    ("words", "says", "says_not"),
    [
        (["--memory-gib", "8"], "the host's MemTotal is 8.0 GiB, of which 12 GiB stay for the system", "0.00 of"),
        (["--memory-gib", "40"], "(--hosts 3), with fabric_topology ring or switch", "pair"),
        (["--memory-gib", "64"], "(--hosts 2), with fabric_topology pair or switch", "ring"),
        (["--set", "foo-bar=3"], "Fix: leave it out", "did you mean"),
        (["--set", "max-modell-len=3"], "Fix: did you mean --max-model-len?", "leave it out"),
        (["--accept", "foo"], "foo was accepted without a reason", "Traceback"),
    ],
)
def test_a_refusal_names_what_leads_on(words: list[str], says: str, says_not: str) -> None:
    ran = CLI.invoke(cli.app, ["plan", "openai/gpt-oss-120b", *words])
    assert ran.exit_code == Outcome.refused
    assert says in ran.stdout and says_not not in ran.stdout


def said(*words: str) -> list[str]:
    return CLI.invoke(cli.app, ["plan", *words]).stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        (
            ["openai/gpt-oss-120b", "--hosts", "2"],
            "openai/gpt-oss-120b on 2 hosts: fits; 45 to 52 tok/s; tools: yes; 61 GiB to download, 91 GiB of disk; "
            "next: gb10 site, once the lines below are in the inventory (--into writes them)",
        ),
        (
            ["Qwen/Qwen3-235B-A22B"],
            "Qwen/Qwen3-235B-A22B on 1 host: does not fit; next: 2 hosts of this memory (--hosts 2), with "
            "fabric_topology pair or switch",
        ),
        (
            ["openai/gpt-oss-120b", "--set", "gpu-memory-utilization=0.95"],
            "openai/gpt-oss-120b on 1 host: refused (utilization_above_090); next: 0.80, or 0.62, which holds this "
            "plan",
        ),
        (
            ["zai-org/GLM-5", "--hosts", "2"],
            "zai-org/GLM-5 on 2 hosts: does not fit; "
            "next: 7 hosts of this memory (--hosts 7), with fabric_topology ring or switch",
        ),
        (
            ["Qwen/Qwen3.6-27B", "--recipe", "vendor"],
            "nvidia/Qwen3.6-27B-NVFP4 on 1 host: recipe qwen3.6-27b-1 of the vendor (vendor, 2026-08-31); 28.41 tok/s "
            "measured; tools: yes; next: gb10 site, once the lines below are in the inventory (--into writes them)",
        ),
    ],
)  # fmt: skip
def test_the_verdict_comes_first(words: list[str], verdict: str) -> None:
    lines = said(*words)
    first = next(index for index, line in enumerate(lines) if line.startswith("  image "))
    assert " ".join(line.strip() for line in lines[:first]) == verdict


def test_the_verdict_of_what_no_number_of_hosts_holds_and_of_a_folder(tmp_path: Path) -> None:
    large = next(case for case in CASES if case.id == "moonshotai/Kimi-K2-Thinking")
    wide = {**large.config, "quantization_config": None, "architectures": [large.architecture]}
    (tmp_path / "config.json").write_text(json.dumps(wide), encoding="utf-8")
    text = " ".join(" ".join(said(str(tmp_path))).split())
    assert "on 1 host: does not fit; next: a smaller model or format: gb10 plan --all" in text
    small = " ".join(" ".join(said(str(OWN.folder(tmp_path / "small")))).split())
    assert "57 GiB on each host at this path, 87 GiB of disk" in small


@pytest.mark.parametrize("more", [[], ["--explain"], ["--hosts", "2"], ["--concurrency", "8"]])
def test_all_of_it_is_in_80_columns(more: list[str]) -> None:
    """But for what has no blank, as an image with its digest, and comments that are to be pasted."""
    for model in ("openai/gpt-oss-120b", "Qwen/Qwen3.6-27B", "Qwen/Qwen3-235B-A22B"):
        long = [line for line in said(model, *more) if len(line) > 80 and not line.startswith("#")]
        assert all(" " not in line.strip().removeprefix("vllm_image: ") for line in long), long


def test_the_command_can_be_pasted() -> None:
    text = "\n".join(said("Qwen/Qwen3.6-27B", "--set", 'speculative-config={"method": "mtp"}'))
    command = re.split(r"\n  (?=\S)", text.partition("  serve        ")[2])[0]
    words = shlex.split(command)
    assert words[:3] == ["vllm", "serve", "nvidia/Qwen3.6-27B-NVFP4"] and '{"method": "mtp"}' in words


def test_a_refused_plan_has_nothing_to_paste() -> None:
    text = "\n".join(said("openai/gpt-oss-120b", "--set", "gpu-memory-utilization=0.95"))
    assert "vllm serve" not in text and "vllm_model" not in text and "for the inventory" not in text


@pytest.mark.parametrize(
    ("words", "fits"),
    [
        (["--max-model-len", "900000"], ["--max-model-len 131072"]),
        (["--max-model-len", "900000", "--memory-gib", "80"], ["--max-model-len"]),
        (["--set", "gpu-memory-utilization=0.5"], ["--set gpu-memory-utilization=0.62"]),
        (["--set", "gpu-memory-utilization=0.5", "--max-model-len", "131072", "--concurrency", "8"], ["=0.70"]),
    ],
)
def test_less_has_its_number_and_that_fits(words: list[str], fits: list[str]) -> None:
    ran = json.loads(CLI.invoke(cli.app, ["plan", "openai/gpt-oss-120b", *words, "--json"]).stdout)
    assert ran["refused"] and all(each in ran["verdict"] for each in fits)
    way = ran["verdict"].partition("ask for what fits")[2].partition(": ")[2].partition(" or ")[0].split()
    option = words.index(way[0])
    again = [*words[:option], *way, *words[option + 2 :]]
    assert not json.loads(CLI.invoke(cli.app, ["plan", "openai/gpt-oss-120b", *again, "--json"]).stdout)["refused"]


def test_a_share_that_the_plan_itself_took_does_not_lead_back_to_a_plan() -> None:
    text = " ".join(" ".join(said("Qwen/Qwen3.5-397B-A17B", "--hosts", "2")).split())
    assert "warn: utilization_above_085" in text and "Fix: nothing less holds it here: --hosts 3" in text
    three = " ".join(said("Qwen/Qwen3.5-397B-A17B", "--hosts", "3"))
    assert "utilization_above_085" not in three


def test_a_doubt_about_the_files_is_a_warning(tmp_path: Path) -> None:
    folder = OWN.folder(tmp_path / "mine")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["layer_types"] = ["telepathy"] * config["num_hidden_layers"]
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    text = " ".join(" ".join(said(str(folder))).split())
    assert "fits, with 2 warnings" in text and "warn: " in text and "the kind 'telepathy', not known here" in text


def test_near_names_are_also_those_of_recipes() -> None:
    text = " ".join(CLI.invoke(cli.app, ["plan", "Qwen/Qwen3.8-27B"]).output.replace("│", " ").split())
    assert "near it: RadixArk/Qwen3.8-27B-NVFP4" in text


def test_facts_of_a_model_of_the_catalog_are_not_needed() -> None:
    known = CLI.invoke(cli.app, ["plan", "openai/gpt-oss-120b", "--write-facts", "--json"])
    assert known.exit_code == 2 and "needs no facts of it: the catalog has openai/gpt-oss-120b" in known.stdout
    other = CLI.invoke(cli.app, ["plan", "acme/other", "--write-facts", "--json"])
    assert other.exit_code == 2 and "needs no facts" not in other.stdout


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    copy = tmp_path / "mine"
    shutil.copytree(Path(__file__).parents[3] / "inventory/example/pair", copy)
    hosts = copy / "hosts.yml"
    lines = hosts.read_text().splitlines(keepends=True)
    hosts.write_text("".join(line for line in lines if "vllm_model:" not in line))
    return copy


def plan_into(inventory: Path, *words: str) -> tuple[int, str]:
    ran = CLI.invoke(cli.app, ["plan", "openai/gpt-oss-120b", "--hosts", "2", "--into", str(inventory), *words])
    return ran.exit_code, ran.stderr


@pytest.mark.parametrize("path", [".", "hosts.yml"])
def test_the_lines_are_written_where_ansible_reads_them(inventory: Path, path: str) -> None:
    status, said = plan_into(inventory / path, "--group", "pair1")
    assert status == 0 and "group_vars/pair1/gb10-plan.yml" in said
    argv = [Path(sys.executable).parent / "ansible-inventory", "-i", inventory, "--host", "spark-b"]
    seen = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
    assert seen["vllm_model"] == "openai/gpt-oss-120b" and seen["gb10_cluster"] == "pair1"
    assert seen["vllm_gpu_memory_utilization"] == 0.33
    before = (inventory / "group_vars/pair1/gb10-plan.yml").read_text()
    status, said = plan_into(inventory, "--group", "pair1")
    assert status == Outcome.refused and "gb10-plan.yml is there already; remove it first" in said
    assert (inventory / "group_vars/pair1/gb10-plan.yml").read_text() == before


def test_a_host_to_ask_that_the_inventory_lacks_is_named_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("---\nall: {children: {sparks: {hosts: {spark-a: }}}}\n")
    words = ["plan", "openai/gpt-oss-120b", "--ask", "spark-z", "-i", str(tmp_path / "hosts.yml"), "--json"]
    result = CLI.invoke(cli.app, words)
    said = json.loads(result.stdout)["error"]
    assert result.exit_code == 2 and said.startswith("--ask spark-z: spark-z is no host or group there")
    assert "Fix: name a host of" in said and "ERROR" not in said


@pytest.mark.parametrize("way", ["../mine", ".hidden/mine"])
def test_how_the_inventory_is_reached_hides_nothing_of_it(
    inventory: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what is hidden in the inventory itself is none of it."""
    (inventory.parent / "work").mkdir()
    (inventory.parent / ".hidden").symlink_to(inventory.parent)
    (inventory / ".git").mkdir()
    (inventory / ".git/old.yml").write_text("vllm_model: other/model\n")
    monkeypatch.chdir(inventory.parent / "work" if way.startswith("..") else inventory.parent)
    status, said = plan_into(Path(way), "--group", "pair1")
    assert status == Outcome.done, said


@pytest.mark.parametrize(
    "more",
    [
        {"group_vars/pair2.yml": "vllm_model: other/model\n"},
        {"group_vars/all.yml": "vllm_model: other/model\n"},
        {"host_vars/spark-z.yml": "vllm_model: other/model\n"},
        {"more.yml": "pair2: {hosts: {spark-z: {vllm_model: a/b}}, vars: {vllm_model: other/model}}\n"},
    ],
)
def test_a_model_of_other_hosts_is_no_concern(inventory: Path, more: dict[str, str]) -> None:
    assert write_into(inventory, more) == "", "the group wins over those above it, and has no part in others"


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"group_vars/pair1.json": '{"vllm_model": "a/b"}'}, "pair1.json sets vllm_model already for the group pair1"),
        ({"host_vars/spark-b/main.yml": "vllm_model: a/b\n"}, "sets vllm_model already for the host spark-b, to a/b"),
        ({"host_vars/rack2.yml": "vllm_model: a/b\n"}, "already for the host rack2"),
        ({"more.yml": "pair1: {hosts: {spark-a: {vllm_model: a/b}}}\n"}, "already for the host spark-a"),
        ({"more.yml": "pair1: {children: {half: {vars: {vllm_model: a/b}}}}\nhalf: {hosts: {x: }}"}, "the group half"),
        ({"more.yml": "chat: {hosts: {spark-a: }, vars: {vllm_model: a/b}}"}, "already for the group chat"),
    ],
)
def test_what_would_win_over_the_lines_or_fight_them_is_named(inventory: Path, more: dict[str, str], says: str) -> None:
    (inventory / "range.yml").write_text("pair1: {hosts: {'rack[1:3]': }}\n")
    assert says in write_into(inventory, more)


def write_into(inventory: Path, more: dict[str, str]) -> str:
    """The refusal; empty where it is written."""
    for name, text in more.items():
        (inventory / name).parent.mkdir(parents=True, exist_ok=True)
        (inventory / name).write_text(text)
    model = {"vllm_model": "openai/gpt-oss-120b"}
    try:
        inventory_lines.write(inventory, "pair1", ["vllm_model: openai/gpt-oss-120b"], model, "Made here.")
    except inventory_lines.Taken as taken:
        return str(taken)
    return ""


def test_no_word_of_a_model_becomes_a_template_of_the_inventory(inventory: Path) -> None:
    evil = {"vllm_model": "a/b", "vllm_extra_args": ["--x", "{{ lookup('pipe', 'id') }}"]}
    with pytest.raises(inventory_lines.Taken, match="would be a template"):
        inventory_lines.write(inventory, "pair1", ["vllm_model: a/b"], evil, "Made here.")
    assert not (inventory / "group_vars/pair1/gb10-plan.yml").exists()


def test_the_example_takes_the_lines_of_its_own_model(tmp_path: Path) -> None:
    """It names the model, so that a run works as it is; the plan of that model may be written beside it."""
    copy = tmp_path / "mine"
    shutil.copytree(Path(__file__).parents[3] / "inventory/example/pair", copy)
    status, said = plan_into(copy, "--group", "pair1")
    written = (copy / "group_vars/pair1/gb10-plan.yml").read_text()
    assert status == 0 and "vllm_model:" not in written and "vllm_image:" in written, said
    other = tmp_path / "other"
    shutil.copytree(Path(__file__).parents[3] / "inventory/example/pair", other)
    (other / "hosts.yml").write_text((other / "hosts.yml").read_text().replace("gpt-oss-120b", "gpt-oss-20b"))
    status, said = plan_into(other, "--group", "pair1")
    assert status == Outcome.refused and "to openai/gpt-oss-20b, and the plan says openai/gpt-oss-120b" in said


def test_what_another_group_says_is_said_again_for_this_one(inventory: Path) -> None:
    (inventory / "group_vars").mkdir()
    (inventory / "group_vars/others.yml").write_text("vllm_model: openai/gpt-oss-120b\n")
    assert plan_into(inventory, "--group", "pair1")[0] == 0
    assert "vllm_model:" in (inventory / "group_vars/pair1/gb10-plan.yml").read_text()


def test_an_inventory_that_is_no_yaml_is_told_with_its_place(inventory: Path) -> None:
    file = inventory / "hosts.yml" if inventory.is_dir() else inventory
    file.write_text("all:\n  children:\n\tsparks:\n")
    status, said = plan_into(inventory, "--group", "sparks")
    assert status == Outcome.refused and f"nothing written: {file}:3:1: " in said and "no group" not in said


@pytest.mark.parametrize(
    ("group", "there", "says"),
    [
        ("sparks", "vllm_model: mine\nvllm_api_key: !vault |\n  $ANSIBLE_VAULT\n", "sets vllm_model already"),
        ("racks", "", "has no group racks; say --group NAME"),
        ("sparks", "other: 1\n", "sparks.yml is there"),
    ],
)
def test_what_is_there_is_not_overwritten(inventory: Path, group: str, there: str, says: str) -> None:
    (inventory / "group_vars").mkdir()
    (inventory / "group_vars/sparks.yml").write_text(there)
    status, said = plan_into(inventory, "--group", group)
    assert status == Outcome.refused and "nothing written: " in said and says in said
    assert [path.name for path in (inventory / "group_vars").rglob("*.yml")] == ["sparks.yml"]


def test_the_catalog_says_how_old_it_is() -> None:
    fresh = CLI.invoke(cli.app, ["catalog", "check", "--today", "2024-12-15", "--json"])
    answer = json.loads(fresh.stdout)
    assert answer["past"] == [] and answer["entries"] > 300
    old = CLI.invoke(cli.app, ["catalog", "check", "--today", "2030-01-01", "--all"])
    assert old.exit_code == Outcome.drift
    assert "catalog: " in old.stdout and "past its date: images.yml images[NGC vLLM 25.10]" in old.stdout
    assert "contradicted: models.yml, expected of nvidia/Qwen3.6-35B-A3B-NVFP4" in old.stdout


def test_the_catalog_has_a_line_for_each_file_and_names_no_entry() -> None:
    day = ["catalog", "check", "--today", "2030-01-01"]
    each = [line for line in CLI.invoke(cli.app, [*day, "--all"]).stdout.splitlines() if line.startswith("past its")]
    said = CLI.invoke(cli.app, day)
    lines = [line for line in said.stdout.splitlines() if line.startswith("past their date: ")]
    assert said.exit_code == Outcome.drift and "past its date" not in said.stdout
    assert len(lines) == len({line.split()[3] for line in each})
    assert sum(int(line.split()[3]) for line in lines) == len(each) > 100
    assert said.stdout.splitlines()[-1].endswith("; --all names each")
