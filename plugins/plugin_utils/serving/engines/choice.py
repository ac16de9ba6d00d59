# SPDX-License-Identifier: GPL-3.0-or-later
"""The engines that can serve what a plan is of: whether it fits, how fast that is, what breaks, and which to take."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.engines import llama_cpp, rules, sglang
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.engines.engine import Engine
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.engines.known import ENGINES, VLLM

if TYPE_CHECKING:
    from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.serving_plan import Plan

_FP4 = ("nvfp4", "mxfp4", "fp4")
_BESIDE = ("overhead",)  # of a plan for vLLM, that another engine has its own figure for


@dataclass(frozen=True)
class Choice:
    """One engine."""

    engine: str
    fits: bool
    text: str  # whether it fits, and how fast
    tokens: tuple[float, float] | None = None  # a second, of one request, as somebody measured it
    breaks: tuple[str, ...] = ()
    recipe: str = ""

    @property
    def line(self) -> str:
        known = f"; objections: {', '.join(self.breaks)}" if self.breaks else ""
        recipe = f"; examples/recipes/{self.recipe}.yml" if self.recipe else ""
        return f"{ENGINES[self.engine].title}: {self.text}{known}{recipe}"


@dataclass(frozen=True)
class Comparison:
    """All of them, vLLM first, and the one to take."""

    choices: tuple[Choice, ...] = ()
    best: str = ""
    why: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {
            "engines": [{**vars(each), "breaks": list(each.breaks)} for each in self.choices],
            "recommended": {"engine": self.best, "why": self.why} if self.best else None,
        }

    @property
    def labelled(self) -> Iterator[tuple[str, str]]:
        """The lines, each with its label; none where there is nothing to compare."""
        for number, each in enumerate(self.choices):
            yield "" if number else "engines", each.line
        if self.best:
            yield "recommended", f"{ENGINES[self.best].title}: {self.why}"


def compare(plan: Plan) -> Comparison:
    """Return nothing where vLLM alone can serve it."""
    others = [each for each in (_sglang(plan), _llama_cpp(plan)) if each]
    if not others:
        return Comparison()
    own = _vllm(plan)
    return Comparison((own, *others), *_best(own, [each for each in others if each.fits]))


def _best(own: Choice, others: list[Choice]) -> tuple[str, str]:
    """Another engine where vLLM cannot, or where it was measured faster than all that is known of vLLM."""
    if not others:
        return (VLLM, "nothing else fits") if own.fits else ("", "")
    fastest = max(others, key=lambda each: each.tokens or (0, 0))
    if not own.fits:
        return fastest.engine, "vLLM cannot serve it like this"
    if fastest.tokens and own.tokens and fastest.tokens[0] > own.tokens[1]:
        return fastest.engine, f"{fastest.tokens[0]:g} tok/s were measured, and vLLM has {own.tokens[1]:g} at most"
    return VLLM, "nobody measured another one faster, and its flags and memory are judged best here"


def _vllm(plan: Plan) -> Choice:
    fits = plan.checkpoint is not None and not plan.refused
    broken = tuple(each.id for each in plan.fired if each.severity in ("error", "warn") and not each.accepted)
    known = [plan.expected.tokens] if plan.expected else []  # with drafts, too: others were measured with them
    known += [(plan.predicted.low, plan.predicted.high)] if plan.predicted else []
    best = max(known, key=lambda each: each[1], default=None)
    return Choice(VLLM, fits, f"fits, {plan.expectation}" if fits else "cannot serve it", best, broken)


def _sglang(plan: Plan) -> Choice | None:
    """Where it has the architecture, or somebody serves the model with it."""
    served = _served(plan, sglang.ENGINE)
    if plan.model.architecture not in rules.read(sglang.ENGINE.name)["architectures"] and not served:
        return None
    if plan.fit is None and served:
        return _other(plan, sglang.ENGINE, served, f"somebody serves it, {_speed(plan, served)}")
    if plan.fit is None:
        return _other(plan, sglang.ENGINE, served, "has the architecture; what it takes is not known", fits=False)
    need = sum(size for part, size in plan.fit.need.items() if part not in _BESIDE) + sglang.beside_gib(())
    free = plan.fit.total - float(catalog.load("models")["fit"]["reserve"]["value"])
    if need > free:
        return _other(plan, sglang.ENGINE, served, f"takes {need:.0f} GiB, and {free:.0f} are there", fits=False)
    cache = " with --kv-cache-dtype fp8_e4m3" if plan.arguments.get("--kv-cache-dtype") == "fp8" else ""
    text = f"fits, memory_gib {math.ceil(need)}{cache}, {_speed(plan, served)}"
    return _other(plan, sglang.ENGINE, served, text)


def _llama_cpp(plan: Plan) -> Choice | None:
    """Where somebody serves it: which of the hub's GGUF files are of a model, no file of its says."""
    served = _served(plan, llama_cpp.ENGINE)
    if not served:
        return None
    text = f"somebody serves it in GGUF, {_speed(plan, served)}; gb10 plan OWNER/NAME/FILE.gguf says what a file takes"
    return _other(plan, llama_cpp.ENGINE, served, text)


def _other(plan: Plan, engine: Engine, served: Mapping[str, Any], text: str, *, fits: bool = True) -> Choice:
    tokens = tuple(served["tokens"]) if "tokens" in served else None
    return Choice(engine.name, fits, text, tokens, tuple(_broken(plan, engine)), str(served.get("recipe", "")))


def _served(plan: Plan, engine: Engine) -> Mapping[str, Any]:
    """What owners of Sparks serve with it on as many hosts with a Spark's memory; empty: nothing known."""
    if plan.memory_gib < int(catalog.load("models")["fit"]["memory"]["value"]):
        return {}
    names = {plan.model.id.lower(), *(each.id.lower() for each in plan.model.checkpoints)}
    for each in catalog.load("engines")["served"]:
        if (each["engine"], each["hosts"]) == (engine.name, plan.hosts) and names & {
            name.lower() for name in each["models"]
        }:
            found: Mapping[str, Any] = each
            return found
    return {}


def _speed(plan: Plan, served: Mapping[str, Any]) -> str:
    if "tokens" in served:
        low, high = served["tokens"]
        return f"{low:g} to {high:g} tok/s measured ({served['conditions']}; {served['source']}, {served['date']})"
    bound = f", {plan.predicted.text} by the memory's bandwidth" if plan.predicted else ""
    return f"speed not measured{bound}"


def _broken(plan: Plan, engine: Engine) -> Iterator[str]:
    """Rules of the engine that no flag is needed for; those of FP4 where the checkpoint has it."""
    fp4 = plan.checkpoint is not None and plan.checkpoint.quantization in _FP4
    for rule in catalog.load("engines")["rules"]:
        if rule["engine"] == engine.name and "words" not in rule and (fp4 or not rule.get("fp4")):
            yield f"{rule['id']} ({rule['versions']})" if "versions" in rule else rule["id"]
