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
