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
from tests.fleet.night import ENVIRONMENT, LASTS_TOKENS, MODEL, UNIT, Night
from tests.support import runbooks

pytestmark = [pytest.mark.lab, pytest.mark.long]

SCENARIO = "/run/gb10-lab/gpu-scenario"
SLOW_EXPORTER = "/etc/systemd/system/prometheus-node-exporter.service.d/99-slow.conf"


@pytest.fixture(scope="module", name="night")
def fixture_night(cleared: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    hosts = Night(cleared, tmp_path_factory.mktemp("night"))
    try:
        hosts.begin()
        done = hosts.typed("gb10 site -i inventory/mine")
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


def typed(night: Night, *lines: str) -> None:
    for line in lines:
        done = night.typed(line)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"


def serves_again(night: Night) -> None:
    night.wait(lambda: night.serves() and len(night.ask("up == 1")) == 2, night.firing)


def stays_down(night: Night) -> None:
    """What planned work has left is over, and a service that is down then is told of."""
    night.time_passes()
    night.fleet.shell(night.second, f"systemctl stop {UNIT}")
    page = Page("Gb10ServiceDown")
    fires(night, page)
    follow(night, page)
    quiet(night)


def test_planned_reboot_pages_nobody_and_what_stays_down_afterwards_does(night: Night) -> None:
    """The host is silent for longer than a boot takes: node_exporter comes late."""
    quiet(night)
    host, began = night.second, time.monotonic()
    slow = f"printf '[Service]\\nExecStartPre=/bin/sleep 30\\nTimeoutStartSec=120\\n' >{SLOW_EXPORTER}"
    night.fleet.shell(host, f"{slow}; systemctl daemon-reload")
    try:
        typed(
            night,
            f"gb10 stop vllm --limit {host} -i inventory/mine --yes",
            f"gb10 start vllm --limit {host} -i inventory/mine --prove --yes",
            f"""ansible-playbook gb10.fleet.reboot -i inventory/mine --limit {host} -e '{{"reboot_allow": true}}'""",
        )
        serves_again(night)
        spent = f"{time.monotonic() - began:.0f}s"
        assert night.ask(f'min_over_time(up{{instance="{host}"}}[{spent}]) == 0'), (
            "it was never silent: this proves nothing"
        )
        assert night.firing(of=spent) == set()
    finally:
        night.fleet.shell(host, f"rm {SLOW_EXPORTER}; systemctl daemon-reload")
    stays_down(night)


def test_planned_swap_and_rollout_page_nobody_and_what_stays_down_afterwards_does(night: Night) -> None:
    """Both stop the service; the rollout brings a setting that changes nothing but its container."""
    quiet(night)
    host, began = night.second, time.monotonic()
    typed(
        night,
        f"gb10 swap vllm small --limit {host} -i inventory/mine --yes",
        f"gb10 swap small vllm --limit {host} -i inventory/mine --yes",
    )
    serves_again(night)
    before = night.life(host)
    night.change(vllm_environment={**ENVIRONMENT, "NIGHT": "1"})
    typed(night, f"gb10 rollout site -i inventory/mine --limit {host}")
    serves_again(night)
    assert night.life(host) != before, "nothing was changed: this proves nothing"
    spent = f"{time.monotonic() - began:.0f}s"
    assert night.ask(f'min_over_time(gb10_service_up{{instance="{host}",service="vllm"}}[{spent}]) == 0')
    assert night.firing(of=spent) == set()
    stays_down(night)


class Page(NamedTuple):
    """`cause`: as root, on `of`; `hand`: what no command of the page does, before its first line with `before`.

    `both`: it happens on both hosts, and the first one tells. `slowly`: the collector reads it every five minutes; here
    it reads at once. `not_here`: commands for another case, or that no stand-in knows. `passes`: what an hour does.
    """

    alert: str
    cause: str = ""
    hand: str = ""
    before: str = "$^"
    both: bool = False
    slowly: bool = False
    not_here: str = ""
    passes: str = ""


FREEZE = "kill -STOP $(docker top gb10-vllm -eo pid | tail -n +2)"
ASK = f"""setsid curl -s -o /dev/null http://127.0.0.1:8000/v1/completions -H 'Content-Type: application/json' \
-d '{{"model": "{MODEL}", "prompt": "x", "max_tokens": {LASTS_TOKENS}, "ignore_eos": true}}' >/dev/null 2>&1 &"""
FILES = "/var/cache/gb10-vllm/huggingface/hub/models--openai--gpt-oss-120b"
PAGES = [
    Page("Gb10ServiceSilent", FREEZE),
    Page("Gb10CollectorStopped", "systemctl stop gb10-metrics-now.timer gb10-metrics-history.timer"),
    Page(
        "Gb10CollectorAbsent",
        "systemctl disable --now gb10-metrics-now.timer gb10-metrics-history.timer; rm /var/lib/gb10-metrics/*/gb10_*",
    ),
    Page("Gb10GatewayDown", "systemctl stop gb10-gateway"),
    Page("Gb10HostSilent", "systemctl stop prometheus-node-exporter"),
    Page("Gb10GpuNotAnswering", f"echo hung >{SCENARIO}", not_here="poweroff"),
    Page("Gb10PowerFault", f"echo throttled >{SCENARIO}"),
    Page(
        "Gb10GpuClockLow",
        f"echo loaded >{SCENARIO}; nvidia-smi -lgc 0,800",
        not_here="nvidia-smi -q",
        passes=f"echo idle >{SCENARIO}",
    ),
    Page(
        "Gb10ServiceFailing",
        f"mv {FILES} {FILES}.away; systemctl restart --no-block {UNIT}",
        hand=f"mv {FILES}.away {FILES}",
        before="reset-failed",
    ),
    Page("Gb10WatchdogRestarted", ASK, slowly=True, passes="rm /var/lib/gb10-watchdog/vllm.json"),
    Page("Gb10RouterNoReplica", f"systemctl stop {UNIT}", both=True),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.alert)
def test_a_page_is_followed_and_the_service_is_on_at_its_end(night: Night, page: Page) -> None:
    quiet(night)
    for host in night.fleet.hosts if page.both else [night.second]:
        night.fleet.shell(host, page.cause)
    fires(night, page)
    follow(night, page)
    night.fleet.shell(night.second, page.passes)
    quiet(night)


def fires(night: Night, page: Page) -> None:
    fault = (night.first if page.both else night.second, page.alert)

    def told() -> bool:
        if page.slowly:
            night.collect()
        return fault in night.firing()

    night.wait(told, night.firing)


def test_a_certificate_that_ends_is_followed(night: Night) -> None:
    quiet(night)
    night.certify(night.second, days=5)
    page = Page("Gb10Certificate", slowly=True)
    fires(night, page)
    for line in lines_of(night, page):
        if "reload" in line:
            night.certify(night.second)
        type_line(night, page, line)
    quiet(night)


def test_the_errors_of_a_gateway_are_followed(night: Night) -> None:
    """Clients ask all the time, at the gateway that has a router; first nobody serves, then all do."""
    quiet(night)
    with night.clients():
        for host in night.fleet.hosts:
            night.fleet.shell(host, FREEZE)
        page = Page("Gb10GatewayErrors", both=True, slowly=True)
        fires(night, page)
        for line in lines_of(night, page):
            if "rejoin" in line:  # "once it serves"
                for host in night.fleet.hosts:
                    night.fleet.shell(host, f"systemctl restart {UNIT}")
                night.wait(night.ready, lambda: night.typed("gb10 ps -i inventory/mine").stdout)
            type_line(night, page, line)
        quiet(night)


def test_a_prometheus_that_is_dead_is_followed(night: Night) -> None:
    """It is the role's own, on the first host; nobody here hears of it, as the page has it."""
    night.fleet.shell(night.first, "systemctl stop prometheus prometheus-alertmanager")
    page = Page("Gb10Heartbeat", both=True)
    follow(night, page)
    asks = next(line for line in lines_of(night, page) if "api/v1/alerts" in line)
    night.wait(lambda: "Gb10Heartbeat" in said(night, page, asks)[1], lambda: said(night, page, asks)[1])


# A command that shows a fault may say so by its status: a unit is down or not there, the doctor finds an error, nobody
# answers in time.
SHOWS = ((" status ", 3), (" status ", 4), ("gb10 doctor", 4), ("curl ", 28), ("curl ", 7))


def follow(night: Night, page: Page) -> None:
    """Type what the page says, in its order."""
    for line in lines_of(night, page):
        if page.hand and re.search(page.before, line):
            night.fleet.shell(night.second, page.hand)
        type_line(night, page, line)


def lines_of(night: Night, page: Page) -> list[str]:
    places = {
        **{"HOST": night.second, "CLUSTER": night.second, "SERVICE": "vllm", "NAME": "vllm", "UNIT": "gb10-vllm"},
        **{"PORT": "8000", "ADDRESS": night.fleet.address(night.second), "RUN": "1"},
    }
    if page.alert == "Gb10GatewayDown":
        places["UNIT"] = "gb10-gateway"
    found = runbooks.commands(page.alert, places)
    return [line for line in found if not re.search(page.not_here or "$^", line) and not OTHER_END.match(line)]


# The other end of a page: it is to stand still, or the rollout before was the reason.
OTHER_END = re.compile(r"gb10 (stop|rollback) ")


def type_line(night: Night, page: Page, line: str) -> None:
    status, text = said(night, page, line)
    fine = {0, *(also for words, also in SHOWS if words in line)}
    assert status in fine, f"{line}\n{text}"
    print(f"{page.alert}: {line}: {(text.strip().splitlines() or ['-'])[-1][:100]}")


def said(night: Night, page: Page, line: str) -> tuple[int, str]:
    """`gb10 start` asks a person, who says yes; here nobody has a terminal."""
    if line == "sudo poweroff":
        night.fleet.lab("power-off", night.second)
        night.fleet.lab("power-on", night.second)
        night.wait(lambda: night.on_host(night.second, "true").returncode == 0, lambda: "it does not boot")
        return 0, "off, and on again"
    if line.startswith("ssh "):
        _, host, line = line.split(" ", 2)
        done = night.on_host(host, line)
    elif line.startswith(("gb10 ", "ansible-playbook ")) or "https://" in line or ":9100" in line:
        done = night.typed(f"{line} --yes" if line.startswith("gb10 start ") else line)
    else:
        done = night.on_host(night.first if page.both else night.second, line)
    return done.returncode, done.stdout + done.stderr
