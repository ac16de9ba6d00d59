# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks a plug over HTTP: one deadline for all of an answer, and no more of it than one may be."""

from __future__ import annotations

import json
import select
import socket
import ssl
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from ansible_collections.gb10.fleet.plugins.module_utils.system import asking
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.power.plug import PlugError
from ansible_collections.gb10.fleet.plugins.plugin_utils.power.setting import Setting


class Reply(NamedTuple):
    """`headers` by their names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def ask(setting: Setting, path: str, data: Any = None, headers: Mapping[str, str] | None = None) -> Reply:
    """One question, a POST with JSON where there is `data`. Certificates are checked as this machine does."""
    known = catalog.load("plugs")
    most, until = known["answer_bytes"]["value"], time.monotonic() + known["answer_s"]["value"]
    body = None if data is None else json.dumps(data).encode()
    told = {**({} if body is None else {"Content-Type": "application/json"}), **(headers or {})}
    try:
        with (
            socket.create_connection((setting.address, setting.port), asking.left(until)) as plain,
            _secured(plain, setting.address, until) if setting.tls else plain as line,
        ):
            status, said, text = asking.exchange(
                line, setting.address, setting.port, path, until=until, most=most + 1, data=body, headers=told
            )
    except (OSError, asking.NoHttp, UnicodeError) as error:  # the last one: of a name that none can be
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise PlugError(f"{setting.words}: no answer: {why}; see that it is on the network, at that address") from None
    if len(text) > most:
        raise PlugError(f"{setting.words}: its answer is longer than {most} bytes; this is no plug of the kind")
    return Reply(status, said, text)


def _secured(plain: socket.socket, address: str, until: float) -> ssl.SSLSocket:
    """TLS over a connection. The handshake as well ends at that moment, however slowly it drips."""
    line = ssl.create_default_context().wrap_socket(plain, server_hostname=address, do_handshake_on_connect=False)
    line.setblocking(False)
    while True:
        try:
            line.do_handshake()
        except ssl.SSLWantReadError:
            select.select([line], [], [], asking.left(until))
        except ssl.SSLWantWriteError:
            select.select([], [line], [], asking.left(until))
        else:
            return line


def document(setting: Setting, reply: Reply) -> Any:
    """The JSON of an answer that is one."""
    if reply.status in (401, 403):
        raise PlugError(f"{setting.words}: it does not take the secret; correct user and secret of it")
    if reply.status not in (200, 201):
        raise PlugError(f"{setting.words}: HTTP status {reply.status}; see that the outlet is one of its own")
    try:
        return json.loads(reply.body)
    except (ValueError, RecursionError):
        raise PlugError(f"{setting.words}: its answer is no JSON; this is no plug of the kind") from None


def part(setting: Setting, said: Any, key: str) -> Any:
    """One value of an object."""
    if not isinstance(said, dict) or key not in said:
        raise PlugError(f"{setting.words}: its answer has no {key}; this is no plug of the kind, or no such outlet")
    return said[key]
