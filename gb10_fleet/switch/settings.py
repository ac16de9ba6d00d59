"""What the inventory says of a switch, and what the rails of the hosts on it say."""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import printable

from gb10_fleet.ending import told
from gb10_fleet.playbook import Order, Outcome, Report, run
from gb10_fleet.up.people import Stop

PLAYBOOK, READ, LLDP = "gb10.fleet.switch", "gb10.fleet.spark_facts", "lldp"
API_PORT, PLAIN_PORT = 8729, 8728
_LINES, _TEXT = 64, 120  # of what a host heard by LLDP
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
_KEYS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("model", "address", "user", "password_file", "apply_user", "apply_password_file"), (str,)),
    **{"port": (int,), "speed_gbps": (int,), "certificate": (str,), "plain": (bool,)},
}
_WRITTEN = {str: "a text, in quotes", int: "a number", bool: "true or false"}
_OPENS = {"password_file": "gb10_switch_password", "apply_password_file": "gb10_switch_apply_password"}


@dataclass(frozen=True)
class Account:
    """`secret` never leaves this process but for the switch."""

    user: str
    secret: str = field(repr=False)


@dataclass(frozen=True)
class Switch:
    """How a switch is reached. `address` is empty where nobody has named one."""

    model: str
    address: str
    port: int
    certificate: str
    plain: bool
    reader: Account | None
    writer: Account | None


@dataclass(frozen=True)
class Rail:
    """A cabled rail of a host, as the host says. `risen`: counters of errors and of ECN, first and last reading."""

    host: str
    netdev: str
    port: str
    mac: str
    mtu: int | None
    gbps: float | None
    carrier: bool | None
    at_s: float = 0.0
    counters: Mapping[str, int] | None = None
    risen: Mapping[str, tuple[int, int]] | None = None  # None: the counters were not read twice
    seconds: float = 0.0
    lldp: str | None = None

    @property
    def where(self) -> str:
        return f"{self.host} {self.netdev}"


@dataclass(frozen=True)
class Fleet:
    """The hosts on one switch, and what they need of it."""

    hosts: tuple[str, ...]
    mtu: int
    gbps: int
    switch: Switch
    consent: bool
    rails: tuple[Rail, ...]
    serving: tuple[str, ...]  # host and service


def read(order: Order) -> tuple[Fleet, Outcome, Report]:
    """Ask inventory and hosts; the settings come in a file that only this user can read, for a vault may be in it."""
    asks = {READ: "health", LLDP: "stdout_lines"}
    with tempfile.TemporaryDirectory(prefix="gb10-switch-") as folder:
        file = Path(folder, "hosts.json")
        variables = {**order.variables, "gb10_switch_file": str(file)}
        mine = Order(PLAYBOOK, order.inventories, order.limit, variables=variables, words=order.words, asks=asks)
        outcome, report = run(mine, quiet=True)
        if not file.exists():
            reason = "; ".join([*told(report), *report.errors]) or "it names no host"
            raise Stop(printable(reason), outcome if outcome is not Outcome.done else Outcome.failed)
        columns: Mapping[str, list[Any]] = json.loads(file.read_text(encoding="utf-8"))
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return fleet(rows, report.answers[READ], report.answers[LLDP]), outcome, report


def fleet(
    rows: Sequence[Mapping[str, Any]], said: Mapping[str, Mapping[str, Any]], heard: Mapping[str, Mapping[str, Any]]
) -> Fleet:
    """Return the hosts on the switch, and their cabled rails."""
    mine = [row for row in rows if row["topology"] == "switch"]
    if not mine:
        raise Stop(
            "no host has fabric_topology: switch; set it on those behind a switch (docs/switch.md), or correct --limit",
            Outcome.refused,
        )
    for key in ("switch", "mtu"):
        if any(row[key] != mine[0][key] for row in mine):
            name = "gb10_switch" if key == "switch" else "fabric_mtu"
            raise Stop(f"the hosts do not agree on {name}: name those of one switch with --limit", Outcome.refused)
    first = mine[0]
    own = first["switch"]
    switch = _switch(own, first)
    default = catalog.declared_variables().roles["fabric"]
    ports = {row["name"]: row["ports"] or default["fabric_ports"]["default"] for row in mine}
    rails = [rail for name in ports for rail in _rails(name, ports[name], said.get(name, {}), heard.get(name, {}))]
    busy = [
        f"{name} {service['name']}"
        for name in ports
        for service in said.get(name, {}).get("services", ())
        if service["state"] in ("active", "activating", "reloading")
    ]
    gbps = own.get("speed_gbps", int(catalog.load("thresholds")["thresholds"]["link_gbps"]["value"]))
    mtu = int(first["mtu"] or default["fabric_mtu"]["default"])
    return Fleet(tuple(ports), mtu, gbps, switch, all(r["consent"] for r in mine), tuple(rails), tuple(busy))


