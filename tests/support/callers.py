"""Clients that keep asking a gateway, streaming and not, and say what became of every request."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import Counter
from dataclasses import dataclass, field

_DEADLINE_S = 120.0


@dataclass
class Tally:
    """What became of the requests. A stream without its last line is `cut`."""

    whole: int = 0
    streamed: int = 0
    failed: int = 0
    cut: int = 0
    by_replica: Counter[str] = field(default_factory=Counter)
    words: list[str] = field(default_factory=list)  # the first few that went wrong
    stop: bool = False

    @property
    def done(self) -> int:
        return self.whole + self.streamed + self.failed + self.cut

    def __str__(self) -> str:
        return (
            f"{self.done} requests ({self.streamed} of them streams): {self.failed} failed, {self.cut} cut; "
            + ", ".join(f"{name} {count}" for name, count in sorted(self.by_replica.items()))
        )


@dataclass
class Caller:
    """One client with one connection; every third request is a stream."""

    address: str
    port: int
    trusted: ssl.SSLContext
    key: str
    model: str
    tally: Tally
    number: int

    async def ask_on(self, enough: int) -> None:
        while not (self.tally.stop and self.tally.done >= enough):
            self.number += 1
            try:
                await asyncio.wait_for(self._ask(streams=self.number % 3 == 0), _DEADLINE_S)
            except (TimeoutError, OSError, asyncio.IncompleteReadError, ValueError) as error:
                self.tally.cut += 1
                self.tally.words.append(repr(error))

    async def _ask(self, *, streams: bool) -> None:
        reader, writer = await asyncio.open_connection(
            self.address, self.port, ssl=self.trusted, server_hostname=self.address
        )
        try:
            body = json.dumps({"messages": [], "model": self.model, "stream": streams}).encode()
            writer.write(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n"
                b"Authorization: Bearer %s\r\n"
                b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (self.key.encode(), len(body), body)
            )
            said = await reader.read(-1)
        finally:
            writer.close()
        self._count(said, streams=streams)

    def _count(self, said: bytes, *, streams: bool) -> None:
        head, _, body = said.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200 "):
            self.tally.failed += 1
            self.tally.words.append(said[:200].decode("latin-1"))
        elif streams and body.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"):
            self.tally.streamed += 1
            self.tally.by_replica[body.split(b"data: 0 ")[1].split(b"\n")[0].decode()] += 1
        elif not streams and body.endswith(b"}"):
            self.tally.whole += 1
            self.tally.by_replica[json.loads(body)["replica"]] += 1
        else:
            self.tally.cut += 1
            self.tally.words.append(body[-100:].decode("latin-1"))


async def keep_asking(
    address: str, port: int, trusted: ssl.SSLContext, key: str, model: str, clients: int, tally: Tally, enough: int
) -> None:
    """Until `tally.stop` is set and there have been enough requests."""
    callers = [Caller(address, port, trusted, key, model, tally, number) for number in range(clients)]
    await asyncio.gather(*(caller.ask_on(enough) for caller in callers))
