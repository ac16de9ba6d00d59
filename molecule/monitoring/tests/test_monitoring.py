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


def test_lines_of_a_gateway_are_counted_on_from_the_last_one_and_no_others(host: Host) -> None:
    unit = "/run/systemd/units/invocation:gb10-gateway.service"
    assert not host.file(unit).is_symlink, "a gateway of its own would be counted, too"
    line = """192.0.2.1 "laptop" "POST /v1/completions" 503 9 B 0.1 s"""
    history = "systemctl start gb10-metrics-history.service"
    series = 'gb10_gateway_requests_total{client="laptop",code="5xx"} '
    counted = list[int]()

    def told() -> int:
        return sum(int(said.partition(series)[2]) for said in scraped(host).splitlines() if said.startswith(series))

    try:
        logs = "logger -t gb10_gateway -p daemon.info"
        speaks = f"""systemd-run --unit=gb10-gateway.service sh -c 'tail -n 0 -F /run/gateway-says | {logs}'"""
        assert host.run(f"touch /run/gateway-says; {speaks}; {history}").rc == 0
        before = told()  # of a scenario that ran before this one, on the same hosts
        for _ in range(3):
            time.sleep(2)
            said = f"echo '{line}' >> /run/gateway-says; {logs} '{line}'; sleep 2; journalctl --sync; {history}"
            assert host.run(said).rc == 0
            counted.append(told() - before)
        assert host.run(history).rc == 0  # nothing new
        assert told() - before == 3
    finally:
        kept = "/run/gateway-says /run/gb10-metrics/gateway.json"
        host.run(f"systemctl stop gb10-gateway.service; rm -f {kept}; {history}")
    assert counted == [1, 2, 3]


def test_the_collector_may_write_nowhere_else(host: Host) -> None:
    folder = "/var/lib/gb10-metrics/node-exporter"
    assert host.file(f"{folder}/gb10_now.prom").mode == 0o644
    assert host.file("/var/lib/prometheus").user == "prometheus", "Debian's own folder is not root's"
    for above in ("/", "/var", "/var/lib", "/var/lib/gb10-metrics", folder):
        assert (host.file(above).user, host.file(above).mode & 0o022) == ("root", 0), above
    assert host.file("/var/cache/gb10-metrics").mode == 0o700
    assert "ProtectSystem=strict" in host.check_output(f"systemctl show -p ProtectSystem {NOW}")
