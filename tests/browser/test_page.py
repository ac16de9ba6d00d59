"""The evidence page in a real browser: what is to be seen is there, nothing overflows, and hostile text stays text."""

from __future__ import annotations

import re
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import evidence_page, judge

from tests.support.browser import FINE, PROBE, Browse, browse
from tests.support.proofs import NOW, documents, proof, thresholds

pytestmark = pytest.mark.browser
__all__ = ["browse"]  # the fixture


@pytest.mark.parametrize("name", ["pair", "ring-unplugged", "switch-one-bad"])
def test_the_browser_shows_hosts_verdict_and_picture(browse: Browse, name: str) -> None:
    document = documents()[name]
    dom = browse(evidence_page.render(document), "--dump-dom")
    assert dom.count("<svg") == 1 and f">{document['verdict']}</span>" in dom
    boxes = re.findall(r'<g class="box (?:ok|bad)">', dom)
    assert len(boxes) == len(document["hosts"])
    for host in document["hosts"]:
        assert f"<h3>{host}</h3>" in dom
    for text in ("enp1s0f0np0", "rocep1s0f0", "Gb/s", "openai/gpt-oss-120b"):
        assert text in dom


@pytest.mark.parametrize("width", [500, 800, 1200])
@pytest.mark.parametrize("name", ["pair", "pair-degraded", "ring", "ring-cut", "switch-one-bad", "services"])
def test_nothing_overflows_on_a_phone_or_a_screen(browse: Browse, name: str, width: int) -> None:
    page = evidence_page.render(documents()[name])
    open_page = re.sub(r"<meta http-equiv=[^>]*>", "", page).replace("</body>", f"{PROBE}</body>")
    dom = browse(open_page, f"--window-size={width},900", "--dump-dom")
    measured = re.search(r"<title>(width .*?)</title>", dom)
    assert measured is not None
    assert measured[1] == f"width {width} page {width} {FINE}"


def test_hostile_text_is_inert(browse: Browse) -> None:
    hostile = "</title></text><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    hosts: dict[str, Any] = proof("pair")
    hosts["spark-a"]["facts"]["kernel"] = hostile
    hosts["spark-a"]["serving"]["answers"][0]["answer"] = hostile
    hosts = {(f"b{hostile}" if name == "spark-b" else name): value for name, value in hosts.items()}
    page = evidence_page.render(judge.build(hosts, {"inventory": hostile}, thresholds(), NOW))
    for variant in (page, re.sub(r"<meta http-equiv=[^>]*>", "", page)):  # also without the second wall, the policy
        dom = browse(variant, "--dump-dom")
        assert "<script" not in dom and "<img" not in dom
        assert "<title>owned" not in dom
        assert "&lt;script&gt;" in dom
