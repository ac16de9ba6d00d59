"""A speed beside earlier runs of the same service and beside its siblings: a change is found, and noise is not."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import benchmark, speed_beside

from tests.support.load_figures import HEALTHY, readings, result
from tests.support.proofs import NOW

SCHEMA = json.loads((Path(benchmark.__file__).parent / "schemas/benchmark.schema.json").read_text())
THRESHOLDS = catalog.load("thresholds")
REQUEST = {"prompts": 4, "input_tokens": 512, "shared_tokens": 256, "output_tokens": 128}


def measured(
    speeds: dict[str, Sequence[float]],
    earlier: Sequence[dict[str, Any]] = (),
    model: str = "a/model",
    inventory: str = "abcd",
    **more: Any,
) -> dict[str, Any]:
    """A document: each cluster of one host, each speed a run with one request at once."""
    hosts = {
        name: {
            "cluster": name,
            "conditions": {"model": model, "image": "i", "args": [], **more},
            "steps": [
                {
                    "concurrency": 1,
                    "load": {"result": result(speed), "version": "0.32.0", "others": 0, "prefix_cache": None},
                    "readings": readings(*HEALTHY),
                }
                for speed in runs
            ],
        }
        for name, runs in speeds.items()
    }
    document = json.loads(json.dumps(benchmark.build(hosts, {}, REQUEST, THRESHOLDS, NOW, earlier, inventory)))
    jsonschema.validate(document, SCHEMA)
    return dict(document)


def noisy(chance: random.Random, middle: float, runs: int) -> list[float]:
    return [middle * chance.gauss(1, 0.01) for _ in range(runs)]


def test_three_percent_are_found_and_noise_is_not() -> None:
    chance, sure = random.Random(47), THRESHOLDS["benchmark"]["sure"]["value"]  # noqa: S311 - noise, no secret

    def found(share: float) -> int:
        pairs = ((noisy(chance, 50, 5), noisy(chance, 50 * share, 3)) for _ in range(500))
        return sum(speed_beside.differs(was, now, sure) for was, now in pairs)

    assert found(0.97) >= 400 and found(1.0) <= 20
    earlier = [measured({"a": [speed]}) for speed in (49.6, 50.2, 49.9, 50.4, 49.8)]
    assert measured({"a": [48.3, 48.6, 48.5]}, earlier)["verdict"] == "slower_than_before"
    assert measured({"a": [49.5, 49.9, 50.3]}, earlier)["verdict"] == "as_expected"


def test_what_was_before_is_a_pass_mark_where_nothing_is_published() -> None:
    assert measured({"a": [50.0]})["verdict"] == "no_expectation"
    earlier = [measured({"a": [speed]}) for speed in (49.8, 50.1, 50.3)]
    found = measured({"a": [50.0]}, earlier)
    assert found["verdict"] == "as_expected"
    assert found["clusters"][0]["steps"][0]["text"].startswith("-0.1% to the mean of 3 earlier runs of the same")
    assert "before" in benchmark.table(found)[0] and "-0.1%" in benchmark.table(found)[1]
    slow = measured({"a": [44.0]}, earlier)
    assert slow["verdict"] == "slower_than_before" and "gb10 why" in benchmark.findings(slow)[1]
    faster = measured({"a": [56.0]}, earlier)
    assert faster["verdict"] == "as_expected"


@pytest.mark.parametrize("other", [{"image": "j"}, {"args": ["--x"]}, {"model": "b/model"}, {"speculative": {"m": 1}}])
def test_another_configuration_is_not_compared(other: dict[str, Any]) -> None:
    earlier = [measured({"a": [speed]}, **other) for speed in (80.0, 80.1, 80.2)]
    found = measured({"a": [50.0]}, earlier)
    assert found["verdict"] == "no_expectation" and found["clusters"][0]["steps"][0]["before"] is None


def test_too_few_runs_prove_nothing() -> None:
    found = measured({"a": [40.0]}, [measured({"a": [50.0]}), measured({"a": [50.1]})])
    assert found["verdict"] == "no_expectation"
    assert "too few to tell it from noise" in found["clusters"][0]["steps"][0]["text"]


def test_the_odd_one_of_siblings_is_named_and_noise_is_not() -> None:
    found = measured({"a": [50.0], "b": [50.6], "c": [44.0], "d": [49.7]})
    assert {each["name"]: each["verdict"] for each in found["clusters"]} == {
        **dict.fromkeys("abd", "no_expectation"),
        "c": "odd_one_out",
    }
    assert "c, 1 at once: odd_one_out: -12.0% to its siblings (a 50.0, b 50.6, d 49.7)" in "\n".join(
        benchmark.findings(found)
    )
    even = measured({"a": [50.0], "b": [51.0], "c": [49.0]})
    assert even["verdict"] == "no_expectation"
    two = measured({"a": [50.0], "c": [40.0]})
    assert two["verdict"] == "no_expectation" and "-20.0% to its siblings (a 50.0)" in str(two)
    late = measured({"c": [44.0]}, [measured({"a": [50.0]}), measured({"b": [50.5]})])
    assert late["verdict"] == "odd_one_out", "siblings of earlier documents"


def beside(document: dict[str, Any]) -> Any:
    return document["clusters"][0]["steps"][0]["siblings"]


def test_a_cluster_that_has_another_name_since_is_not_its_own_sibling() -> None:
    former = [measured({"old": [50.0]}), measured({"b": [50.5]})]
    found = measured({"c": [44.0]}, former, inventory="bc")
    assert found["verdict"] == "no_expectation" and beside(found)["tokens_per_s"] == {"b": 50.5}
    assert beside(measured({"c": [44.0]}, former, inventory="c")) is None


def test_a_cluster_that_is_retired_moves_no_middle() -> None:
    former = [measured({name: [speed]}) for name, speed in (("a", 50.0), ("x", 44.0), ("y", 44.1), ("z", 43.9))]
    former.append(measured({"b": [50.4]}))
    found = measured({"c": [44.0]}, former, inventory="abc")
    assert found["verdict"] == "odd_one_out" and beside(found)["tokens_per_s"] == {"a": 50.0, "b": 50.4}
    today = measured({"c": [44.0], "d": [50.2]}, former[:1], inventory="")
    assert beside(today)["tokens_per_s"] == {"d": 50.2}, "what this run measures is there, whatever an inventory says"


def test_a_run_that_throttled_is_no_measure() -> None:
    earlier = [measured({"a": [50.0]}) for _ in range(3)]
    for document in earlier:
        document["clusters"][0]["steps"][0]["verdict"] = "power_fault"
    assert measured({"a": [20.0]}, earlier)["clusters"][0]["steps"][0]["before"] is None


@pytest.mark.parametrize(("freedom", "share", "exact"), [(2, 0.99, 6.965), (4, 0.99, 3.747), (10, 0.975, 2.228)])
def test_the_quantiles_are_those_of_the_tables(freedom: int, share: float, exact: float) -> None:
    assert speed_beside.quantile(freedom, share) == pytest.approx(exact, rel=0.06)


def test_nothing_published_above_the_bandwidth_is_expected_without_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    conditions = {"model": "openai/gpt-oss-120b", "quantization": "mxfp4", "hosts": 1, "version": "0.19.0", "args": []}
    assert benchmark.expectation(conditions, 1)[0]
    monkeypatch.setattr(benchmark.speed, "bandwidth_limit", lambda *_: 10.0)
    assert benchmark.expectation(conditions, 1)[0] is None
    assert benchmark.expectation({**conditions, "speculative": {"method": "mtp"}}, 1)[0]
