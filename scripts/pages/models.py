"""The tables of docs/models.md, from the catalog and from the cases of the tests."""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import host_count
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import comparison, models, recipes, serving_plan, speed
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.models import Expected
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.recipes import Recipe
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.serving_plan import Plan

from scripts.gates import ROOT
from scripts.pages.markdown import table

PAGE = ROOT / "docs" / "models.md"


_PLAN = ("model", "hosts", "checkpoint", "GiB per host", "utilization", "context x requests", "tok/s")
_RECIPE = ("recipe", "Sparks", "draft tokens", "measured", "plan says", "bound", "a step", "others", "verdict")
_FAMILY = ("configuration", "KV bytes a token", "vLLM", "right", "weights, GiB", "vLLM", "right", "how that is known")


def parts() -> dict[str, list[str]]:
    return {
        "models": [*table(_PLAN, (_plan(found) for pair in serving_plan.pairs() for found in pair))],
        "recipes": [*table(_RECIPE, (_recipe(recipe) for recipe in recipes.recipes() if recipe.measured))],
        "configurations": configurations(),
        "runs": runs(),
        "measured": measured(),
    }


def _plan(found: Plan) -> tuple[str, ...]:
    start = (found.model.id, str(found.hosts))
    if found.checkpoint is None or found.fit is None:
        takes, version = found.hosts_needed, f"vLLM {found.version}" if found.version else "an unknown version"
        why = f"none; takes {host_count(takes)}" if takes else f"none for {version}"
        return (*start, why, "", "", "", "")
    measured = found.expected and found.expected.quantization == found.checkpoint.quantization
    tokens = f"{found.predicted.text}, counted" if found.predicted else ""
    if found.expected and measured:
        tokens = found.expected.text + (" with draft tokens" if found.expected.drafts else "")
    return (
        *start,
        found.checkpoint.id,
        f"{found.fit.needed:.1f}",
        f"{found.utilization:.2f}",
        f"{found.max_model_len} x {found.fit.concurrency}",
        tokens.replace(" tok/s", ""),
    )


def _recipe(recipe: Recipe) -> tuple[str, ...]:
    decode = recipe.measured.decode if recipe.measured else 0.0
    known = models.find(recipe.model)
    checkpoint = known.checkpoint(recipe.model) if known else None
    bound, said = 0.0, ""
    if known and checkpoint:
        bound = speed.bandwidth_limit(known, checkpoint, recipe.hosts)
        found = speed.expected(known, checkpoint, recipe.hosts)
        said = found.text.removesuffix(" tok/s") if found else ""
    method = recipe.draft.get("method", "second model")
    drafts = f"{method}, {recipe.draft['num_speculative_tokens']}" if recipe.draft else "none"
    beside = comparison.others(recipe)
    return (
        f"`{recipe.id}`",
        str(recipe.hosts),
        drafts,
        f"{decode:g}",
        said or "the recipe's",
        f"{bound:.1f}" if bound else "",
        f"{decode / bound:.2f}" if bound else "",
        ", ".join(each.text.removesuffix(" tok/s") for each in beside),
        _verdict(beside, decode),
    )


def _verdict(beside: list[Expected], decode: float) -> str:
    apart = [
        each for each in beside if not comparison.agrees(0 if each.at_most else each.tokens[0], each.tokens[1], decode)
    ]
    if apart:
        return "conflict: " + "; ".join(f"{each.text}, {each.conditions}" for each in apart)
    return "agree" if beside else "no other figure"


def configurations() -> list[str]:
    """What is counted of the configurations of many families, what vLLM itself says, and what is right."""
    from tests.support.model_configurations import RIGHT

    return _headed(_FAMILY, (each.row for each in RIGHT))


def runs() -> list[str]:
    """Measured speeds, and what the code counts; the runs are those of the tests."""
    from tests.support.speed_runs import AGAIN, FRESH, RUNS, UNSEEN

    unseen = (run.row.replace("| ", "| unseen: ", 1) for run in UNSEEN)
    rows = (*(run.row for run in (*RUNS, *FRESH, *AGAIN)), *unseen)
    return _headed(("run", "measured, tok/s", "counted", "error"), rows)


def measured() -> list[str]:
    """What logs say of memory, and what the code counts; the cases are those of the tests."""
    from tests.support.memory_said import SAID

    return _headed(("case", "said", "counted", "error, GiB", "error", "source"), (case.row for case in SAID))


def _headed(columns: tuple[str, ...], rows: Iterable[str]) -> list[str]:
    head, line, _ = table(columns, ())
    return [head, line, *rows]
