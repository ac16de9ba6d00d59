"""The site has every page in a part of its navigation, and its links lead somewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import docs

REPOSITORY = "https://forge.example/fleet"


def test_every_page_is_in_a_part_of_the_navigation_and_in_one_only() -> None:
    found = [*map(str, docs.pages()), "reference/index.rst"]
    listed = [page for pages in docs.navigation(found).values() for page in pages]
    assert sorted(listed) == sorted(set(found) - {docs.FRONT})


def test_a_long_word_of_a_table_breaks_where_it_has_parts_and_nowhere_else() -> None:
    """A table was twice as wide as its column by the path of one test."""
    cell = '<td><p>short/path <a href="tests/unit/a_b.html#long-long-long-long"><code>{}</code></a></p></td>'
    path, broken = "tests/unit/serving/test_hostile.py", "tests/<wbr>unit/<wbr>serving/<wbr>test_<wbr>hostile.<wbr>py"
    assert docs.breakable(cell.format(path)) == cell.format(broken)
    assert docs.breakable(cell.format("a" * 40)) == cell.format(f"{'a' * 24}<wbr>{'a' * 16}"), "a digest has no parts"
    outside = f"<p><code>{path}</code></p><pre>{path}</pre>"
    assert docs.breakable(outside) == outside


def test_the_reference_can_be_read_in_the_dark_by_choice_and_by_the_system() -> None:
    """Names of options were white on light blue there."""
    css = docs.dark()
    assert css.count("--antsibull-option-type:") == 2 and ":root" not in css
    assert 'body[data-theme="dark"]' in css and "prefers-color-scheme: dark" in css


def test_a_page_that_is_in_no_part_is_refused_by_name() -> None:
    with pytest.raises(SystemExit, match=r"docs/nobody\.md"):
        docs.navigation(["README.md", "docs/quickstart.md", "docs/nobody.md"])


def test_a_pattern_holds_for_one_folder_and_not_for_those_below() -> None:
    parts = docs.navigation(["docs/decisions/own-engine.md", "docs/decisions/README.md"])
    assert parts["How it is built"] == ["docs/decisions/README.md", "docs/decisions/own-engine.md"]
    with pytest.raises(SystemExit):
        docs.navigation(["docs/decisions/old/own-engine.md"])


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("](doctor.md#the-driver)", "](doctor.md#the-driver)"),  # a page of the site
        ("](../README.md#what-it-does)", "](../index.md#what-it-does)"),  # which is the first page there
        ("](../catalog/rules.yml)", f"]({REPOSITORY}/blob/main/catalog/rules.yml)"),
        ("](rollout-pair.cast)", "](rollout-pair.cast)"),
        ("](https://example.com/a)", "](https://example.com/a)"),
        ("](#below)", "](#below)"),
    ],
)
def test_links_lead_to_pages_or_to_the_repository(link: str, expected: str) -> None:
    known = {Path("docs/doctor.md"), Path("README.md")}
    assert docs.links(f"[x{link}", Path("docs/quickstart.md"), known, REPOSITORY) == f"[x{expected}"
