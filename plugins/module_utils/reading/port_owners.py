# SPDX-License-Identifier: GPL-3.0-or-later
"""Who claims a port, read from files: NetworkManager's keyfiles, netplan's YAML, and what systemd-networkd has taken.

A host has no YAML parser in its Python's standard library, and `netplan get` is slower than the rest of a probe. So a
netplan file is not understood but searched: it claims a port whose name, MAC or driver stands in it as a word, or whose
name matches a pattern in it. That misses nothing, in whatever style it is written; what it takes for a claim that is
none, a person sees by the file that is named. A profile that names no port (the usual DHCP profile) claims none: ours
has a higher priority, and is activated in its place.

Which `.network` file takes a port is networkd's own word, where it runs: a file may match by a path or a property of
udev, which stands in no file that we read. Its place is private to systemd (252 was measured); where it
says nothing, nobody claims.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.system.system import System

KEYFILES = ("/etc/NetworkManager/system-connections", "/run/NetworkManager/system-connections")
NETPLAN = ("/etc/netplan", "/run/netplan", "/lib/netplan")
# What netplan renders for NetworkManager; the YAML that it comes from is named instead.
_RENDERED = "/run/NetworkManager/system-connections/netplan-"
# NetworkManager makes these up, in memory, for a port that no profile claims.
_MADE_UP = r"/run/NetworkManager/system-connections/Wired connection [0-9]+\b"
NETWORKD = "networkd"
_NETWORKD_RUNS = "/run/systemd/units/invocation:systemd-networkd.service"
_NETWORKD_TOOK = r"(?m)^NETWORK_FILE=(/\S+)$"
# What netplan renders for networkd; named as its YAML.
_RENDERED_FOR_NETWORKD = "/run/systemd/network/10-netplan-"
_COMMENT = r"(?m)(^|\s)#.*$"
_WORD = r"[^\s,\[\]{}\"'&!|>]+"
_PATTERN = r"[|&]?(!?)([^\s,;]+)"  # of match.interface-name; `!` leaves names out
_UUID = r"(?i)\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
_RENDERER = r"\brenderer[\"']?\s*:\s*[\"']?(\w+)"
_KEPT_NAME = r"""(?s)\bnetworkmanager[\"']?\s*:.*?\bname[\"']?\s*:\s*[\"']?([^\"'\n]+)"""
_SWITCHED_OFF = r"(?i)connection\.autoconnect[\"']?\s*:\s*[\"']?(?:false|no)\b"


class PortOwner(TypedDict):
    interface: str
    file: str
    name: str | None
    uuid: str | None
    renderer: str | None


def read_owners(system: System, ports: Sequence[Mapping[str, Any]]) -> list[PortOwner]:
    """`{interface, file, name, uuid, renderer}` of every file that claims one of the ports (`{name, mac, driver}`).

    `name` is the profile's, also of one that NetworkManager keeps in netplan, else None; `renderer` is None for a
    keyfile, and networkd for its own `.network` files. What is switched off claims nothing.
    """
    owners: list[PortOwner] = []
    if not ports:
        return owners
    for path, text in _texts(system, KEYFILES, ""):
        if path.startswith(_RENDERED) or re.match(_MADE_UP, path):
            continue
        profile = read_keyfile(text)
        if profile.get("connection.autoconnect", "true").lower() in ("false", "no", "0"):
            continue
        for port in ports:
            if names(profile, port):
                name, uuid = profile.get("connection.id"), profile.get("connection.uuid")
                owners.append(_owner(port, path, name or path.rpartition("/")[2], uuid, None))
    plans = [(path, re.sub(_COMMENT, "", text)) for path, text in _texts(system, NETPLAN, ".yaml")]
    everywhere = next((found[1] for _path, text in plans for found in re.finditer(_RENDERER, text)), NETWORKD)
    for path, text in plans:
        for port in ports:
            if claims(text, port) and not re.search(_SWITCHED_OFF, text):
                renderer, uuids = re.search(_RENDERER, text), {each[0].lower() for each in re.finditer(_UUID, text)}
                uuid = uuids.pop() if len(uuids) == 1 else None  # of several profiles nobody can tell which it is
                kept = re.findall(_KEPT_NAME, text)  # NetworkManager's own profile, which nmcli deletes with its file
                name = kept[0] if len(kept) == 1 else None
                owners.append(_owner(port, path, name, uuid, renderer[1] if renderer else everywhere))
    owners += _taken_by_networkd(system, ports)
    return sorted(owners, key=lambda owner: (owner["interface"], owner["file"]))


def _taken_by_networkd(system: System, ports: Sequence[Mapping[str, Any]]) -> Iterator[PortOwner]:
    if not system.path(_NETWORKD_RUNS).is_symlink():  # what it said before it ended is still there
        return
    for port in ports:
        number = (system.text(f"/sys/class/net/{port['name']}/ifindex") or "").strip()
        found = re.search(_NETWORKD_TOOK, system.text(f"/run/systemd/netif/links/{number}") or "") if number else None
        if found and not found[1].startswith(_RENDERED_FOR_NETWORKD):
            yield _owner(port, found[1], None, None, NETWORKD)


def _owner(port: Mapping[str, Any], file: str, name: str | None, uuid: str | None, renderer: str | None) -> PortOwner:
    return {
        "interface": port["name"],
        "file": file,
        "name": name,
        "uuid": uuid.lower() if uuid else None,
        "renderer": renderer,
    }


def _texts(system: System, folders: Sequence[str], suffix: str) -> list[tuple[str, str]]:
    paths = [f"{folder}/{name}" for folder in folders for name in system.names(folder) if name.endswith(suffix)]
    return [(path, text) for path in paths if (text := system.text(path)) is not None]


def read_keyfile(text: str) -> dict[str, str]:
    """`section.key` -> value. Of a key that is set twice the last one counts, as for GLib."""
    profile, section = {}, ""
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
        elif line and not line.startswith(("#", ";")) and "=" in line:
            key, _sign, value = line.partition("=")
            profile[f"{section}.{key.strip()}"] = value.strip()
    return profile


def names(profile: Mapping[str, str], port: Mapping[str, Any]) -> bool:
    """Return whether a profile, as a keyfile or nmcli has it, is for this port by name, MAC or pattern."""
    if profile.get("connection.interface-name"):
        return bool(profile["connection.interface-name"] == port["name"])
    mac = profile.get("ethernet.mac-address") or profile.get("802-3-ethernet.mac-address") or ""
    if mac and mac.lower() == (port["mac"] or "").lower():
        return True
    patterns = re.findall(_PATTERN, profile.get("match.interface-name", ""))
    fitting = [sign for sign, pattern in patterns if fnmatch.fnmatchcase(port["name"], pattern)]
    return bool(fitting) and "!" not in fitting


def claims(text: str, port: Mapping[str, Any]) -> bool:
    """Return whether a netplan file (without comments) speaks of the port."""
    said = re.findall(_WORD, text)
    words = [word.rstrip(":") for word in said]
    if port["name"] in words or (port["mac"] and port["mac"].lower() in [word.lower() for word in words]):
        return True
    key = ""
    for place, word in enumerate(said):
        fitting = port.get(key) if key in ("driver", "name") else None
        if word.endswith(":"):
            key = words[place] or words[place - 1]  # a quoted one has its colon apart
        elif fitting and fnmatch.fnmatchcase(fitting, word):  # of a list each one
            return True
    return False
