"""Which loads a served model gets, and what cannot be measured."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import plan as plans
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.settings import SettingsError
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import benchmark

from tests.support.role_documents import facts

MODEL = "openai/gpt-oss-120b"
TOO_LONG = "benchmark_input_tokens and benchmark_output_tokens are more than vllm_max_model_len, "


def planned(**variables: Any) -> benchmark.BenchmarkPlan:
    return benchmark.plan(View("spark-a", facts(), {"vllm_model": MODEL, **variables}))


@pytest.mark.parametrize(
    ("variables", "refusals"),
    [
        ({}, []),
        ({"gb10_roles": ["vllm"]}, []),
        ({"gb10_roles": ["fabric"]}, ["gb10_roles has no vllm: it serves no model; leave it out with --limit"]),
        (
            {"benchmark_concurrency": [1, 0]},
            ["benchmark_concurrency is [1, 0]; name at least one number of requests, each at least 1"],
        ),
        (
            {"benchmark_concurrency": []},
            ["benchmark_concurrency is []; name at least one number of requests, each at least 1"],
        ),
        ({"benchmark_prompts": 0}, ["benchmark_prompts is 0; it must be at least 1"]),
        ({"benchmark_prompts": "0"}, ["benchmark_prompts is 0; it must be at least 1"]),
        ({"benchmark_input_tokens": 1}, ["benchmark_input_tokens is 1; it must be at least 2"]),
        ({"benchmark_input_tokens": 2}, []),
        (
            {"benchmark_output_tokens": 1},
            ["benchmark_output_tokens is 1; it must be at least 2: the speed is that between two tokens"],
        ),
        (
            {"benchmark_timeout": 10**9},
            ["benchmark_timeout is 1000000000. Say at most 86400 seconds, which is 24 hours."],
        ),
        ({"benchmark_timeout": 0}, ["benchmark_timeout is 0; it must be at least 1"]),
        ({"vllm_max_model_len": 640}, []),
        ({"vllm_max_model_len": 639}, [f"{TOO_LONG}639"]),
        (
            {"benchmark_prompts": 0, "benchmark_timeout": -1},
            ["benchmark_prompts is 0; it must be at least 1", "benchmark_timeout is -1; it must be at least 1"],
        ),
    ],
)
def test_what_cannot_be_measured_is_refused(variables: dict[str, Any], refusals: list[str]) -> None:
    assert list(planned(**variables).refusals) == refusals


def test_each_step_is_a_load() -> None:
    made = planned(
        benchmark_concurrency=["1", 4], benchmark_prompts=3, benchmark_input_tokens=65, benchmark_output_tokens=10,
        benchmark_timeout=60, vllm_port=8123, vllm_extra_args=["--seed", 5],
    )  # fmt: skip
    assert [(load.concurrency, load.requests) for load in made.loads] == [(1, 3), (4, 12)]
    load = made.loads[0]
    assert (load.model, load.served_name, load.url) == (MODEL, MODEL, "http://127.0.0.1:8123")
    assert (load.input_tokens, load.shared_tokens, load.output_tokens, load.timeout_s) == (65, 32, 10, 60)
    assert load.serve_args[:2] == ("--seed", "5") and "--max-num-seqs" in load.serve_args
    assert made.request == {"prompts": 3, "input_tokens": 65, "shared_tokens": 32, "output_tokens": 10}


def test_ansible_waits_longer_than_a_step_may_take() -> None:
    limits = {name: entry["value"] for name, entry in catalog.load("thresholds")["benchmark"].items()}
    made = planned(benchmark_timeout=60)
    assert made.wait_s == 60 + limits["busy_within_s"]
    assert made.watch.within_s == limits["busy_within_s"]
    assert made.watch.busy_percent == limits["busy_percent"]
    assert made.watch.readings == 2 * limits["busy_readings"]


def test_the_conditions_say_how_the_model_is_served() -> None:
    made = planned(
        vllm_served_model_name="served", vllm_extra_args=["--seed", 5], vllm_max_model_len="4096",
        vllm_environment={"A": "b"}, vllm_image="i@sha256:1", vllm_speculative={"method": "mtp", "tokens": "2"},
    )  # fmt: skip
    shown = plans.shown(made)["conditions"]
    assert shown.pop("gpu_memory_utilization") == pytest.approx(
        catalog.declared_variables().roles["vllm"]["vllm_gpu_memory_utilization"]["default"]
    )
    assert shown == {
        "model": MODEL, "served_name": "served", "image": "i@sha256:1", "args": ["--seed", "5"],
        "environment": {"A": "b"}, "max_model_len": 4096, "speculative": {"method": "mtp", "tokens": 2},
    }  # fmt: skip
    json.dumps(plans.shown(made))


def test_a_number_that_is_none_is_named() -> None:
    with pytest.raises(SettingsError, match="benchmark_prompts is the text 'many', and must be a whole number"):
        planned(benchmark_prompts="many")


@pytest.mark.parametrize(
    ("role", "alone"),
    [("benchmark", True), ("vllm", False), ("coherence", False), ("reboot", True), ("vllm_settings", False)],
)
def test_a_role_for_tasks_only_plans_and_declares_no_resources(role: str, alone: bool) -> None:
    assert plans.serves_tasks_only(role) is alone


def test_the_unit_is_that_of_the_service_that_is_measured() -> None:
    assert planned().unit == "gb10-vllm"
    entry = {"model": MODEL, "port": 8001, "memory_gib": 20, "image": "i@sha256:1"}
    assert planned(vllm_model="", vllm_services={"chat": entry}).unit == "gb10-vllm-chat"
