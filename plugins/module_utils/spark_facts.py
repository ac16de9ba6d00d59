# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a Spark is, read in one pass and without changing anything.

The kernel's files (/proc, /sys, /etc) are read under an injected root; the few external commands run through an
injected runner with a deadline each. Nothing here raises: what cannot be read is None, never a guess.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import json
import os
import re
import signal
import struct
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

Facts = dict[str, Any]

GPU_DEADLINE_S = 10.0  # a driver that has lost its GPU can let nvidia-smi hang for ever
COMMAND_DEADLINE_S = 5.0
DISK_PATHS = ("/", "/boot", "/var/lib/docker")
MAX_ANCESTORS = 32
DEFAULT_ROUTE = "0.0.0.0/0"

# The installed packages that roles and findings ask about.
_PACKAGES = re.compile(r"^(lib)?nvidia|^linux-.*nvidia|^docker|^containerd|^perftest$|-video-nvidia|^cuda-drivers")
# Which package tells the version of the userland, most telling first: libnvidia-compute carries libcuda itself.
_USERLAND = (r"^libnvidia-compute(-\d+)?$", r"^nvidia-utils(-\d+)?$", r"^nvidia-driver(-\d+)?(-open)?$")
_DRIVER_VERSION = re.compile(r"\b(\d{3}\.\d+(?:\.\d+)?)\b")
_PCI_ADDRESS = re.compile(r"^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$", re.IGNORECASE)


class Output(NamedTuple):
    """What a command said; `error` is None only when it ended in time with exit status 0."""

    text: str
    error: str | None


def run_command(argv: Sequence[str], deadline_s: float) -> Output:
    """Run one read-only command; never raises and never waits much longer than the deadline."""
    try:
        child = subprocess.Popen(  # its own session, so that a hung command and its children can be stopped together
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, "LC_ALL": "C"},
            start_new_session=True,
        )
    except OSError as error:
        return Output("", f"{argv[0]}: {error.strerror}")
    try:
        out, err = child.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        # One stuck inside the kernel does not even die: waiting for it would hang this module too.
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.communicate(timeout=1.0)
        return Output("", f"{argv[0]} did not answer within {deadline_s:g} s")
    if child.returncode:
        said = (err.strip() or out.strip()).splitlines()
        return Output(out, f"{argv[0]}: {said[0] if said else f'exit status {child.returncode}'}"[:300])
    return Output(out, None)


@dataclass(frozen=True)
class Host:
    """Everything of the outside world that the facts need; a test replaces all of it."""

    root: Path = Path("/")
    run: Callable[[Sequence[str], float], Output] = run_command
    statvfs: Callable[[str], os.statvfs_result] = os.statvfs
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    pid: int = field(default_factory=os.getpid)
    euid: int = field(default_factory=os.geteuid)
    machine: str = field(default_factory=lambda: os.uname().machine)

    def path(self, absolute: str) -> Path:
        return self.root / absolute.lstrip("/")

    def read(self, absolute: str) -> str | None:
        """A small text file, stripped; None when it is absent, unreadable (EINVAL of sysfs) or empty."""
        try:
            return self.path(absolute).read_text(errors="replace").strip("\0\n\t ") or None
        except OSError:
            return None

    def number(self, absolute: str) -> int | None:
        text = self.read(absolute)
        return int(text) if text and re.match(r"^-?\d+$", text) else None

    def names(self, absolute: str) -> list[str]:
        try:
            return sorted(os.listdir(self.path(absolute)))  # noqa: PTH208  # names are wanted, not paths
        except OSError:
            return []

    def command(self, *argv: str, deadline_s: float = COMMAND_DEADLINE_S) -> Output:
        return self.run(argv, deadline_s)


