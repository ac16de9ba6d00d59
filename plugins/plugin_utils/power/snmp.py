# SPDX-License-Identifier: GPL-3.0-or-later
"""A PDU by SNMP, version 2c, or 3 where there is a user. Needs pysnmp, the extra `power` of gb10-fleet."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.power.plug import PlugError, figure
from ansible_collections.gb10.fleet.plugins.plugin_utils.power.setting import Setting, WrongPlug

_NO_METER = -1
_LEAST = 8  # characters of a passphrase of SNMP 3
_TRIES = 2  # a packet of UDP may be lost


class Plug:
    def __init__(self, setting: Setting) -> None:
        self._setting, self._model = setting, catalog.load("plugs")["pdus"][setting.model]["value"]

    def state(self) -> bool:
        said, reads = self._ask(self._oid("state")), self._model["reads"]
        if said not in (reads["on"], reads["off"]):
            raise PlugError(f"{self._setting.words}: its state is neither on nor off; correct model and outlet")
        return bool(said == reads["on"])

    def off(self) -> None:
        self._ask(self._oid("command"), self._model["sets"]["off"])

    def on(self) -> None:
        self._ask(self._oid("command"), self._model["sets"]["on"])

    def watts(self) -> float | None:
        if "watts" not in self._model:
            return None
        said = self._ask(self._oid("watts"), optional=True)
        return figure(self._setting, None if said == _NO_METER else said)

    def _oid(self, what: str) -> str:
        return str(self._model[what]).format(outlet=self._setting.outlet)

    def _ask(self, oid: str, value: int | None = None, *, optional: bool = False) -> int | None:
        """The integer there, after it was set to `value`. `optional`: None where there is no such object."""
        try:
            error, wrong, said = asyncio.run(self._exchange(oid, value))
        except ImportError:
            text = f"{self._setting.words}: pysnmp is not on this machine; pip install 'gb10-fleet[power]'"
            raise PlugError(text) from None
        except (PlugError, WrongPlug):
            raise
        except Exception as problem:  # a time that is over, a name that nobody knows: the library has errors of its own
            error, wrong, said = str(problem) or "timed out", None, None
        if error or wrong:
            text = f"{self._setting.words}: no answer: {error or wrong.prettyPrint()}"[:300]
            raise PlugError(f"{text}; see its address, that it takes the secret, and whether it may write")
        if type(said).__name__ in ("Integer", "Integer32", "Gauge32", "Unsigned32"):
            return int(said)
        if optional:
            return None
        raise PlugError(f"{self._setting.words}: it has no such outlet; correct model and outlet")

    async def _exchange(self, oid: str, value: int | None) -> tuple[Any, Any, Any]:
        snmp: Any = importlib.import_module("pysnmp.hlapi.v3arch.asyncio")  # it comes without types
        whole = catalog.load("plugs")["answer_s"]["value"]
        setting, password = self._setting, self._setting.password()
        if setting.user and len(password) < _LEAST:
            raise PlugError(f"{setting.words}: the secret of SNMP 3 has {_LEAST} characters at least; set such a one")
        who: Any = snmp.CommunityData(password, mpModel=1)
        if setting.user:
            sha, aes = snmp.usmHMAC192SHA256AuthProtocol, snmp.usmAesCfb128Protocol
            who = snmp.UsmUserData(setting.user, password, password, authProtocol=sha, privProtocol=aes)
        engine = snmp.SnmpEngine()
        try:
            async with asyncio.timeout(whole):
                way = await snmp.UdpTransportTarget.create(
                    (setting.address, setting.port), timeout=whole / (_TRIES + 1), retries=_TRIES - 1
                )
                call, new = (snmp.get_cmd, ()) if value is None else (snmp.set_cmd, (snmp.Integer32(value),))
                what = snmp.ObjectType(snmp.ObjectIdentity(oid), *new)
                error, wrong, __, found = await call(engine, who, way, snmp.ContextData(), what, lookupMib=False)
        finally:
            engine.close_dispatcher()
        return error, wrong, found[0][1] if found else None
