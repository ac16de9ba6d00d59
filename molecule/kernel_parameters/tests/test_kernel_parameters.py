"""Sysctls and limits."""

from __future__ import annotations

from testinfra.host import Host

testinfra_hosts = ["ansible://sparks?sudo=true"]


def test_arp_answers_only_on_the_interface_that_owns_the_address(host: Host) -> None:
    assert host.sysctl("net.ipv4.conf.all.arp_ignore") == 1
    assert host.sysctl("net.ipv4.conf.all.arp_announce") == 2


def test_they_survive_a_reboot(host: Host) -> None:
    kept = host.file("/etc/sysctl.d/90-gb10-kernel_parameters.conf").content_string
    assert "net.ipv4.conf.all.arp_ignore = 1\n" in kept


def test_rdma_may_pin_its_buffers(host: Host) -> None:
    limits = host.file("/etc/security/limits.d/90-gb10-memlock.conf").content_string
    assert "* - memlock unlimited" in limits and "root - memlock unlimited" in limits