def collect(host: Host, paths: Sequence[str] = ()) -> Facts:
    """All facts of one host, with the keys of docs/architecture.md; `disks` also holds the mounts of `paths`."""
    states = _package_states(host)
    installed = {name: version for name, (version, _want, status) in states.items() if status == "installed"}
    interfaces, routes = _interfaces(host), _routes(host)
    return {
        "hostname": host.read("/proc/sys/kernel/hostname"),
        "boot_id": host.read("/proc/sys/kernel/random/boot_id"),
        "kernel": host.read("/proc/sys/kernel/osrelease"),
        "architecture": host.machine,
        "memory_bytes": _memory_bytes(host),
        "os": _os(host),
        "product": _product(host),
        "root": host.euid == 0,
        "disks": _disks(host, paths),
        "ssh": _ssh(host, interfaces),
        "default_route_interfaces": _default_route_interfaces(host, routes),
        "routes": [route for route in routes if route["cidr"] != DEFAULT_ROUTE],
        "interfaces": interfaces,
        "rails": _rails(host, interfaces),
        "gpu": _gpu(host),
        "driver": _driver(host, installed),
        "packages": {name: version for name, version in sorted(installed.items()) if _PACKAGES.search(name)},
        "holds": sorted(name for name, (_version, want, _status) in states.items() if want == "hold"),
        "apt": _apt(host, states),
        "docker": _docker(host, installed),
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


def mount_of(path: str, mounts: set[str]) -> str:
    """The mount point, out of `mounts`, that holds an absolute path."""
    holders = (mount for mount in mounts if path == mount or path.startswith(mount.rstrip("/") + "/"))
    return max(holders, key=len, default="/")


# -- network -----------------------------------------------------------------------------------------------------------


def _addresses(host: Host) -> dict[str, list[str]]:
    """`{interface: [cidr]}` of `ip -j addr`."""
    try:
        links = json.loads(host.command("ip", "-j", "addr").text)
        return {
            link["ifname"]: [f"{item['local']}/{item['prefixlen']}" for item in link["addr_info"] if "local" in item]
            for link in links
            if "ifname" in link and "addr_info" in link
        }
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}


def _link_name(path: Path) -> str | None:
    """The last component of where a sysfs link points (a driver, a subsystem)."""
    try:
        return os.readlink(path).rpartition("/")[2]  # noqa: PTH115  # Path.readlink() would build a path only to split it
    except OSError:
        return None


def _pci_address(device: Path) -> str | None:
    """The PCI function that a sysfs device stands on; virtio devices stand one step above theirs."""
    parts = [part for part in Path(os.path.realpath(device)).parts if _PCI_ADDRESS.match(part)]
    return parts[-1] if parts else None


def _interfaces(host: Host) -> list[Facts]:
    addresses = _addresses(host)
    interfaces = []
    for name in host.names("/sys/class/net"):
        base = f"/sys/class/net/{name}"
        if name == "lo" or not host.path(base).is_dir():  # bonding_masters is a file
            continue
        carrier = host.number(f"{base}/carrier")  # EINVAL, hence None, while the interface is administratively down
        speed = host.number(f"{base}/speed")
        interfaces.append(
            {
                "name": name,
                "mac": host.read(f"{base}/address"),
                "mtu": host.number(f"{base}/mtu"),
                "carrier": None if carrier is None else carrier == 1,
                "operstate": host.read(f"{base}/operstate"),
                "driver": _link_name(host.path(f"{base}/device/driver")),
                "addresses": addresses.get(name, []),
                "phys_port_name": host.read(f"{base}/phys_port_name"),
                "pci": _pci_address(host.path(f"{base}/device")),
                "speed_mbps": speed if speed and speed > 0 else None,  # -1 stands for "unknown"
                "lower": lower_interfaces(name, host.names),
            }
        )
    return interfaces


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


def lifelines(facts: Mapping[str, Any]) -> dict[str, list[str]]:
    """`{interface: [what it carries]}` of all interfaces that we would cut ourselves off with."""
    below = {item["name"]: item.get("lower") or [] for item in facts.get("interfaces") or []}
    uses = [((facts.get("ssh") or {}).get("interface"), "this very SSH session")]
    uses += [(name, "the default route") for name in facts.get("default_route_interfaces") or []]
    found: dict[str, list[str]] = {}
    for name, use in uses:
        if name:
            found.setdefault(name, []).append(use)
        for lower in below.get(name, ()):
            found.setdefault(lower, []).append(f"{use} (below {name})")
    return found


