# SPDX-License-Identifier: GPL-3.0-or-later
"""Shelly of the second generation and newer: RPC over HTTP, with digest authentication (RFC 7616, SHA-256)."""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.power import http_plug
from ansible_collections.gb10.fleet.plugins.plugin_utils.power.plug import PlugError, figure
from ansible_collections.gb10.fleet.plugins.plugin_utils.power.setting import Setting

USER = "admin"  # the only one that a Shelly has
_PAIR = re.compile(r'(\w+)=(?:"([^"]*)"|([^\s,"]+))')
_LONGEST = 2000  # characters of a challenge
_WORD = re.compile(r"[!#-\[\]-~ ]{1,200}\Z")  # what may stand between quotes


class Plug:
    def __init__(self, setting: Setting) -> None:
        self._setting = setting

    def state(self) -> bool:
        said = http_plug.part(self._setting, self._call("GetStatus"), "output")
        if not isinstance(said, bool):
            raise PlugError(f"{self._setting.words}: it says neither on nor off; look at the plug itself")
        return said

    def off(self) -> None:
        self._call("Set", "&on=false")

    def on(self) -> None:
        self._call("Set", "&on=true")

    def watts(self) -> float | None:
        said = self._call("GetStatus")
        return figure(self._setting, said.get("apower") if isinstance(said, dict) else None)

    def _call(self, method: str, more: str = "") -> Any:
        path = f"/rpc/Switch.{method}?id={self._setting.outlet}{more}"
        reply = http_plug.ask(self._setting, path)
        password = self._setting.password()
        if reply.status == 401 and password:
            answer = self._authorization(reply.headers.get("www-authenticate", ""), path, password)
            reply = http_plug.ask(self._setting, path, headers={"Authorization": answer})
        return http_plug.document(self._setting, reply)

    def _authorization(self, challenge: str, path: str, password: str) -> str:
        """The answer to a challenge. Nothing weaker than SHA-256: whoever stands between would ask for that."""
        kind, __, rest = challenge[:_LONGEST].partition(" ")
        asked = {name.lower(): quoted or bare for name, quoted, bare in _PAIR.findall(rest)}
        realm, nonce = asked.get("realm", ""), asked.get("nonce", "")
        fits = kind.lower() == "digest" and asked.get("algorithm") == "SHA-256" and asked.get("qop") == "auth"
        if not (fits and _WORD.match(realm) and _WORD.match(nonce)):
            raise PlugError(f"{self._setting.words}: it does not ask for a digest by SHA-256, so this is no Shelly")
        mine, count = secrets.token_hex(8), "00000001"
        first, second = _hash(USER, realm, password), _hash("GET", path)
        words = {"username": USER, "realm": realm, "nonce": nonce, "uri": path, "cnonce": mine}
        words["response"] = _hash(first, nonce, count, mine, "auth", second)
        quoted = ", ".join(f'{name}="{value}"' for name, value in words.items())
        return f"Digest {quoted}, algorithm=SHA-256, qop=auth, nc={count}"


def _hash(*parts: str) -> str:
    return hashlib.sha256(":".join(parts).encode()).hexdigest()
