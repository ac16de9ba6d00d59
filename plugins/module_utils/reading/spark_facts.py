# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a Spark is, read in one pass and without changing anything.

The kernel's files (/proc, /sys, /etc) are read, and the few commands run, through the engine's `System`; what the
engine reads as well is read once for both. Nothing here raises: what cannot be read is None, never a guess.

A fact that a role uses must not change by itself, for each change costs a host another call. So what comes and goes
with containers is left out: interfaces without hardware and without an IPv4 address, and the carrier of a bridge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, TypedDict, cast

from ansible_collections.gb10.fleet.plugins.module_utils.reading import apt_preferences, memory, running
from ansible_collections.gb10.fleet.plugins.module_utils.reading.account_services import read_account_services
from ansible_collections.gb10.fleet.plugins.module_utils.reading.apt_preferences import Preference
from ansible_collections.gb10.fleet.plugins.module_utils.reading.cdi import read_cdi, read_cdi_driver
from ansible_collections.gb10.fleet.plugins.module_utils.reading.driver import Driver
from ansible_collections.gb10.fleet.plugins.module_utils.reading.engine_answers import KeptAnswer, read_answers
from ansible_collections.gb10.fleet.plugins.module_utils.reading.gpu import Identity, read_identity
from ansible_collections.gb10.fleet.plugins.module_utils.reading.host_firewalls import HostFirewall, read_firewalls
from ansible_collections.gb10.fleet.plugins.module_utils.reading.machine import (
    Disk,
    Os,
    Product,
    read_disks,
    read_machine_digest,
    read_os,
    read_product,
    read_sysctls,
)
from ansible_collections.gb10.fleet.plugins.module_utils.reading.measured import Start, read_measured
from ansible_collections.gb10.fleet.plugins.module_utils.reading.memory import MemoryBlocks
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
from ansible_collections.gb10.fleet.plugins.module_utils.reading.other_docker import OtherDocker, read_others
from ansible_collections.gb10.fleet.plugins.module_utils.reading.port_owners import PortOwner, read_owners
from ansible_collections.gb10.fleet.plugins.module_utils.reading.rails import Rail, read_rails
from ansible_collections.gb10.fleet.plugins.module_utils.reading.running import Clock
from ansible_collections.gb10.fleet.plugins.module_utils.reading.software import (
    PACKAGES,
    Apt,
    AptSources,
    Docker,
    JoinKey,
    database_of,
    driver_of,
    installed_by_us,
    read_apt,
    read_apt_sources,
    read_docker,
    read_join_key,
    read_join_keys,
    read_model_phase,
    read_oom_daemons,
)
from ansible_collections.gb10.fleet.plugins.module_utils.reading.ssh_ports import read_ssh_ports
from ansible_collections.gb10.fleet.plugins.module_utils.reading.stop_requests import ShownWish, read_wishes
from ansible_collections.gb10.fleet.plugins.module_utils.reading.vendor_updates import read_vendor_updates
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import Notes
from ansible_collections.gb10.fleet.plugins.module_utils.system.values import Between, KernelRelease, PackageName

if TYPE_CHECKING:  # a host may have Python 3.9
    from typing import NotRequired


