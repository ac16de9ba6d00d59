"""The files of a seed: cloud-init's three, the installer's one, and those of the volume OEMDATA. Pure."""

from __future__ import annotations

import hashlib
import secrets
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

from gb10_fleet.seed.settings import OFF, Host

NOCLOUD, OEMDATA, AUTOINSTALL = "nocloud", "oemdata", "autoinstall"
WAYS = (NOCLOUD, OEMDATA, AUTOINSTALL)
PICKED = "hosts"  # the folder of one stick for many hosts, by MAC and serial
_CRYPT = string.ascii_letters + string.digits + "./"
_PICK = Path(__file__).with_name("pick.sh")


@dataclass(frozen=True)
class HostKey:
    """The SSH host key of one host, made before the host is."""

    private: str = field(repr=False)
    public: str  # type and key, without a comment

    @property
    def blob(self) -> str:
        return self.public.split()[1]


class _Dumper(yaml.SafeDumper):
    """Writes YAML as a person would: lists one step in, texts of several lines as they are."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> Any:
        return super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def _dumped(content: Mapping[str, Any]) -> str:
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=10_000, explicit_start=True)


def files(host: Host, key: HostKey, way: str) -> dict[str, str]:
    """The files of one host, by their names on its stick."""
    user_data = _user_data(host, key)
    meta_data = {
        "instance-id": f"{host.name}-{hashlib.sha256(key.blob.encode()).hexdigest()[:12]}",
        "local-hostname": host.name,
    }
    if way == AUTOINSTALL:
        return {"user-data": _config({"autoinstall": _autoinstall(host, user_data)}), "meta-data": _dumped(meta_data)}
    found = {
        "user-data": _config(user_data),
        "meta-data": _dumped(meta_data),
        "network-config": _dumped(_network(host)),
    }
    return {**found, **_oemdata(host)} if way == OEMDATA else found


def shared(hosts: Sequence[tuple[Host, Mapping[str, str]]]) -> dict[str, str]:
    """One stick for many hosts: each machine finds its own folder by MAC and serial, and starts again with it."""
    found = {
        "user-data": _config(
            {
                "preserve_hostname": True,
                "users": [],
                "ssh_deletekeys": False,
                "bootcmd": [["sh", "-c", _PICK.read_text(encoding="utf-8")]],
            }
        ),
        "meta-data": _dumped({"instance-id": "gb10-seed-pick"}),
    }
    for host, own in hosts:
        names = [f"mac-{host.mac.replace(':', '')}"] if host.mac else []
        names += [f"serial-{host.serial}"] if host.serial else []
        # A host with both is told by both: what does not fit is another machine.
        found |= {f"{PICKED}/{'_'.join(names)}/{name}": text for name, text in own.items()}
    return found


def _config(content: Mapping[str, Any]) -> str:
    return f"#cloud-config\n{_dumped(content)}"  # cloud-init knows it by this very first line


def _user_data(host: Host, key: HostKey) -> dict[str, Any]:
    """What makes the host: its name, its one user, its own host key."""
    system = host.system
    rule = "ALL=(ALL:ALL) ALL" if host.password_hash else "ALL=(ALL:ALL) NOPASSWD:ALL"
    user = {
        "name": host.user,
        "gecos": host.user,
        "groups": ["sudo"],
        "shell": "/bin/bash",
        # A user with a password skips the wizard of the first boot. Nobody knows this one, unless the owner does.
        "lock_passwd": False,
        "passwd": host.password_hash or _nobody_knows(),
        "sudo": [rule],
        "ssh_authorized_keys": [*host.keys],
    }
    found: dict[str, Any] = {
        "hostname": host.name,
        "preserve_hostname": False,
        "manage_etc_hosts": "localhost",
        "users": [user],
        "disable_root": True,
        "ssh_pwauth": False,
        "ssh_deletekeys": True,  # those of the factory may be other Sparks' too (CVE-2026-24218)
        "ssh_keys": {"ed25519_private": key.private, "ed25519_public": f"{key.public} {host.name}"},
    }
    if system.timezone:
        found["timezone"] = system.timezone
    if system.ntp:
        found["ntp"] = {"enabled": True, "servers": [*system.ntp]}
    if apt := _apt(host):
        found["apt"] = apt
    if system.packages:
        found |= {"package_update": True, "packages": [*system.packages]}
    if system.proxy:
        found["write_files"] = [{"path": "/etc/environment", "content": _environment(host), "append": True}]
    if system.telemetry == OFF:
        found["runcmd"] = [["systemctl", "mask", "--now", catalog.load("seeds")["telemetry_unit"]["value"]]]
    return found


def _nobody_knows() -> str:
    """A hash of the right form that is of no known password."""

    def word(length: int) -> str:
        return "".join(secrets.choice(_CRYPT) for _ in range(length))

    return f"$6${word(16)}${word(86)}"


def _apt(host: Host) -> dict[str, Any]:
    system = host.system
    found: dict[str, Any] = {"http_proxy": system.proxy, "https_proxy": system.proxy} if system.proxy else {}
    if system.apt_mirror:
        found["primary"] = [{"arches": ["default"], "uri": system.apt_mirror}]
    return found


def _environment(host: Host) -> str:
    pairs = {"http_proxy": host.system.proxy, "https_proxy": host.system.proxy, "no_proxy": host.system.no_proxy}
    return "".join(f"{name}={value}\n{name.upper()}={value}\n" for name, value in pairs.items() if value)


def _network(host: Host) -> dict[str, Any]:
    network = host.network
    port: dict[str, Any] = {"match": {"macaddress": host.mac}} if host.mac else {}
    if network.address is None:
        port["dhcp4"] = True
    else:
        port |= {"dhcp4": False, "addresses": [network.address]}
        if network.gateway:
            port["routes"] = [{"to": "default", "via": network.gateway}]
        if network.dns:
            port["nameservers"] = {"addresses": [*network.dns]}
    # Netplan knows `match: name`, too. Where there is no netplan, cloud-init takes the key for the interface's name.
    return {"version": 2, "ethernets": {"management" if host.mac else network.interface: port}}


def _autoinstall(host: Host, user_data: Mapping[str, Any]) -> dict[str, Any]:
    """For the installer over the network. It chooses the disk itself, and erases it."""
    found: dict[str, Any] = {
        "version": 1,
        "interactive-sections": [],
        "network": _network(host),
        "ssh": {"install-server": True, "allow-pw": False},
        "user-data": dict(user_data),
    }
    return found | ({"proxy": host.system.proxy} if host.system.proxy else {})


def _oemdata(host: Host) -> dict[str, str]:
    """The text files that NVIDIA's first boot reads of its volume."""
    names = catalog.load("seeds")["oemdata_files"]
    said: dict[str, Sequence[str]] = {
        "apt_mirror": [host.system.apt_mirror] if host.system.apt_mirror else [],
        "packages": host.system.packages,
        "lvfs_mirror": [host.system.lvfs_mirror] if host.system.lvfs_mirror else [],
    }
    return {str(names[key]): "".join(f"{line}\n" for line in lines) for key, lines in said.items() if lines}
