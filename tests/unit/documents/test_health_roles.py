"""The roles watchdog and clock_lock: what they write with consent, and that without it nothing of theirs stays."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.checks.hang import Rules
from ansible_collections.gb10.fleet.plugins.module_utils.programs import host_guard
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render import Rendered, render
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.programs import installed, modules_of
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import clock_lock, watchdog

LOCK = "/usr/local/sbin/gb10-clock-lock"


def document(role: str, **variables: Any) -> Rendered:
    return render(role, View("spark-a", {"packages": {}}, variables))


def files(made: Rendered) -> dict[str, dict[str, Any]]:
    return {entry["file"]: entry for entry in made.resources if "file" in entry}


def units(made: Rendered) -> dict[str, dict[str, Any]]:
    return {entry["unit"]: entry for entry in made.resources if "unit" in entry}


@pytest.mark.parametrize("role", ["watchdog", "clock_lock"])
def test_without_consent_nothing_stays(role: str) -> None:
    made = document(role)
    assert {(entry["state"], entry["enabled"]) for entry in units(made).values()} == {("stopped", False)}
    assert {entry["state"] for entry in files(made).values()} == {"absent"}


def test_what_the_watchdog_goes_by() -> None:
    made = document("watchdog", watchdog_allow_restart=True, watchdog_services=["chat"], watchdog_after_s=300)
    settings = json.loads(files(made)["/etc/gb10-fleet/watchdog.json"]["content"])
    assert settings == {
        "services": ["chat"],
        "kept": 5,
        "rules": {
            **{"after_s": 300, "power_w": 30, "gap_s": 60, "breaker_s": 21600},
            **{"busy_percent": 80, "held_clock_mhz": 1800},
        },
    }
    assert set(settings["rules"]) == set(Rules._fields)
    assert units(made)["gb10-watchdog.timer"] | {"restart_on": 0} == {
        "unit": "gb10-watchdog.timer", "enabled": True, "state": "started", "restart_on": 0,
    }  # fmt: skip
    sources = [installed("watchdog", module) for module in modules_of("programs/watchdog/main")]
    assert {path for path in files(made) if "/watchdog/" in path} == set(sources)


def test_the_watchdog_finds_on_a_host_all_that_it_imports(tmp_path: Path) -> None:
    made = files(document("watchdog", watchdog_allow_restart=True))
    for path, entry in ((path, entry) for path, entry in made.items() if "content" in entry):
        target = tmp_path / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(entry["content"].replace("/usr/local/lib/", f"{tmp_path}/usr/local/lib/"))
    argv = [sys.executable, "-ISB", str(tmp_path / "usr/local/sbin/gb10-watchdog")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert "No such file or directory: '/etc/gb10-fleet/watchdog.json'" in done.stderr


def test_the_guard_of_the_host_arms_only_with_consent_and_finds_what_it_imports(tmp_path: Path) -> None:
    service = "/etc/systemd/system/gb10-host-guard.service"
    armed, reports = (files(document("watchdog", watchdog_host_guard=mode)) for mode in ("reboot", "report"))
    assert "FailureAction=reboot-immediate" in armed[service]["content"] and "may-arm" in armed[service]["content"]
    assert "FailureAction" not in reports[service]["content"]
    # Where it hangs, no start is noted: to fail then would reboot without a limit.
    assert "ExecCondition=/usr/bin/timeout 360 /" in armed[service]["content"]
    assert "\nTimeoutStartSec=infinity\n" in armed[service]["content"]
    settings = json.loads(armed["/etc/gb10-fleet/host-guard.json"]["content"])
    assert settings["mode"] == "reboot" and set(settings["rules"]) == set(host_guard.Rules._fields)
    made = document("watchdog", watchdog_host_guard="reboot")
    sources = {installed("host_guard", module) for module in modules_of("programs/host_guard")}
    assert sources < set(units(made)["gb10-host-guard.service"]["restart_on"]) < set(files(made)), "it runs on and on"
    for path, entry in ((path, entry) for path, entry in armed.items() if "content" in entry):
        target = tmp_path / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(entry["content"].replace("/usr/local/lib/", f"{tmp_path}/usr/local/lib/"))
    argv = [sys.executable, "-ISB", str(tmp_path / "usr/local/sbin/gb10-host-guard"), "may-arm"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "No such file or directory: '/etc/gb10-fleet/host-guard.json'" in done.stderr


def test_a_hang_takes_longer_than_a_pause() -> None:
    assert watchdog.plan(View("a", {}, {"watchdog_after_s": 59})).refusals
    assert not watchdog.plan(View("a", {}, {"watchdog_after_s": 60})).refusals
    assert not watchdog.plan(View("a", {}, {"watchdog_after_s": 86400})).refusals
    assert "at most 86400 seconds" in watchdog.plan(View("a", {}, {"watchdog_after_s": 86401})).refusals[0]
    figures = catalog.load("watchdog")["figures"]
    assert figures["gap_s"]["value"] > 2 * figures["every_s"]["value"], "a look that is late is no gap"
    assert catalog.load("health")["limits"]["hang_s"]["value"] == 180, "the default of watchdog_after_s"


@pytest.mark.parametrize(
    ("low", "high", "refused"),
    [(300, 2200, False), (0, 1400, False), (0, 1399, True), (2200, 2100, True), (-1, 2000, True)],
)
def test_clocks_that_can_be_locked(low: int, high: int, refused: bool) -> None:
    variables = {"clock_lock_min_mhz": low, "clock_lock_max_mhz": high}
    assert bool(clock_lock.plan(View("a", {}, variables)).refusals) is refused


def test_the_defaults_are_a_lock_of_the_catalog_and_not_below_the_alarm() -> None:
    plan = clock_lock.plan(View("a", {}))
    assert [plan.min_mhz, plan.max_mhz] == catalog.load("clock_lock")["locks"][0]["value"]
    least = catalog.load("thresholds")["benchmark"]["clock_min_mhz"]["value"]
    assert catalog.load("clock_lock")["figures"]["least_max_mhz"]["value"] == least


SAID = {
    'GPU clocks set to "(gpuClkMin 300, gpuClkMax 2200)" for GPU 0000000F:01:00.0\nAll done.': (0, 0),
    'GPU clocks set to "(gpuClkMin 300, gpuClkMax 2100)" for GPU 0000000F:01:00.0\nAll done.': (0, 1),
    'GPU clocks set to "(gpuClkMin 300, gpuClkMax 2200)" for GPU 0000000F:01:00.0': (4, 1),
    "Setting locked GPU clocks is not supported\nTreating as warning and moving on.\nAll done.": (0, 1),
    "No devices were found": (6, 1),
    "": (0, 1),
}


@pytest.mark.parametrize("said", SAID)
def test_only_the_drivers_own_line_is_a_proof(tmp_path: Path, said: str) -> None:
    status, expected = SAID[said]
    program, smi = tmp_path / "lock", tmp_path / "nvidia-smi"
    program.write_text(files(document("clock_lock", clock_lock_allow=True))[LOCK]["content"])
    smi.write_text(f"#!/bin/sh\n[ \"$*\" = '-lgc 300,2200' ] || exit 99\ncat <<'END'\n{said}\nEND\nexit {status}\n")
    smi.chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", program, "300", "2200"], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, check=False
    )
    assert done.returncode == expected, done


def test_our_files_say_what_the_owner_says_of_managed_files() -> None:
    made = files(document("clock_lock", clock_lock_allow=True, ansible_managed="Ticket 7:\nask ops\\"))
    head = made[LOCK]["content"].splitlines()[1]
    assert head == "# Written by gb10-fleet, role clock_lock; a change here is overwritten. Ticket 7: ask ops"
    assert made[LOCK]["content"].count("Ticket 7") == 1
