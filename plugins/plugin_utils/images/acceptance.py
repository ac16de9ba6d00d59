# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether an image that was built may serve: judged beside its base, from what both say of themselves. Pure.

What was not measured is not proven, and what is not proven is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import some
from ansible_collections.gb10.fleet.plugins.plugin_utils.images import judgement, kernels, recipes
from ansible_collections.gb10.fleet.plugins.plugin_utils.images.build_plan import BuildPlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.images.recipes import OVERLAY

Facts = Mapping[str, Any]
_INSIDE = "mend the build; `docker run --rm --entrypoint python3 IMAGE -c ...` shows the same"


@dataclass(frozen=True)
class Check:
    """One thing that must hold. `fault`: empty where it does."""

    id: str
    fault: str = ""
    way_out: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        return not self.fault


@dataclass(frozen=True)
class Trial:
    """What was read of the base and of the built image. `inside`: what their Python said without a GPU. `served`: what
    they answered, and how fast."""

    difference: Facts
    facts: Facts
    base_facts: Facts
    inside: Facts
    base_inside: Facts
    served: Facts | None = None
    base_served: Facts | None = None


@dataclass(frozen=True)
class Verdict:
    """``id``: accepted, or the first check that failed."""

    checks: tuple[Check, ...]

    @property
    def accepted(self) -> bool:
        return all(each.good for each in self.checks)

    @property
    def id(self) -> str:
        return next((each.id for each in self.checks if not each.good), "accepted")

    @property
    def lines(self) -> list[str]:
        return [f"{each.id}: {each.fault}; {each.way_out}" for each in self.checks if not each.good]


def quick(plan: BuildPlan, trial: Trial) -> Verdict:
    """What needs no model. An image that fails here is not started."""
    return Verdict(tuple(_quick(plan, trial)))


def judge(plan: BuildPlan, trial: Trial) -> Verdict:
    """All of it."""
    sense = Check("sense", "no model was asked", "name a small model in vllm_image_model")
    if said := trial.served:
        fault = "" if said["verdict"] == "serving" else f"{said['verdict']}: {said['text']}"
        sense = Check("sense", fault, "read the answers in the evidence; do not use this image")
    return Verdict((*_quick(plan, trial), sense, _speed(trial.served, trial.base_served)))


def _quick(plan: BuildPlan, trial: Trial) -> Iterator[Check]:
    yield _versions(plan, trial)
    yield _files(plan, trial.difference)
    yield _libraries(plan, trial)
    yield _architecture(plan, trial)
    yield _imports(trial)
    yield _operators(plan, trial)


def _versions(plan: BuildPlan, trial: Trial) -> Check:
    """Of every package, and of the packages' own words: an overlay may change those that it names."""
    own, base = trial.facts, trial.base_facts
    expected = {**base["packages"], **plan.packages}
    moved = [
        f"{name} {expected.get(name, 'absent')} -> {own['packages'].get(name, 'absent')}"
        for name in sorted({*expected, *own["packages"]})
        if own["packages"].get(name) != expected.get(name)
    ]
    for key in ("cuda", "torch_cuda", "python"):
        if own["versions"][key] != base["versions"][key]:
            moved.append(f"{key} {base['versions'][key]} -> {own['versions'][key]}")
    said, said_of_base = trial.inside["versions"], trial.base_inside["versions"]
    for name in sorted({*said, *said_of_base} - set(plan.packages)):
        if said.get(name) != said_of_base.get(name):
            moved.append(f"{name} says {said.get(name)}, in the base {said_of_base.get(name)}")
    fault = f"versions are not the base's: {some(moved)}" if moved else ""
    return Check("versions", fault, "build with --no-deps from the base's own commit", {"packages": len(expected)})


def _files(plan: BuildPlan, difference: Facts) -> Check:
    touched = [*difference["changed"], *difference["removed"]]
    others = [path for path in touched if not any(_within(path, allowed) for allowed in plan.may_differ)]
    fault = ""
    if not difference["on_base"]:
        fault = "it is not built on the base: the base's layers are not its lowest ones"
    elif others:
        fault = f"files differ that the recipe does not name: {some(others)}"
    elif difference["settings"]:
        fault = f"its settings differ from the base's: {some(difference['settings'])}"
    figures = {key: len(difference[key]) for key in ("changed", "removed")}
    return Check("files", fault, "build again from the recipe; add nothing to the image by hand", figures)


def _within(path: str, allowed: str) -> bool:
    """A name that ends in a slash is a folder with all that is in it; a star is a part of one name."""
    if not allowed.endswith("/"):
        return path == allowed
    depth = allowed.count("/")
    return fnmatchcase("/".join(path.split("/")[:depth]) + "/", allowed)


