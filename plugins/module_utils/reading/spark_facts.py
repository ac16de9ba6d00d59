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

from ansible_collections.gb10.fleet.plugins.module_utils.reading import apt_preferences, memory, running
from ansible_collections.gb10.fleet.plugins.module_utils.reading.cdi import read_cdi, read_cdi_driver
from ansible_collections.gb10.fleet.plugins.module_utils.reading.gpu import read_identity
from ansible_collections.gb10.fleet.plugins.module_utils.reading.machine import (
    read_disks,
    read_machine_digest,
    read_os,
    read_product,
    read_sysctls,
)
from ansible_collections.gb10.fleet.plugins.module_utils.reading.measured import read_measured
from ansible_collections.gb10.fleet.plugins.module_utils.reading.model_folders import read_models
from ansible_collections.gb10.fleet.plugins.module_utils.reading.network import (
    ipv4_routes,
    lasting_interfaces,
    network_of,
    read_interfaces,
    session_facts,
)
from ansible_collections.gb10.fleet.plugins.module_utils.reading.port_owners import read_owners
from ansible_collections.gb10.fleet.plugins.module_utils.reading.rails import read_rails
from ansible_collections.gb10.fleet.plugins.module_utils.reading.software import (
    PACKAGES,
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
from ansible_collections.gb10.fleet.plugins.module_utils.reading.stop_requests import read_wishes
from ansible_collections.gb10.fleet.plugins.module_utils.reading.vendor_updates import read_vendor_updates
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import Facts, HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import Notes


def collect(host: HostReader, paths: Sequence[str] = (), models: Sequence[str] = ()) -> Facts:
    """All facts of one host, with the keys of docs/architecture.md; `disks` also holds the mounts of `paths`.

    `models`: folders of models to describe, which only a host is asked whose model the controller does not know.
    """
    database = database_of(host)
    names = sorted(name for name in database.installed if PACKAGES.match(name))
    packages = {name: database.installed[name].version for name in names}
    network = network_of(host)
    seen = read_interfaces(host, network)
    rails = read_rails(host, seen)
    lasting = lasting_interfaces(
        seen, {*network.session_interfaces, *network.ways_out, *(rail["netdev"] for rail in rails)}
    )
    bytes_of = memory.lines(host.system)
    return {
        "hostname": host.read("/proc/sys/kernel/hostname"),
        "boot_id": running.read_boot_id(host),
        "kernel": running.read_kernel(host),
        "kho_off": running.read_kho_off(host),
        "architecture": host.machine,
        "memory_bytes": bytes_of.get("MemTotal"),
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
        "interfaces": lasting,
        "rails": rails,
        "port_owners": read_owners(
            host.system, [item for item in seen if item["name"] in {rail["netdev"] for rail in rails}]
        ),
        "gpu": read_identity(host),
        "driver": driver_of(host, packages, database.holds),
        "packages": packages,
        "installed_by_us": sorted(installed_by_us(host).intersection(names)),
        "holds": list(database.holds),
        "apt": read_apt(host, database),
        "apt_sources": read_apt_sources(host, database),
        "apt_preferences": apt_preferences.read_earlier(host.system, names),
        "docker": read_docker(host, packages),
        "cdi": read_cdi(host),
        "sysctls": read_sysctls(host),
        "oom_daemons": read_oom_daemons(host),
        "vendor_updates": read_vendor_updates(host),
        "cdi_driver": read_cdi_driver(host),
        "clock": running.read_clock(host),
        "machine_digest": read_machine_digest(host),
        **_of_services(host),
        **({"model_folders": read_models(host, models)} if models else {}),
    }


def _of_services(host: HostReader) -> Facts:
    """What the models that it serves leave on it."""
    return {
        "join_key": read_join_key(host),
        "join_keys": read_join_keys(host),
        "model_phase": read_model_phase(host),
        "wishes": read_wishes(host),
        "measured": read_measured(host),
    }
