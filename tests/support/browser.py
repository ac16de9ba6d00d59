"""A headless browser that measures a page."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip

Browse = Callable[..., str]


def chromium() -> str:
    """Where it is; without it the test is skipped."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("SKIPPED: chromium is not installed, so no page was looked at; apt-get install chromium")
    return found


@pytest.fixture
def browse(tmp_path: Path) -> Browse:
    """Load a page in headless Chromium with more flags, and give what it says."""
    program = chromium()

    def run(page: str, *flags: str) -> str:
        file = tmp_path / "index.html"
        file.write_text(page, encoding="utf-8")
        return subprocess.run(
            [program, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", *flags, file.as_uri()],
            capture_output=True, text=True, timeout=120, check=True, env={**os.environ, "HOME": str(tmp_path)},
        ).stdout  # fmt: skip

    return run


# What the probe says of a page on which nothing overflows, is cut, lies over something else, or is out of sight.
FINE = "wide 0 cut 0 aside 0 over 0 steps 0 narrow 0"
# Runs in a copy of the page whose own policy against scripts was taken out: the browser itself measures.
PROBE = """<script>
const all = selector => [...document.querySelectorAll(selector)];
all("details").forEach(e => { e.open = true; });
const wide = all("main *").filter(e => !e.closest("svg, .picture, .scroll") && e.scrollWidth > innerWidth).length;
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


class Page:
    """A page in headless Chromium, with a keyboard. Chromium is told by its debugging pipe what to do."""

    def __init__(self, said: IO[bytes], heard: IO[bytes]) -> None:
        self._said, self._heard, self._count, self._session = said, heard, 0, ""
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def _ask(self, method: str, **words: Any) -> dict[str, Any]:
        self._count += 1
        message = {"id": self._count, "method": method, "params": words}
        message |= {"sessionId": self._session} if self._session else {}
        self._said.write(json.dumps(message).encode() + b"\0")
        self._said.flush()
        while (answer := json.loads(self._line())).get("id") != self._count:
            pass
        assert "error" not in answer, answer
        return dict(answer["result"])

    def _line(self) -> bytes:
        line = bytearray()
        while (byte := self._heard.read(1)) != b"\0":
            assert byte, "Chromium has ended"
            line += byte
        return bytes(line)

    def show(self, address: str, width: int) -> None:
        """Load a page in a window of so many CSS pixels."""
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self._ask("Page.navigate", url=address)
        until = time.monotonic() + 60
        while self.says("document.readyState") != "complete" or self.says("location.href") != address:
            assert time.monotonic() < until, f"{address} does not load"
            time.sleep(0.05)

    def says(self, expression: str) -> Any:
        """The value of an expression of JavaScript in the page."""
        said = self._ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in said, said
        return said["result"].get("value")

    def press(self, key: str) -> None:
        code, text = {"Tab": (9, ""), "Enter": (13, "\r"), " ": (32, " "), "ArrowRight": (39, "")}[key]
        more = {"key": key, "windowsVirtualKeyCode": code}
        self._ask("Input.dispatchKeyEvent", type="keyDown", **more, **({"text": text} if text else {}))
        self._ask("Input.dispatchKeyEvent", type="keyUp", **more)


@pytest.fixture
def keyboard(tmp_path: Path) -> Iterator[Page]:
    """A page that a person without a mouse looks at."""
    inward, outward = os.pipe(), os.pipe()
    # Chromium reads at 3 and writes at 4; far from these, neither takes the other's place.
    ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (inward[0], outward[1])]
    for end in (inward[0], outward[1]):
        os.close(end)
    words = ["bash", "-c", f'exec "$0" "$@" 3<&{ends[0]} 4>&{ends[1]}', chromium(), *FLAGS, "--remote-debugging-pipe"]
    browser = subprocess.Popen(
        [*words, f"--user-data-dir={tmp_path / 'profile'}", "about:blank"],
        pass_fds=ends, stderr=subprocess.DEVNULL, env={**os.environ, "HOME": str(tmp_path)},
    )  # fmt: skip
    for end in ends:
        os.close(end)
    with os.fdopen(inward[1], "wb") as said, os.fdopen(outward[0], "rb") as heard:
        yield Page(said, heard)
        browser.terminate()
    browser.wait(60)


# Where the focus is, and whether one sees it.
WHERE = """(() => {
const e = document.activeElement, box = e.getBoundingClientRect(), ring = getComputedStyle(e);
window.seen = window.seen || new Map();
const n = window.seen.has(e) ? window.seen.get(e) : window.seen.size;
window.seen.set(e, n);
return {n, tag: e.tagName, kind: e.className, text: e.textContent.trim().slice(0, 40),
  line: ring.outlineStyle === "none" ? "" : `${ring.outlineStyle} ${ring.outlineWidth} ${ring.outlineColor}`,
  inside: box.bottom > 0 && box.right > 0 && box.top < innerHeight && box.left < innerWidth && box.width > 1}; })()"""
# Boxes that can be moved, and what a person without eyes or mouse hears of them.
BOXES = """[...document.querySelectorAll("*")].filter(e => e !== document.documentElement && e !== document.body
  && (e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 1)
  && /auto|scroll/.test(getComputedStyle(e).overflowX + getComputedStyle(e).overflowY))
  .map(e => `${e.className}: ${e.tabIndex} ${e.getAttribute("role")} `
    + ["aria-label", "aria-labelledby"].some(name => e.getAttribute(name)))"""


def stops(page: Page) -> Iterator[dict[str, Any]]:
    """Press Tab until the page is left, and give each place."""
    for _ in range(2000):
        page.press("Tab")
        where = page.says(WHERE)
        if where["tag"] in ("BODY", "HTML"):
            return
        yield where
    raise AssertionError("a page without an end")
