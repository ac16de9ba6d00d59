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

from scripts.gates import ROOT
from tests.support.proofs import facts

ROLES = (
    *("clock_lock", "coherence", "firewall", "flight_recorder", "gateway", "kernel_parameters"),
    *("monitoring", "page_cache", "vllm", "watchdog"),
)
GIVEN: dict[str, Any] = {
    "vllm_model": "openai/gpt-oss-120b",
    "vllm_allow_tag": True,
    "vllm_on_demand": True,
    "gateway_address": "192.0.2.11",
    "monitoring_enabled": True,
    "gateway_plain_http": True,
    "gateway_keys": {"laptop": "a" * 40},
    "gateway_fleet": ["spark-a"],
    "gateway_fleet_key": "f" * 40,
    "clock_lock_allow": True,
    "flight_recorder_enabled": True,
    "flight_recorder_key": "r" * 40,
    "kernel_parameters_allow_kho_off": True,
    "watchdog_allow_restart": True,
    "watchdog_host_guard": "reboot",
}
FOLDER = "/etc/systemd/system/"
LISTEN = {"gb10-vllm.service", "gb10-gateway.service", "gb10-recorder-keep.service"}


@cache
def units() -> dict[str, str]:
    """Services and drop-ins of all roles by their paths below systemd's folder."""
    known = {**facts(), "packages": {}, "installed_by_us": []}
    made: dict[str, str] = {}
    alone = View("spark-a", known, GIVEN, ["spark-a"], inventory={"spark-a": GIVEN})
    pair = {**GIVEN, "fabric_topology": "pair"}
    peers = {"spark-b": facts("spark-b")}
    of_a_pair = View("spark-a", facts("spark-a"), pair, ["spark-a", "spark-b"], peers, {"spark-b": pair})
    for role in ROLES:
        document = render(role, of_a_pair if role == "flight_recorder" else alone)
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


@pytest.mark.parametrize("name", ["gateway", "router", "recorder-keep", "recorder-send", "metrics-now", "vllm"])
def test_what_holds_a_secret_leaves_no_dump(name: str) -> None:
    """With 0 the kernel still hands a whole core to a pipe, as to Ubuntu's apport; with 1 to nobody (Linux 6.12)."""
    # No handler keeps one of vllm's: apport takes packaged programs alone. Another number would stop the models once.
    assert parsed(f"gb10-{name}.service")["Service"]["LimitCORE"] == ("0" if name == "vllm" else "1")


def parsed(name: str) -> configparser.RawConfigParser:
    unit = configparser.RawConfigParser(strict=False, delimiters="=", interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(units()[name])
    return unit


def test_what_tells_of_a_host_without_memory_does_not_go_before_what_fills_it() -> None:
    """A login's processes have 0, and the kernel takes the highest first: it took the flight recorder."""
    for name in ("gb10-recorder-send", "gb10-recorder-keep", "gb10-host-guard"):
        found = re.findall(r"(?m)^OOMScoreAdjust=(\S+)$", units()[f"{name}.service"])
        assert len(found) == 1 and int(found[0]) < 0, name


def test_what_a_unit_may_write_lies_in_folders_of_roots_own() -> None:
    """A package may give its folder to a user of its own, as Debian's gives /var/lib/prometheus."""
    templates = (ROOT / "roles").glob("*/templates/*.j2")
    written = [path for each in templates for path in re.findall(r"^ReadWritePaths=(.*)", each.read_text(), re.M)]
    assert written and [path for path in written if not re.match(r"/var/lib/gb10-[a-z]", path)] == []


def test_every_folder_of_a_unit_stands_in_the_docs_with_who_may_write_there() -> None:
    places = (ROOT / "docs/security-places.md").read_text(encoding="utf-8")
    tops = {"StateDirectory": "/var/lib", "RuntimeDirectory": "/run", "CacheDirectory": "/var/cache"}
    folders = {
        f"{tops[key]}/{name}"
        for unit in map(parsed, (unit for unit in units() if unit.endswith(".service")))
        for key, names in (unit["Service"].items() if unit.has_section("Service") else ())
        if key in tops
        for name in names.split()
    }
    assert "/run/gb10-metrics" in folders and [each for each in sorted(folders) if f"`{each}`" not in places] == []


def test_no_text_that_a_unit_passes_on_has_a_level_of_its_own() -> None:
    """`<6>` in front of a line would go, and with it what kept the line from passing for one of the unit."""
    for template in (ROOT / "roles").glob("*/templates/gb10-*.service.j2"):
        assert "\nSyslogLevelPrefix=no\n" in template.read_text(encoding="utf-8"), template.name


def test_nothing_of_ours_listens_before_the_rules_stand() -> None:
    """At boot the rules come first; where they cannot be loaded, neither model nor gateway nor recorder starts."""
    before = parsed("gb10-firewall.service")["Unit"]["Before"].split()
    assert {*before} >= LISTEN
    for service in LISTEN:
        drop_in = parsed(f"{service}.d/50-gb10-firewall.conf")
        assert drop_in["Service"]["ExecStartPre"] == "/usr/bin/systemctl reload gb10-firewall.service"


def test_what_listens_is_what_waits_for_the_rules() -> None:
    """A service that may open a port on the network is one of those three; all others cannot, or only ask.

    The router only asks, too: its one entrance is a socket (tests/unit/documents/test_router.py).
    """
    talks = {
        name for name in services() if "AF_INET" in parsed(name)["Service"].get("RestrictAddressFamilies", "AF_INET")
    }
    asks = {
        *("gb10-router.service", "gb10-page-cache-guard@.service", "gb10-metrics-now.service"),
        *("gb10-recorder-send.service", "gb10-watchdog.service"),
    }
    assert talks == {*LISTEN, *asks}
    guard = units()["gb10-page-cache-guard@.service"]
    assert "gb10-page-cache-guard" in guard and "listen(" not in json.dumps(guard)
