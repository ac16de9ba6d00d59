"""What a host has measured goes before what is counted: in the plan, in the role, and by whom it was measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import planner as vllm
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import measured, serving_plan
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.memory_fit import GIB
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.serving_plan import Plan

from tests.support.plan_and_role import HOSTS, lines, role
from tests.support.proofs import facts as host_facts
from tests.support.services import only_service

MODEL, MEMORY = "openai/gpt-oss-120b", 121.69
FIGURES = {"weights_gib": 70.0, "kv_gib": 20.0, "sequences": 2.0, "length": 131072, "total_gib": MEMORY}


def planned(starts: measured.Starts | None = None, hosts: int = 1, **flags: str) -> Plan:
    return serving_plan.plan(MODEL, [MEMORY * GIB] * hosts, settings=flags, starts=starts)


def about(found: Plan) -> dict[str, Any]:
    assert found.checkpoint
    return measured.about(found.image, found.checkpoint.id, "", found.version, found.args, found.hosts)


def kept(found: Plan, figures: Mapping[str, float] = FIGURES, **changes: Any) -> dict[str, Any]:
    return {"vllm": [{"about": {**about(found), **changes}, "figures": dict(figures), "at": "2026-11-28T09:00:00Z"}]}


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize("flags", [{}, {"kv-cache-dtype": "fp8", "enforce-eager": None}], ids=["plain", "flags"])
def test_what_the_role_starts_is_what_the_plan_asks_for(flags: dict[str, Any], hosts: int) -> None:
    """A start is found again only where unit and plan call it alike."""
    found = planned(hosts=hosts, **flags)
    program = role(lines(found), hosts).program
    unit, plan = program["measures"], about(found)
    assert {**unit, "share": float(unit["share"])} == {**plan, "share": float(plan["share"])}


def test_a_measured_start_goes_before_what_is_counted() -> None:
    counted = planned()
    found = planned({"spark-b": kept(counted, share="0.8")})
    assert counted.fit and found.fit and counted.fit.sure["weights"] != found.fit.sure["weights"]
    assert found.fit.need["weights"] == 70.0 and found.fit.sure["weights"] == "measured on spark-b"
    assert found.fit.need["overhead"] == pytest.approx(0.8 * MEMORY - 90, abs=0.01), "what is left of the share"
    one = found.fit.need["kv_cache"] / found.fit.concurrency / found.fit.max_model_len
    assert one == pytest.approx(10.0 / 131072, rel=0.02), "20 GiB held two requests of 131,072 tokens"
    assert "weights 70.0 (measured on spark-b)" in " ".join(" ".join(found.lines()).split())


@pytest.mark.parametrize("share", ["most of it", "1e999", "-1e999", "nan", "-1", "9" * 5000])
def test_a_share_that_is_none_breaks_no_plan(share: str) -> None:
    """A host may say anything, and its answer is read where all hosts are judged."""
    assert planned({"spark-b": kept(planned(), share=share)}).fit is not None


def test_what_vllm_says_of_its_parts_is_kept_apart() -> None:
    said = {**FIGURES, "consumed_gib": 71.5, "activations_gib": 2.5, "graphs_gib": 0.5}
    found = planned({"spark-a": kept(planned(), said)}).fit
    assert found and {name: found.need[name] for name in ("context", "activations", "graphs")} == {
        "context": 1.5, "activations": 2.5, "graphs": 0.5,
    }  # fmt: skip


def test_this_host_goes_before_another_one_and_the_same_batch_before_any() -> None:
    plan = planned()
    own, other = kept(plan, {**FIGURES, "weights_gib": 71.0}), kept(plan, {**FIGURES, "weights_gib": 72.0})
    wanted = about(plan)
    assert (found := measured.find({"a": own, "b": other}, wanted)) and (found.host, found.weights_gib) == ("a", 71.0)
    apart = kept(plan, FIGURES, batch={"--max-num-seqs": "256"})
    found = measured.find({"a": apart, "b": other}, wanted)
    assert found and found.host == "b"
    found = measured.find({"a": apart}, wanted)
    assert found and (found.weights_gib, found.parts) == (70.0, {}), "activations are those of another batch"


@pytest.mark.parametrize(
    "changes",
    [{"image": "other:1"}, {"model": "a/b"}, {"revision": "v2"}, {"hosts": 2}, {"words": {"--quantization": "fp8"}}],
    ids=lambda changes: next(iter(changes)),
)
def test_a_start_of_anything_else_counts_nothing(changes: dict[str, Any]) -> None:
    counted = planned()
    assert planned({"spark-a": kept(counted, **changes)}).fit == counted.fit


@pytest.mark.parametrize("figures", [{}, {"sequences": 0.0, "kv_gib": 3.0}, {"host_gib": 80.0}])
def test_a_start_that_said_little_counts_nothing(figures: dict[str, float]) -> None:
    counted = planned()
    assert planned({"spark-a": kept(counted, figures)}).fit == counted.fit


def test_where_the_host_saw_that_it_does_not_fit_the_plan_says_so() -> None:
    found = planned({"spark-a": kept(planned(), {"weights_gib": 130.0})})
    assert found.refused and found.checkpoint is None
    assert "weights 130.0 GiB" in found.rejected[0][1]


def test_the_role_counts_with_what_this_host_or_its_cluster_has_measured() -> None:
    said = {**lines(planned(hosts=2)), "vllm_allow_tag": True, "fabric_topology": "pair"}

    def refusals(**measured_by: Any) -> tuple[str, ...]:
        facts = {
            name: {**host_facts(name), "memory_bytes": int(MEMORY * GIB), "measured": measured_by.get(name[-1], {})}
            for name in HOSTS
        }
        view = View("spark-a", facts["spark-a"], said, HOSTS, {"spark-b": facts["spark-b"]}, {"spark-b": said})
        return only_service(view).refusals

    large, small = (kept(planned(hosts=2), {"weights_gib": size}) for size in (130.0, 30.0))
    assert refusals() == () and refusals(b=small) == ()
    (text,) = refusals(b=large)
    assert text.startswith("rule memory_fit: ") and "weights 130.0 GiB" in text
    assert refusals(a=small, b=large) == (), "its own figures go first"


def test_a_sibling_that_serves_the_same_by_itself_has_measured_for_it() -> None:
    said = {**lines(planned()), "vllm_allow_tag": True}
    entry = {"model": said.pop("vllm_model"), "span": "host", "port": 8000}
    variables = {**said, "vllm_services": {"chat": entry}}
    large = kept(planned(), {"weights_gib": 130.0})
    facts = {name: {**host_facts(name), "memory_bytes": int(MEMORY * GIB)} for name in HOSTS}
    facts["spark-b"]["measured"] = {"chat": large["vllm"]}
    view = View("spark-a", facts["spark-a"], variables, HOSTS, {"spark-b": facts["spark-b"]}, {"spark-b": variables})
    (text,) = vllm.plan(view).refusals
    assert "weights 130.0 GiB" in text


def test_json_and_short_flags_are_the_same_however_they_are_written() -> None:
    drafts = '{"method": "mtp", "num_speculative_tokens": 2}'
    one, other = (
        measured.about("i", "m", "", "0.32.0", words, 1)
        for words in (
            ["--speculative-config", drafts, "--tensor-parallel-size", "2", "--port", "1"],
            ["-tp", "2", "--speculative-config", json.dumps(json.loads(drafts), separators=(",", ":"))],
        )
    )
    assert one == other
