"""The pages without a mouse: what can be used is reached, is seen to be reached, and does what its key says."""

from __future__ import annotations

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import evidence_page

from gb10_fleet.report import page as report_page
from tests.support import stories
from tests.support.browser import BOXES, WHERE, Page, keyboard, stops
from tests.support.proofs import documents

pytestmark = pytest.mark.browser
__all__ = ["keyboard"]  # the fixture

PROOFS = ["pair-degraded", "ring-cut", "switch-one-bad", "services"]


@pytest.fixture(scope="module")
def proofs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The address of the page of each proof."""
    made, folder = {}, tmp_path_factory.mktemp("proofs")
    for name, document in documents().items():
        file = folder / f"{name}.html"
        file.write_text(evidence_page.render(document), encoding="utf-8")
        made[name] = file.as_uri()
    return made


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the page of a rollout over 300 hosts."""
    folder = tmp_path_factory.mktemp("report")
    file = folder / "report.html"
    file.write_text(report_page.render(stories.documents(folder / "journals")["large"]), encoding="utf-8")
    return file.as_uri()


@pytest.mark.parametrize("name", PROOFS)
@pytest.mark.parametrize("width", [400, 1200])
def test_every_stop_is_seen_and_every_box_is_reached(
    keyboard: Page, proofs: dict[str, str], name: str, width: int
) -> None:
    keyboard.show(proofs[name], width)
    keyboard.says("document.querySelectorAll('details').forEach(e => { e.open = true; })")
    boxes = keyboard.says(BOXES)
    assert all(box.endswith(": 0 region true") for box in boxes), boxes
    found = list(stops(keyboard))
    assert all(where["inside"] and where["line"] for where in found), found
    assert len(found) >= keyboard.says("document.querySelectorAll('a, summary, [tabindex]').length")


@pytest.mark.parametrize("name", ["ring", "switch-one-bad", "pair"])
def test_the_text_of_a_picture_can_be_read_on_a_phone(keyboard: Page, proofs: dict[str, str], name: str) -> None:
    """CSS pixels of the smallest text; the page itself is as wide as the phone."""
    keyboard.show(proofs[name], 400)
    size = "parseFloat(getComputedStyle(e).fontSize) * e.getScreenCTM().a"
    texts = f"[...document.querySelectorAll('svg text:not([transform])')].map(e => {size})"
    assert keyboard.says(f"Math.min(...{texts})") >= 11
    assert keyboard.says("document.documentElement.scrollWidth") == 400


def test_a_picture_wider_than_the_phone_is_moved_by_arrows(keyboard: Page, proofs: dict[str, str]) -> None:
    keyboard.show(proofs["ring"], 400)
    keyboard.says("document.querySelector('.picture').focus()")
    for _ in range(20):
        keyboard.press("ArrowRight")
    wait = "new Promise(done => setTimeout(done, 500))"  # it glides
    assert keyboard.says(f"{wait}.then(() => document.querySelector('.picture').scrollLeft)") > 0


def test_a_fold_opens_and_shuts_by_enter_and_space(keyboard: Page, proofs: dict[str, str]) -> None:
    keyboard.show(proofs["pair-degraded"], 1200)
    first = next(where for where in stops(keyboard) if where["tag"] == "SUMMARY")
    assert first["text"]
    opened = "document.activeElement.parentElement.open"
    assert keyboard.says(opened) is False
    for key, after in (("Enter", True), (" ", False)):
        keyboard.press(key)
        assert keyboard.says(opened) is after, key


def test_hundreds_of_squares_are_passed_in_one_step(keyboard: Page, report: str) -> None:
    keyboard.show(report, 1200)
    keyboard.press("Tab")
    skip = keyboard.says(WHERE)
    assert skip["tag"] == "A" and skip["inside"], skip
    keyboard.press("Enter")
    keyboard.press("Tab")
    assert keyboard.says("document.activeElement.name") == "show", "the hosts to show"


def test_a_bad_square_looks_different_where_one_stands_on_it(keyboard: Page, report: str) -> None:
    keyboard.show(report, 1200)
    before = keyboard.says("getComputedStyle(document.querySelector('.map a.bad')).outline")
    (bad,) = [where for where, _ in zip(stops(keyboard), range(400), strict=False) if where["kind"] == "bad"][:1]
    assert bad["line"] and bad["line"].split()[1] not in before.split(), (before, bad["line"])


def test_the_table_of_hosts_is_reached(keyboard: Page, report: str) -> None:
    keyboard.show(report, 1200)
    boxes = keyboard.says(BOXES)
    assert boxes and all(box.endswith(": 0 region true") for box in boxes), boxes
