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

import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.engine import manifest
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.dpkg import (
    DPKG_LOCK,
    Database,
    lock_holder,
    read_database,
)
from ansible_collections.gb10.fleet.plugins.module_utils.engine.structs import dataclass, field
from ansible_collections.gb10.fleet.plugins.module_utils.engine.system import HostError, System
from ansible_collections.gb10.fleet.plugins.module_utils.facts import apt_preferences, apt_sources
from ansible_collections.gb10.fleet.plugins.module_utils.facts.port_owners import read_owners
from ansible_collections.gb10.fleet.plugins.module_utils.facts.readings import mount_of, upstream_version
from ansible_collections.gb10.fleet.plugins.module_utils.programs.coherence import installed

Facts = dict[str, Any]

GPU_DEADLINE_S = 10.0  # a driver that has lost its GPU can let nvidia-smi hang for ever
COMMAND_DEADLINE_S = 5.0
DOCKER_DEADLINE_S = 10.0  # under memory pressure it answers late, and no answer is refused
DISK_PATHS = ("/", "/boot", "/var/lib/docker")
MAX_ANCESTORS = 64
SSH_PORT = 22  # where nothing says another one
# What DGX OS sets and the role kernel_parameters leaves alone; the findings know the lowest sound values.
VERIFIED_SYSCTLS = ("vm.max_map_count",)
# Services that kill by memory, beside the kernel.
OOM_DAEMONS = ("earlyoom", "systemd-oomd")

_APT_LOCKS = (DPKG_LOCK, "/var/lib/dpkg/lock", "/var/lib/apt/lists/lock")
# The installed packages that roles and findings ask about.
_PACKAGES = re.compile(
    r"(lib)?nvidia|linux-.*nvidia|docker|containerd|perftest\Z|cuda-drivers|.*-video-nvidia|systemd-oomd|earlyoom|nginx\Z"
)
_IP = re.compile(r"[0-9A-Fa-f.:]*[.:][0-9A-Fa-f.:]*\Z")  # of what the session says, enough to hand it to `ip`
# A port of sshd_config(5) or of a socket unit; an IPv6 address stands in brackets where a port follows it. The value
# may be quoted, and a comment or a routing domain may follow.
_SSH_PORT = re.compile(
    r"^[ \t]*(?:Port[ \t=]+\"?|ListenAddress[ \t=]+\"?(?:\[[^]\s]*\]|[^:\s]+):|ListenStream[ \t]*=[ \t]*(?:\S*:)?)"
    r"(\d+)\"?[ \t\r]*(?:[#r].*)?$",
    re.MULTILINE | re.IGNORECASE,
)
_SSH_INCLUDE = re.compile(r"^[ \t]*Include[ \t=]+(.*)$", re.MULTILINE | re.IGNORECASE)
_SSH_FOLDERS = (
    "/etc/ssh/sshd_config.d",
    "/etc/systemd/system/ssh.socket.d",
    "/run/systemd/generator/ssh.socket.d",
)
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\Z", re.IGNORECASE)
# Not installed, what sources offer them decides whether a role brings a source of its own.
_SOURCED = ("docker-ce", "nvidia-container-toolkit")
CDI_SPECIFICATION = "/var/run/cdi/nvidia.yaml"
_CDI_LIBRARY = re.compile(r"/libcuda\.so\.(\d{3}\.\d+(?:\.\d+)?)\b")
_RUNNING = "/run/systemd/units/invocation:"  # systemd keeps a link of this name while the unit is up
_DOCKER_SOCKET = "/run/docker.sock"
_MAX_ANSWER = 1024 * 1024  # bytes of Docker's answer; a real one has some 5,000


