"""The unit locks the clocks of the simulated GPU, and its end frees them."""

from __future__ import annotations

from testinfra.host import Host

testinfra_hosts = ["ansible://sparks?sudo=true"]


def test_the_driver_said_so(host: Host) -> None:
    assert host.service("gb10-clock-lock.service").is_enabled
    assert host.file("/run/gb10-lab/gpu-clocks").content_string == "300,2100"
    assert host.run("systemctl stop gb10-clock-lock.service").rc == 0
    assert not host.file("/run/gb10-lab/gpu-clocks").exists
    assert host.run("systemctl start gb10-clock-lock.service").rc == 0
    assert host.file("/run/gb10-lab/gpu-clocks").exists
