"""Planned work pages nobody, what stays down afterwards does; and each page of docs/runbooks is followed as it stands.

A page is followed by its own words: each command is typed, on the host as its user and on the controller with
`-i inventory/mine`. Where a fault can be had here it is had, and a real Prometheus tells of it and of its end.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.fleet.fleet import Fleet
from tests.fleet.night import UNIT, Night
from tests.support import runbooks

pytestmark = [pytest.mark.lab, pytest.mark.long]

SCENARIO = "/run/gb10-lab/gpu-scenario"
SLOW_EXPORTER = "/etc/systemd/system/prometheus-node-exporter.service.d/99-slow.conf"


@pytest.fixture(scope="module", name="night")
def fixture_night(cleared: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    hosts = Night(cleared, tmp_path_factory.mktemp("night"))
    try:
        hosts.begin()
        done = hosts.typed("gb10 site -i inventory/mine", timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        hosts.wait(hosts.serves, lambda: hosts.typed("gb10 ps -i inventory/mine").stdout)
        hosts.ask_all()
        hosts.wait(lambda: len(hosts.ask("gb10_service_up == 1")) == 2, lambda: hosts.ask("up"))
        yield hosts
    finally:
        hosts.end()


def quiet(night: Night) -> None:
    night.wait(night.serves, lambda: night.typed("gb10 ps -i inventory/mine").stdout)
    night.time_passes()
    night.wait(lambda: not night.firing(), night.firing)


def typed(night: Night, line: str) -> None:
    done = night.typed(line)
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"


def test_planned_work_pages_nobody_and_what_stays_down_afterwards_does(night: Night) -> None:
    """The host is silent for longer than a boot takes: node_exporter comes late."""
    host, began = night.second, time.monotonic()
    quiet(night)
    slow = f"printf '[Service]\\nExecStartPre=/bin/sleep 30\\nTimeoutStartSec=120\\n' >{SLOW_EXPORTER}"
    night.fleet.shell(host, f"{slow}; systemctl daemon-reload")
    try:
        for line in (
            f"gb10 stop vllm --limit {host} -i inventory/mine --yes",
            f"gb10 start vllm --limit {host} -i inventory/mine --prove --yes",
            f"""ansible-playbook gb10.fleet.reboot -i inventory/mine --limit {host} -e '{{"reboot_allow": true}}'""",
            f"gb10 rollout site -i inventory/mine --limit {host}",
        ):
            typed(night, line)
            night.wait(lambda: night.serves() and night.ask(f'up{{instance="{host}"}} == 1'), night.firing)
        assert night.ask(f'min_over_time(up{{instance="{host}"}}[10m]) == 0'), (
            "it was never silent: this proves nothing"
        )
        assert night.firing(of=f"{time.monotonic() - began:.0f}s") == set()
    finally:
        night.fleet.shell(host, f"rm {SLOW_EXPORTER}; systemctl daemon-reload")
    night.time_passes()
    night.fleet.shell(host, f"systemctl stop {UNIT}")
    night.wait(lambda: (host, "Gb10ServiceDown") in night.firing(), night.firing)
    follow(night, "Gb10ServiceDown")
    quiet(night)


class Page(NamedTuple):
    """`cause`: as root on the second host. `not_here`: of its commands, which are for another case than this one."""

    alert: str
    cause: str
    not_here: str = ""


PAGES = [
    Page("Gb10ServiceSilent", "kill -STOP $(docker top gb10-vllm -eo pid | tail -n +2)"),
    Page("Gb10CollectorStopped", "systemctl stop gb10-metrics-now.timer gb10-metrics-history.timer"),
    Page(
        "Gb10CollectorAbsent",
        "systemctl disable --now gb10-metrics-now.timer gb10-metrics-history.timer; rm /var/lib/gb10-metrics/*/gb10_*",
    ),
    Page("Gb10GatewayDown", "systemctl stop gb10-gateway"),
    Page("Gb10HostSilent", "systemctl stop prometheus-node-exporter"),
    Page("Gb10GpuNotAnswering", f"echo hung >{SCENARIO}", not_here="poweroff"),
    Page("Gb10PowerFault", f"echo throttled >{SCENARIO}"),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.alert)
def test_a_page_is_followed_and_the_service_is_on_at_its_end(night: Night, page: Page) -> None:
    quiet(night)
    night.fleet.shell(night.second, page.cause)
    fault = (night.second, page.alert)
    night.wait(lambda: fault in night.firing(), night.firing)
    follow(night, page.alert, page.not_here)
    quiet(night)


# A command that shows a fault may say so by its status: a unit is down or not there, the doctor finds an error, nobody
# answers in time.
SHOWS = ((" status ", 3), (" status ", 4), ("gb10 doctor", 4), ("curl ", 28), ("curl ", 7))


def follow(night: Night, alert: str, not_here: str = "") -> None:
    """Type what the page says, in its order."""
    places = {
        **{"HOST": night.second, "CLUSTER": night.second, "SERVICE": "vllm", "NAME": "vllm", "UNIT": "gb10-vllm"},
        **{"PORT": "8000", "ADDRESS": night.fleet.address(night.second), "RUN": "1"},
    }
    if alert == "Gb10GatewayDown":
        places["UNIT"] = "gb10-gateway"
    for line in runbooks.commands(alert, places):
        if re.search(not_here or "$^", line) or re.match(r"gb10 (stop|rollback) ", line):
            continue
        done = said(night, line)
        fine = {0, *(also for words, also in SHOWS if words in line)}
        assert done[0] in fine, f"{line}\n{done[1]}"
        print(f"{alert}: {line}: {(done[1].strip().splitlines() or ['-'])[-1][:100]}")


def said(night: Night, line: str) -> tuple[int, str]:
    if line == "sudo poweroff":
        night.fleet.lab("power-off", night.second)
        night.fleet.lab("power-on", night.second)
        night.wait(lambda: night.on_host(night.second, "true").returncode == 0, lambda: "it does not boot")
        return 0, "off, and on again"
    if line.startswith("ssh "):
        _, host, line = line.split(" ", 2)
        done = night.on_host(host, line)
    elif line.startswith(("gb10 ", "ansible-playbook ")) or "https://" in line or ":9100" in line:
        done = night.typed(line)
    else:
        done = night.on_host(night.second, line)
    return done.returncode, done.stdout + done.stderr