@dataclass(frozen=True)
class Host:
    """Everything of the outside world that the facts need; a test replaces all of it."""

    system: System = field(default_factory=System)
    statvfs: Callable[[str], os.statvfs_result] = os.statvfs
    machine: str = field(default_factory=lambda: os.uname().machine)

    def path(self, absolute: str) -> Path:
        return self.system.path(absolute)

    def read(self, absolute: str) -> str | None:
        """A small text file, stripped; None when it is absent, unreadable (EINVAL of sysfs) or empty."""
        return (self.system.text(absolute) or "").strip("\0\n\t ") or None

    def number(self, absolute: str) -> int | None:
        text = self.read(absolute)
        return int(text) if text and re.match(r"-?\d+\Z", text) else None

    def names(self, absolute: str) -> list[str]:
        return self.system.names(absolute)


def collect(host: Host, paths: Sequence[str] = ()) -> Facts:
    """All facts of one host, with the keys of docs/architecture.md; `disks` also holds the mounts of `paths`."""
    database = _database(host)
    names = sorted(name for name in database.installed if _PACKAGES.match(name))
    packages = {name: database.installed[name].version for name in names}
    network = _network(host)
    seen = _interfaces(host, network)
    rails = _rails(host, seen)
    lasting = _lasting(seen, {*network.session_interfaces, *network.ways_out, *(rail["netdev"] for rail in rails)})
    return {
        "hostname": host.read("/proc/sys/kernel/hostname"),
        "boot_id": host.read("/proc/sys/kernel/random/boot_id"),
        "kernel": host.read("/proc/sys/kernel/osrelease"),
        "architecture": host.machine,
        "memory_bytes": _memory_bytes(host),
        "os": _os(host),
        "product": _product(host),
        "root": host.system.privileged,
        "disks": _disks(host, paths),
        "ssh": _ssh(host, network),
        "ssh_ports": _ssh_ports(host),
        "default_route_interfaces": network.ways_out,
        "routes": _routes(network),
        "interfaces": lasting,
        "rails": rails,
        "port_owners": read_owners(
            host.system, [item for item in seen if item["name"] in {rail["netdev"] for rail in rails}]
        ),
        "gpu": _gpu(host),
        "driver": _driver(host, packages, database.holds),
        "packages": packages,
        "installed_by_us": sorted(_installed_by_us(host).intersection(names)),
        "holds": list(database.holds),
        "apt": _apt(host, database),
        "apt_sources": _apt_sources(host, database),
        "apt_preferences": apt_preferences.read_earlier(host.system, names),
        "docker": _docker(host, packages),
        "cdi": _cdi(host),
        "sysctls": {name: host.number("/proc/sys/" + name.replace(".", "/")) for name in VERIFIED_SYSCTLS},
        "oom_daemons": [name for name in OOM_DAEMONS if host.path(f"{_RUNNING}{name}.service").is_symlink()],
        "cdi_driver": _cdi_driver(host),
    }


# -- identity ----------------------------------------------------------------------------------------------------------


def _assignments(text: str | None) -> dict[str, str]:
    """`KEY="value"` lines; of a repeated key the last one counts (dgx-release gains one DGX_OTA_VERSION per update)."""
    pairs = (line.partition("=") for line in (text or "").splitlines() if not line.lstrip().startswith("#"))
    return {key.strip(): value.strip().strip("\"'") for key, sign, value in pairs if sign and key.strip()}


def _os(host: Host) -> Facts:
    release = _assignments(host.read("/etc/os-release") or host.read("/usr/lib/os-release"))
    return {"id": release.get("ID"), "version_id": release.get("VERSION_ID"), "pretty": release.get("PRETTY_NAME")}


def _product(host: Host) -> Facts:
    dgx = _assignments(host.read("/etc/dgx-release"))
    return {
        "dmi_vendor": host.read("/sys/class/dmi/id/sys_vendor"),
        "dmi_name": host.read("/sys/class/dmi/id/product_name"),
        # Partner boards keep their own product name and say "DGX Spark" in the family.
        "dmi_family": host.read("/sys/class/dmi/id/product_family"),
        # Without the serial number: facts go into evidence, and evidence gets shared.
        "dgx_release": {key: value for key, value in dgx.items() if "SERIAL" not in key} or None,
    }


