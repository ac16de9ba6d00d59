"""What the plan says of a warm cache: what it depends on, who shares it, and the container that makes it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import firewall
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import planner as vllm
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import warm as vllm_warm
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.service import ServicePlan

from tests.support.service_plans import CHAT, after, made, view
from tests.support.vllm_plans import alone, paired

ON = {"vllm_warm_cache_gib": 20}
HOST = CHAT | {"span": "host", "warm_cache_gib": 20}


def one(of: int = 1, host: str = "spark-a", **entry: Any) -> ServicePlan:
    return made({"chat": HOST | entry}, host, of)["chat"]


def flags(**entry: Any) -> str:
    warm = one(**entry).warm
    assert warm is not None
    return warm.flags


def test_without_the_variable_all_is_as_before() -> None:
    plan = alone()
    assert plan.warm is None and plan.program["warm"] is None
    assert f"{plan.compiled}:/root/.cache" in plan.argv and "VLLM_CACHE_ROOT" not in str(plan.argv)


def test_with_it_the_container_writes_to_its_own_layer() -> None:
    plan = alone(**ON)
    assert plan.warm is not None and plan.compiled == "" and "gb10-compiled" not in str(plan.argv)
    assert "VLLM_CACHE_ROOT=/root/.cache/vllm" in plan.argv
    assert plan.program["warm"] == vllm_warm.wish(plan.warm) == {
        "shelf": "/var/cache/gb10-warm/vllm",
        "flags": plan.warm.flags,
        "markers": ["/var/cache/gb10-files/models--openai--gpt-oss-120b@main.json"],
    }  # fmt: skip
    assert plan.program["cache"] == "/var/lib/docker"


def test_hosts_that_serve_the_same_share_it() -> None:
    for host in ("spark-a", "spark-b"):
        warm = one(2, host).warm
        assert warm is not None and warm.hosts == ("spark-a", "spark-b")
        assert warm.shelf == "/var/cache/gb10-warm/vllm-chat"
    assert one(2).warm.flags == one(2, "spark-b").warm.flags  # type: ignore[union-attr]
    here = one(2, hosts=["spark-a"]).warm
    assert here is not None and here.hosts == ("spark-a",)


@pytest.mark.parametrize(
    "entry",
    [
        {"max_model_len": 4096},
        {"extra_args": ["--max-num-seqs", "4"]},
        {"environment": {"VLLM_USE_V1": "1"}},
        {"model": "openai/gpt-oss-20b"},
        {"speculative": {"method": "ngram", "tokens": 3}},
    ],
)
def test_what_is_said_to_vllm_is_in_the_flags(entry: dict[str, Any]) -> None:
    assert flags(**entry) != flags()


@pytest.mark.parametrize(
    "entry", [{"port": 8001}, {"served_model_name": "x"}, {"memory_gib": 71}, {"ready_timeout": 60}]
)
def test_what_compiles_nothing_is_not(entry: dict[str, Any]) -> None:
    assert flags(**entry) == flags()


def test_nobody_reaches_the_container_that_makes_it() -> None:
    warm = one(api_key="sesame").warm
    assert warm is not None
    words = list(warm.argv)
    options = words[: words.index("--entrypoint")]
    assert after(warm.argv, "--network") == "none" and after(warm.argv, "--name") == "gb10-warm-cache"
    assert not {"host", "--rm", "--env-file", "--cap-add"} & set(options) and after(warm.argv, "--cap-drop") == "ALL"
    mounts = [mount for word, mount in itertools.pairwise(options) if word == "--volume"]
    hub = "/root/.cache/huggingface/hub"
    assert mounts == ["/var/cache/gb10-warm/making:/root/.cache", f"/var/cache/gb10-vllm/huggingface/hub:{hub}:ro"]
    assert "sesame" not in str(words)


def test_a_draft_is_part_of_it() -> None:
    warm = one(speculative={"method": "dflash", "model": "a/draft", "revision": "v2", "tokens": 4}).warm
    assert warm is not None and warm.markers[1] == "/var/cache/gb10-files/models--a--draft@v2.json"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"vllm_warm_cache_gib": -1}, "vllm_warm_cache_gib is -1"),
        (ON | {"vllm_fetch": False}, "nobody knows which commit"),
        (ON | {"vllm_environment": {"TRITON_CACHE_DIR": "/x"}}, "vllm_environment sets TRITON_CACHE_DIR"),
    ],
)
def test_what_cannot_be_warm_is_refused(given: dict[str, Any], says: str) -> None:
    plan = alone(**given)
    assert plan.warm is None and any(says in text for text in plan.refusals)


MOUNT = {"vllm_mounts": ["/srv/plugins:/plugins"], "vllm_allow_mounts": True}


def test_what_a_container_may_write_to_is_not_in_the_start_that_makes_it() -> None:
    plan = alone(**ON, **MOUNT)
    assert any("/srv/plugins:/plugins, which the container may write to" in text for text in plan.refusals)
    assert not alone(**MOUNT).refusals
    assert not alone(**ON, **MOUNT | {"vllm_mounts": ["/srv/plugins:/plugins:ro"]}).refusals


OTHER = CHAT | {"memory_gib": 8, "port": 8001, "served_model_name": "x", "allow_mounts": True}


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (OTHER | {"mounts": ["/srv/plugins:/x"]}, True),
        (OTHER | {"mounts": ["/srv/plugins/inner:/x"]}, True),
        (OTHER | {"fetch": False, "cache_directory": "/srv/plugins"}, True),
        (OTHER | {"mounts": ["/srv/plugins:/x:ro"]}, False),
        (OTHER | {"mounts": ["/srv/plugins2:/x"]}, False),
        (OTHER | {"cache_directory": "/srv/plugins"}, False),
    ],
)
def test_what_another_service_may_write_to_is_not_in_the_start_that_makes_it(other: Any, says: bool) -> None:
    warm = HOST | {"mounts": ["/srv/plugins:/plugins:ro"], "allow_mounts": True}
    refusals = vllm.plan(view({"chat": warm, "more": other})).refusals
    assert any("chat: vllm_warm_cache_gib is set" in text and "more may write" in text for text in refusals) == says


@pytest.mark.parametrize(
    "entry",
    [
        {"mounts": ["/srv/plugins:/plugins:ro"], "allow_mounts": True},
        {"mounts": ["/srv/other:/plugins:ro"], "allow_mounts": True},
        {"security_options": ["seccomp=unconfined"], "allow_security_options": True},
    ],
)
def test_what_the_container_is_given_is_in_the_flags(entry: dict[str, Any]) -> None:
    seen = [flags(), flags(mounts=["/srv/plugins:/plug:ro"], allow_mounts=True), flags(**entry)]
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize(
    "folder",
    ["/var/cache/gb10-warm", "/var/cache/gb10-warm/vllm", "/var/lib/gb10-warm", "/var/lib/gb10-fleet", "/var/cache"],
)
def test_the_folder_of_the_models_is_not_where_only_root_may_write(folder: str) -> None:
    given = {"vllm_fetch": False, "vllm_cache_directory": folder}
    assert any(f"vllm_cache_directory is '{folder}'" in text for text in alone(**given).refusals)
    mounted = alone(vllm_mounts=[f"{folder}:/x"], vllm_allow_mounts=True)
    assert any(f"vllm_mounts: {folder} belongs" in text for text in mounted.refusals)


def test_a_service_over_several_hosts_has_none() -> None:
    assert any("2 hosts serve together" in text for text in paired(**ON).refusals)


def test_only_root_speaks_on_the_port_that_it_travels_by() -> None:
    assert "29502" in firewall.plan(view({"chat": HOST}, hosts=2)).own
    assert "29502" not in firewall.plan(view({"chat": HOST | {"warm_cache_gib": 0}}, hosts=2)).own
