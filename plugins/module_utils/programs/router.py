# SPDX-License-Identifier: GPL-3.0-or-later
"""Who serves what behind this gateway, and what shall not get any more requests. The role gateway installs it.

    gb10-router show                                as JSON: each replica, its state, its requests in flight
    gb10-router drain HOST [--model M] [--wait [S]] no new requests; returns when none is in flight, or after S
    gb10-router ready HOST [--model M]              requests again, once it is well
    gb10-router save                                for a reload or a boot: what drains goes on to drain
    gb10-router fit                                 before a start: what was saved gets the ports of today

It asks HAProxy's master, which knows the processes of earlier configurations too: they end what they have begun.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import re
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

FOLDER = "/run/gb10-router"
STATE = "/var/lib/gb10-router"
CONFIG = "/etc/gb10-fleet/router.cfg"
POLL_S = 0.2
WAIT_S = 600.0  # catalog/gateway.yml, drain
STILL_BUSY, NOT_UP = 3, 4  # exit status; 2 is that of wrong arguments, and of a host that has no router
_DEADLINE_S = 10.0
_SERVERS_ONLY = "show stat -1 4 -1"
_WORKER = re.compile(r"^(\d+)\s+worker\s", re.MULTILINE)
# In a row of `show servers state`, of version 1. Without the first 20 columns HAProxy takes no row; behind them stands
# how a server is reached, as whether by TLS.
_PORT, _COLUMNS = 18, 20
ASLEEP = ":asleep"  # behind the host's name, of the server that a backend has where no replica is ready
_OLD = "# old workers"


class RouterError(Exception):
    """The router does not know what is asked for."""

    status = 1


class NotUpError(RouterError):
    """It does not answer, so it sends nothing to anybody."""

    status = NOT_UP


class Router:
    """The processes of one HAProxy."""

    def __init__(self, folder: Path, kept: Path = Path(STATE), config: Path = Path(CONFIG)) -> None:
        self._folder, self._kept, self._config = folder, kept, config

    def replicas(self) -> list[dict[str, Any]]:
        """Each replica as the newest process sees it, with what is in flight in all of them."""
        newest, old = self._workers()
        rows = list(self._servers(newest))
        found = {(row["pxname"], row["svname"]): _replica(row) for row in rows if not _wakes(row)}
        for row in filter(_wakes, rows):
            one = found[(row["pxname"], row["svname"][: -len(ASLEEP)])]
            one["on_demand"] = True
            one["in_flight"] += int(row["scur"] or 0)
            one["state"] = "asleep" if one["state"] == "sick" else one["state"]
        for process in old:
            for row in self._servers(process):
                name = row["svname"][: -len(ASLEEP)] if _wakes(row) else row["svname"]
                if (row["pxname"], name) in found:
                    found[(row["pxname"], name)]["in_flight"] += int(row["scur"] or 0)
        return [found[key] for key in sorted(found)]

    def set(self, replicas: Sequence[dict[str, Any]], state: str) -> None:
        newest, __ = self._workers()
        for replica in replicas:
            for name in (replica["host"], *([replica["host"] + ASLEEP] if replica["on_demand"] else [])):
                said = self._ask(f"@!{newest} set server {replica['model']}/{name} state {state}").strip()
                if said:
                    raise RouterError(f"{replica['host']}: {said}")

    def save(self) -> None:
        newest, __ = self._workers()
        self._keep(self._ask(f"@!{newest} show servers state"))

    def fit(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._keep((self._kept / "state").read_text(encoding="utf-8"))

    def _keep(self, state: str) -> None:
        """Keep how each server stands, and not how it is reached: HAProxy would believe that before router.cfg."""
        ports = _ports(self._config.read_text(encoding="utf-8"))
        kept = []
        for row in (line.split(" ") for line in state.splitlines() if line):
            if len(row) == 1 or row[0] == "#":  # the version, and the names of the columns
                kept.append(row)
            elif port := ports.get((row[1], row[3])):
                kept.append([*row[:_PORT], port, *row[_PORT + 1 : _COLUMNS]])
        beside = self._kept / "state.new"
        beside.write_text("".join(" ".join(row) + "\n" for row in kept), encoding="utf-8")
        beside.replace(self._kept / "state")

    def _workers(self) -> tuple[int, list[int]]:
        """The newest process, and those that end what they have begun."""
        now, __, before = self._ask("show proc").partition(_OLD)
        newest = [int(pid) for pid in _WORKER.findall(now)]
        if not newest:
            raise NotUpError("the router has no process that serves; `journalctl -u gb10-router` says why")
        return newest[0], [int(pid) for pid in _WORKER.findall(before)]

    def _servers(self, process: int) -> Iterator[dict[str, str]]:
        text = self._ask(f"@!{process} {_SERVERS_ONLY}")
        yield from csv.DictReader(text.lstrip("# ").strip().splitlines())

    def _ask(self, command: str) -> str:
        path, until = str(self._folder / "master.sock"), time.monotonic() + _DEADLINE_S
        try:
            with socket.socket(socket.AF_UNIX) as master:
                master.settimeout(_DEADLINE_S)
                master.connect(path)
                master.sendall(f"{command}\n".encode())
                master.shutdown(socket.SHUT_WR)
                said = b"".join(iter(lambda: _heard(master, until), b""))
        except OSError as error:
            raise NotUpError(f"{path}: {error.strerror or error}; is gb10-router.service up?") from None
        return said.decode(errors="replace")


def _heard(master: socket.socket, until: float) -> bytes:
    """One deadline for all of an answer, however slowly it comes."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    master.settimeout(left)
    return master.recv(65536)