def _memory_bytes(host: Host) -> int | None:
    total = re.search(r"^MemTotal:\s+(\d+) kB", host.read("/proc/meminfo") or "", re.MULTILINE)
    return int(total[1]) * 1024 if total else None


def _disks(host: Host, paths: Sequence[str]) -> list[Facts]:
    """The file systems under DISK_PATHS and `paths`, each once, named by its mount point."""
    mounts = {line.split()[1] for line in (host.read("/proc/self/mounts") or "").splitlines() if len(line.split()) > 2}
    wanted = dict.fromkeys(mount_of(path, mounts | {"/"}) for path in (*DISK_PATHS, *paths))
    disks = []
    for mount in wanted:
        try:
            stat = host.statvfs(str(host.path(mount)))
        except OSError:
            continue
        size, free = stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize
        disks.append({"mount": mount, "size_bytes": size, "free_bytes": free})
    return disks


# -- network -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Route:
    """What leaves by `interface` (None: it is discarded); `cidr` is `default`, an address or a network."""

    interface: str | None
    cidr: str
    table: str | None  # None is the main one


@dataclass(frozen=True)
class Network:
    """Addresses, routes and the SSH session of one moment.

    `addresses`: by interface, with prefix, IPv4 and IPv6, in the kernel's order: the first is the primary one. Of each,
    whether it is one of IPv6's temporary ones, which the kernel makes up anew every day: no fact, but a session may
    use one. `way_back`: the interface that answers to the peer of the session leave by.
    """

    addresses: Mapping[str, Mapping[str, bool]]
    routes: Sequence[Route]
    session: tuple[str, str] | None
    way_back: str | None

    @property
    def ways_out(self) -> list[str]:
        """Interfaces of default routes, also of one in parts and of a table that only some packets are looked up in."""
        return sorted({route.interface for route in self.routes if route.interface and _leads_out(route.cidr)})

    @property
    def session_interfaces(self) -> list[str]:
        """The interface with our address of the session, and the one that answers leave by: mostly the same one."""
        if self.session is None:
            return []
        names = (interface_of(self.session[1], self.addresses), self.way_back)
        return list(dict.fromkeys(name for name in names if name))


NO_NETWORK = Network({}, (), None, None)


def read_network(system: System) -> Network:
    """All of it from one `ip`: what a look costs is counted in processes.

    /proc/net/route has neither the second next hop of a route nor the other tables.
    """
    session = system.once(ssh_session)
    questions = ["address show", "route show table all"]
    # A link-local peer is on every link: its session is known by our own address.
    if session and all(_IP.match(address) for address in session) and not session[0].startswith("fe80:"):
        questions.append("route get {} from {}".format(*session))
    asked = "\n".join([*questions, ""])
    # The last question fails where there is no way to the peer, and then has no answer.
    done = system.run(["ip", "-j", "-batch", "-"], input=asked, timeout=COMMAND_DEADLINE_S)
    try:
        links, routes, *way = [json.loads(line) for line in done.stdout.split("\n") if line.strip()]
        addresses = {
            link["ifname"]: {
                f"{item['local']}/{item['prefixlen']}": bool(item.get("temporary"))
                for item in link.get("addr_info", [])
                if "local" in item
            }
            for link in links
            if "ifname" in link  # an interface that vanishes meanwhile leaves an empty object
        }
        way_back = way[0][0].get("dev") if way and way[0] else None
        return Network(addresses, tuple(_parse_routes(routes)), session, way_back)
    except (ValueError, TypeError, KeyError, AttributeError):
        words = f"failed: {done.words}" if done.rc else "does not answer with JSON as iproute2 writes it"
        raise HostError(f"`ip -j -batch -` ({'; '.join(questions)}) {words}") from None


