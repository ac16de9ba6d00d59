"""The collector on a timer, and node_exporter that hands on what it wrote. tests/unit/monitoring has the alerts."""

from __future__ import annotations

import re
import time
import urllib.request

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://sparks?sudo=true"]

NOW = "gb10-metrics-now.service"
SCENARIO = "/run/gb10-lab/gpu-scenario"


def scraped(host: Host) -> str:
    """What Prometheus would get, from outside."""
    address = host.ansible.get_variables()["ansible_host"]
    with urllib.request.urlopen(f"http://{address}:9100/metrics", timeout=30) as reply:
        return str(reply.read().decode())


@pytest.mark.parametrize("part", ["now", "history"])
def test_a_timer_starts_the_collector(host: Host, part: str) -> None:
    timer = host.service(f"gb10-metrics-{part}.timer")
    assert timer.is_running and timer.is_enabled
    assert host.run(f"systemctl start gb10-metrics-{part}.service").rc == 0
    assert f'gb10_collector_time_seconds{{part="{part}"}}' in scraped(host)


def test_a_fault_reaches_prometheus_and_goes(host: Host) -> None:
    before = host.run(f"cat {SCENARIO}").stdout.strip() or "idle"
    try:
        for scenario, state in (("absent", "absent"), ("throttled", "ok")):
            assert host.run(f"echo {scenario} > {SCENARIO} && systemctl start {NOW}").rc == 0
            assert f'gb10_gpu_state{{state="{state}"}} 1' in scraped(host)
        assert "gb10_gpu_clock_hertz 5.07e+08" in scraped(host)
    finally:
        host.run(f"echo {before} > {SCENARIO} && systemctl start {NOW}")
    assert "node_textfile_scrape_error 0" in scraped(host)


def test_planned_work_reaches_prometheus_and_comes_to_its_end(host: Host) -> None:
    until = re.compile(r'gb10_planned_until_seconds\{cluster="[^"]+"\} (\S+)')

    def is_left(seconds: float) -> bool:
        """The collector may have been at work just then: its next run has it."""
        for _ in range(20):
            (value,) = until.findall(scraped(host))
            if seconds - 100 < float(value) - time.time() <= seconds + 1:
                return True
            time.sleep(1)
        return False

    assert host.run("gb10-planned begin test").rc == 0
    assert is_left(3600)
    assert host.run("gb10-planned end test").rc == 0
    assert is_left(600)
    assert host.run("rm /var/lib/gb10-metrics/planned/test").rc == 0


def test_the_collector_may_write_nowhere_else(host: Host) -> None:
    folder = "/var/lib/gb10-metrics/node-exporter"
    assert host.file(f"{folder}/gb10_now.prom").mode == 0o644
    assert host.file("/var/lib/prometheus").user == "prometheus", "Debian's own folder is not root's"
    for above in ("/", "/var", "/var/lib", "/var/lib/gb10-metrics", folder):
        assert (host.file(above).user, host.file(above).mode & 0o022) == ("root", 0), above
    assert host.file("/var/cache/gb10-metrics").mode == 0o700
    assert "ProtectSystem=strict" in host.check_output(f"systemctl show -p ProtectSystem {NOW}")