def _libraries(plan: BuildPlan, trial: Trial) -> Check:
    """Every file of the recipe is there, and the loader finds what it asks for, as in the base."""
    own, base = trial.inside["libraries"], trial.base_inside["libraries"]
    gone = [path for path in plan.expected_files if path not in trial.difference["changed"]]
    missing = [
        f"{path} asks for {name}" for path in sorted(own) for name in own[path] if name not in base.get(path, ())
    ]
    fault = f"the build did not bring {some(gone)}" if gone else f"missing: {some(missing)}" if missing else ""
    return Check(
        "libraries", fault, "build again; what a library is linked with must be in the base", {"files": len(own)}
    )


def _architecture(plan: BuildPlan, trial: Trial) -> Check:
    own, base = trial.facts, trial.base_facts
    way_out = "build with the architecture of the recipe, and no patch"
    if (own["os"], own["architecture"]) != (base["os"], base["architecture"]):
        fault = f"it is for {own['os']}/{own['architecture']}, the base for {base['os']}/{base['architecture']}"
        return Check("architecture", fault, way_out)
    if plan.recipe == OVERLAY:
        lost = set(judgement.judge(own).gap or ()) - set(judgement.judge(base).gap or ())
        fault = f"{some(sorted(lost))} have lost the kernels that a GB10 loads" if lost else ""
        return Check("architecture", fault, "take wheels that were built for SM12x")
    counts, faults = {}, []
    for name, expected in sorted(plan.expected.items()):
        code, before = _code(own, name), _code(base, name)
        native, family = (sum(code.native.values()), sum({**code.native, **code.locked}.values())) if code else (0, 0)
        counts[name] = family
        if not native:
            faults.append(f"{name} has no kernels that a GB10 loads ({code.text if code else 'no GPU code'})")
        elif before and native < sum(before.native.values()):
            faults.append(f"{name} has {native} kernels that a GB10 loads, and the base {sum(before.native.values())}")
        elif plan.exact and family < expected:
            faults.append(f"{name} has {family} kernels of SM12x, and the released wheel {expected}")
    return Check("architecture", some(faults) if faults else "", way_out, {"cubins": counts})


def _code(facts: Facts, name: str) -> kernels.Kernels | None:
    own = (each for each in facts["extensions"] if each["owner"] == "vllm" and each["name"] == name)
    return next((kernels.of(each) for each in own), None)


def _imports(trial: Trial) -> Check:
    """Some modules need a GPU: where the base fails with the same words, only its answers tell."""
    own, base = trial.inside["imports"], trial.base_inside["imports"]
    broken = [f"{name}: {fault}" for name, fault in sorted(own.items()) if fault and fault != base.get(name)]
    return Check("imports", f"import fails: {some(broken)}" if broken else "", _INSIDE, {"modules": len(own)})


def _operators(plan: BuildPlan, trial: Trial) -> Check:
    """A source of another commit shows here: operators that Python calls are missing or take other arguments."""
    own, base = set(trial.inside["operators"]), set(trial.base_inside["operators"])
    figures = {"operators": len(own)}
    if "vllm" in plan.packages:  # another vLLM has operators of its own
        return Check("operators", figures=figures)
    lost, more = sorted(base - own), sorted(own - base)
    told = [f"not in it: {some(lost)}"] if lost else []
    told += [f"not in the base: {some(more)}"] if more else []
    return Check("operators", "; ".join(told), "build from the base's own commit", figures)


def _speed(served: Facts | None, base: Facts | None) -> Check:
    share = recipes.load()["acceptance"]["speed"]
    own, other = (each and each.get("tokens_per_s") for each in (served, base))
    figures = {"tokens_per_s": own, "base_tokens_per_s": other}
    if not own or not other:
        who = "the image" if not own else "the base"
        return Check("speed", f"{who} was not measured", "see that both serve vllm_image_model", figures)
    fault = (
        f"{own:.1f} tok/s, and the base {other:.1f}: less than {share['value']:.0%} of it"
        if own < share["value"] * other
        else ""
    )
    return Check("speed", fault, "keep the base: this build wins nothing", figures)


def labels(plan: BuildPlan, base: str, verdict: Verdict, at: str) -> dict[str, str]:
    """What the image says of itself from now on."""
    figures = {key: value for check in verdict.checks for key, value in check.figures.items() if value is not None}
    told = {
        "inputs": plan.inputs,
        "recipe": plan.recipe,
        "base": base,
        "verdict": verdict.id,
        "judged": at,
        **{key: _text(value) for key, value in figures.items()},
    }
    return {f"gb10-fleet.image.{key}": value for key, value in told.items()}


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{key}={item}" for key, item in sorted(value.items()))
    return str(value)
