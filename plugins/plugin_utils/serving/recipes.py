# SPDX-License-Identifier: GPL-3.0-or-later
"""The vendor's recipes of catalog/recipes.yml: a configuration as it was served, in the words of the role vllm."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import host_count
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import (
    draft_wish,
    inventory_text,
    models,
    names,
    plan_text,
)
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.models import Flags

if TYPE_CHECKING:
    from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.rules import Fired

VENDOR = "vendor"
# --max-model-len auto, in the words of the role's variable.
AUTO = -1
# What a recipe's container has, and the role gives in another way.
_INSTEAD = "the role gives the RDMA devices and IPC_LOCK, which is what RDMA needs"


class RecipeError(ValueError):
    """There is no such recipe; the text names what there is."""


@dataclass(frozen=True)
class Measured:
    """What was measured, and how: means of one request at a time."""

    date: str
    driver: str
    decode: float  # tokens a second
    prefill: float
    latency_s: float
    input_tokens: tuple[int, int]
    output_tokens: int
    context: int
    concurrency: int
    harness: str = ""
    dataset: str = ""
    profile: str = ""
    system: str = ""
    cuda: str = ""
    machine: str = ""
    requests: int = 0
    warm_up: int = 0

    @property
    def conditions(self) -> str:
        low, high = self.input_tokens
        return f"one request at a time, {low} to {high} tokens in and {self.output_tokens} out, driver {self.driver}"


@dataclass(frozen=True)
class Recipe:
    """One configuration, as catalog/recipes.yml has it."""

    id: str
    path: str
    commit: str
    status: str  # optimized | experimental
    model: str
    precision: str
    hosts: int
    image: str  # by tag
    utilization: float
    arguments: Flags
    source: str
    date: str
    confidence: str
    revision: str = ""
    digest: str = ""
    version: str = ""
    max_model_len: int = 0  # 0: the model's own
    draft: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    privileged: bool = False
    ulimits: Mapping[str, str] = field(default_factory=dict)
    security_options: Sequence[str] = ()
    folders: Sequence[str] = ()  # of the container, kept on the host
    left_out: Mapping[str, str] = field(default_factory=dict)
    measured: Measured | None = None
    recipe_sha256: str = ""
    notes: str = ""
    fired: Sequence[Fired] = ()  # what the rules say of it

    @property
    def reference(self) -> str:
        """The image, by its digest where that is known."""
        return f"{self.image}@{self.digest}" if self.digest else self.image

    @property
    def _drafts(self) -> tuple[str, ...]:
        return (draft_wish.FLAG, json.dumps(dict(self.draft), separators=(",", ":"))) if self.draft else ()

    @property
    def _words(self) -> tuple[str, ...]:
        """The words of `vllm serve MODEL` that the role has no variable for."""
        words = [word for flag, value in self.arguments.items() for word in (flag, value) if word is not None]
        # A draft without a method is left to vLLM, which goes by the draft's own files; the variable wants one said.
        return (*words, *(() if "method" in self.draft else self._drafts))

    @property
    def served(self) -> tuple[str, ...]:
        """All words of `vllm serve MODEL`, without what differs from host to host."""
        length = "auto" if self.max_model_len == AUTO else str(self.max_model_len)
        hosts = ("--tensor-parallel-size", str(self.hosts), "--nnodes", str(self.hosts)) if self.hosts > 1 else ()
        lengths = ("--max-model-len", length) if self.max_model_len else ()
        drafts = self._drafts if "method" in self.draft else ()
        pinned = ("--revision", self.revision) if self.revision else ()
        return (*self._words, *pinned, *drafts, *lengths, *hosts, "--gpu-memory-utilization", str(self.utilization))

    @property
    def variables(self) -> dict[str, Any]:
        """What says the same to the role vllm. The fabric and the ranks follow from the inventory's cluster."""
        values: dict[str, Any] = {
            "vllm_model": self.model,
            "vllm_model_revision": self.revision,
            "vllm_image": self.reference,
            "vllm_version": self.version,
            "vllm_flags": "none",  # exactly what was measured, and nothing beside it
            "vllm_max_model_len": self.max_model_len,
            "vllm_gpu_memory_utilization": self.utilization,
            "vllm_speculative": draft_wish.wish(self.draft) if "method" in self.draft else {},
            "vllm_extra_args": list(self._words),
            "vllm_environment": dict(self.environment),
            "vllm_ulimits": dict(self.ulimits),
            "vllm_security_options": list(self.security_options),
            "vllm_mounts": [f"/var/cache/gb10-{name.rpartition('/')[2].lstrip('.')}:{name}" for name in self.folders],
        }
        if "model" in self.draft and "method" not in self.draft:
            values["vllm_fetch"] = False  # vLLM loads the second model by itself
        return {name: value for name, value in values.items() if value or value is False}

    @property
    def refused(self) -> bool:
        return any(rule.refuses for rule in self.fired)

    @property
    def inventory_lines(self) -> list[str]:
        return inventory_text.lines(self.variables)

    @property
    def not_taken(self) -> dict[str, str]:
        """What of the recipe is not in the lines for the inventory, and why."""
        return {**({"--privileged": _INSTEAD} if self.privileged else {}), **self.left_out}

    @property
    def speed(self) -> str:
        if self.measured is None:
            return f"not measured, {self.status} by its maker's word"
        found = self.measured
        return f"{found.decode:g} tok/s, {found.prefill:g} of prefill ({found.date}, {found.conditions})"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        plain = asdict(self)
        return {
            **plain,
            "image": self.reference,
            "not_taken": self.not_taken,
            "refused": self.refused,
            "variables": self.variables,
            "consents": inventory_text.consents(self.variables),
        }

    def lines(self, explain: bool = False) -> list[str]:
        """For a person to read."""
        version = f"vLLM {self.version}" if self.version else "version of vLLM not said"
        said = f"recipe {self.id} of the vendor ({self.confidence}, {self.date})"
        found = [
            *plan_text.wrapped("; ".join((f"{self.model} on {host_count(self.hosts)}: {said}", *self._verdict)), "  "),
            *plan_text.labelled("image", f"{plan_text.short(self.reference)} ({version})"),
        ]
        if not self.refused:
            found += plan_text.command(["vllm", "serve", self.model, *self.served])
            found += [f"  environment  {name}={value}" for name, value in self.environment.items()]
        found += plan_text.labelled("measured", self.speed)
        for name, reason in self.not_taken.items():
            found += plan_text.labelled("left out", f"{name}: {reason}")
        found += plan_text.fired(self.fired)
        found += plan_text.labelled("note", self.notes) if self.notes else []
        found += plan_text.labelled("source", f"{self.source}; {self.path} at {self.commit}") if explain else []
        return found if self.refused else [*found, "  for the inventory", *plan_text.pasted(self.inventory_lines)]

    @property
    def _verdict(self) -> tuple[str, ...]:
        if way := next((rule.way_out for rule in self.fired if rule.refuses), ""):
            return "refused", f"next: {way}"
        found = self.measured
        speed = f"{found.decode:g} tok/s measured" if found else "not measured"
        return speed, f"tools: {plan_text.tools(self.arguments)}", f"next: {plan_text.NEXT}"