def _parse_routes(routes: Sequence[Mapping[str, Any]]) -> Iterator[Route]:
    """Those that packets take to other hosts, one for each next hop, and those that discard packets."""
    for route in routes:
        kind = route.get("type", "unicast")
        if kind in ("unreachable", "blackhole", "prohibit"):
            yield Route(None, route["dst"], route.get("table"))
        elif kind == "unicast":
            hops = route.get("nexthops", [route])
            yield from (Route(hop["dev"], route["dst"], route.get("table")) for hop in hops if "dev" in hop)


def _leads_out(cidr: str) -> bool:
    """A VPN splits the default route in halves, and of IPv6 takes the eighth that is in use (2000::/3)."""
    prefix = cidr.partition("/")[2]
    return cidr == "default" or (prefix.isdigit() and int(prefix) <= (3 if ":" in cidr else 1))


def _network(host: Host) -> Network:
    try:
        return host.system.once(read_network)
    except HostError:
        return NO_NETWORK


def link_name(path: Path) -> str | None:
    """The last component of where a sysfs link points (a driver, a bridge)."""
    try:
        return os.readlink(path).rpartition("/")[2]  # noqa: PTH115  # Path.readlink() would build a path only to split it
    except OSError:
        return None


def _pci_address(device: Path) -> str | None:
    """The PCI function that a sysfs device stands on; virtio devices stand one step above theirs."""
    parts = [part for part in Path(os.path.realpath(device)).parts if _PCI_ADDRESS.match(part)]
    return parts[-1] if parts else None


def _interfaces(host: Host, network: Network) -> list[Facts]:
    addresses = network.addresses
    interfaces = []
    for name in host.names("/sys/class/net"):
        base = f"/sys/class/net/{name}"
        entries = host.names(base)
        if name == "lo" or not entries:  # bonding_masters is a file
            continue
        bridge = "bridge" in entries  # it has a carrier while one of its guests is up
        carrier = host.number(f"{base}/carrier")  # EINVAL, hence None, while the interface is administratively down
        speed = host.number(f"{base}/speed")
        interfaces.append(
            {
                "name": name,
                "mac": host.read(f"{base}/address"),
                "mtu": host.number(f"{base}/mtu"),
                "carrier": None if carrier is None or bridge else carrier == 1,
                "operstate": None if bridge else host.read(f"{base}/operstate"),
                "driver": link_name(host.path(f"{base}/device/driver")),
                "addresses": [cidr for cidr, temporary in addresses.get(name, {}).items() if not temporary],
                "phys_port_name": host.read(f"{base}/phys_port_name"),
                "phys_switch_id": host.read(f"{base}/phys_switch_id"),
                "pci": _pci_address(host.path(f"{base}/device")),
                "speed_mbps": speed if speed and speed > 0 and not bridge else None,  # -1 stands for "unknown"
                "lower": lower_interfaces(name, host.names),
                "hardware": "device" in entries,
            }
        )
    return interfaces


def _lasting(interfaces: Sequence[Facts], needed: Collection[str]) -> list[Facts]:
    """Without what comes and goes with containers and virtual machines: the ends of their cables.

    What remains has hardware or stands on it, has an IPv4 address (which a subnet of the fabric could collide with), or
    is needed.
    """
    hardware = {item["name"] for item in interfaces if item["hardware"]}
    lasting = {
        item["name"]
        for item in interfaces
        if item["name"] in hardware | set(needed)
        or hardware & set(item["lower"])
        or any(":" not in cidr for cidr in item["addresses"])
    }
    return [
        {
            **{key: value for key, value in item.items() if key != "hardware"},
            "lower": [name for name in item["lower"] if name in lasting],
        }
        for item in interfaces
        if item["name"] in lasting
    ]


def lower_interfaces(name: str, names: Callable[[str], Iterable[str]]) -> list[str]:
    """All that an interface (VLAN, bridge, bond, ...) stands on, down to the hardware; `names` lists a directory."""
    found: list[str] = []
    above = [name]
    while above:
        for entry in names(f"/sys/class/net/{above.pop()}"):
            lower = entry[len("lower_") :] if entry.startswith("lower_") else name
            if lower != name and lower not in found:
                found.append(lower)
                above.append(lower)
    return sorted(found)


