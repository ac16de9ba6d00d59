"""The budget of a host: what fits beside each other, what does not, and who is to give way by how much."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import planner as vllm

from tests.support.proofs import facts

IMAGE = "registry.example/vllm@sha256:" + "0" * 64
SPARK, RESERVE = 121.69, 12
NAMES = ("chat", "embed", "rank", "hear", "see", "code")
SHORT = "vllm"


def planned(entries: dict[str, Any], gib: float = SPARK, **variables: Any) -> vllm.VllmPlan:
    known = {**facts(), "memory_bytes": int(gib * 1024**3)}
    return vllm.plan(View("spark-a", known, {"vllm_image": IMAGE, "vllm_services": entries} | variables))


def services(*shares: float | str) -> dict[str, Any]:
    """A number is memory_gib, a text the share of the host's memory."""
    return {
        name: {"model": f"acme/{name}", "port": 8000 + place}
        | ({"gpu_memory_utilization": share} if isinstance(share, str) else {"memory_gib": share})
        for place, (name, share) in enumerate(zip(NAMES, shares, strict=False))
    }


FITS: list[tuple[tuple[float | str, ...], float]] = [
    ((100,), SPARK), ((109.6,), SPARK), ((90, 19), SPARK), ((54, 55), SPARK), ((100, 9.6), SPARK), (("0.5", 48), SPARK),
    (("0.45", "0.45"), SPARK), ((60, 30, 19), SPARK), ((20, 20, 20, 20, 20), SPARK), ((18, 18, 18, 18, 18, 18), SPARK),
    ((80, 26.9), 119), (("0.7", "0.1", "0.1"), SPARK), ((30, 5), 48),
]  # fmt: skip
# The shares, the memory of the host, the service that is to give way, and by how much.
OVER: list[tuple[tuple[float | str, ...], float, str, str]] = [
    ((100, 9.8), SPARK, "chat", "0.2"), ((100, 10), SPARK, "chat", "0.4"), ((10, 100), SPARK, "embed", "0.4"),
    ((60, 60), SPARK, "chat", "10.4"), (("0.8", 20), SPARK, "chat", "7.7"), (("0.5", "0.5"), SPARK, "chat", "12.0"),
    ((40, 40, 40), SPARK, "chat", "10.4"), ((20, 20, 20, 20, 40), SPARK, "see", "10.4"), ((80, 30), 119, "chat", "3.0"),
    ((30, 10), 48, "chat", "4.0"), (("0.7", "0.2", "0.1"), SPARK, "chat", "12.1"),
]  # fmt: skip


@pytest.mark.parametrize(("shares", "gib"), FITS)
def test_what_fits(shares: tuple[float | str, ...], gib: float) -> None:
    made = planned(services(*shares), gib)
    assert made.refusals == () and len(made.services) == len(shares)


@pytest.mark.parametrize(("shares", "gib", "largest", "less"), OVER)
def test_what_does_not_fit_names_who_is_to_give_way(
    shares: tuple[float | str, ...], gib: float, largest: str, less: str
) -> None:
    (text,) = planned(services(*shares), gib).refusals
    assert f"Give {largest} {less} GiB less, vllm_services.{largest}.memory_gib: " in text
    wanted = float(text.partition(f"{largest}.memory_gib: ")[2].split(",")[0])
    entries = services(*shares)
    entries[largest] = {key: value for key, value in entries[largest].items() if "memory" not in key}
    entries[largest]["memory_gib"] = wanted
    assert planned(entries, gib).refusals == (), "what it says is enough"


def test_the_short_form_counts_and_is_told_its_own_variable() -> None:
    beside = {"embed": {"model": "acme/e", "port": 8001, "memory_gib": 20}}
    (text,) = planned(beside, vllm_model="openai/gpt-oss-120b").refusals
    assert "(vllm 97.3, embed 20.0)" in text and "vllm_gpu_memory_utilization: 0.73" in text
    fits = planned(beside, vllm_model="openai/gpt-oss-120b", vllm_gpu_memory_utilization=0.73)
    assert fits.refusals == ()


def test_services_of_different_layouts_need_not_fit_together() -> None:
    sets = {"split": ["chat", "embed"], "cluster": ["rank"]}
    apart = planned(services(50, 50, 100), gb10_layouts=sets)
    assert (apart.refusals, apart.resting) == ((), ("rank",))
    (text,) = planned(services(50, 70, 100), gb10_layouts=sets).refusals
    assert "its services take 120.0 GiB (chat 50.0, embed 70.0)" in text
    (text,) = planned(services(60, 20, 70, 30), gb10_layouts=sets).refusals
    assert "(chat 60.0, embed 20.0, hear 30.0)" in text, "what is of no layout always runs"
    assert "gb10_layouts: write a mapping" in planned(services(10, 10), gb10_layouts=["chat"]).refusals[0]