@cache
def recipes() -> tuple[Recipe, ...]:
    """All of them, in the order of the catalog."""
    return tuple(_recipe(entry) for entry in catalog.load("recipes")["recipes"])


def of(name: str) -> list[Recipe]:
    """Those of a checkpoint, of the model that it is of, or with this id; the fewest hosts first."""
    wanted, known = name.lower(), models.find(name)
    ids = (
        {wanted, *(each.id.lower() for each in known.checkpoints)} if known and known.id.lower() == wanted else {wanted}
    )
    found = [
        each for each in recipes() if each.model.lower() in ids or wanted in (each.id, models.vendor_name(each.path))
    ]
    return sorted(found, key=lambda each: each.hosts)


def find(name: str, hosts: int = 0) -> Recipe:
    """The recipe for so many hosts; 0: for as few as there is one for."""
    found = of(name)
    if not found:
        known = sorted({each.model for each in recipes()})
        near = names.nearest(name, known)
        hint = f"; near it: {', '.join(near)}" if near else ""
        raise RecipeError(
            f"the vendor has no recipe of {name} in catalog/recipes.yml{hint}. It has: {', '.join(known)}"
        )
    for each in found:
        if hosts in (0, each.hosts):
            return each
    counts = ", ".join(f"--hosts {each.hosts}" for each in found)
    raise RecipeError(f"the vendor has no recipe of {name} for {hosts} hosts; it has one for {counts}")


def judged(recipe: Recipe, accepted: Mapping[str, str], driver: str | None = None) -> Recipe:
    """With what the rules of serving say of it."""
    from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import serving_plan, serving_rules

    command = serving_rules.Command(
        model=recipe.model,
        image=recipe.reference,
        version=recipe.version,
        args=recipe.served,
        environment=tuple({**serving_plan.OF_EACH_HOST, **recipe.environment}.items()),
        hosts=recipe.hosts,
        driver=driver,
    )
    return replace(recipe, fired=serving_rules.fired(command, tuple(accepted.items())))


def _recipe(entry: Mapping[str, Any]) -> Recipe:
    given = dict(entry)
    container, measured = given.pop("container"), given.pop("measured", None)
    length = given.pop("max_model_len", 0)
    if measured:
        low, high = measured["input_tokens"]
        measured = Measured(**{**measured, "input_tokens": (low, high)})
    return Recipe(**given, **container, measured=measured, max_model_len=AUTO if length == "auto" else length)