def _rails(host: Host, interfaces: Sequence[Facts]) -> list[Facts]:
    """RDMA devices joined to their netdevs, sorted by port and twin."""
    by_name = {interface["name"]: interface for interface in interfaces}
    rails: list[Facts] = []
    # Those with hardware first: a Soft-RoCE device on the same netdev (`rdma link add`) is no rail beside them.
    for hca in sorted(host.names("/sys/class/infiniband"), key=lambda name: not _has_hardware(host, name)):
        for hca_port in host.names(f"/sys/class/infiniband/{hca}/ports"):
            interface = by_name.pop(_rail_netdev(host, hca, hca_port) or "", None)
            if interface is None:
                continue
            state = host.read(f"/sys/class/infiniband/{hca}/ports/{hca_port}/state")  # "4: ACTIVE"
            keys = ("carrier", "mtu", "driver", "pci", "phys_switch_id", "addresses")
            shared = {key: interface[key] for key in keys}
            rails.append(
                {
                    "netdev": interface["name"],
                    "hca": hca,
                    "hca_port": int(hca_port) if hca_port.isdigit() else None,
                    "port": port_of(interface["name"], interface["phys_port_name"]),
                    "twin_index": None,
                    "master": link_name(host.path(f"/sys/class/net/{interface['name']}/master")),
                    **shared,
                    "state": state.rpartition(":")[2].strip() if state else None,
                }
            )
    return number_twins(rails)


def _has_hardware(host: Host, hca: str) -> bool:
    return "device" in host.names(f"/sys/class/infiniband/{hca}")


def _rail_netdev(host: Host, hca: str, hca_port: str) -> str | None:
    """The netdev of an RDMA port: by its GID table, else (still empty) by its parent, else by its PCI function."""
    base = f"/sys/class/infiniband/{hca}"
    slots = f"{base}/ports/{hca_port}/gid_attrs/ndevs"
    tabled = [netdev for netdev in (host.read(f"{slots}/{slot}") for slot in host.names(slots)) if netdev]
    # A VLAN's GIDs sit in its parent's table, under the VLAN's name: the rail is the one without a dot.
    physical = next((netdev for netdev in tabled if "." not in netdev), None)
    return physical or host.read(f"{base}/parent") or next(iter(host.names(f"{base}/device/net")), None)


def port_of(netdev: str, phys_port_name: str | None) -> str | None:
    """The physical port (`p0`, `p1`) of a netdev: as its driver says, else the suffix that systemd derived from it."""
    if phys_port_name and re.match(r"^p\d+$", phys_port_name):
        return phys_port_name
    suffix = re.search(r"n(p\d+)$", netdev)
    return suffix[1] if suffix else None


def number_twins(rails: list[Facts]) -> list[Facts]:
    """Sort rails by port, and number the functions that share one by PCI domain, else by the domain in their name."""

    def order(rail: Facts) -> tuple[bool, str, int, int, str]:
        domain = int(rail["pci"].partition(":")[0], 16) if rail["pci"] else 0
        named = re.match(r"^enP(\d+)p", rail["netdev"])  # enp1s0f0np0 is domain 0, enP2p1s0f0np0 domain 2
        return rail["port"] is None, rail["port"] or "", domain, int(named[1]) if named else 0, rail["netdev"]

    seen: dict[str | None, int] = {}
    numbered = []
    for rail in sorted(rails, key=order):
        index = seen[rail["port"]] = seen.get(rail["port"], -1) + 1
        numbered.append({**rail, "twin_index": None if rail["port"] is None else index})
    return numbered


def _routes(network: Network) -> list[Facts]:
    """IPv4 routes of the main table without the default ones; the kernel lists them in no order."""
    found = {
        (route.interface, route.cidr if "/" in route.cidr else f"{route.cidr}/32")
        for route in network.routes
        if route.table is None and ":" not in route.cidr and route.cidr != "default"
    }
    return [
        {"interface": interface, "cidr": cidr}
        for interface, cidr in sorted(found, key=lambda pair: (pair[0] or "", pair[1]))
    ]


