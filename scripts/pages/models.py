"""The tables of docs/models.md, from the catalog and from the cases of the tests."""

from __future__ import annotations

from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import comparison, serving_plan

from scripts.gates import ROOT

PAGE = ROOT / "docs" / "models.md"


def parts() -> dict[str, list[str]]:
    return {
        "models": serving_plan.table(),
        "recipes": comparison.table(),
        "configurations": configurations(),
        "runs": runs(),
        "measured": measured(),
    }


def configurations() -> list[str]:
    """What is counted of the configurations of many families, what vLLM itself says, and what is right."""
    from tests.support.model_configurations import RIGHT

    columns = (
        "configuration",
        "KV bytes a token",
        "vLLM",
        "right",
        "weights, GiB",
        "vLLM",
        "right",
        "how that is known",
    )
    return [f"| {' | '.join(cells)} |" for cells in (columns, ["---"] * len(columns))] + [each.row for each in RIGHT]


def runs() -> list[str]:
    """Measured speeds, and what the code counts; the runs are those of the tests."""
    from tests.support.speed_runs import AGAIN, FRESH, RUNS, UNSEEN

    head = ["| run | measured, tok/s | counted | error |", "| --- | --- | --- | --- |"]
    seen = [run.row for run in (*RUNS, *FRESH, *AGAIN)]
    return [*head, *seen, *(run.row.replace("| ", "| unseen: ", 1) for run in UNSEEN)]


def measured() -> list[str]:
    """What logs say of memory, and what the code counts; the cases are those of the tests."""
    from tests.support.memory_said import SAID

    head = ["| case | said | counted | error, GiB | error | source |", "| --- | --- | --- | --- | --- | --- |"]
    return [*head, *(case.row for case in SAID)]
