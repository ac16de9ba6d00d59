"""A NetworkManager that keeps its profiles in memory."""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.engine.guard import FIRED
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Completed

from tests.support.fake_host import FakeHost, failed

P0, P0_TWIN = "enp1s0f0np0", "enP2p1s0f0np0"
UUID_P0, UUID_TWIN = "6f0c8f5e-8d44-5d0b-9b55-0d9a8b7f0001", "6f0c8f5e-8d44-5d0b-9b55-0d9a8b7f0002"


def rail(interface: str = P0, uuid: str = UUID_P0, address: str = "192.0.2.1/30", **more: Any) -> dict[str, Any]:
    return {
        "nm_profile": f"gb10-{interface}",
        "uuid": uuid,
        "interface": interface,
        "addresses": [address],
        "mtu": 9000,
        "consent": "fabric_allow_activation",
        **more,
    }


PAIR = [rail(), rail(P0_TWIN, UUID_TWIN, "192.0.2.5/30")]


class FakeNetworkManager:
    """Profiles, links and checkpoints, as nmcli, ip, busctl and sysfs show them."""

    def __init__(self, host: FakeHost) -> None:
        self.host = host
        self.profiles: dict[str, dict[str, str]] = {}
        self.addresses: dict[str, list[str]] = {}
        self.checkpoints: list[str] = []
        self.ended: list[str] = []
        self.keeps_mtu = False  # whether a link keeps the MTU of a profile that is gone
        for interface in (P0, P0_TWIN):
            self.link(interface)
        self.link("enP7s7", "198.51.100.7/24")
        host.on("nmcli --terse --fields UUID", self.listing)
        host.on("nmcli --terse --fields connection.uuid", self.details)
        host.on("nmcli connection add", self.add)
        host.on("nmcli connection modify", self.modify)
        host.on("nmcli connection delete", self.delete)
        host.on("nmcli --wait", self.up)
        host.on("ip link set dev", self.set_mtu)
        self.routes: list[dict[str, Any]] = []
        self.ways: dict[str, str] = {}  # `PEER from LOCAL` -> interface
        self.temporary: set[str] = set()
        host.on("ip -j address show", lambda argv, stdin: self.links())
        host.on("ip -j -batch -", self.ip)
        host.on(
            "busctl get-property", lambda argv, stdin: " ".join(["ao", str(len(self.checkpoints)), *self.checkpoints])
        )
        host.on("busctl call", self.busctl)
        host.on("nmcli --terse --fields DEVICE", self.devices)
        host.on("systemd-run", "")
        host.on("systemctl stop gb10-guard-", "")
        host.on("/bin/sh /run/gb10-fleet/guard/restore", self.restore)

    def restore(self, argv: list[str], stdin: str | None) -> str:
        """The script of the guard, where it finds nothing to do."""
        self.host.file(FIRED, "\n")
        return ""

    def devices(self, argv: list[str], stdin: str | None) -> str:
        active = {profile["device"]: identity for identity, profile in self.profiles.items() if profile["device"]}
        return "\n".join(f"{name}:connected:{active.get(name, '')}" for name in self.addresses)

    def delete(self, argv: list[str], stdin: str | None) -> str:
        interface = self.profiles.pop(argv[4])["device"]
        if interface:
            self.link(interface, mtu=9000 if self.keeps_mtu else 1500)
        return ""

    def set_mtu(self, argv: list[str], stdin: str | None) -> str:
        self.link(argv[4], *self.addresses[argv[4]], mtu=int(argv[6]))
        return ""

    def link(self, interface: str, *addresses: str, carrier: str = "1", mtu: int = 1500) -> None:
        self.host.file(f"/sys/class/net/{interface}/mtu", f"{mtu}\n")
        self.host.file(f"/sys/class/net/{interface}/carrier", f"{carrier}\n")
        self.host.file(f"/sys/class/net/{interface}/device/vendor", "0x15b3\n")
        self.addresses[interface] = list(addresses)

    def foreign(
        self, name: str, interface: str, device: str = "", autoconnect: str = "yes", filename: str = ""
    ) -> None:
        identity = name.replace("\n", "-").replace(":", "-")
        self.profiles[f"foreign-{identity}"] = {
            "connection.id": name,
            "connection.interface-name": interface,
            "connection.autoconnect": autoconnect,
            "device": device,
            "filename": filename or f"/etc/NetworkManager/system-connections/{name}",
        }

    def links(self) -> str:
        return json.dumps([self._link(name) for name in self.addresses])

    def _link(self, name: str) -> dict[str, Any]:
        addresses: list[dict[str, Any]] = []
        for cidr in self.addresses[name]:
            local, bits = cidr.split("/")
            flags = {"temporary": True} if cidr in self.temporary else {}
            addresses.append({"local": local, "prefixlen": int(bits), **flags})
        return {"ifname": name, "addr_info": addresses}

    def ip(self, argv: list[str], stdin: str | None) -> Completed:
        answers, rc = [], 0
        for line in (stdin or "").splitlines():
            if line == "address show":
                answers.append(self.links())
            elif line == "route show table all":
                answers.append(json.dumps(self.routes))
            elif way := self.ways.get(line.removeprefix("route get ")):
                answers.append(json.dumps([{"dst": "x", "dev": way}]))
            else:
                rc = 2
        return Completed(tuple(argv), rc, "\n".join([*answers, ""]), "RTNETLINK answers: Network is unreachable")

    def listing(self, argv: list[str], stdin: str | None) -> str:
        rows = [
            ":".join([identity, profile["device"], profile["filename"].replace(":", "\\:")])
            for identity, profile in self.profiles.items()
        ]
        return "\n".join(rows)

    def details(self, argv: list[str], stdin: str | None) -> str | Completed:
        blocks = []
        for identity in argv[argv.index("show") + 2 :: 2]:
            if identity not in self.profiles:
                return failed(f"Error: {identity} - no such connection profile.", 10)
            settings = {key: value for key, value in self.profiles[identity].items() if "." in key}
            blocks.append(
                "\n".join([f"connection.uuid:{identity}", *(f"{key}:{value}" for key, value in settings.items())])
            )
        return "\n\n".join(blocks)

    def add(self, argv: list[str], stdin: str | None) -> str:
        words = dict(zip(argv[3::2], argv[4::2], strict=True))
        identity = words.pop("connection.uuid")
        self.profiles[identity] = {
            "connection.id": words.pop("con-name"),
            "connection.interface-name": words.pop("ifname"),
            "device": "",
            "filename": "/run/NetworkManager/system-connections/netplan-NM-x",
            **words,
        }
        return ""

    def modify(self, argv: list[str], stdin: str | None) -> str:
        self.profiles[argv[4]].update(zip(argv[5::2], argv[6::2], strict=True))
        return ""

    def up(self, argv: list[str], stdin: str | None) -> str:
        identity, interface = argv[6], argv[8]
        for profile in self.profiles.values():
            if profile["device"] == interface:
                profile["device"] = ""
        profile = self.profiles[identity]
        profile["device"] = interface
        self.link(interface, *profile["ipv4.addresses"].split(", "), mtu=int(profile["802-3-ethernet.mtu"]))
        return ""

    def busctl(self, argv: list[str], stdin: str | None) -> str:
        method, arguments = argv[5], argv[7:]
        if method == "CheckpointCreate":
            self.checkpoints.append("/checkpoint/1")
            return 'o "/checkpoint/1"\n'
        if method == "CheckpointAdjustRollbackTimeout":
            return ""
        self.checkpoints.remove(arguments[0])
        self.ended.append(method)
        return "a{su} 0\n" if method == "CheckpointRollback" else ""

    def writes(self) -> list[str]:
        return [
            line
            for line in self.host.commands()
            if not any(word in line for word in (" show", "get-property", "ip -j -batch"))
        ]
