# SPDX-License-Identifier: GPL-3.0-or-later
"""A speed beside what the same service did before, and beside its siblings: clusters that serve the same. Pure."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

# What must be alike for two figures to be compared, beside what each comparison names.
_ALIKE = (
    *("model", "image", "version", "hosts", "quantization", "environment", "max_model_len"),
    "gpu_memory_utilization",
)
_SPOILT = ("failed", "throttled", "power_fault")  # of such a step there is no speed
LEAST = 3  # runs before, and siblings with the one that is looked at: fewer have no middle and no spread

Cluster = Mapping[str, Any]
Limits = Mapping[str, float]


def before(
    cluster: Cluster, concurrency: int, request: Mapping[str, Any], earlier: Sequence[Mapping[str, Any]], limits: Limits
) -> dict[str, Any] | None:
    """How it changed since the earlier runs; `sure` where noise explains it hardly. None without a figure of both."""
    now = list(_speeds(cluster, concurrency))
    alike = [each for each in _alike(cluster, request, earlier) if each["name"] == cluster["name"]]
    was = [speed for each in alike for speed in _speeds(each, concurrency)]
    if not now or not was:
        return None
    change = statistics.mean(now) / statistics.mean(was) - 1
    large = abs(change) >= limits["change"]
    return {
        "runs": len(was),
        "tokens_per_s": round(statistics.mean(was), 3),
        "change": round(change, 4),
        "sure": large and differs(was, now, limits["sure"]),
    }


def differs(was: Sequence[float], now: Sequence[float], sure: float) -> bool:
    """Student's test of two samples of one spread, on logarithms: a run is slower by a share. `sure`: of one side."""
    if len(was) < LEAST:
        return False
    one, other = ([math.log(each) for each in values] for values in (was, now))
    freedom = len(one) + len(other) - 2
    middles = [statistics.mean(each) for each in (one, other)]
    squares = sum((each - middle) ** 2 for values, middle in zip((one, other), middles, strict=True) for each in values)
    error = math.sqrt(squares / freedom * (1 / len(one) + 1 / len(other)))
    return abs(middles[1] - middles[0]) > quantile(freedom, sure) * error


def quantile(freedom: int, share: float) -> float:
    """Of Student's distribution, by the expansion of Cornish and Fisher: within 5 % from 2 degrees of freedom."""
    z = statistics.NormalDist().inv_cdf(share)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / freedom**power for power, term in enumerate(terms, 1))


def siblings(
    cluster: Cluster,
    concurrency: int,
    request: Mapping[str, Any],
    documents: Sequence[Mapping[str, Any]],
    limits: Limits,
    inventory: Collection[str],
) -> dict[str, Any] | None:
    """Its place among those that serve the same, each by its newest figure; `odd` where it is the slow one of them.

    None without a sibling. Two alone do not say which of them is odd. `inventory`: the clusters of today. What has
    another name since would be its own sibling, and what is retired would move the middle.
    """
    mine = list(_speeds(cluster, concurrency))
    others: dict[str, float] = {}
    for each in _alike(cluster, request, documents):
        speeds = list(_speeds(each, concurrency))
        if speeds and each["name"] in inventory and each["name"] != cluster["name"]:
            others.setdefault(each["name"], round(statistics.median(speeds), 3))
    if not mine or not others:
        return None
    middle = statistics.median(others.values())
    spread = statistics.median(abs(each - middle) for each in others.values())
    apart = statistics.median(mine) / middle - 1
    odd = len(others) + 1 >= LEAST and apart < -max(limits["sibling"], limits["spreads"] * spread / middle)
    return {"tokens_per_s": others, "apart": round(apart, 4), "odd": odd}


def _alike(
    cluster: Cluster, request: Mapping[str, Any], documents: Iterable[Mapping[str, Any]]
) -> Iterator[Mapping[str, Any]]:
    """The clusters that served the same under the same load, the newest first."""
    wanted = _conditions(cluster["conditions"])
    return (each for __, each in under(request, documents) if _conditions(each["conditions"]) == wanted)


def _conditions(said: Mapping[str, Any]) -> dict[str, Any]:
    return conditions(said, speculative=said.get("speculative"), args=said.get("args"))


def under(
    request: Mapping[str, Any], documents: Iterable[Mapping[str, Any]]
) -> Iterator[tuple[Mapping[str, Any], Cluster]]:
    """The clusters of documents of this load, each with its document."""
    for document in documents:
        if document.get("request") == dict(request):
            for cluster in document.get("clusters", ()):
                yield document, cluster


def conditions(said: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """What decides whether two figures may be compared, as JSON would have it."""
    found: dict[str, Any] = json.loads(json.dumps({**{name: said.get(name) for name in _ALIKE}, **more}))
    return found


def _speeds(cluster: Cluster, concurrency: int) -> Iterator[float]:
    for step in cluster["steps"]:
        if step["concurrency"] == concurrency and step["tokens_per_s"] and step["verdict"] not in _SPOILT:
            yield step["tokens_per_s"]


def told(step: Mapping[str, Any]) -> list[str]:
    """Both, in words."""
    said = []
    if was := step.get("before"):
        runs, speed = was["runs"], f"{was['tokens_per_s']:.1f} tok/s"
        sure = "" if was["sure"] else ", which noise explains" if runs >= LEAST else ", too few to tell it from noise"
        said.append(f"{was['change']:+.1%} to the mean of {runs} earlier runs of the same ({speed}){sure}")
    if beside := step.get("siblings"):
        each = ", ".join(f"{name} {speed:.1f}" for name, speed in sorted(beside["tokens_per_s"].items()))
        said.append(f"{beside['apart']:+.1%} to its siblings ({each})")
    return said
