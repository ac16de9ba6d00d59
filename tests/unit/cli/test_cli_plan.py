"""`gb10 plan`: exit statuses, and what it prints."""

from __future__ import annotations

import json

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import serving_plan
from typer.testing import CliRunner

from gb10_fleet import cli
from gb10_fleet.playbook import Outcome

CLI = CliRunner()


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
        (["--all"], Outcome.done, "\n".join(serving_plan.table())),
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


def test_an_accepted_rule_lets_it_pass_and_needs_a_reason() -> None:
    words = ["plan", "openai/gpt-oss-120b", "--set", "gpu-memory-utilization=0.95", "--json"]
    fired = json.loads(CLI.invoke(cli.app, words).stdout)["fired"]
    (broken,) = [rule["id"] for rule in fired if rule["severity"] == "error"]
    assert CLI.invoke(cli.app, [*words, "--accept", f"{broken}=a test bench"]).exit_code == Outcome.done
    assert CLI.invoke(cli.app, [*words, "--accept", broken]).exit_code == Outcome.refused
    assert CLI.invoke(cli.app, [*words, "--accept", "no_such=x"]).exit_code == Outcome.refused
