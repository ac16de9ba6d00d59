"""Every unit of ours: what it may do at most, by systemd's own count, and that nothing listens before the firewall."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render import render
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View

from tests.support.proofs import facts

ROLES = ("coherence", "firewall", "gateway", "monitoring", "page_cache", "vllm")
GIVEN: dict[str, Any] = {
    "vllm_model": "openai/gpt-oss-120b",
    "vllm_allow_tag": True,
    "gateway_address": "192.0.2.11",
    "monitoring_enabled": True,
    "gateway_plain_http": True,
    "gateway_keys": {"laptop": "a" * 40},
    "gateway_fleet": ["spark-a"],
    "gateway_fleet_key": "f" * 40,
}
FOLDER = "/etc/systemd/system/"


@cache
def units() -> dict[str, str]:
    """Services and drop-ins of all roles by their paths below systemd's folder."""
    known = {**facts(), "packages": {}, "installed_by_us": []}
    made: dict[str, str] = {}
    for role in ROLES:
        document = render(role, View("spark-a", known, GIVEN, ["spark-a"], inventory={"spark-a": GIVEN}))
        assert not document.refusals
        made |= {
            entry["file"].removeprefix(FOLDER): entry["content"]
            for entry in document.resources
            if entry.get("file", "").startswith(FOLDER) and "content" in entry
        }
    return made


def services() -> list[str]:
    return sorted(name for name in units() if re.fullmatch(r"gb10-[^/]*\.service", name))


def bounds() -> dict[str, float]:
    return {entry["unit"]: entry["value"] for entry in catalog.load("units")["exposure"]}


def test_every_service_has_a_bound() -> None:
    assert sorted(bounds()) == services()


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed: no unit is counted")
@pytest.mark.parametrize("name", services())
def test_a_unit_may_do_no_more_than_its_bound(name: str, tmp_path: Path) -> None:
    """Systemd's count of what a unit could do to its host, from 0 to 10."""
    file = tmp_path / name.replace("@.", "@x.")
    file.write_text(units()[name])
    argv = [
        "systemd-analyze",
        "security",
        "--offline=true",
        "--no-pager",
        f"--threshold={bounds()[name] * 10:.0f}",
        file,
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-300:] + done.stderr


def parsed(name: str) -> configparser.RawConfigParser:
    unit = configparser.RawConfigParser(strict=False, delimiters="=", interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(units()[name])
    return unit


def test_nothing_of_ours_listens_before_the_rules_stand() -> None:
    """At boot the rules come first; where they cannot be loaded, neither model nor gateway starts."""
    before = parsed("gb10-firewall.service")["Unit"]["Before"].split()
    assert {"gb10-vllm.service", "gb10-gateway.service"} <= {*before}
    for service in ("gb10-vllm.service", "gb10-gateway.service"):
        drop_in = parsed(f"{service}.d/50-gb10-firewall.conf")
        assert drop_in["Service"]["ExecStartPre"] == "/usr/bin/systemctl reload gb10-firewall.service"


def test_what_listens_is_what_waits_for_the_rules() -> None:
    """A service that may open a port on the network is one of those two; all others cannot, or only ask.

    The router only asks, too: its one entrance is a socket (tests/unit/documents/test_router.py).
    """
    talks = {
        name for name in services() if "AF_INET" in parsed(name)["Service"].get("RestrictAddressFamilies", "AF_INET")
    }
    asks = {"gb10-router.service", "gb10-page-cache-guard@.service", "gb10-metrics-now.service"}
    assert talks == {"gb10-vllm.service", "gb10-gateway.service", *asks}
    guard = units()["gb10-page-cache-guard@.service"]
    assert "gb10-page-cache-guard" in guard and "listen(" not in json.dumps(guard)
