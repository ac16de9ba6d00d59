# SPDX-License-Identifier: GPL-3.0-or-later
"""The GID tables as plain data, and as tables for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.fabric.gid_remarks import (
    ABSENT,
    DeclaredRail,
    Remark,
    find_rail,
    remarks,
)
from ansible_collections.gb10.fleet.plugins.module_utils.fabric.gids import HcaPort, addresses, port_name, twins
from ansible_collections.gb10.fleet.plugins.module_utils.fabric.nccl_choice import nccl_choice


def describe(
    hcas: Sequence[HcaPort], address_range: str | None = None, rails: Sequence[DeclaredRail] = ()
) -> dict[str, Any]:
    """Return everything as plain data: ports, gids, twins, NCCL's choice, declared rails, remarks, and a table."""
    behind = twins(hcas)
    ports = [_port_data(hca, behind) for hca in hcas]
    selected = {f"{hca.device}:{hca.port}": _selected(hca, address_range) for hca in hcas}
    found = remarks(hcas, address_range, rails)
    located = [find_rail(hcas, rail, address_range) for rail in rails]
    return {
        "present": bool(hcas),
        "ports": ports,
        "gids": [{"device": hca.device, "port": hca.port, **vars(gid)} for hca in hcas for gid in hca.gids],
        "twins": [
            {"port": name, "devices": [hca.device for hca in functions], "netdevs": [hca.netdev for hca in functions]}
            for name, functions in behind
        ],
        "selected": selected,
        "rails": [{**vars(rail), "agrees": rail.agrees} for rail in located],
        "by_address": _by_address(hcas),
        "remarks": [vars(remark) for remark in found],
        "stdout_lines": [*table(hcas), *_port_table(ports, selected), *_remark_lines(found)],
    }


def _port_data(hca: HcaPort, behind: Sequence[tuple[str, list[HcaPort]]]) -> dict[str, Any]:
    data = {name: value for name, value in vars(hca).items() if name != "gids"}
    rail = twin = None
    for name, functions in behind:
        if hca in functions:
            rail = f"{name}/{functions.index(hca)}"
            others = [other.device for other in functions if other is not hca]
            twin = others[0] if len(others) == 1 else None
    more = {"port_name": port_name(hca), "rail": rail, "twin": twin, "addresses": addresses(hca)}
    return {**data, "netdevs": list(hca.netdevs), "subnets": list(hca.subnets), **more}


def _selected(hca: HcaPort, address_range: str | None) -> dict[str, Any]:
    unbound = vars(nccl_choice(hca.gids, None, hca.link_layer))
    bound = vars(nccl_choice(hca.gids, address_range, hca.link_layer)) if address_range else None
    return {"default": unbound, "in_range": bound}


def _by_address(hcas: Sequence[HcaPort]) -> dict[str, dict[str, dict[str, str | int]]]:
    found: dict[str, dict[str, dict[str, str | int]]] = {}
    for hca in hcas:
        for gid in hca.gids:
            if gid.ipv4 and gid.roce_version:
                entry: dict[str, str | int] = {"device": hca.device, "port": hca.port, "index": gid.index}
                found.setdefault(gid.ipv4, {})[f"v{gid.roce_version}"] = entry
    return found


TABLE = "{:<14} {:>4} {:>5}  {:<39}  {:<15}  {:<6}  {:<7}  {}"
PORT_TABLE = "{:<14} {:>4}  {:<15}  {:<6}  {:<7}  {:>8}  {:>6}  {:>8}  {:<12}  {}"


def table(hcas: Sequence[HcaPort]) -> list[str]:
    """The table of the classic tool, with columns that do not move. A dash: this GID is no IPv4 address."""
    lines = [TABLE.format("DEV", "PORT", "INDEX", "GID", "IPv4", "VER", "SCOPE", "NETDEV")]
    for hca in hcas:
        for gid in hca.gids:
            version = f"v{gid.roce_version}" if gid.roce_version else ABSENT
            row = (hca.device, hca.port, gid.index, gid.gid, gid.ipv4 or "-", version, gid.scope, gid.netdev or ABSENT)
            lines.append(TABLE.format(*row))
    return [*lines, f"{len(lines) - 1} GIDs on {len(hcas)} ports"]


def _port_table(ports: Sequence[Mapping[str, Any]], selected: Mapping[str, Any]) -> Iterator[str]:
    """A line for each port, with the index that NCCL would take; Gb/s, bytes, PCIe lanes of maximum."""
    if ports:
        yield ""
        yield PORT_TABLE.format(
            "DEV", "PORT", "NETDEV", "RAIL", "STATE", "Gb/s", "MTU", "ROCE-MTU", "PCIE", "NCCL TAKES"
        )
    for port in ports:
        choices = selected[f"{port['device']}:{port['port']}"]
        choice = choices["in_range"] or choices["default"]
        lanes = [f"x{width}" if width else ABSENT for width in (port["pcie_width"], port["pcie_max_width"])]
        shown = [
            ABSENT if value is None else value
            for value in (port["netdev"], port["rail"], port["state"], port["rate_gbps"], port["mtu"], port["ib_mtu"])
        ]
        pcie = ABSENT if lanes == [ABSENT, ABSENT] else " of ".join(lanes)
        takes = f"index {choice['index']}, {choice['address']}" if choice["address"] else "no IPv4 GID"
        yield PORT_TABLE.format(port["device"], port["port"], *shown, pcie, takes)


def _remark_lines(found: Sequence[Remark]) -> list[str]:
    lines = [f"! {remark.where}: {remark.text}; {remark.way_out}" for remark in found]
    return ["", *lines] if lines else []
