"""The page of a rollout in a real browser, with 300 hosts on it: what is to be seen is there, and nothing overflows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gb10_fleet.report import page
from tests.support import stories
from tests.support.browser import FINE, PROBE, Browse, browse

pytestmark = pytest.mark.browser
__all__ = ["browse"]  # the fixture

NAMES = ["done", "stopped", "killed", "rollback", "large"]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    found = stories.documents(tmp_path_factory.mktemp("journals"))
    return {name: page.render(document) for name, document in found.items()}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [500, 800, 1200])
def test_nothing_overflows_on_a_phone_or_a_screen(browse: Browse, pages: dict[str, str], name: str, width: int) -> None:
    open_page = re.sub(r"<meta http-equiv=[^>]*>", "", pages[name]).replace("</body>", f"{PROBE}</body>")
    measured = re.search(r"<title>(width .*?)</title>", browse(open_page, f"--window-size={width},900", "--dump-dom"))
    assert measured is not None and measured[1] == f"width {width} page {width} {FINE}"


# What somebody does who looks for the bad ones among 300: choose them, and count the rows that are left.
CHOOSE = """<script>
const rows = () => [...document.querySelectorAll("table.fleet tbody tr")].filter(r => r.getClientRects().length).length;
const found = [rows()];
for (const id of ["show-bad", "show-remarks"]) { document.getElementById(id).checked = true; found.push(rows()); }
document.title = `rows ${found.join(" ")} squares ${document.querySelectorAll(".map a").length}`;
</script>"""


def test_the_bad_ones_of_three_hundred_are_one_click_away(browse: Browse, pages: dict[str, str]) -> None:
    open_page = re.sub(r"<meta http-equiv=[^>]*>", "", pages["large"]).replace("</body>", f"{CHOOSE}</body>")
    measured = re.search(r"<title>(rows .*?)</title>", browse(open_page, "--dump-dom"))
    assert measured is not None
    assert re.fullmatch(r"rows 300 22 \d+ squares 300", measured[1])


def test_the_page_looks_nothing_up_and_runs_nothing(pages: dict[str, str], tmp_path: Path) -> None:
    for shown in pages.values():
        assert "<script" not in shown and not re.search(r"(?:src|href)=\"(?:https?:)?//", shown)
