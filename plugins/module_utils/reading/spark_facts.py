# SPDX-License-Identifier: GPL-3.0-or-later
"""What a Spark is, read in one pass and without changing anything.

The kernel's files (/proc, /sys, /etc) are read, and the few commands run, through the engine's `System`; what the
engine reads as well is read once for both. Nothing here raises: what cannot be read is None, never a guess.

A fact that a role uses must not change by itself, for each change costs a host another call. So what comes and goes
with containers is left out: interfaces without hardware and without an IPv4 address, and the carrier of a bridge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ansible_collections.gb10.fleet.plugins.module_utils.reading import machine, memory, running, software
from ansible_collections.gb10.fleet.plugins.module_utils.reading.account_services import read_account_services
from ansible_collections.gb10.fleet.plugins.module_utils.reading.cdi import read_cdi, read_cdi_driver
from ansible_collections.gb10.fleet.plugins.module_utils.reading.engine_answers import KeptAnswer, read_answers
from ansible_collections.gb10.fleet.plugins.module_utils.reading.gpu import Identity, read_identity
from ansible_collections.gb10.fleet.plugins.module_utils.reading.host_firewalls import HostFirewall, read_firewalls
from ansible_collections.gb10.fleet.plugins.module_utils.reading.measured import Start, read_measured
from ansible_collections.gb10.fleet.plugins.module_utils.reading.model_folders import ModelFolder, read_models
from ansible_collections.gb10.fleet.plugins.module_utils.reading.network import (
    Interface,
    Ipv4Route,
    Ssh,
    ipv4_routes,
    lasting_interfaces,
    network_of,
    read_interfaces,
    session_facts,
)
from ansible_collections.gb10.fleet.plugins.module_utils.reading.port_owners import PortOwner, read_owners
from ansible_collections.gb10.fleet.plugins.module_utils.reading.rails import Rail, read_rails
from ansible_collections.gb10.fleet.plugins.module_utils.reading.ssh_ports import read_ssh_ports
from ansible_collections.gb10.fleet.plugins.module_utils.reading.stop_requests import ShownWish, read_wishes
from ansible_collections.gb10.fleet.plugins.module_utils.reading.vendor_updates import read_vendor_updates
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader

if TYPE_CHECKING:  # a host may have Python 3.9
    from typing import NotRequired


class Facts(machine.MachineFacts, running.RunningFacts, memory.MemoryFacts, software.SoftwareFacts):
    # of the session that carries this call; answers leave by way_back
    ssh: Ssh
    # of that session, and in the files of sshd and its socket unit; 22 where no file names one
    ssh_ports: list[int]
    # every next hop, every table, IPv4 and IPv6; halves (0.0.0.0/1, 2000::/3) count
    default_route_interfaces: list[str]
    # IPv4, main table, without default routes; interface is null where it is discarded (unreachable, blackhole)
    routes: NotRequired[list[Ipv4Route]]
    # lower: what a VLAN, bridge or bond stands on
    interfaces: list[Interface]
    # sorted by port (p0, p1) and twin_index (0, 1); master: the bridge or bond that it is a port of
    rails: list[Rail]
    # files of NetworkManager, netplan and systemd-networkd that claim a rail
    port_owners: NotRequired[list[PortOwner]]
    # from nvidia-smi, bounded to 10 s; °C, W of the GPU alone
    gpu: Identity
    # ufw and firewalld, where they are on; "any" is everything
    host_firewalls: NotRequired[list[HostFirewall]]
    # sssd, ldap, nis, nisplus, winbind: where accounts come from beside /etc/passwd
    account_services: NotRequired[list[str]]
    # NVIDIA's CDI descriptions under /etc/cdi and /var/run/cdi
    cdi: list[str]
    # the driver whose libraries the vendor's description mounts
    cdi_driver: str | None
    # units of the vendor's that may upgrade this host: nvidia-spark-run-apt-upgrade-once, dgx-dashboard-admin
    vendor_updates: list[str]
    # units that stand still because the operator said so, or (who: on_demand) until they are asked (docs/services.md);
    # until is empty without an end
    wishes: NotRequired[list[ShownWish]]
    # by service: what starts took, by vLLM's log
    measured: NotRequired[dict[str, list[Start]]]
    # what vLLM has said of models, see the module engine_answer
    engine_answers: NotRequired[list[KeptAnswer]]
    # by path, and only where asked for, see below
    model_folders: NotRequired[dict[str, ModelFolder | None]]


def collect(host: HostReader, paths: Sequence[str] = (), models: Sequence[str] = ()) -> Facts:
    """All facts of one host; `disks` also holds the mounts of `paths`, and `models` are folders to describe."""
    network = network_of(host)
    seen = read_interfaces(host, network)
    rails = read_rails(host, seen)
    netdevs = {rail["netdev"] for rail in rails}
    found: Facts = {
        **machine.read_facts(host, paths),
        **running.read_facts(host),
        **memory.read_facts(host),
        **software.read_facts(host),  # type: ignore[typeddict-item]  # model_folders only where asked for
        "ssh": session_facts(host, network),
        "ssh_ports": read_ssh_ports(host),
        "default_route_interfaces": network.ways_out,
        "routes": ipv4_routes(network),
        "interfaces": lasting_interfaces(seen, {*network.session_interfaces, *network.ways_out, *netdevs}),
        "rails": rails,
        "port_owners": read_owners(host.system, [item for item in seen if item["name"] in netdevs]),
        "gpu": read_identity(host),
        "host_firewalls": read_firewalls(host),
        "account_services": read_account_services(host),
        "cdi": read_cdi(host),
        "cdi_driver": read_cdi_driver(host),
        "vendor_updates": read_vendor_updates(host),
        "wishes": read_wishes(host),
        "measured": read_measured(host),
        "engine_answers": read_answers(host),
    }
    if models:
        found["model_folders"] = read_models(host, models)
    return found