def _replica(row: dict[str, str]) -> dict[str, Any]:
    return {
        "model": row["pxname"],
        "host": row["svname"],
        "state": _state(row["status"]),
        "in_flight": int(row["scur"] or 0),
        "requests": int(row["stot"] or 0),
        "on_demand": False,
    }


def _ports(config: str) -> dict[tuple[str, str], str]:
    """Return the port of each server of router.cfg, by backend and name; "0" where it is a socket."""
    found: dict[tuple[str, str], str] = {}
    backend = ""
    for words in (line.split() for line in config.splitlines()):
        if words[:1] == ["backend"]:
            backend = words[1]
        elif words[:1] == ["server"]:
            found[backend, words[1]] = "0" if words[2].startswith("unix@") else words[2].rpartition(":")[2]
    return found


def _wakes(row: dict[str, str]) -> bool:
    """Return whether it is the way to a replica that is asleep, and not the replica itself."""
    return row["svname"].endswith(ASLEEP)


def _state(status: str) -> str:
    """`UP 1/2` is on its way down, and still serves."""
    word = status.split(" ")[0]
    return {"UP": "ready", "DRAIN": "draining", "DOWN": "sick", "MAINT": "draining"}.get(word, word.lower())


def place(model: str) -> str:
    """Return the same as reading/model_names.py, which this program, one file, cannot import."""
    return re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")


def drain(router: Router, host: str, model: str, wait_s: float) -> int:
    """Returns what was still in flight at the end."""
    chosen = _chosen(router, host, model)
    router.set(chosen, "drain")
    router.save()
    until = time.monotonic() + wait_s
    while True:
        left = sum(replica["in_flight"] for replica in _chosen(router, host, model))
        if not left or time.monotonic() >= until:
            return int(left)
        time.sleep(POLL_S)


def _chosen(router: Router, host: str, model: str) -> list[dict[str, Any]]:
    return [
        replica
        for replica in router.replicas()
        if replica["host"] == host and (not model or replica["model"] == place(model))
    ]


def main(argv: Sequence[str]) -> int:
    options = _options(argv)
    router = Router(Path(options.folder), Path(options.kept), Path(options.config))
    try:
        if options.verb in ("save", "fit"):
            getattr(router, options.verb)()
        elif options.verb == "show":
            sys.stdout.write(json.dumps(router.replicas(), indent=2) + "\n")
        elif options.verb == "drain":
            left = drain(router, options.host, options.model, options.wait)
            sys.stdout.write(json.dumps({"host": options.host, "in_flight": left}) + "\n")
            return STILL_BUSY if left else 0
        else:
            router.set(_chosen(router, options.host, options.model), "ready")
            router.save()
    except RouterError as error:
        sys.stderr.write(f"gb10-router: {error}\n")
        return error.status
    return 0


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gb10-router", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", default=FOLDER, help=argparse.SUPPRESS)
    parser.add_argument("--kept", default=STATE, help=argparse.SUPPRESS)
    parser.add_argument("--config", default=CONFIG, help=argparse.SUPPRESS)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("show", "save", "fit"):
        verbs.add_parser(verb)
    for verb in ("drain", "ready"):
        one = verbs.add_parser(verb)
        one.add_argument("host")
        one.add_argument("--model", default="")
        if verb == "drain":
            one.add_argument("--wait", type=float, nargs="?", const=WAIT_S, default=0.0, metavar="S")
    return parser.parse_args(argv)


if __name__ == "__main__":
    os.umask(0o077)
    raise SystemExit(main(sys.argv[1:]))
