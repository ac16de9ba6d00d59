"""Services of one host or pair, and the plans that are made of them."""

from __future__ import annotations

from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render import Rendered, render
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import planner as vllm
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.service import ServicePlan

from tests.support.proofs import facts

IMAGE = "registry.example/vllm@sha256:" + "0" * 64
PAIR = ("spark-a", "spark-b")
CHAT = {"model": "openai/gpt-oss-120b", "memory_gib": 70, "max_model_len": 8192}
EMBED = {"model": "Qwen/Qwen3-Embedding-0.6B", "port": 8001, "memory_gib": 8}
GROUPS = {"all": [*PAIR], "sparks": [*PAIR], "near": ["spark-a"]}


def view(entries: dict[str, Any], host: str = "spark-a", hosts: int = 1, **variables: Any) -> View:
    said = {"vllm_image": IMAGE, "vllm_services": entries, "groups": GROUPS, "fabric_topology": "pair"} | variables
    of_host = {
        name: said | {"group_names": [group for group, members in GROUPS.items() if name in members]} for name in PAIR
    }
    members = PAIR[:hosts] if hosts > 1 else (host,)
    others = [name for name in members if name != host]
    known = {name: facts(name) for name in others}
    return View(host, facts(host), of_host[host], members, known, {name: of_host[name] for name in others})


def made(entries: dict[str, Any], host: str = "spark-a", hosts: int = 1, **variables: Any) -> dict[str, ServicePlan]:
    plan = vllm.plan(view(entries, host, hosts, **variables))
    assert plan.refusals == plan.joint_refusals == ()
    return {each.name: each for each in plan.services}


def after(argv: tuple[str, ...], flag: str) -> str:
    return argv[argv.index(flag) + 1]


def document(entries: dict[str, Any], **variables: Any) -> Rendered:
    rendered = render("vllm", view(entries, **variables))
    assert rendered.refusals == []
    return rendered


HEAR = {
    "kind": "container", "image": "registry.example/hear@sha256:" + "1" * 64, "port": 8002, "memory_gib": 6,
    "served_model_name": "whisper", "args": ["--port", "8002"], "environment": {"THREADS": 4}, "health": "/v1/health",
}  # fmt: skip

GATEWAY = {
    "gateway_address": "192.0.2.11",
    "gateway_plain_http": True,
    "gateway_keys": {"laptop": "a" * 40},
    "gateway_fleet_key": "f" * 40,
}
