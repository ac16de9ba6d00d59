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


# What the probe says of a page on which nothing overflows, is cut, lies over something else, or is out of sight.
FINE = "wide 0 cut 0 aside 0 over 0 steps 0 narrow 0"
# Runs in a copy of the page whose own policy against scripts was taken out: the browser itself measures.
PROBE = """<script>
const all = selector => [...document.querySelectorAll(selector)];
all("details").forEach(e => { e.open = true; });
const wide = all("main *").filter(e => !e.closest("svg, .scroll") && e.scrollWidth > innerWidth).length;
const spilt = all("svg .label").filter(label => {
  const box = label.querySelector("rect").getBBox();
  const lines = [...label.querySelectorAll(".figure, .verdict")];
  return lines.some(line => line.getComputedTextLength() > box.width - 4); }).length;
const cut = all("svg text").filter(e => {
  const inner = e.getBoundingClientRect(), outer = e.closest("svg").getBoundingClientRect();
  return inner.left < outer.left - 1 || inner.right > outer.right + 1 || inner.top < outer.top - 1
    || inner.bottom > outer.bottom + 1; }).length + spilt;
// The last columns of a table that has to be moved aside are not seen; a matrix grows with its hosts.
const aside = all("main .scroll").filter(e => !e.querySelector(".matrix") && e.scrollWidth > e.clientWidth + 1).length;
const meets = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
const over = all("svg").map(svg => {
  const found = selector => [...svg.querySelectorAll(selector)].map(e => e.getBoundingClientRect());
  const labels = found(".label rect"), others = found(".box rect, .switch rect");
  return labels.filter((one, n) => [...others, ...labels.slice(n + 1)].some(other => meets(one, other))).length;
}).reduce((sum, n) => sum + n, 0);
const steps = all(".track b").filter(b => {
  const range = document.createRange(); range.selectNodeContents(b);
  const text = range.getBoundingClientRect(), bar = b.getBoundingClientRect();
  return text.top < bar.bottom - 1 && text.right > bar.right + 1; }).length;
const lines = e => e.getBoundingClientRect().height / parseFloat(getComputedStyle(e).lineHeight);
const narrow = all("dt").filter(e => lines(e) > 2.1).length;
const whole = document.documentElement.scrollWidth;
document.title = `width ${innerWidth} page ${whole} wide ${wide} cut ${cut} `
  + `aside ${aside} over ${over} steps ${steps} narrow ${narrow}`;
</script>"""
