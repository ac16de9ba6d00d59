"""The gate as a program and as a timer."""

from __future__ import annotations

import json

from testinfra.host import Host

testinfra_hosts = ["ansible://sparks?sudo=true"]


def test_the_gate_says_its_verdicts_in_one_line(host: Host) -> None:
    said = host.run("/usr/local/sbin/gb10-driver-coherence")
    (line,) = said.stdout.splitlines()
    verdict = json.loads(line)
    assert said.rc == (0 if verdict["coherent"] else 1)
    assert all(entry["fact"] and entry["severity"] in ("error", "warn", "info") for entry in verdict["verdicts"])


def test_the_timer_asks_it(host: Host) -> None:
    timer = host.service("gb10-driver-coherence.timer")
    assert timer.is_running and timer.is_enabled
    assert (
        host.check_output("systemctl show -p Unit --value gb10-driver-coherence.timer")
        == "gb10-driver-coherence.service"
    )
