from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.engine.engine import ApplyError
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Completed

    from tests.unit.engine.resources.conftest import FakeHost

ARP = [{"sysctl": "net.ipv4.conf.all.arp_ignore", "value": 1}]
LIVE = "/proc/sys/net/ipv4/conf/all/arp_ignore"
PERSISTENT = "/etc/sysctl.d/90-gb10-demo.conf"


def test_a_sysctl_is_set_live_and_for_the_next_boot(host: FakeHost) -> None:
    host.file(LIVE, "0\n")

    outcome = host.both(ARP)

    assert [change["resource"] for change in outcome.changes] == [
        f"file:{PERSISTENT}",
        "sysctl:net.ipv4.conf.all.arp_ignore",
    ]
    assert host.path(LIVE).read_text() == "1\n"
    assert "net.ipv4.conf.all.arp_ignore = 1\n" in host.path(PERSISTENT).read_text()
    assert host.converge(ARP).changes == []


def test_a_live_value_that_drifted_is_one_change(host: FakeHost) -> None:
    host.file(LIVE, "0\n")
    host.converge(ARP)
    host.file(LIVE, "2\n")
    (change,) = host.both(ARP).changes
    assert (change["resource"], change["detail"]) == ("sysctl:net.ipv4.conf.all.arp_ignore", "live 2 -> 1")


def test_values_compare_by_words_and_a_slash_is_a_dot_of_an_interface(host: FakeHost) -> None:
    host.file("/proc/sys/net/ipv4/tcp_rmem", "4096\t87380\t4194304\n")
    host.file("/proc/sys/net/ipv4/conf/eth0.100/rp_filter", "2\n")
    outcome = host.both(
        [
            {"sysctl": "net.ipv4.tcp_rmem", "value": "4096 87380 4194304"},
            {"sysctl": "net.ipv4.conf.eth0/100.rp_filter", "value": "2"},
        ]
    )
    assert [change["resource"] for change in outcome.changes] == [f"file:{PERSISTENT}"]


def test_an_unknown_sysctl_is_refused_before_anything_is_written(host: FakeHost) -> None:
    with pytest.raises(HostError, match="this kernel has no such setting"):
        host.converge(ARP)
    assert not host.path(PERSISTENT).exists()


def test_a_kernel_that_refuses_is_quoted(host: FakeHost) -> None:
    host.path(LIVE).mkdir(parents=True)  # reading and writing both fail, as with a setting that is not ours
    host.on("modprobe", "")
    with pytest.raises(ApplyError, match="the kernel refuses '1'"):
        host.converge([{"kernel_module": "rdma_cm"}, *ARP])


def test_a_module_is_loaded_now_and_at_boot(host: FakeHost) -> None:
    host.file("/proc/modules", "loop 40960 0 - Live 0x0\n")
    host.file("/proc/sys/kernel/osrelease", "6.17.0\n")
    host.file("/lib/modules/6.17.0/modules.builtin", "kernel/fs/ext4/ext4.ko\nkernel/x/built-in.ko\n")

    def modprobe(argv: list[str], stdin: str | None) -> str:
        host.file("/proc/modules", f"{argv[1].replace('-', '_')} 1 0 - Live 0x0\n")
        return ""

    host.on("modprobe", modprobe)
    resources = [{"kernel_module": "rdma-cm"}, {"kernel_module": "ext4"}, {"kernel_module": "built_in"}]
    outcome = host.both(resources)

    assert [change["action"] for change in outcome.changes] == ["create", "load"]
    assert host.commands("modprobe") == ["modprobe rdma-cm"]
    assert host.path("/etc/modules-load.d/gb10-demo.conf").read_text().endswith("rdma-cm\next4\nbuilt_in\n")
    assert host.converge(resources).changes == []


MODULE = [{"kernel_module": "rdma-cm", "state": "absent"}]


@pytest.mark.parametrize("users", ["0 -", "2 rdma_ucm,", "0 [permanent],", "1 -"])
def test_a_module_is_unloaded_unless_something_uses_it(host: FakeHost, users: str) -> None:
    host.file("/proc/modules", f"rdma_cm 40960 {users} Live 0x0\n")
    host.converge([{"kernel_module": "rdma-cm"}])
    assert host.path("/etc/modules-load.d/gb10-demo.conf").exists()

    def modprobe(argv: list[str], stdin: str | None) -> str:
        assert argv == ["modprobe", "-r", "rdma-cm"]
        host.file("/proc/modules", "")
        return ""

    host.on("modprobe", modprobe)
    actions = [change["action"] for change in host.both(MODULE).changes]

    assert actions == (["remove", "unload"] if users == "0 -" else ["remove"])
    assert not host.path("/etc/modules-load.d/gb10-demo.conf").exists()
    assert host.converge(MODULE).changes == []


def test_a_module_that_somebody_takes_into_use_meanwhile_stays(host: FakeHost, fail: Callable[..., Completed]) -> None:
    host.file("/proc/modules", "rdma_cm 40960 0 - Live 0x0\n")

    def modprobe(argv: list[str], stdin: str | None) -> Completed:
        host.file("/proc/modules", "rdma_cm 40960 1 - Live 0x0\n")
        return fail("modprobe: FATAL: Module rdma_cm is in use.")

    host.on("modprobe", modprobe)
    assert [change["detail"] for change in host.converge(MODULE).changes] == ["in use, stays until the next boot"]


def test_a_module_that_cannot_be_unloaded_for_another_reason_is_told(
    host: FakeHost, fail: Callable[..., Completed]
) -> None:
    host.file("/proc/modules", "rdma_cm 40960 0 - Live 0x0\n")
    host.on("modprobe", fail("modprobe: ERROR: Operation not permitted"))
    with pytest.raises(ApplyError, match=r"kernel_module:rdma-cm: modprobe: .* not permitted"):
        host.converge(MODULE)
