"""Holds connections to a gateway without ever sending a request; runs inside a network namespace.

besiege.py TARGET PORT IDLE SLOW SOURCE...: `IDLE` connections that say nothing and `SLOW` ones that send a byte each
second, shared among the source addresses. What ends or gets no answer is opened again. Each second it prints how many
stand.
"""

from __future__ import annotations

import itertools
import select
import socket
import sys
import time

TICK_S = 1.0
STEPS = 10  # of one second; what is opened all at once overruns the queue of the listener, and waits
AT_ONCE = 200  # connections in one step
PATIENCE_S = 2.0  # for an answer to a SYN
HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"  # how a greeting of TLS begins; then zeros, never enough


class Siege:
    def __init__(self, target: str, port: int, idle: int, slow: int, sources: list[str]) -> None:
        self.target, self.port = target, port
        self.wanted = {"idle": idle, "slow": slow}
        self.sources = itertools.cycle(sources)
        self.poll = select.epoll()
        self.open: dict[int, tuple[socket.socket, str]] = {}
        self.stands: set[int] = set()
        self.since: dict[int, float] = {}
        self.sent: dict[int, int] = {}

    def run(self) -> None:
        while True:
            for _ in range(STEPS):
                self._open_some()
                until = time.monotonic() + TICK_S / STEPS
                while (left := until - time.monotonic()) > 0:
                    for number, event in self.poll.poll(left):
                        self._heard(number, event)
            for number in [number for number in self.stands if self.open[number][1] == "slow"]:
                self._drip(number)
            print(len(self.stands), flush=True)

    def _open_some(self) -> None:
        now = time.monotonic()
        for number, since in [*self.since.items()]:
            if number not in self.stands and now - since > PATIENCE_S:
                self._close(number)
        kinds = [kind for _, kind in self.open.values()]
        missing = [kind for kind, wanted in self.wanted.items() for _ in range(wanted - kinds.count(kind))]
        for kind in missing[:AT_ONCE]:
            self._connect(kind)

    def _connect(self, kind: str) -> None:
        made = socket.socket()
        made.setblocking(False)
        made.setsockopt(socket.SOL_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT: each address has ports of its own
        made.bind((next(self.sources), 0))
        try:
            made.connect((self.target, self.port))
        except BlockingIOError:
            pass
        except OSError:
            made.close()
            return
        self.open[made.fileno()] = made, kind
        self.since[made.fileno()] = time.monotonic()
        self.poll.register(made, select.EPOLLOUT | select.EPOLLIN | select.EPOLLRDHUP)

    def _heard(self, number: int, event: int) -> None:
        if event & (select.EPOLLHUP | select.EPOLLERR | select.EPOLLRDHUP | select.EPOLLIN):
            self._close(number)
        elif event & select.EPOLLOUT:
            self.stands.add(number)
            self.poll.modify(number, select.EPOLLIN | select.EPOLLRDHUP)
            if self.open[number][1] == "slow":
                self._drip(number)

    def _drip(self, number: int) -> None:
        sent = self.sent.get(number, 0)
        try:
            self.open[number][0].send(HELLO[sent : sent + 1] or b"\0")
            self.sent[number] = sent + 1
        except OSError:
            self._close(number)

    def _close(self, number: int) -> None:
        self.poll.unregister(number)
        self.open.pop(number)[0].close()
        self.stands.discard(number)
        self.sent.pop(number, None)
        del self.since[number]


if __name__ == "__main__":
    where, at, idlers, slow_ones, *own = sys.argv[1:]
    siege = Siege(where, int(at), int(idlers), int(slow_ones), own)
    print("up", flush=True)
    siege.run()
