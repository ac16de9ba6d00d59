# SPDX-License-Identifier: GPL-3.0-or-later
"""What an inventory has to say for the role vllm to serve as a plan decided; the role accepts these lines."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import draft_wish, memory_fit, speculation
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import sources

if TYPE_CHECKING:
    from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.models import Flags
    from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.serving_plan import Plan

# Flags that the role has a variable for.
_TEXTS = {
    "--host": "vllm_host",
    "--served-model-name": "vllm_served_model_name",
    "--revision": "vllm_model_revision",
}
_NUMBERS = {"--port": "vllm_port", "--master-port": "vllm_master_port"}
# What the role says itself, and the key, which belongs into a vault.
_OF_THE_ROLE = {
    *("--max-model-len", "--gpu-memory-utilization", "--tensor-parallel-size", "--pipeline-parallel-size"),
    *("--nnodes", "--node-rank", "--master-addr", "--headless", "--distributed-executor-backend", "--api-key"),
}


def variables(plan: Plan) -> dict[str, Any]:
    """Of a plan with a checkpoint; variables that keep their default are left out."""
    if plan.checkpoint is None:
        return {}
    arguments = plan.arguments
    known = plan.known_image.version if plan.known_image else None
    draft = draft_wish.wish(speculation.said(arguments))
    values: dict[str, Any] = {
        "vllm_model": plan.checkpoint.id,
        "vllm_model_revision": plan.given.revision,
        "vllm_model_facts": plan.given.facts,
        "vllm_image": plan.image,
        "vllm_version": plan.version if plan.version != known else "",
        "vllm_max_model_len": plan.max_model_len,
        "vllm_gpu_memory_utilization": plan.utilization,
        "vllm_speculative": draft | ({"facts": plan.given.draft} if draft and plan.given.draft else {}),
        **{name: arguments[flag] for flag, name in _TEXTS.items() if flag in arguments},
        **{name: _whole(arguments[flag]) for flag, name in _NUMBERS.items() if flag in arguments},
        "vllm_extra_args": words(unnamed(arguments)),
        "vllm_environment": {name: value for name, value in plan.environment.items() if not name.startswith("RAY_")},
        "vllm_accept": {rule.id: rule.accepted for rule in plan.fired if rule.accepted},
    }
    tensor = _whole(arguments.get("--tensor-parallel-size"))
    # The role takes all hosts where it can divide a layer by them, and leaves the layers whole where not.
    if tensor and (tensor != plan.hosts or memory_fit.uneven(plan.model.geometry, tensor)):
        values["vllm_tensor_parallel_size"] = tensor
    if arguments.get("--distributed-executor-backend") == "ray":
        values["vllm_executor"] = "ray"  # the role sets Ray's environment; vllm_ray_token is the user's own secret
    found = {name: value for name, value in values.items() if value}
    if any(sources.is_path(name) for name in (plan.checkpoint.id, str(draft.get("model", "")))):
        found["vllm_fetch"] = False  # there is nothing to fetch from the hub
    return found


def unnamed(arguments: Flags) -> dict[str, str | None]:
    """Return the flags that the role has no variable for."""
    own = _OF_THE_ROLE | _TEXTS.keys() | _NUMBERS.keys()
    return {flag: value for flag, value in arguments.items() if flag not in own and not draft_wish.is_flag(flag)}


def words(arguments: Flags) -> list[str]:
    """The same as words of a command line."""
    return [word for flag, value in arguments.items() for word in (flag, value) if word is not None]


def entry(plan: Plan) -> dict[str, Any]:
    """The same for an entry of vllm_services, its keys still with their prefix: it says GiB, and where it runs."""
    found = variables(plan)
    if plan.fit is None or not found:
        return {}
    share = found.pop("vllm_gpu_memory_utilization")
    gib = plan.given.service_gib or math.ceil(share * plan.fit.total * 10) / 10
    own: dict[str, Any] = {"vllm_model": found.pop("vllm_model")}
    own |= {"vllm_span": "host"} if plan.hosts == 1 else {}
    return {**own, "vllm_memory_gib": int(gib) if gib == int(gib) else gib, **found}


def _whole(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0


def yaml(value: Any) -> str:
    """A value in one line of YAML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {yaml(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(yaml(item) for item in value) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
