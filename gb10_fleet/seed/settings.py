"""What the inventory says of the hosts that are to be seeded, checked field by field. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.names import nearest

KEPT, OFF = "keep", "off"  # NVIDIA's telemetry
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}\Z")
_MAC = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}\Z")
_SERIAL = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
# Without what ends a line to cloud-init, which is Python: VT, FF, NEL and their like.
_PUBLIC_KEY = re.compile(r"(sk-)?(ssh|ecdsa)-[a-z0-9@.-]+ [A-Za-z0-9+/]+={0,2}( [^\x00-\x1f\x7f-\x9f\u2028\u2029]*)?\Z")
_HASH = re.compile(r"\$[a-z0-9]+\$[^\s:]+\Z")
_URL = re.compile(r"https?://[^\s'\"]+\Z")
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]*[a-z0-9+.]\Z")  # with - at its end apt would remove it
_NO_PROXY = re.compile(r"[A-Za-z0-9.,:/*_\[\]-]+\Z")  # a line of /etc/environment
_WORD = re.compile(r"[A-Za-z0-9._:/+-]+\Z")  # time zone, server, interface


class WrongSetting(ValueError):
    """A setting of which no seed can be made; the text names host, field, fact and fix."""


@dataclass(frozen=True)
class Network:
    """The management network of a host; without an address it asks DHCP."""

    interface: str
    address: str | None = None  # with its prefix
    gateway: str | None = None
    dns: Sequence[str] = ()


@dataclass(frozen=True)
class System:
    """What is the same on many hosts."""

    timezone: str = ""
    ntp: Sequence[str] = ()
    proxy: str = ""
    no_proxy: str = ""
    apt_mirror: str = ""
    lvfs_mirror: str = ""
    packages: Sequence[str] = ()
    telemetry: str = KEPT


@dataclass(frozen=True)
class Host:
    """All that goes into the seed of one host, but for its keys."""

    name: str
    user: str
    keys: Sequence[str]
    network: Network
    system: System = field(default_factory=System)
    password_hash: str | None = field(default=None, repr=False)
    mac: str | None = None
    serial: str | None = None
    address: str | None = None  # where the inventory has it; None: wherever DHCP puts it
    port: int = 22


def host(name: str, said: Mapping[str, Any], keys: Sequence[str], interface: str) -> Host:
    """One host out of what the inventory says. `keys`, `interface`: what holds where it says nothing."""
    _hold(NAME, name, name, "its name", "lower case letters, digits and dashes, 63 at most: it becomes the host name")
    user = str(said["user"])
    _hold(USER, user, name, "ansible_user", "name the user that the seed makes, as in ansible_user: nvidia")
    if user == "root":
        raise WrongSetting(f"{name}: ansible_user is root; the seed makes a user with sudo: ansible_user: nvidia")
    public = [str(key).strip() for key in said["keys"] or keys]
    if not public:
        raise WrongSetting(
            f"{name}: gb10_seed_keys is empty, and ~/.ssh has no public key; nobody could log in. "
            "Set gb10_seed_keys to the lines of your .pub files, or make one with ssh-keygen"
        )
    for key in public:
        _hold(_PUBLIC_KEY, key, name, "gb10_seed_keys", "one line of a .pub file each", "no public key")
    hashed = str(said["password_hash"] or "")
    if hashed:
        _hold(_HASH, hashed, name, "gb10_seed_password_hash", "a hash, as `openssl passwd -6` prints it", "no hash")
    for key in ("mac", "serial"):
        if said[key] and not isinstance(said[key], str):
            raise WrongSetting(f"{name}: gb10_seed_{key} is a number to YAML, {said[key]}; write it in quotes")
    mac = str(said["mac"]).lower() if said["mac"] else None
    if mac:
        _hold(_MAC, mac, name, "gb10_seed_mac", "six pairs, as 48:b0:2d:00:00:01")
    serial = str(said["serial"]) if said["serial"] else None
    if serial:
        _hold(_SERIAL, serial, name, "gb10_seed_serial", "as it stands on the carton")
    network = _network(name, said["network"] or {}, str(said["address"] or ""), interface)
    system = _system(name, said["system"] or {})
    address = str(said["address"]) or None
    return Host(name, user, public, network, system, hashed or None, mac, serial, address, int(said["port"] or 22))


def _hold(form: re.Pattern[str], text: str, name: str, where: str, wanted: str, shown: str = "") -> None:
    if not form.match(text):
        raise WrongSetting(f"{name}: {where} is {shown or repr(text)}; write {wanted}")


def _known(name: str, where: str, said: Any, fields: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(said, Mapping):
        raise WrongSetting(f"{name}: {where} is no dictionary; it has the keys {', '.join(fields)}")
    for key in said:
        if key not in fields:
            meant = nearest(str(key), fields)
            hint = f"did you mean {meant}?" if meant else f"it has the keys {', '.join(fields)}"
            raise WrongSetting(f"{name}: {where} has no key {key}; {hint}")
    return said


def _network(name: str, said: Any, address: str, interface: str) -> Network:
    said = _known(name, "gb10_seed_network", said, ("interface", "prefix", "gateway", "dns"))
    interface = str(said.get("interface", interface))
    _hold(_WORD, interface, name, "gb10_seed_network.interface", "the name of an interface, as enP7s7")
    if "prefix" not in said:
        if rest := [key for key in ("gateway", "dns") if key in said]:
            raise WrongSetting(
                f"{name}: gb10_seed_network has {rest[0]} and no prefix; DHCP brings all, or say prefix: 24"
            )
        return Network(interface)
    if not isinstance(said.get("dns", []), list):
        raise WrongSetting(f"{name}: gb10_seed_network.dns is no list; write addresses, one an entry")
    try:
        own = ipaddress.ip_interface(f"{ipaddress.ip_address(address)}/{int(said['prefix'])}")
        gateway = ipaddress.ip_address(str(said["gateway"])) if said.get("gateway") else None
        dns = [str(ipaddress.ip_address(str(one))) for one in said.get("dns", [])]
    except (ValueError, TypeError) as error:
        raise WrongSetting(
            f"{name}: gb10_seed_network with ansible_host {address or 'missing'}: {error}; with a prefix, "
            "ansible_host is the address of the host, and gateway and dns are addresses"
        ) from None
    if gateway and gateway not in own.network:
        raise WrongSetting(
            f"{name}: gb10_seed_network.gateway {gateway} is outside of {own.network}; correct one of them"
        )
    return Network(interface, str(own), str(gateway) if gateway else None, dns)


def _system(name: str, said: Any) -> System:
    said = _known(name, "gb10_seed_system", said, tuple(System.__dataclass_fields__))
    for key in ("proxy", "apt_mirror", "lvfs_mirror"):
        if said.get(key):
            _hold(_URL, str(said[key]), name, f"gb10_seed_system.{key}", "an address with http:// or https://")
    if said.get("no_proxy"):
        _hold(_NO_PROXY, str(said["no_proxy"]), name, "gb10_seed_system.no_proxy", "names with a comma between them")
    for key, form, wanted in (
        ("ntp", _WORD, "names or addresses of servers"),
        ("packages", _PACKAGE, "names of Debian packages"),
    ):
        if not isinstance(said.get(key, []), list):
            raise WrongSetting(f"{name}: gb10_seed_system.{key} is no list; write {wanted}, one an entry")
        for one in said.get(key, []):
            _hold(form, str(one), name, f"gb10_seed_system.{key}", wanted)
    if said.get("timezone"):
        _hold(_WORD, str(said["timezone"]), name, "gb10_seed_system.timezone", "a name as Europe/Berlin")
    # YAML reads a bare `off` as false.
    telemetry = OFF if said.get("telemetry") in (OFF, False) else str(said.get("telemetry", KEPT))
    if telemetry not in (KEPT, OFF):
        raise WrongSetting(f"{name}: gb10_seed_system.telemetry is {telemetry!r}; write {KEPT} or {OFF}")
    texts = {key: str(said.get(key) or "") for key in ("timezone", "proxy", "no_proxy", "apt_mirror", "lvfs_mirror")}
    ntp, packages = ([str(one) for one in said.get(key, [])] for key in ("ntp", "packages"))
    return System(**texts, ntp=ntp, packages=packages, telemetry=telemetry)


def refuse_twice(hosts: Sequence[Host], shared: bool) -> None:
    """Refuse two hosts with one address, MAC or serial; on one stick for all also a host that has neither of these."""
    for what, values in (
        ("address", {one.name: one.address and f"{one.address} port {one.port}" for one in hosts}),
        ("gb10_seed_mac", {one.name: one.mac for one in hosts}),
        ("gb10_seed_serial", {one.name: one.serial for one in hosts}),
    ):
        owners: dict[str, str] = {}
        for name, value in values.items():
            if value and owners.setdefault(value, name) != name:
                raise WrongSetting(f"{owners[value]}, {name}: both have the {what} {value}; correct one of them")
    nameless = [one.name for one in hosts if not (one.mac or one.serial)]
    if shared and nameless:
        raise WrongSetting(
            f"{', '.join(nameless)}: neither gb10_seed_mac nor gb10_seed_serial is set, and one stick for all hosts "
            "tells them by these (both are on the carton); set one, or make a stick for each host without --one-stick"
        )
