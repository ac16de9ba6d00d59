"""`gb10 plan MODEL --ask HOST`: what vLLM itself says of the model, in the image of that host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import last_facts
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import container
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import engine

from gb10_fleet.ending import wrong_question
from gb10_fleet.playbook import Order, ours, run

if TYPE_CHECKING:
    from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.serving_plan import Plan

_MODULE = "gb10.fleet.engine_answer"


def asked(found: Plan, host: str, inventory: Sequence[str], as_json: bool) -> dict[str, Any]:
    """The answer of one host. A plan with nothing to serve has nothing to ask."""
    if not inventory:
        raise typer.BadParameter("--ask needs the inventory of that host: -i INVENTORY")
    if found.checkpoint is None:
        return {}
    variables = {
        "gb10_ask_images": [container.image_name(found.image), found.image],
        "gb10_ask_model": found.checkpoint.id,
        "gb10_ask_revision": found.given.revision,
        "gb10_ask_flags": engine.flags(found.arguments),
    }
    order = Order("gb10.fleet.ask", inventory, host, variables=variables, asks={_MODULE: "engine"})
    _, report = run(order, quiet=True)
    answers = [each["engine"] for each in report.answers[_MODULE].values()]
    if not answers:
        said = [text for texts in report.messages.values() for text in texts] or ours(report) or report.errors
        text = f"--ask {host}: {'; '.join(said) or report.no_target or 'no answer'}"
        fix = f". Fix: name a host of {' '.join(inventory)}, or another inventory with -i" if not report.hosts else ""
        wrong_question(f"{text}{fix}", as_json)
    return dict(answers[0])


def kept(found: Plan) -> tuple[dict[str, Any], str]:
    """What an engine has told this machine of the same image, model, revision and flags; and on which host."""
    if found.checkpoint is None:
        return {}, ""
    wanted = {
        "image": found.image,
        "model": found.checkpoint.id,
        "revision": found.given.revision or "main",
        "flags": engine.flags(found.arguments),
    }
    known = engine.kept(last_facts.answers(), wanted)
    return (dict(known.said), known.host) if known else ({}, "")


def lines(found: Plan, said: dict[str, Any], host: str) -> list[str]:
    """What it says, for a person. `found`: as it was counted before."""
    if not said or found.fit is None:
        return []
    dtype = found.arguments.get("--kv-cache-dtype") or "auto"
    counted = found.fit.need["weights"] * found.hosts
    return [f"  {line}" for line in engine.lines(said, host, found.model.geometry, counted, dtype)]
