"""The site without a mouse: a page of it, made with the settings of all of them."""

from __future__ import annotations

import pytest
import yaml
from sphinx.application import Sphinx

from scripts import docs
from scripts.gates import ROOT
from tests.support.browser import BOXES, Page, keyboard, stops

pytestmark = pytest.mark.browser
__all__ = ["keyboard"]  # the fixture

WIDE = "\n".join(["| a column " * 12 + "|", "|---" * 12 + "|", "| wordwordword " * 12 + "|"])
TEXT = f"# A page\n\n```console\n$ gb10 up\n```\n\n{WIDE}\n\n| small |\n|---|\n| one |\n\n## A part\n\n## Another\n"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the page."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "source").mkdir()
    (folder / "source/index.md").write_text(f"{TEXT}\n```{{toctree}}\n:hidden:\n:caption: Start\n\nother\n```\n")
    (folder / "source/other.md").write_text("# Another page\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(docs, "WORK", folder / "work")
        (folder / "work/site").mkdir(parents=True)
        (folder / "work/site/dark.css").write_text(docs.dark())
        settings = docs.settings(yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8")))
        into = folder / "into"
        Sphinx(folder / "source", None, into, folder / "trees", "html", settings, None, warningiserror=True).build()
    return (into / "index.html").as_uri()


def test_the_button_that_copies_is_seen_when_it_is_reached(keyboard: Page, site: str) -> None:
    keyboard.show(site, 1200)
    found = {where["kind"].split()[0]: where for where in stops(keyboard) if where["tag"] in ("BUTTON", "INPUT")}
    assert found.keys() >= {"copybtn", "sidebar-search"}
    assert all(where["line"] for where in found.values()), found
    next(where for where in stops(keyboard) if where["kind"].startswith("copybtn"))
    faded_in = "getComputedStyle(document.activeElement).opacity"
    assert keyboard.says(f"new Promise(done => setTimeout(() => done({faded_in}), 600))") == "1"


def test_a_table_that_is_moved_aside_is_reached_and_a_small_one_is_passed(keyboard: Page, site: str) -> None:
    keyboard.show(site, 400)
    boxes = [box for box in keyboard.says(BOXES) if box.startswith("table-wrapper")]
    assert len(boxes) == 1 and boxes[0].endswith(": 0 region true"), boxes
    tables = [where for where in stops(keyboard) if "table-wrapper" in where["kind"]]
    assert [where["text"][:8] for where in tables] == ["a column"]


@pytest.mark.parametrize("drawer", ["sidebar", "toc"])
def test_a_drawer_opens_for_who_steps_into_it(keyboard: Page, site: str, drawer: str) -> None:
    """On a phone both stand beside the window, and their buttons are no stops."""
    keyboard.show(site, 400)
    where = f"document.querySelector('.{drawer}-drawer').getBoundingClientRect()"
    seen = f"new Promise(done => setTimeout(() => done({where}.left >= 0 && {where}.right <= innerWidth), 600))"
    assert keyboard.says(seen) is False
    keyboard.says(f"document.querySelector(`.{drawer}-drawer a:not([href='#'])`).focus()")
    assert keyboard.says(seen) is True