def _ssh(host: Host, network: Network) -> Facts:
    peer, local = host.system.once(ssh_session) or (None, None)
    interface = next(iter(network.session_interfaces), None)
    return {"interface": interface, "way_back": network.way_back, "local_address": local, "peer_address": peer}


def interface_of(address: str | None, addresses: Mapping[str, Iterable[str]]) -> str | None:
    """The interface with this address."""
    owners = (name for name, cidrs in addresses.items() if address in [cidr.partition("/")[0] for cidr in cidrs])
    return next(owners, None)


def _ssh_ports(host: Host) -> list[int]:
    """Where sshd listens: what this very session came in by, and what its files say, those of its socket unit too."""
    files = ["/etc/ssh/sshd_config"]
    for folder in _SSH_FOLDERS:
        files += [f"{folder}/{name}" for name in host.names(folder) if name.endswith(".conf")]
    said = []
    for file in files:  # which grows by what they include
        text = host.system.text(file) or ""
        said += _SSH_PORT.findall(text)
        files += [found for found in _ssh_included(host, text) if found not in files]
    words = host.system.once(session_words)
    return sorted({int(port) for port in [*said, *(words or ())[3:]] if port.isdigit()} or {SSH_PORT})


def _ssh_included(host: Host, text: str) -> list[str]:
    """The files that a file of sshd includes, where only their names are a pattern, and not those of folders."""
    found = []
    for pattern in (word.strip('"') for line in _SSH_INCLUDE.findall(text) for word in line.split()):
        folder, _, name = os.path.join("/etc/ssh", pattern).rpartition("/")  # noqa: PTH118 - a path on the host
        if folder not in _SSH_FOLDERS:  # those are read anyway
            from fnmatch import fnmatchcase  # rarely needed, and each look would pay for it

            found += [f"{folder}/{entry}" for entry in host.names(folder) if fnmatchcase(entry, name)]
    return found


def ssh_session(system: System) -> tuple[str, str] | None:
    """Both addresses, the peer's and ours, of the SSH session that this process belongs to."""
    words = system.once(session_words)
    return (_plain_address(words[0]), _plain_address(words[2])) if words else None


def session_words(system: System) -> list[str] | None:
    """SSH_CONNECTION: the peer's address and port, and ours.

    sudo clears it, so it is looked for in the environments of the ancestors too.
    """
    process = "self"
    for _ in range(MAX_ANCESTORS):
        for entry in (system.text(f"/proc/{process}/environ") or "").split("\0"):
            words = entry.partition("=")[2].split() if entry.startswith("SSH_CONNECTION=") else ()
            if len(words) == 4:
                return list(words)
        parent = re.search(r"^PPid:\s*(\d+)$", system.text(f"/proc/{process}/status") or "", re.MULTILINE)
        if parent is None or parent[1] == "0":
            return None
        process = parent[1]
    return None


def _plain_address(text: str) -> str:
    """Without zone, and IPv4 out of its IPv6 clothes."""
    address = text.partition("%")[0]
    return address[len("::ffff:") :] if address.startswith("::ffff:") and "." in address else address


# -- GPU, driver, packages, Docker -------------------------------------------------------------------------------------


def _gpu(host: Host) -> Facts:
    """Temperature in degrees Celsius, power in watts (the GPU's alone). Memory is [N/A] on a GB10: use memory_bytes."""
    query = ["--query-gpu=name,driver_version,temperature.gpu,power.draw", "--format=csv,noheader,nounits"]
    done = host.system.run(["nvidia-smi", *query], timeout=GPU_DEADLINE_S)
    row = next((line.split(",") for line in done.stdout.splitlines() if line.count(",") == 3), None)
    found = done.rc == 0 and row is not None
    error = done.words if done.rc else "nvidia-smi listed no GPU"
    cells = [None if "N/A" in cell or "Not" in cell else cell.strip() for cell in row] if found and row else [None] * 4
    return {
        "present": found,
        "name": cells[0],
        "driver": cells[1],
        "temperature_c": _decimal(cells[2]),
        "power_w": _decimal(cells[3]),
        "query_error": None if found else error[:300],
    }


