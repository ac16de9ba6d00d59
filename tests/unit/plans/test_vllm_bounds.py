"""Names, figures and values that no server and no host has: refused by name, for a service and for a container."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import planner as vllm

from tests.support.attacker import tally
from tests.support.service_plans import HEAR, view
from tests.support.vllm_plans import alone

MODEL = {"model": "a/b", "port": 8001, "memory_gib": 8}
ULIMIT = "Write one of as, core"
NAME = "vllm_served_model_name is"


def refusals(more: dict[str, Any], entry: dict[str, Any] = MODEL) -> list[str]:
    return list(vllm.plan(view({"one": entry | more})).refusals)


@pytest.mark.parametrize("entry", [MODEL, HEAR], ids=["vllm", "container"])
@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"served_model_name": "--trust-remote-code"}, f"{NAME} '--trust-remote-code'"),
        ({"served_model_name": "-x"}, NAME),
        ({"served_model_name": "x" * 257}, f"{NAME} '{'x' * 61}...', of 257 characters"),
        ({"served_model_name": "x" * 100000}, "at most 256"),
        ({"served_model_name": "ü\u202e"}, f"{NAME} '\\xfc\\u202e'"),
        ({"served_model_name": "\ud800"}, f"{NAME} '\\ud800'"),
        ({"served_model_name": "a\u00a0b"}, NAME),
        ({"memory_gate_gib": 129}, "vllm_memory_gate_gib is 129. Say at most 128"),
        ({"memory_gate_gib": 10**30}, "Say at most 128"),
        ({"ulimits": {"nofile": 10**30}}, ULIMIT),
        ({"ulimits": {"nofile": "9" * 5000}}, ULIMIT),
        ({"ulimits": {"nofile": 2**63}}, ULIMIT),
        ({"ulimits": {"nproc": "-5:3"}}, ULIMIT),
        ({"ulimits": {"nproc": -2}}, ULIMIT),
        ({"ulimits": {"nproc": "4:3"}}, ULIMIT),
        ({"ulimits": {"nproc": "-1:3"}}, ULIMIT),
        ({"ulimits": {"nproc": "\u0663"}}, ULIMIT),
        ({"environment": {"A": {"x": 1}}}, "vllm_environment has no text and no number for A."),
        ({"environment": {"A": ["sesame"], "B": "x", "C": None}}, "has no text and no number for A, C."),
    ],
)  # fmt: skip
def test_what_nothing_has_is_refused_once_by_name(more: dict[str, Any], says: str, entry: dict[str, Any]) -> None:
    (text,) = refusals(more, entry)
    assert says in text and len(text) < 500 and "sesame" not in text


@pytest.mark.parametrize("host", ["fe80::1%eth0", "::1%a b", "127.0.0.1;", "a b", "127.0.0.1\u2028x", "x\\"])
def test_a_host_is_an_address_or_a_name(host: str) -> None:
    """It stands in the settings of units, of NGINX and of the guard of the page cache."""
    texts = list(alone(vllm_host=host).refusals)
    tally(
        "a text of the inventory that means something else in a file",
        1,
        not any("vllm_host is" in each for each in texts),
    )
    assert any(text.startswith(f"vllm_host is {host!a}. Name an IP address") for text in texts), texts


@pytest.mark.parametrize(
    "more",
    [
        {"served_model_name": "x" * 256}, {"served_model_name": "ü b-c/d:e"}, {"memory_gate_gib": 128},
        {"memory_gate_gib": 0}, {"ulimits": {"nofile": 2**63 - 1, "nproc": -1, "core": "0:-1", "stack": "67108864"}},
        {"environment": {"A": 1, "B": "x", "C": 0.5, "D": True, "E": ""}},
    ],
)  # fmt: skip
def test_what_a_host_may_have_is_taken(more: dict[str, Any]) -> None:
    assert refusals(more) == refusals(more, HEAR) == []


def test_a_warm_cache_is_no_larger_than_a_disk() -> None:
    (text,) = alone(vllm_warm_cache_gib=10**30).refusals
    assert f"vllm_warm_cache_gib is {10**30}. Say at most 4096 GiB" in text
    assert alone(vllm_warm_cache_gib=4096).refusals == ()
