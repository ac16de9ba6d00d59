"""All that `python -m scripts.pages` writes is as the code, the catalog and the specifications say."""

from __future__ import annotations

import re

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

from scripts.pages import __main__ as pages
from scripts.pages import markdown


def test_each_page_is_as_it_is_written() -> None:
    old = [path for path, text in pages.written().items() if path.read_text(encoding="utf-8") != text]
    assert old == [], f"run python -m scripts.pages, which writes {', '.join(path.name for path in old)}"


@pytest.mark.parametrize(
    ("file", "group", "name", "figure", "least"),
    [
        ("health", "limits", "gpu_hot_c", "{} °C", 2),
        ("monitoring", "figures", "event_s", "{} s", 3),
        ("thresholds", "thresholds", "link_gbps", "{} Gb/s", 4),
    ],
)
def test_a_figure_that_changes_in_the_catalog_is_old_on_no_page(
    file: str, group: str, name: str, figure: str, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = catalog.load(file)[group][name]
    old = re.compile(rf"(?<![\d.]){re.escape(figure.format(entry['value']))}(?!\w)")
    monkeypatch.setitem(entry, "value", 4711)
    shown = {path: re.sub(r"<!-- (?:[\w-]+|/) -->", "", text) for path, text in pages.written().items()}
    assert [(path.name, line) for path, text in shown.items() for line in text.splitlines() if old.search(line)] == []
    assert sum(text.count(figure.format(4711)) for text in shown.values()) >= least


def test_a_mark_that_is_missing_or_at_a_wrong_place_is_named() -> None:
    with pytest.raises(ValueError, match="<!-- alert, by"):
        markdown.part("<!-- /alert -->", "alert", ["x"])
    with pytest.raises(ValueError, match="hang_s begins a line"):
        markdown.figures("after\n<!-- hang_s -->1<!-- / --> s", {"hang_s": 2})
