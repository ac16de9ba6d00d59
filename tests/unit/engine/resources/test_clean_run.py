"""What a run costs a host where all is well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible_collections.gb10.fleet.plugins.module_utils.engine.converge import converge
from ansible_collections.gb10.fleet.plugins.module_utils.engine.engine import parse_documents
from ansible_collections.gb10.fleet.plugins.module_utils.reading.spark_facts import collect
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader

from tests.unit.engine.resources.conftest import RUN
from tests.unit.engine.resources.test_packages import SET, FakeApt
from tests.unit.engine.resources.test_profiles import PAIR, FakeNetworkManager
from tests.unit.engine.resources.test_units import DOCUMENT, FakeSystemd

if TYPE_CHECKING:
    from tests.unit.engine.resources.conftest import FakeHost


def test_facts_and_all_kinds_together_cost_five_commands(host: FakeHost) -> None:
    FakeApt(host, {}, perftest="24", nvidia_driver="580")
    FakeSystemd(host)
    FakeNetworkManager(host)
    host.on("nvidia-smi", "NVIDIA GB10, 580.142, 41, 4.7\n")
    host.file("/proc/sys/net/ipv4/conf/all/arp_ignore", "0\n")
    host.file("/proc/modules", "rdma_cm 1 0 - Live 0x0\n")
    resources: list[dict[str, Any]] = [
        {"package": "perftest"},
        SET,
        {"sysctl": "net.ipv4.conf.all.arp_ignore", "value": 1},
        {"kernel_module": "rdma_cm"},
        *PAIR,
        *DOCUMENT,
    ]
    assert host.converge(resources, fabric_allow_activation=True).changes != []
    host.calls.clear()

    system = host.system
    document = parse_documents([("demo", resources)], {"fabric_allow_activation": True})
    assert converge(document, system, RUN, check_mode=False).changes == []
    facts = collect(HostReader(system))

    assert facts["packages"] == {"nvidia-driver": "580", "perftest": "24"}
    assert sorted(call[0] for call in host.calls) == ["ip", "nmcli", "nmcli", "nvidia-smi", "systemctl"]
    assert system.commands == 5
