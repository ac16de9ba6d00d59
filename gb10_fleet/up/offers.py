"""The models that `gb10 up` proposes: those that fit these hosts, with what each takes and gives. Asks no host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import (
    memory_fit,
    models,
    plan_text,
    serving_plan,
    tasks,
)

MOST = 3
_GIB_TO_MBIT = 2**30 * 8 / 10**6


@dataclass(frozen=True)
class Room:
    """What the hosts of a cluster have: memory of each in bytes, and free disk of each in GiB.

    `disks`: of each host, what is free for the image and for the weights, and whether it is one disk for both.
    """

    memories: Sequence[float]
    disks: Sequence[tuple[float, float, bool]] = ()

    def left(self, weights: float) -> list[float]:
        """Return what would be left of each disk with image and weights."""
        image = float(catalog.load("software")["vllm_image_disk"]["value"])
        return [
            min(for_image - image - (weights if same else 0), for_weights - weights - (image if same else 0))
            for for_image, for_weights, same in self.disks
        ]


@dataclass(frozen=True)
class Offer:
    """A model, with a plan for each cluster."""

    model: str
    plans: Sequence[serving_plan.Plan]
    disk_left: float | None

    @property
    def plan(self) -> serving_plan.Plan:
        return self.plans[0]

    @property
    def weights(self) -> float:
        return max(plan.checkpoint.weight_gib if plan.checkpoint else 0.0 for plan in self.plans)

    @property
    def refusal(self) -> str:
        """Return why it cannot be served here; empty where it can."""
        for plan in self.plans:
            if plan.refused:
                return plan_text.verdict(plan)
        if self.disk_left is not None and self.disk_left < 0:
            return (
                f"{self.model}: needs {-self.disk_left:.0f} GiB more of disk than the fullest host has free: "
                "free some, or take a smaller model"
            )
        return ""

    @property
    def minutes(self) -> int:
        """To download image and weights, at the usual rate."""
        image = float(catalog.load("software")["vllm_image_disk"]["value"])
        return round((self.weights + image) * _GIB_TO_MBIT / _fit("download_rate") / 60)

    @property
    def line(self) -> str:
        """One line for a person."""
        said = [self.plan.expectation]
        said += [
            f"tools: {plan_text.tools(self.plan.arguments)}",
            f"context {self.plan.max_model_len:,}".replace(",", " "),
        ]
        said += [f"{self.weights:.0f} GiB to download"]
        said += [] if self.disk_left is None else [f"{self.disk_left:.0f} GiB of disk left"]
        said += [f"about {_time(self.minutes)} with the image at {_fit('download_rate'):.0f} Mbit/s"]
        served = self.plan.checkpoint.id if self.plan.checkpoint else self.model
        return f"{self.model}{'' if served == self.model else f' as {served}'}: {', '.join(said)}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "verdict": plan_text.verdict(self.plan),
            "expectation": self.plan.expectation,
            "tools": plan_text.tools(self.plan.arguments) == "yes",
            "context": self.plan.max_model_len,
            "download_gib": round(self.weights, 1),
            "disk_left_gib": None if self.disk_left is None else round(self.disk_left),
            "minutes": self.minutes,
        }


def room(hosts: Sequence[Mapping[str, Any]]) -> Room:
    """Return what these hosts have, by their facts."""
    disks = [(_disk(facts, "/var/lib/docker"), _disk(facts, "/var/cache")) for facts in hosts]
    return Room(
        [facts["memory_bytes"] for facts in hosts],
        [
            (image["free_bytes"] / memory_fit.GIB, weights["free_bytes"] / memory_fit.GIB, image == weights)
            for image, weights in disks
            if image and weights
        ],
    )


def _disk(facts: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """Return the disk on which a path lies: the longest mount above it."""
    above = [disk for disk in facts["disks"] if f"{path}/".startswith(f"{disk['mount'].rstrip('/')}/")]
    return max(above, key=lambda disk: len(disk["mount"]), default={})


def offer(model: str, rooms: Sequence[Room], **more: Any) -> Offer:
    """Plan one model for all clusters; serving_plan.PlanError where nobody knows it."""
    plans = [serving_plan.plan(model, one.memories, **more) for one in rooms]
    left = [
        each
        for one, plan in zip(rooms, plans, strict=True)
        for each in one.left(plan.checkpoint.weight_gib if plan.checkpoint else 0.0)
    ]
    return Offer(plans[0].model.id if not plans[0].model.facts else model, plans, min(left, default=None))


def best(rooms: Sequence[Room]) -> list[Offer]:
    """Propose three: the best known one, the most able one and the quickest to fetch; the first is the advice."""
    fitting = [
        one
        for model in models.models()
        if tasks.chats(model) and not (one := offer(model.id, rooms, judge=lambda *_: [])).refusal
    ]
    fitting = [one for one in fitting if _usable(one)] or fitting
    wanted = [
        sorted(fitting, key=lambda one: (one.plan.measured is None, -one.weights)),
        sorted(fitting, key=lambda one: -one.weights),
        sorted(fitting, key=lambda one: one.weights),
        sorted(fitting, key=lambda one: -_tokens(one)),
    ]
    chosen: list[Offer] = []
    for order in wanted:
        fresh = next((one for one in order if one.model not in [each.model for each in chosen]), None)
        chosen += [fresh] if fresh else []
    # With the rules, which are for one plan: what they refuse is no proposal.
    judged = [offer(one.model, rooms) for one in chosen]
    return [one for one in judged if not one.refusal][:MOST]


def _usable(one: Offer) -> bool:
    return (
        _tokens(one) >= _fit("offer_speed")
        and one.plan.max_model_len >= _fit("offer_context")
        and plan_text.tools(one.plan.arguments) == "yes"
    )


def _tokens(one: Offer) -> float:
    if known := one.plan.measured:
        return float(min(known.tokens))
    return one.plan.predicted.middle if one.plan.predicted else 0.0


def _fit(name: str) -> float:
    return float(catalog.load("models")["fit"][name]["value"])


def _time(minutes: int) -> str:
    return f"{minutes} min" if minutes < 90 else f"{minutes / 60:.0f} h"
