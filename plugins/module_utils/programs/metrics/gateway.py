# SPDX-License-Identifier: GPL-3.0-or-later
"""Gateway and router of this host: which replicas are ready, and what became of the requests of each client.

The router's own view is asked for at each reading. The gateway has no counters, so its lines in the journal are counted
on from the last one; they name a client and never its key.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import LARGEST_TEXT, Notes, Unknown, quoted

from . import findings
from .exposition import Samples, sample

ROUTER, GATEWAY = "gb10-router.service", "gb10-gateway.service"
ROUTER_SOCKET = "/run/gb10-router/worker.sock"
_ASLEEP = ":asleep"  # behind the host's name, of the server that starts a replica
_RUNNING, _ASIDE = "2", 0x1F  # srv_op_state and srv_admin_state of `show servers state`: maintenance or drain
_DEADLINE_S, _ROUTER_S = 20.0, 3.0
_CLASSES = ("2xx", "4xx", "5xx")
# As log_format of gateway.conf has it: address, client, endpoint, status.
_LINE = re.compile(r'\S+ "(?P<client>[A-Za-z0-9(][A-Za-z0-9_.()-]{0,63})" "[^"]*" (?P<code>[1-5])\d\d ')
_CURSOR = re.compile(r"-- cursor: (\S+)\Z")


def running(host: HostReader, unit: str) -> bool:
    return host.path(f"/run/systemd/units/invocation:{unit}").is_symlink()


def of_router(host: HostReader, notes: Notes) -> Samples:
    """One sample for each replica that nobody has taken out; of a replica that wakes when asked, it is 1."""
    if not running(host, ROUTER):
        return []
    found: Samples = []
    for model, name, up in notes.read("router", lambda: list(replicas(ask_router(host)))) or ():
        found += sample("gb10_router_replica_up", up, model=model, host=name)
    return found


def ask_router(host: HostReader) -> str:
    """Ask the process that takes new requests, which ends its answer by hanging up."""
    said = b""
    try:
        with socket.socket(socket.AF_UNIX) as door:
            door.settimeout(_ROUTER_S)
            door.connect(str(host.path(ROUTER_SOCKET)))
            door.sendall(b"show servers state\n")
            while (part := door.recv(65536)) and len(said) < LARGEST_TEXT:
                said += part
    except OSError as error:
        raise Unknown(f"the router does not say who is ready: {quoted(str(error))}") from None
    return said.decode(errors="replace")


def replicas(text: str) -> Iterator[tuple[str, str, bool]]:
    """Yield model, host and whether it takes requests, from `show servers state`. Pure."""
    up: dict[tuple[str, str], bool] = {}
    for words in map(str.split, text.splitlines()):
        if len(words) < 7 or not words[6].isdecimal() or int(words[6]) & _ASIDE:
            continue
        key = (words[1], words[3].removesuffix(_ASLEEP))
        up[key] = up.get(key, False) or words[5] == _RUNNING
    for (model, name), ready in sorted(up.items()):
        yield model, name, ready


def of_clients(host: HostReader, notes: Notes, limits: Mapping[str, int], every_s: float) -> Samples:
    """What each client was answered since the boot."""
    if not running(host, GATEWAY):
        return []
    kept = _sound(findings.kept(host, "gateway", {}))
    done = notes.read("gateway", lambda: _count(host, kept, limits, every_s))
    if done is not None:
        kept = done
        notes.read("kept.gateway", lambda: findings.keep(host, "gateway", done))
    found: Samples = []
    for client, codes in kept.get("clients", {}).items():
        for code in _CLASSES:
            found += sample("gb10_gateway_requests_total", codes.get(code, 0), client=client, code=code)
    return found


def _sound(kept: Mapping[str, Any]) -> dict[str, Any]:
    """What was kept, as far as this program can have written it: else no later run would write any metrics."""
    cursor, clients = kept.get("cursor"), kept.get("clients")
    rows = clients.items() if isinstance(clients, dict) else ()
    counted = {
        name: codes
        for name, codes in rows
        if isinstance(codes, dict) and all(isinstance(count, int) for count in codes.values())
    }
    return {"cursor": cursor if isinstance(cursor, str) else "", "clients": counted}


def _count(host: HostReader, kept: Mapping[str, Any], limits: Mapping[str, int], every_s: float) -> dict[str, Any]:
    begin = f"--after-cursor={kept['cursor']}" if kept.get("cursor") else f"--since=-{every_s:.0f}s"
    argv = ["journalctl", "--quiet", "--no-pager", "--output=cat", "--show-cursor", f"--lines={limits['lines']}"]
    # Any login may write lines with this identifier; whose unit wrote one, only the journal says.
    argv += ["--identifier=gb10_gateway", "--priority=info", begin, f"_SYSTEMD_UNIT={GATEWAY}"]
    done = host.system.run(argv, timeout=_DEADLINE_S)
    if done.rc not in (0, 1):
        raise Unknown(f"journalctl failed: {quoted(done.words)}")
    return counted(done.stdout, kept, limits["clients"])


def counted(text: str, kept: Mapping[str, Any], most: int) -> dict[str, Any]:
    """Return `kept` with the lines of this text, and where the next run goes on. Pure."""
    clients = {str(name): dict(codes) for name, codes in kept.get("clients", {}).items()}
    lines = text.splitlines()
    end = _CURSOR.match(lines[-1]) if lines else None
    for line in lines:
        said = _LINE.match(line)
        if said:
            name = said["client"] if said["client"] in clients or len(clients) < most else "others"
            codes = clients.setdefault(name, dict.fromkeys(_CLASSES, 0))
            code = f"{said['code']}xx"
            codes[code] = codes.get(code, 0) + 1
    return {"cursor": end[1] if end else kept.get("cursor", ""), "clients": clients}
