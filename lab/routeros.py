"""A stand-in of a switch with RouterOS: its API, the tables of a recorded state, and changes by internal id.

`python -m lab.routeros lab/switches/crs812-before.json` serves one on the loopback until Ctrl-C.
"""

from __future__ import annotations

import json
import re
import socketserver
import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STATES = Path(__file__).with_name("switches")
Row = dict[str, str]
Reply = Iterator[tuple[str, Mapping[str, str]]]


@dataclass
class Stand:
    """What the switch knows. `writers` may change it; `heard` has each command that came."""

    tables: dict[str, list[Row]]
    accounts: Mapping[str, str]
    writers: frozenset[str] = frozenset()
    heard: list[list[str]] = field(default_factory=list)
    after_print: Callable[[Stand], None] | None = None  # traffic between two readings
    denied: frozenset[str] = frozenset()
    keeps: frozenset[str] = frozenset()  # settings that it says yes to, and does not change

    def answer(self, user: str, command: str, words: Mapping[str, str]) -> Reply:
        path, _, verb = command.rpartition("/")
        if path in self.denied:
            yield "!trap", {"message": "not enough permissions (9)"}
        elif verb == "print" and path in self.tables:
            yield from (("!re", dict(row)) for row in self.tables[path])
            if path == "/interface/ethernet" and self.after_print:
                self.after_print(self)
        elif command == "/interface/ethernet/monitor":
            for row in self.tables["/interface/ethernet"]:
                if row[".id"] in words.get("numbers", "").split(","):
                    seen = {"name": row["name"], "status": "link-ok", "rate": f"{rate(row)}Gbps"}
                    flows = ("rx-flow-control", "tx-flow-control") if "agreed" in row else ()
                    yield "!re", {**seen, **dict.fromkeys(flows, row.get("agreed", ""))}
        elif verb == "set" and path in self.tables:
            yield from self._set(user, path, words)
        else:
            yield "!trap", {"message": "no such command prefix"}

    def _set(self, user: str, path: str, words: Mapping[str, str]) -> Reply:
        row = next((one for one in self.tables[path] if one[".id"] == words.get(".id")), None)
        if user not in self.writers:
            yield "!trap", {"message": "not enough permissions (9)"}
        elif row is None:
            yield "!trap", {"message": "no such item"}
        else:
            said = {"yes": "true", "no": "false"}
            row.update({key: said.get(value, value) for key, value in words.items() if key not in {".id", *self.keeps}})

    def port(self, name: str) -> Row:
        return next(row for row in self.tables["/interface/ethernet"] if row["name"] == name)


def stand(state: str, accounts: Mapping[str, str], **more: Any) -> Stand:
    """The stand-in of a recorded state."""
    content = json.loads((STATES / f"{state}.json").read_text(encoding="utf-8"))
    tables = {path: rows for path, rows in content.items() if path.startswith("/")}
    return Stand(tables, accounts, **more)


def rate(row: Row) -> int:
    """Gb/s that a port links at: its forced speed, else the most that it offers to a 200 Gb/s cable."""
    offered = row["advertise"] if row["auto-negotiation"] == "true" else row.get("speed", "")
    return min(200, max((int(found) for found in re.findall(r"\b(\d+)G-base", offered)), default=0))


class _Handler(socketserver.StreamRequestHandler):
    server: Server

    def handle(self) -> None:
        user = ""
        try:
            while sentence := self._sentence():
                command, *rest = sentence
                self.server.stand.heard.append([command, *(word for word in rest if "password" not in word)])
                words = dict(word[1:].split("=", 1) for word in rest if word.startswith("="))
                if command == "/login":
                    known = self.server.stand.accounts
                    user = words["name"] if known.get(words["name"]) == words["password"] else ""
                    said: list[tuple[str, Mapping[str, str]]] = (
                        [] if user else [("!trap", {"message": "invalid user name or password (6)"})]
                    )
                else:
                    said = list(self.server.stand.answer(user, command, words)) if user else [("!fatal", {})]
                lines = [[reply, *(f"={key}={value}" for key, value in row.items())] for reply, row in said]
                self.wfile.write(b"".join(_sentence(words) for words in [*lines, ["!done"]]))
        except (OSError, ValueError):  # the other side is gone
            return

    def _sentence(self) -> list[str]:
        words = []
        while word := self._word():
            words.append(word)
        return words

    def _word(self) -> str:
        first = self.rfile.read(1)
        if not first:
            raise ValueError("the end")
        size = first[0]
        if size >= 0x80:  # two bytes; no client of ours says more
            size = ((size & 0x3F) << 8) + self.rfile.read(1)[0]
        return self.rfile.read(size).decode("ascii")


def _sentence(words: Sequence[str]) -> bytes:
    said = b""
    for word in words:
        data, size = word.encode(), len(word.encode())
        said += (size.to_bytes(1, "big") if size < 0x80 else (size | 0x8000).to_bytes(2, "big")) + data
    return said + b"\0"


class Server(socketserver.ThreadingTCPServer):
    """Serves a stand-in on the loopback, with TLS where there is a context."""

    allow_reuse_address, daemon_threads = True, True

    def __init__(self, stand: Stand, port: int = 0, context: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.stand = stand
        if context:
            self.socket = context.wrap_socket(self.socket, server_side=True)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that does not like the certificate is one of the tests."""

    def __enter__(self) -> Server:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


def main() -> None:
    state = Path(sys.argv[1]).stem
    accounts = {"gb10": "read", "gb10-apply": "write"}
    with Server(stand(state, accounts, writers=frozenset({"gb10-apply"})), 8728) as server:
        print(f"RouterOS's API on 127.0.0.1:{server.port}, without TLS; accounts gb10 (read), gb10-apply (write)")
        threading.Event().wait()


if __name__ == "__main__":
    main()
