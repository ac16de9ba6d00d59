"""A headless browser that measures a page."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip

Browse = Callable[..., str]


@pytest.fixture
def browse(tmp_path: Path) -> Browse:
    """Load a page in headless Chromium with more flags, and give what it says."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("SKIPPED: chromium is not installed, so no page was looked at; apt-get install chromium")

    def run(page: str, *flags: str) -> str:
        file = tmp_path / "index.html"
        file.write_text(page, encoding="utf-8")
        return subprocess.run(
            [chromium, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", *flags, file.as_uri()],
            capture_output=True, text=True, timeout=120, check=True, env={**os.environ, "HOME": str(tmp_path)},
        ).stdout  # fmt: skip

    return run


# Runs in a copy of the page whose own policy against scripts was taken out: the browser itself measures.
PROBE = """<script>
const all = selector => [...document.querySelectorAll(selector)];
const wide = all("main *").filter(e => !e.closest("svg, .scroll") && e.scrollWidth > innerWidth).length;
const spilt = all("svg .label").filter(label => {
  const box = label.querySelector("rect").getBBox();
  const lines = [...label.querySelectorAll(".figure, .verdict")];
  return lines.some(line => line.getComputedTextLength() > box.width - 4); }).length;
const cut = all("svg text").filter(e => {
  const inner = e.getBoundingClientRect(), outer = e.closest("svg").getBoundingClientRect();
  return inner.left < outer.left - 1 || inner.right > outer.right + 1 || inner.top < outer.top - 1
    || inner.bottom > outer.bottom + 1; }).length + spilt;
const whole = document.documentElement.scrollWidth;
document.title = `width ${innerWidth} page ${whole} wide ${wide} cut ${cut}`;
</script>"""