class Facts(TypedDict):
    hostname: str | None
    boot_id: str | None
    kernel: KernelRelease
    kho_off: NotRequired[bool | None]
    architecture: str
    memory_bytes: Annotated[int, Between(1, 2**63)]  # everything is a part of it
    os: Os
    product: Product
    root: bool
    disks: list[Disk]
    ssh: Ssh
    ssh_ports: list[int]
    default_route_interfaces: list[str]
    routes: NotRequired[list[Ipv4Route]]
    interfaces: list[Interface]
    rails: list[Rail]
    port_owners: NotRequired[list[PortOwner]]
    gpu: Identity
    driver: Driver
    packages: dict[PackageName, str]
    installed_by_us: list[PackageName]
    holds: list[PackageName]
    apt_preferences: list[Preference]
    apt: Apt
    apt_sources: AptSources
    docker: Docker
    other_docker: NotRequired[list[OtherDocker]]
    host_firewalls: NotRequired[list[HostFirewall]]
    account_services: NotRequired[list[str]]
    cdi: list[str]
    sysctls: dict[str, int | None]
    oom_daemons: list[str]
    vendor_updates: list[str]
    cdi_driver: str | None
    memory_available_bytes: NotRequired[int | None]
    memory_pinned_bytes: NotRequired[int | None]
    memory_blocks: NotRequired[MemoryBlocks | None]
    clock: Clock
    machine_digest: NotRequired[str | None]
    join_key: NotRequired[JoinKey | None]
    join_keys: NotRequired[dict[str, JoinKey | None]]
    model_phase: NotRequired[str | None]
    wishes: NotRequired[list[ShownWish]]
    measured: NotRequired[dict[str, list[Start]]]
    engine_answers: NotRequired[list[KeptAnswer]]
    model_folders: NotRequired[dict[str, ModelFolder | None]]


def collect(host: HostReader, paths: Sequence[str] = (), models: Sequence[str] = ()) -> Facts:
    """All facts of one host; `disks` also holds the mounts of `paths`, and `models` are folders to describe."""
    database = database_of(host)
    packages = {name: database.installed[name].version for name in sorted(database.installed) if PACKAGES.match(name)}
    network = network_of(host)
    seen = read_interfaces(host, network)
    rails = read_rails(host, seen)
    netdevs = {rail["netdev"] for rail in rails}
    bytes_of = memory.lines(host.system)
    found: Facts = {
        "hostname": host.read("/proc/sys/kernel/hostname"),
        "boot_id": running.read_boot_id(host),
        "kernel": cast("str", running.read_kernel(host)),  # the controller refuses null
        "kho_off": running.read_kho_off(host),
        "architecture": host.machine,
        "memory_bytes": cast("int", bytes_of.get("MemTotal")),  # and this
        "memory_available_bytes": bytes_of.get("MemAvailable"),
        "memory_pinned_bytes": bytes_of.get("Hugetlb"),
        "memory_blocks": Notes().read("memory_blocks", lambda: memory.read_blocks(host)),
        "os": read_os(host),
        "product": read_product(host),
        "root": host.system.privileged,
        "disks": read_disks(host, paths),
        "ssh": session_facts(host, network),
        "ssh_ports": read_ssh_ports(host),
        "default_route_interfaces": network.ways_out,
        "routes": ipv4_routes(network),
        "interfaces": lasting_interfaces(seen, {*network.session_interfaces, *network.ways_out, *netdevs}),
        "rails": rails,
        "port_owners": read_owners(host.system, [item for item in seen if item["name"] in netdevs]),
        "gpu": read_identity(host),
        "driver": driver_of(host, packages, database.holds),
        "packages": packages,
        "installed_by_us": sorted(installed_by_us(host).intersection(packages)),
        "holds": list(database.holds),
        "apt": read_apt(host, database),
        "apt_sources": read_apt_sources(host, database),
        "apt_preferences": apt_preferences.read_earlier(host.system, list(packages)),
        "docker": read_docker(host, packages),
        "other_docker": read_others(host, database),
        "host_firewalls": read_firewalls(host),
        "account_services": read_account_services(host),
        "cdi": read_cdi(host),
        "sysctls": read_sysctls(host),
        "oom_daemons": read_oom_daemons(host),
        "vendor_updates": read_vendor_updates(host),
        "cdi_driver": read_cdi_driver(host),
        "clock": running.read_clock(host),
        "machine_digest": read_machine_digest(host),
        "join_key": read_join_key(host),
        "join_keys": read_join_keys(host),
        "model_phase": read_model_phase(host),
        "wishes": read_wishes(host),
        "measured": read_measured(host),
        "engine_answers": read_answers(host),
    }
    return {**found, "model_folders": read_models(host, models)} if models else found
