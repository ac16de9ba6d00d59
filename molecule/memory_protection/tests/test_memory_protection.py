"""What systemd makes of the drop-ins, without a restart of anything. The kernel's side: tests/lab."""

from __future__ import annotations

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://sparks?sudo=true"]
MIB = 2**20


@pytest.mark.parametrize(("unit", "mib"), [("user.slice", 1024), ("system.slice", 512), ("ssh.service", 128)])
def test_memory_is_kept_for_the_way_in(host: Host, unit: str, mib: int) -> None:
    shown = dict(
        line.split("=", 1) for line in host.check_output("systemctl show %s", unit).splitlines() if "=" in line
    )
    assert shown["MemoryMin"] == str(mib * MIB)
    assert shown["NeedDaemonReload"] == "no"


def test_ssh_stays_as_it_was(host: Host) -> None:
    assert host.service("ssh").is_running
    assert host.check_output("systemctl show -p OOMScoreAdjust --value ssh") == "-500"
