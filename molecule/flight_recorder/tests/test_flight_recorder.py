"""Without consent nothing of it is there."""

from __future__ import annotations

from testinfra.host import Host

testinfra_hosts = ["ansible://sparks?sudo=true"]


def test_nothing_is_there(host: Host) -> None:
    for name in ("send", "keep"):
        assert not host.file(f"/etc/systemd/system/gb10-recorder-{name}.service").exists
        assert not host.service(f"gb10-recorder-{name}").is_running
    for name in ("recorder", "recorder-keep"):
        assert not host.file(f"/etc/gb10-fleet/{name}.key").exists