def _switch(own: Any, row: Mapping[str, Any]) -> Switch:
    keys = ", ".join(_KEYS)
    wrong = [] if isinstance(own, dict) else [f"gb10_switch is no dictionary; write the keys {keys}"]
    for key, value in own.items() if isinstance(own, dict) else ():
        if key not in _KEYS:
            wrong.append(f"gb10_switch.{key} is unknown; there are {keys}")
        elif type(value) not in _KEYS[key]:
            wrong.append(f"gb10_switch.{key} is {value!r}; write {_WRITTEN[_KEYS[key][0]]}")
        elif value == "":
            wrong.append(f"gb10_switch.{key} is empty; write it, or leave it out")
    for name in _OPENS.values():
        if not isinstance(row[name.removeprefix("gb10_switch_")] or "", str):
            wrong.append(f"{name} is no text; write it in quotes")
    if not str(row["mtu"] or 0).isdecimal():
        wrong.append(f"fabric_mtu is {row['mtu']!r}; write a number")
    known = catalog.load("switches")
    if not wrong and own:
        if own.get("model") not in known["switches"]:
            wrong.append(f"gb10_switch.model is {own.get('model')!r}; there are {', '.join(known['switches'])}")
        if str(own.get("speed_gbps", 200)) not in known["speed_words"]["value"]:
            wrong.append(f"gb10_switch.speed_gbps is {own['speed_gbps']}; there are 100 and 200")
        if not 0 < own.get("port", 1) < 2**16:
            wrong.append(f"gb10_switch.port is {own['port']}; write a TCP port")
    certificate = str(own.get("certificate", "")).replace(":", "").lower() if isinstance(own, dict) else ""
    if certificate and not _FINGERPRINT.fullmatch(certificate):
        wrong.append("gb10_switch.certificate is no SHA-256 fingerprint: 64 hexadecimal digits")
    if wrong:
        raise Stop(f"{wrong[0]}. Nothing was asked of the switch", Outcome.refused)
    plain = own.get("plain", False)
    return Switch(
        own.get("model", ""),
        own.get("address", ""),
        own.get("port", PLAIN_PORT if plain else API_PORT),
        certificate,
        plain,
        _account(own, "user", "password_file", row["password"]),
        _account(own, "apply_user", "apply_password_file", row["apply_password"]),
    )


def _account(own: Mapping[str, Any], user: str, file: str, secret: str) -> Account | None:
    """A vault's password, or that of a file that nobody else may read."""
    if user not in own:
        return None
    if not secret and file in own:
        path = Path(own[file]).expanduser()
        try:
            with path.open(encoding="utf-8", errors="replace") as stream:
                if stat.S_IMODE(os.fstat(stream.fileno()).st_mode) & 0o077:
                    raise Stop(f"{path} can be read by others; run: chmod 600 {path}", Outcome.refused)
                secret = stream.readline(4096).rstrip("\r\n")
        except OSError as error:
            raise Stop(f"gb10_switch.{file}: {path}: {error.strerror}", Outcome.refused) from None
    if secret and not secret.isascii():
        raise Stop(f"the password of gb10_switch.{user} has characters that are not ASCII", Outcome.refused)
    if not secret:
        raise Stop(
            f"gb10_switch.{user} has no password: {_OPENS[file]} in a vault, or gb10_switch.{file}", Outcome.refused
        )
    return Account(own[user], secret)


def _rails(host: str, ports: Sequence[str], said: Mapping[str, Any], heard: Mapping[str, Any]) -> list[Rail]:
    facts = said.get("ansible_facts", {}).get("gb10_spark", {})
    links = {one["name"]: one for one in facts.get("interfaces") or ()}
    samples = [
        (one["at_s"], {str(rail["netdev"]): rail for rail in one["rails"] or ()})
        for one in said.get("health", {}).get("samples", ())
    ]
    neighbours = _neighbours(heard.get("stdout_lines", ()))
    found = []
    for rail in facts.get("rails") or ():
        name = rail["netdev"]
        if rail["port"] not in ports:
            continue
        link = links.get(name, {})
        counts = [(at, own[name]["counters"]) for at, own in samples if name in own]
        now = samples[-1][1].get(name, {}) if samples else {}
        gbps = link["speed_mbps"] / 1000 if link.get("speed_mbps") else now.get("rate_gbps")
        mac = str(link.get("mac") or "").lower()
        one = Rail(host, name, rail["port"], mac, rail["mtu"], gbps, rail["carrier"], lldp=neighbours.get(name))
        readings = [replace(one, at_s=at, counters=own) for at, own in counts]
        found.append(since(*readings[:: len(readings) - 1]) if len(readings) > 1 else (readings or [one])[0])
    return found


def since(before: Rail, now: Rail) -> Rail:
    """The later reading, with what the error counters have risen by."""
    if before.counters is None or now.counters is None:
        return now
    names = catalog.load("thresholds")["error_counters"]["value"] + catalog.load("switches")["ecn_counters"]["value"]
    pairs = {name: (before.counters.get(name, 0), now.counters.get(name, 0)) for name in names}
    risen = {name: pair for name, pair in pairs.items() if pair[1] > pair[0]}
    return replace(now, risen=risen, seconds=max(0.0, now.at_s - before.at_s))


def both(before: Fleet, now: Fleet) -> Fleet:
    """The later reading of all hosts, compared with the one before it."""
    first = {(rail.host, rail.netdev): rail for rail in before.rails}
    rails = (since(first[key], rail) if (key := (rail.host, rail.netdev)) in first else rail for rail in now.rails)
    return replace(now, rails=tuple(rails))


def _neighbours(lines: Any) -> dict[str, str]:
    """By interface: name and port of what it heard, out of lines of nmcli, whose colons are escaped."""
    found = {}
    for line in list(lines)[:_LINES] if isinstance(lines, list) else ():
        fields = [part.replace("\\:", ":") for part in re.split(r"(?<!\\):", str(line)[: 4 * _TEXT])]
        if len(fields) == 3 and fields[1]:
            found[fields[0]] = printable(f"{fields[1]} {fields[2]}".strip())[:_TEXT]
    return found
