"""The timer runs, and a host without a service has nothing to restart."""

from __future__ import annotations

from testinfra.host import Host

testinfra_hosts = ["ansible://sparks?sudo=true"]


def test_the_timer_runs(host: Host) -> None:
    assert host.service("gb10-watchdog.timer").is_running
    assert host.service("gb10-watchdog.timer").is_enabled


def test_a_look_at_a_host_without_a_service(host: Host) -> None:
    done = host.run("/usr/local/sbin/gb10-watchdog")
    assert done.rc == 0 and done.stdout == ""
    assert host.file("/usr/local/sbin/gb10-watchdog").mode == 0o755


def test_the_guard_of_the_host_looks(host: Host) -> None:
    assert host.service("gb10-host-guard.service").is_running
    assert host.run("systemctl show -P FailureAction gb10-host-guard.service").stdout.strip() == "none"