def _rails(host: Host, interfaces: Sequence[Facts]) -> list[Facts]:
    """RDMA devices joined to their netdevs, sorted by port and twin."""
    by_name = {interface["name"]: interface for interface in interfaces}
    rails = []
    for hca in host.names("/sys/class/infiniband"):
        for hca_port in host.names(f"/sys/class/infiniband/{hca}/ports"):
            interface = by_name.get(_rail_netdev(host, hca, hca_port) or "")
            if interface is None:
                continue
            state = host.read(f"/sys/class/infiniband/{hca}/ports/{hca_port}/state")  # "4: ACTIVE"
            shared = {key: interface[key] for key in ("carrier", "mtu", "driver", "pci", "addresses")}
            rails.append(
                {
                    "netdev": interface["name"],
                    "hca": hca,
                    "hca_port": int(hca_port) if hca_port.isdigit() else None,
                    "port": port_of(interface["name"], interface["phys_port_name"]),
                    "twin_index": None,
                    **shared,
                    "state": state.rpartition(":")[2].strip() if state else None,
                }
            )
    return number_twins(rails)


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


def _routes(host: Host) -> list[Facts]:
    """IPv4 routes of the main table, with the default ones."""
    routes = []
    for line in (host.read("/proc/net/route") or "").splitlines()[1:]:
        columns = line.split()  # Iface Destination Gateway Flags RefCnt Use Metric Mask ...
        with contextlib.suppress(ValueError, IndexError):
            destination, mask = (ipaddress.IPv4Address(_native(columns[place])) for place in (1, 7))
            routes.append({"interface": columns[0], "cidr": str(ipaddress.IPv4Network(f"{destination}/{mask}"))})
    return routes


def _native(text: str) -> int:
    """The kernel prints a big-endian address as a number of the machine; Sparks are little-endian."""
    return int.from_bytes(bytes.fromhex(text), "little")


def _default_route_interfaces(host: Host, routes: Sequence[Facts]) -> list[str]:
    """Interfaces of the main table's default routes, IPv4 and IPv6."""
    names = [route["interface"] for route in routes if route["cidr"] == DEFAULT_ROUTE]
    for line in (host.read("/proc/net/ipv6_route") or "").splitlines():
        columns = line.split()  # destination prefix source prefix next-hop metric references use flags interface
        if len(columns) == 10 and columns[0] == "0" * 32 and columns[1] == "00" and columns[9] != "lo":
            names.append(columns[9])
    return sorted(set(names))


def _ssh(host: Host, interfaces: Sequence[Facts]) -> Facts:
    """The connection that carries this call. sudo strips SSH_CONNECTION, so the ancestors are asked too."""
    connection = host.environ.get("SSH_CONNECTION") or _ancestors_ssh_connection(host)
    parts = (connection or "").split()
    if len(parts) != 4:
        return {"interface": None, "local_address": None, "peer_address": None}
    peer, local = _plain_address(parts[0]), _plain_address(parts[2])
    carriers = (item["name"] for item in interfaces if local in (cidr.partition("/")[0] for cidr in item["addresses"]))
    return {"interface": next(carriers, None), "local_address": local, "peer_address": peer}


def _ancestors_ssh_connection(host: Host) -> str | None:
    pid = host.pid
    for _ in range(MAX_ANCESTORS):
        stat = host.read(f"/proc/{pid}/stat") or ""
        after_name = stat.rpartition(")")[2].split()  # the command's name may hold spaces and brackets
        if len(after_name) < 2 or not after_name[1].isdigit() or after_name[1] == "0":
            return None
        pid = int(after_name[1])
        for entry in (host.read(f"/proc/{pid}/environ") or "").split("\0"):
            if entry.startswith("SSH_CONNECTION="):
                return entry.partition("=")[2]
    return None


