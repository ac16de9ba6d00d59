"""What the units call. A container may not drop the page cache: tests/lab fills and drops it on machines."""

from __future__ import annotations

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://sparks?sudo=true"]


@pytest.mark.parametrize("name", ["gb10-drop-caches", "gb10-memory-gate", "gb10-page-cache-guard"])
def test_programs_are_roots_own(host: Host, name: str) -> None:
    program = host.file(f"/usr/local/sbin/{name}")
    assert program.user == "root" and program.mode == 0o755


def test_the_gate_lets_through_what_fits(host: Host) -> None:
    assert host.run("/usr/local/sbin/gb10-memory-gate 0").rc == 0
    refused = host.run("/usr/local/sbin/gb10-memory-gate 999999")
    assert refused.rc == 1 and "999999 GiB wanted" in refused.stdout


def test_nothing_runs_by_itself(host: Host) -> None:
    for unit in ("gb10-drop-caches.service", "gb10-page-cache-guard@gb10-vllm.service"):
        assert not host.service(unit).is_running
        assert host.run("systemctl is-enabled %s", unit).stdout.strip() == "static"


def test_an_operator_may_start_the_drop(host: Host) -> None:
    rules = host.file("/etc/sudoers.d/gb10-page-cache")
    assert rules.mode == 0o440
    assert "spark ALL=(root) NOPASSWD: /usr/bin/systemctl start gb10-drop-caches.service\n" in rules.content_string
    assert host.run("visudo -cf /etc/sudoers.d/gb10-page-cache").rc == 0
