# SPDX-License-Identifier: GPL-3.0-or-later
"""ufw and firewalld where they are on: what they do with a connection that no rule names, and what their rules let in.

Their files are read: `ufw status` and `firewall-cmd` take half a second each, and say the same.
"""

from __future__ import annotations

import re
from typing import TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader

UFW, FIREWALLD = "ufw", "firewalld"
ANY = "any"
# ### tuple ### allow tcp 8443 0.0.0.0/0 any 192.0.2.0/24 in_eth0   (an application's name may stand before the end)
_TUPLE = re.compile(
    r"### tuple ### (?:allow|limit)\S* (\w+) (\S+) \S+ \S+ (\S+) (?:\S+ \S+ )?in(?:_(\S+))?(?: comment=\S+)?$",
    re.MULTILINE,
)
_PORT = re.compile(r"<port\b[^>]*>")
_INTERFACE = re.compile(r"<interface\b[^>]*>")
_ATTRIBUTE = r"{}=\"([^\"]*)\""
_RUNNING = "/run/systemd/units/invocation:firewalld.service"  # systemd keeps a link of this name while the unit is up
_ZONES = ("/etc/firewalld/zones", "/usr/lib/firewalld/zones")  # the first one that has a zone counts
_MOST_RULES = 1000


class Allowed(TypedDict):
    ports: str
    protocol: str
    interface: str
    source: str


class HostFirewall(TypedDict):
    name: str
    default: str
    allowed: list[Allowed]


def read_firewalls(host: HostReader) -> list[HostFirewall]:
    """Those that are on."""
    return [*_ufw(host), *_firewalld(host)]


def _ufw(host: HostReader) -> list[HostFirewall]:
    enabled = re.search(r"^ENABLED=[\"']?yes", host.read("/etc/ufw/ufw.conf") or "", re.MULTILINE | re.IGNORECASE)
    if not enabled:
        return []
    said = re.search(r"^DEFAULT_INPUT_POLICY=[\"']?(\w+)", host.read("/etc/default/ufw") or "", re.MULTILINE)
    rules = host.system.text("/etc/ufw/user.rules") or ""
    allowed = [
        _allowed(ports, protocol, interface or ANY, ANY if source in ("0.0.0.0/0", "::/0") else source)
        for protocol, ports, source, interface in _TUPLE.findall(rules)[:_MOST_RULES]
    ]
    return [{"name": UFW, "default": said[1].lower() if said else "drop", "allowed": allowed}]


def _firewalld(host: HostReader) -> list[HostFirewall]:
    if not host.path(_RUNNING).is_symlink():
        return []
    said = re.search(r"^DefaultZone=(\S+)", host.read("/etc/firewalld/firewalld.conf") or "", re.MULTILINE)
    default = said[1] if said else "public"
    zones = {name for folder in _ZONES for name in host.names(folder) if name.endswith(".xml")}
    texts = {name[:-4]: _zone(host, name) for name in sorted(zones)}
    allowed = [rule for zone, text in texts.items() for rule in _of_a_zone(text, zone == default)]
    target = "accept" if _accepts(texts.get(default, "")) else "reject"
    return [{"name": FIREWALLD, "default": target, "allowed": allowed[:_MOST_RULES]}]


def _zone(host: HostReader, name: str) -> str:
    return next((text for folder in _ZONES if (text := host.read(f"{folder}/{name}"))), "")


def _of_a_zone(text: str, everywhere: bool) -> list[Allowed]:
    """What a zone lets in by its interfaces; the default one by all that no other zone has."""
    named = [name for tag in _INTERFACE.findall(text) if (name := _attribute(tag, "name"))]
    rules = [
        _allowed(_attribute(tag, "port"), _attribute(tag, "protocol"), interface, ANY)
        for interface in [*named, *([ANY] if everywhere else [])]
        for tag in _PORT.findall(text)
    ]
    if _accepts(text):
        rules += [_allowed(ANY, ANY, interface, ANY) for interface in named]
    return rules


def _accepts(text: str) -> bool:
    return re.search(r"<zone\b[^>]*target=\"ACCEPT\"", text) is not None


def _attribute(tag: str, name: str) -> str:
    found = re.search(_ATTRIBUTE.format(name), tag)
    return found[1] if found else ""


def _allowed(ports: str, protocol: str, interface: str, source: str) -> Allowed:
    return {"ports": ports.replace(":", "-"), "protocol": protocol, "interface": interface, "source": source}