def _plain_address(text: str) -> str:
    """Without zone, and IPv4 out of its IPv6 clothes."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return text
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


# -- GPU, driver, packages, Docker -------------------------------------------------------------------------------------


def _gpu(host: Host) -> Facts:
    """Temperature in degrees Celsius, power in watts (the GPU's alone). Memory is [N/A] on a GB10: use memory_bytes."""
    query = ["--query-gpu=name,driver_version,temperature.gpu,power.draw", "--format=csv,noheader,nounits"]
    output = host.command("nvidia-smi", *query, deadline_s=GPU_DEADLINE_S)
    row = next((line.split(",") for line in output.text.splitlines() if line.count(",") == 3), None)
    found = output.error is None and row is not None
    cells = [None if "N/A" in cell or "Not" in cell else cell.strip() for cell in row] if found and row else [None] * 4
    return {
        "present": found,
        "name": cells[0],
        "driver": cells[1],
        "temperature_c": _decimal(cells[2]),
        "power_w": _decimal(cells[3]),
        "query_error": None if found else output.error or "nvidia-smi listed no GPU",
    }


def _decimal(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _driver(host: Host, installed: Mapping[str, str]) -> Facts:
    modinfo = host.command("modinfo", "nvidia").text  # of the running kernel
    on_disk = re.search(r"^version:\s+(\S+)", modinfo, re.MULTILINE)
    license_ = re.search(r"^license:\s+(.+?)\s*$", modinfo, re.MULTILINE)
    loaded = _DRIVER_VERSION.search((host.read("/proc/driver/nvidia/version") or "").partition("\n")[0])
    return {
        "userland": _userland(host, installed),
        "module_on_disk": on_disk[1] if on_disk else None,
        "module_loaded": loaded[1] if loaded else None,
        "license": license_[1] if license_ else None,
    }


def _userland(host: Host, installed: Mapping[str, str]) -> str | None:
    for pattern in _USERLAND:
        for name, version in sorted(installed.items()):
            found = _DRIVER_VERSION.search(version) if re.match(pattern, name) else None
            if found:
                return found[1]
    # A driver of the .run installer is in no package: its library's name tells.
    libraries = host.path("/usr/lib").glob("*-linux-gnu/libcuda.so.*.*")
    return next((str(path).partition(".so.")[2] for path in sorted(libraries)), None)


def _package_states(host: Host) -> dict[str, tuple[str, str, str]]:
    """`{package: (version, want, status)}` of the whole dpkg database."""
    line_format = "${Package}\\t${Version}\\t${db:Status-Want}\\t${db:Status-Status}\\n"
    rows = (line.split("\t") for line in host.command("dpkg-query", "-W", "-f", line_format).text.splitlines())
    return {row[0]: (row[1], row[2], row[3]) for row in rows if len(row) == 4}


def _apt(host: Host, states: Mapping[str, tuple[str, str, str]]) -> Facts:
    holder = _apt_lock_holder(host)
    # While somebody works, half-done is normal.
    return {"lock_held_by": holder, "dpkg_interrupted": holder is None and _dpkg_interrupted(host, states)}


def _apt_lock_holder(host: Host) -> int | None:
    """The process that holds a lock of apt or dpkg; the kernel is asked, nothing is locked."""
    for lock in ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/lib/apt/lists/lock"):
        try:
            with host.path(lock).open("rb") as file:
                query = struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)  # struct flock of 64-bit Linux
                kind, _whence, _start, _length, pid = struct.unpack("hhqqi0q", fcntl.fcntl(file, fcntl.F_GETLK, query))
        except (OSError, ValueError):
            continue
        if kind != fcntl.F_UNLCK:
            return int(pid)
    return None


def _dpkg_interrupted(host: Host, states: Mapping[str, tuple[str, str, str]]) -> bool:
    """Whether apt would refuse to work before `dpkg --configure -a`."""
    journal = any(name.isdigit() for name in host.names("/var/lib/dpkg/updates"))
    halfway = {"half-installed", "half-configured", "unpacked"}
    return journal or any(status in halfway for _version, _want, status in states.values())


def _docker(host: Host, installed: Mapping[str, str]) -> Facts:
    package = next((installed[name] for name in ("docker-ce", "docker.io") if name in installed), None)
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
    output = host.command("docker", "info", "--format", "{{.ServerVersion}} {{.CgroupDriver}}")
    version, _, cgroup_driver = output.text.strip().partition(" ")
    if output.error or not version:
        return {**facts, "running": True}
    return {"present": True, "version": version, "running": True, "cgroup_driver": cgroup_driver or None}


def upstream_version(package_version: str) -> str:
    """`29.2.1` of `5:29.2.1-1~ubuntu.24.04~noble`: without epoch and packaging revision."""
    return package_version.rpartition(":")[2].partition("-")[0]