def _decimal(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _driver(host: Host, packages: Mapping[str, str], holds: Collection[str]) -> Facts:
    def run(argv: Sequence[str]) -> str:
        return host.system.run(argv, timeout=COMMAND_DEADLINE_S).stdout

    return installed.read_driver(host.system.root, packages, holds, run)


def _database(host: Host) -> Database:
    try:
        return host.system.once(read_database)
    except HostError:
        return Database({}, ())


def _installed_by_us(host: Host) -> set[str]:
    """The packages that the host did not have before us: what they start is ours to decide."""
    try:
        known = host.system.once(manifest.load).resources
    except HostError:
        return set()  # whoever is to change the host says what is wrong with it
    packages = ((label.partition(":"), entry.before) for label, entry in known.items())
    return {name for (kind, _, name), before in packages if kind == "package" and before.get("version", "") is None}


def _apt(host: Host, database: Database) -> Facts:
    holder = lock_holder(host.system, *_APT_LOCKS)
    # While somebody works, half-done is normal.
    return {"lock_held_by": holder, "dpkg_interrupted": holder is None and bool(database.unfinished)}


def _apt_sources(host: Host, database: Database) -> Facts:
    """Apart from `apt`, whose lock comes and goes: roles decide by these."""
    sources = apt_sources.read_sources(host.system)
    missing = [name for name in _SOURCED if name not in database.installed]
    return {
        "entries": [source.as_fact() for source in sources],
        "conflicts": apt_sources.conflicts(sources),
        "offered": apt_sources.offered(host.system, sources, missing),
    }


def _cdi(host: Host) -> list[str]:
    """The specifications by which containers name NVIDIA's GPUs."""
    folders = ("/etc/cdi", "/var/run/cdi")
    return [f"{folder}/{name}" for folder in folders for name in host.names(folder) if name.startswith("nvidia")]


def _cdi_driver(host: Host) -> str | None:
    """The driver that the vendor's specification was written for: it mounts the libraries of one version by name."""
    found = _CDI_LIBRARY.search(host.system.text(CDI_SPECIFICATION) or "")
    return found[1] if found else None


def _docker(host: Host, packages: Mapping[str, str]) -> Facts:
    package = next((packages[name] for name in ("docker-ce", "docker.io") if name in packages), None)
    facts: Facts = {
        "present": package is not None or host.path("/usr/bin/dockerd").exists(),
        "version": upstream_version(package) if package else None,
        "running": False,
        "cgroup_driver": None,
    }
    # By pid file: asking its socket could start a daemon that systemd activates on demand.
    pid = host.number("/run/docker.pid")
    if pid is None or not host.path(f"/proc/{pid}").exists():
        return facts
    said = ask_docker(host.path(_DOCKER_SOCKET), "/info")
    version, driver = said.get("ServerVersion"), said.get("CgroupDriver")
    return {"present": True, "version": version or facts["version"], "running": True, "cgroup_driver": driver or None}


def ask_docker(path: Path, resource: str) -> Facts:
    """The JSON object that Docker's engine answers; empty if there is none in time.

    HTTP 1.0 has no chunks, and the server closes after its answer, so a few lines do what would cost 20 ms of imports.
    """
    import socket  # only a host that runs Docker needs it

    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(DOCKER_DEADLINE_S)
            connection.connect(str(path))
            connection.sendall(f"GET {resource} HTTP/1.0\r\nHost: docker\r\n\r\n".encode())
            answer = b""
            while len(answer) < _MAX_ANSWER and (part := connection.recv(65536)):
                answer += part
        said = json.loads(answer.partition(b"\r\n\r\n")[2])
    except (OSError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}
