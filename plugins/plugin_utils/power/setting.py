# SPDX-License-Identifier: GPL-3.0-or-later
"""What the inventory says of the plug that a host's power comes through. Pure, but for the file of a secret."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

VARIABLE = "gb10_power_plug"
# By kind: the port, and whether the answer comes with TLS there.
PORTS = {"shelly": 80, "netio": 80, "snmp": 161, "home_assistant": 8123}
_FIELDS = ("kind", "address", "port", "tls", "outlet", "user", "secret", "secret_file", "model", "watts")
_TEXTS = ("address", "user", "secret", "secret_file", "model", "watts")
_OF_ONE_KIND = {"model": "snmp", "watts": "home_assistant"}
_ADDRESS = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?\Z|[0-9A-Fa-f:]{2,39}\Z")
_ENTITY = re.compile(r"(switch|input_boolean|light)\.[a-z0-9_]{1,100}\Z")
_SENSOR = re.compile(r"sensor\.[a-z0-9_]{1,100}\Z")
_USER = re.compile(r"[A-Za-z0-9._@-]{1,64}\Z")
_SECRET = re.compile(r"[!-~]{1,4096}\Z")
_SECRET_BYTES = 4096


class WrongPlug(ValueError):
    """A plug that cannot be asked; the text names field, fact and fix, and no secret."""


@dataclass(frozen=True)
class Setting:
    """One plug. `outlet` is a number, or an entity of Home Assistant; `watts` another one, with its power."""

    kind: str
    address: str
    port: int
    outlet: int | str
    tls: bool = False
    user: str = ""
    model: str = ""
    watts: str = ""
    secret: str = field(default="", repr=False)
    secret_file: str = ""

    @property
    def place(self) -> tuple[str, int, int | str]:
        """What two hosts must not have in common unknown to whoever cuts it."""
        return self.address.lower(), self.port, self.outlet

    @property
    def words(self) -> str:
        return f"{self.kind} {self.address}, outlet {self.outlet}"

    def password(self) -> str:
        """The secret. From a file only where nobody else may read that."""
        if not self.secret_file:
            return self.secret
        file = Path(self.secret_file).expanduser()
        try:
            descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as content:
                known = os.fstat(content.fileno())
                if not stat.S_ISREG(known.st_mode) or known.st_uid != os.getuid() or known.st_mode & 0o077:
                    raise WrongPlug(
                        f"{VARIABLE}.secret_file {file} is not yours alone; write it as a file with mode 0600"
                    )
                said = content.read(_SECRET_BYTES + 1)
        except OSError as error:
            raise WrongPlug(f"{VARIABLE}.secret_file {file}: {error.strerror}; write the secret there") from None
        text = said.decode("utf-8", "replace").strip()
        if not _SECRET.match(text):
            raise WrongPlug(f"{VARIABLE}.secret_file {file} holds no secret; write one line of printable ASCII")
        return text


def parse(said: Any) -> Setting | None:
    """None where a host has no plug."""
    if said is None or said == {}:
        return None
    if not isinstance(said, Mapping):
        raise WrongPlug(f"{VARIABLE} is no dictionary; write the keys {', '.join(_FIELDS)}")
    if unknown := [str(key) for key in said if key not in _FIELDS]:
        raise WrongPlug(f"{VARIABLE} has no key {unknown[0]}; it has the keys {', '.join(_FIELDS)}")
    kind = said.get("kind")
    if not isinstance(kind, str) or kind not in PORTS:
        raise WrongPlug(f"{VARIABLE}.kind is {kind!r}; write one of {', '.join(PORTS)}")
    for key, only in _OF_ONE_KIND.items():
        if key in said and kind != only:
            raise WrongPlug(f"{VARIABLE}.{key} is for the kind {only}, and this one is {kind}; leave it out")
    for key in _TEXTS:
        if not isinstance(said.get(key) or "", str):  # YAML reads 0123 as a number: the password would be another one
            raise WrongPlug(f"{VARIABLE}.{key} is no text; write it in quotes")
    texts = {key: str(said.get(key) or "") for key in _TEXTS}
    _hold(_ADDRESS, texts["address"], "address", "the address or name of the plug, without port and path")
    tls, port = said.get("tls", False), said.get("port", PORTS[kind])
    if not isinstance(tls, bool) or (tls and kind == "snmp"):
        raise WrongPlug(f"{VARIABLE}.tls is {tls!r}; write true or false, and with snmp leave it out")
    port = 443 if tls and "port" not in said else port
    if not _is_number(port, 1, 65535):
        raise WrongPlug(f"{VARIABLE}.port is {port!r}; write a number from 1 to 65535")
    _refuse_secret(kind, texts)
    if texts["user"]:
        _hold(_USER, texts["user"], "user", "a name of letters, digits, dots and dashes")
    outlet = _outlet(kind, said.get("outlet", 0 if kind == "shelly" else None))
    if kind == "snmp":
        known = catalog.load("plugs")["pdus"]
        if texts["model"] not in known:
            raise WrongPlug(f"{VARIABLE}.model is {texts['model']!r}; write one of {', '.join(known)}")
    if texts["watts"]:
        _hold(_SENSOR, texts["watts"], "watts", "the sensor with its power, as sensor.spark_a_power")
    return Setting(kind=kind, port=port, outlet=outlet, tls=tls, **texts)


def _refuse_secret(kind: str, texts: Mapping[str, str]) -> None:
    if texts["secret"] and texts["secret_file"]:
        raise WrongPlug(f"{VARIABLE} has secret and secret_file; leave one of them out")
    if kind != "shelly" and not (texts["secret"] or texts["secret_file"]):  # a Shelly may have none
        raise WrongPlug(f"{VARIABLE} has no secret; name a secret_file with mode 0600, or a secret out of a vault")
    if texts["secret"] and not _SECRET.match(texts["secret"]):
        raise WrongPlug(f"{VARIABLE}.secret is no line of printable ASCII; correct it")
    if kind == "netio" and not texts["user"]:
        raise WrongPlug(f"{VARIABLE} has no user; a PDU of NETIO asks for one")


def _outlet(kind: str, said: Any) -> int | str:
    if kind == "home_assistant":
        _hold(_ENTITY, str(said or ""), "outlet", "the entity that switches it, as switch.spark_a")
        return str(said)
    if not _is_number(said, 0 if kind == "shelly" else 1, 255):
        raise WrongPlug(f"{VARIABLE}.outlet is {said!r}; write the number of the outlet")
    number: int = said
    return number


def _is_number(said: Any, least: int, most: int) -> bool:
    return isinstance(said, int) and not isinstance(said, bool) and least <= said <= most


def _hold(form: re.Pattern[str], text: str, key: str, wanted: str) -> None:
    if not form.match(text):
        raise WrongPlug(f"{VARIABLE}.{key} is {text[:100]!r}; write {wanted}")
