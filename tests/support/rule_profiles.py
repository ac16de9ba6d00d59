"""Profiles for the rules of serving."""

from __future__ import annotations

import dataclasses
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import rules
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.rules import Profile

QUIET = "--gpu-memory-utilization 0.8 --max-model-len 4096 --max-num-seqs 4 --max-num-batched-tokens 2048"
QUIET += " --fail-on-environ-validation"


def profile(args: str = "", **changes: Any) -> Profile:
    base = Profile(
        model="a/model",
        traits=frozenset({"dense"}),
        quantization="bf16",
        image="an/image:1",
        version="0.24.0",
        contains=frozenset({"ray"}),
        args=(*QUIET.split(), *args.split()),
        environment={},
    )
    return dataclasses.replace(base, **changes)


def bare(**changes: Any) -> Profile:
    return dataclasses.replace(profile(), args=(), **changes)


def ids(found: list[rules.Fired], severity: str | None = None) -> list[str]:
    return [each.id for each in found if severity in (None, each.severity)]


def only(name: str, judged: Profile) -> rules.Fired:
    (found,) = [each for each in rules.judge(judged) if each.id == name]
    return found
