"""`python -m scripts.models_page`: the tables of docs/models.md, from the catalog and from the cases of the tests."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable

from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import comparison, serving_plan

from scripts.gates import ROOT

PAGE = ROOT / "docs" / "models.md"


def filled(text: str, name: str, rows: Iterable[str]) -> str:
    """The page with these rows between `<!-- NAME -->` and `<!-- /NAME -->`."""
    start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    pattern = re.compile(re.escape(start) + r"\n.*?" + re.escape(end), re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"{PAGE} has no {start}")
    body = "\n".join(rows)
    return pattern.sub(lambda _found: f"{start}\n{body}\n{end}", text)


def page() -> str:
    text = PAGE.read_text(encoding="utf-8")
    text = filled(text, "models", serving_plan.table())
    text = filled(text, "recipes", comparison.table())
    text = filled(text, "configurations", configurations())
    text = filled(text, "runs", runs())
    return filled(text, "measured", measured())


def configurations() -> list[str]:
    """What is counted of the configurations of many families, and what is right."""
    from tests.support.model_configurations import RIGHT

    columns = ("configuration", "KV bytes a token", "right", "weights, GiB", "right", "how that is known")
    return [f"| {' | '.join(cells)} |" for cells in (columns, ["---"] * len(columns))] + [each.row for each in RIGHT]


def runs() -> list[str]:
    """Measured speeds, and what the code counts; the runs are those of the tests."""
    from tests.support.speed_runs import RUNS

    head = ["| run | measured, tok/s | counted | error |", "| --- | --- | --- | --- |"]
    return [*head, *(run.row for run in RUNS)]


def measured() -> list[str]:
    """What logs say of memory, and what the code counts; the cases are those of the tests."""
    from tests.support.memory_said import SAID

    head = ["| case | said | counted | error, GiB | error | source |", "| --- | --- | --- | --- | --- | --- |"]
    return [*head, *(case.row for case in SAID)]


def main() -> int:
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
