# SPDX-License-Identifier: GPL-3.0-or-later
"""Which checkpoint of a model to serve: the decision tree of catalog/models.yml, with its path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import memory_fit
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.memory_fit import Fit
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.models import Checkpoint, Flags, Model, within


@dataclass(frozen=True)
class Choice:
    """What was chosen and how; without a checkpoint nothing of the model can be served like this."""

    checkpoint: Checkpoint | None
    fit: Fit | None
    path: Sequence[str]  # each step with its reason
    rejected: Sequence[tuple[str, str]]  # (checkpoint, reason)


@dataclass(frozen=True)
class Needs:
    """What a checkpoint wants said: flags and environment, and why."""

    arguments: Flags = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    reasons: Sequence[str] = ()
    because: Mapping[str, str] = field(default_factory=dict)  # by flag and by variable of the environment


def choose(
    model: Model,
    total_bytes: float,
    hosts: int = 1,
    version: str | None = None,
    only: str = "",
    max_model_len: int = 0,
    concurrency: int = 0,
    kv_dtype: str = "auto",
    utilization: float = 0.0,
    load: memory_fit.Load | None = None,
) -> Choice:
    """The first checkpoint in the order for this version of vLLM that can be served.

    `only` is a checkpoint's id or a format: nothing else is looked at, but the reasons against it count as well.
    """
    entry = in_version(catalog.load("models")["preference"], version)
    of_version = f"vLLM {version}" if version else "an unknown version of vLLM"
    path = [f"{of_version}: {', '.join(entry['order'])}, in this order, because {entry['because']}"]
    rejected: list[tuple[str, str]] = []
    for checkpoint in _in_order(model, entry["order"]):
        if not _is_asked(checkpoint, only):
            continue
        found = memory_fit.fit(
            model, checkpoint, total_bytes, hosts, max_model_len, concurrency, kv_dtype, utilization, load
        )
        against = _against(model, checkpoint, version) or (None if found.fits else found.reason)
        if against:
            rejected.append((checkpoint.id, against))
            path.append(f"{checkpoint.id} ({checkpoint.quantization}): no, {against}")
            continue
        path.append(f"{checkpoint.id} ({checkpoint.quantization}): yes, {found.needed:.1f} GiB on each host")
        return Choice(checkpoint, found, path, rejected)
    return Choice(None, None, path, rejected)


def hosts_needed(model: Model, total_bytes: float, version: str | None, only: str = "") -> int | None:
    """On how many hosts like this a checkpoint fits that nothing else speaks against; None: on no number of them."""
    counts = [
        memory_fit.hosts_needed(model, checkpoint, total_bytes)
        for checkpoint in model.checkpoints
        if _is_asked(checkpoint, only) and not _against(model, checkpoint, version)
    ]
    return min((count for count in counts if count), default=None)


def is_servable(model: Model, version: str | None) -> bool:
    """Return whether nothing but memory can speak against some checkpoint."""
    return any(not _against(model, checkpoint, version) for checkpoint in model.checkpoints)


def needs(model: Model, checkpoint: Checkpoint, version: str | None, kv_dtype: str) -> Needs:
    """What this checkpoint needs in this version of vLLM, over what the model always needs."""
    data = catalog.load("models")
    arguments: dict[str, str | None] = dict(model.arguments)
    environment = dict(checkpoint.environment)
    because = dict.fromkeys(arguments, model.source) | dict.fromkeys(environment, checkpoint.source)
    reasons = []
    for entry in (
        in_version(data["formats"][checkpoint.quantization], version),
        in_version(data["fp8_kv_cache"], version) if kv_dtype.startswith("fp8") else {},
    ):
        mine = {**entry.get("all", {}), **(entry.get("moe", {}) if model.kind == "moe" else {})}
        arguments = {**mine, **arguments}
        environment.update(entry.get("environment", {}))
        if mine or entry.get("environment"):
            words = [*(f"{flag} {value}" for flag, value in mine.items()), *entry.get("environment", {})]
            why = f"{entry['because']} ({entry['source']})"
            reasons.append(f"{', '.join(words)}: {why}")
            because = dict.fromkeys((*mine, *entry.get("environment", {})), why) | because
    return Needs(arguments, environment, reasons, because)


def in_version(entries: Sequence[Mapping[str, Any]], version: str | None) -> Mapping[str, Any]:
    """The first entry whose range (`value`) has the version; the first of all for an unknown one."""
    return next((entry for entry in entries if within(version, entry["value"])), entries[0])


def _in_order(model: Model, order: Sequence[str]) -> list[Checkpoint]:
    def rank(checkpoint: Checkpoint) -> int:
        verified = f"{checkpoint.quantization}_verified"
        return order.index(verified if checkpoint.verified and verified in order else checkpoint.quantization)

    return sorted(model.checkpoints, key=rank)


def _is_asked(checkpoint: Checkpoint, only: str) -> bool:
    return not only or only.lower() in (checkpoint.id.lower(), checkpoint.quantization)


def _against(model: Model, checkpoint: Checkpoint, version: str | None) -> str | None:
    for needed in (model.min_version, checkpoint.min_version):
        if needed and not within(version, f">={needed}", unknown=True):
            return f"it takes vLLM {needed} or newer, and the image has {version}"
    return checkpoint.avoided(version)