def test_what_a_host_gave_before_counts_where_it_is_more_than_the_share() -> None:
    beside = services(90, 19)

    def refusals(share_gib: float = 90, **given: float) -> tuple[str, ...]:
        about = only(planned(services(share_gib)), "chat").program["measures"]
        start = {"about": about, "figures": dict(given), "at": "2026-11-28T09:00:00Z"}
        known = {**facts(), "memory_bytes": int(SPARK * 1024**3), "measured": {"chat": [start]}}
        return vllm.plan(View("spark-a", known, {"vllm_image": IMAGE, "vllm_services": beside})).refusals

    assert refusals(host_gib=88.0) == () and refusals(share_gib=80, host_gib=94.0) == (), "of another share"
    (text,) = refusals(host_gib=94.0)
    assert "its services take 113.0 GiB (chat 94.0 measured on spark-a, embed 19.0)" in text
    assert "Give chat 3.4 GiB less, vllm_services.chat.memory_gib: 86.6" in text


def only(made: vllm.VllmPlan, name: str) -> Any:
    return next(each for each in made.services if each.name == name)


def test_where_no_shrinking_helps_a_service_is_to_move() -> None:
    (text,) = planned(services(30, 30, 30), 60).refusals
    assert text.endswith("Move a service away.")


def test_services_that_say_no_share_are_each_to_say_one() -> None:
    entries = {name: {"model": f"acme/{name}", "port": port} for name, port in (("chat", 8000), ("embed", 8001))}
    (text,) = planned(entries).refusals
    assert "Give each of chat, embed a memory_gib" in text and "GiB less" not in text


def test_an_entry_without_a_share_gives_way_before_the_model_that_was_there() -> None:
    beside = {"embed": {"model": "acme/e", "port": 8001}}
    (text,) = planned(beside, vllm_model="openai/gpt-oss-120b").refusals
    assert "(vllm 97.3, embed 97.3)" in text
    assert "Give embed 85.1 GiB less, vllm_services.embed.memory_gib: 12.3" in text, "not the chat model a tenth"


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ({}, {"port": 8000}, "chat and embed both take port 8000 (vllm_port)"),
        ({}, {"served_model_name": "acme/chat"}, "chat and embed serve the same name, acme/chat"),
    ],
)
def test_what_two_services_may_not_share(one: dict[str, Any], other: dict[str, Any], said: str) -> None:
    entries = services(40, 40)
    entries["chat"] |= one
    entries["embed"] |= other
    (text,) = planned(entries).refusals
    assert said in text and "vllm_services.embed." in text


def pair(host: str, **entries: dict[str, Any]) -> vllm.VllmPlan:
    said = {"vllm_image": IMAGE, "vllm_services": entries, "fabric_topology": "pair"}
    (other,) = {"spark-a", "spark-b"} - {host}
    return vllm.plan(View(host, facts(host), said, ("spark-a", "spark-b"), {other: facts(other)}, {other: said}))


MANY = services(40, 40)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({}, ["29511 (vllm_join_port)", "29501 (vllm_master_port)"]),
        ({"join_port": 29512}, ["29501 (vllm_master_port)"]),
        ({"join_port": 29501, "master_port": 29512}, ["29501 (vllm_master_port and vllm_join_port)"]),
        ({"join_port": 29512, "master_port": 29513}, []),
        (
            {"join_port": 29512, "master_port": 29513, "transfer_port": 29511},
            ["29511 (vllm_join_port and vllm_transfer_"],
        ),
        ({"span": "host"}, []),
    ],
)
def test_two_services_of_a_cluster_have_ports_of_their_own(other: dict[str, Any], said: list[str]) -> None:
    made = pair("spark-a", chat=MANY["chat"], embed=MANY["embed"] | other)
    assert [part in text for part, text in zip(said, made.refusals, strict=True)] == [True] * len(said)


def test_a_rank_without_an_api_leaves_its_port_to_others() -> None:
    entries = {"chat": MANY["chat"], "embed": MANY["embed"] | {"span": "host", "port": 8000}}
    assert pair("spark-b", **entries).refusals == () and len(pair("spark-a", **entries).refusals) == 1


def test_ray_is_once_on_a_host() -> None:
    ray = {"executor": "ray", "ray_token": "0123456789abcdef" * 2}
    own = {"join_port": 29512, "ray_port": 6400, "version": "0.28.0"}
    made = pair("spark-a", chat=MANY["chat"] | ray, embed=MANY["embed"] | ray | own)
    assert [text for text in made.refusals if "whose ports a host has once" in text]
