"""Who may drop the page cache."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import page_cache


@pytest.mark.parametrize(
    ("operators", "strangers"),
    [
        ([], ""),
        (["spark", "%operators", "_a-b9"], ""),
        (["spark", "ALL", "%", "#1000"], "ALL, %, #1000"),
        (["a b", "root\n", "-x"], "a b, root\n, -x"),
        ([5], "5"),
    ],
)
def test_an_operator_is_an_account_or_a_group(operators: list[Any], strangers: str) -> None:
    made = page_cache.plan(View("spark-a", {}, {"page_cache_operators": operators}))
    assert made.operators == tuple(map(str, operators))
    assert [text.partition(". Name accounts")[0] for text in made.refusals] == (
        [f"page_cache_operators holds {strangers}"] if strangers else []
    )
