# SPDX-License-Identifier: GPL-3.0-or-later
"""How the hosts of a cluster start together, and notice that one of them is gone."""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .config import Join, Timing
from .seal import PROTOCOL, Seal, keyed
from .status import printable

LONGEST_MESSAGE = 4096  # bytes of one message between hosts
MOST_STRANGERS = 16  # connections that have not proven who they are
BACKLOG = 128  # connections that wait to be accepted
MOST_MESSAGES = 100  # of one peer between two of our signs of life; a start takes some ten in all
BYE_S = 1.0  # for the last words to peers
UNPROVEN = "what calls from there does not know the cluster's secret"


class Waiting(NamedTuple):
    """Hosts that are missing, or run with other settings; or a round, in which others are not ready yet."""

    verdict: str
    text: str
    in_a_round: bool = False


class Prepare(NamedTuple):
    """All are there: take the turn to load, check the host once more, and say `ready` for this round."""

    round: int


class Go(NamedTuple):
    """All are ready: start."""


class Lost(NamedTuple):
    """After `Go`: one of the cluster is gone, so nobody serves."""

    text: str


class Served(NamedTuple):
    """The head is ready."""


class Unusable(NamedTuple):
    """The join port cannot be had."""

    text: str


class Peer:
    """One connection. `rank` is None until it has proven who it is."""

    def __init__(self, connection: socket.socket, address: str, now: float, seal: Seal) -> None:
        connection.setblocking(False)
        self.connection, self.address, self.seal = connection, address, seal
        self.rank: int | None = None
        self.buffer = b""
        self.since = self.heard = now
        self.ready = self.messages = 0  # `messages` since our last sign of life
        self.differs: list[str] = []


class Link:
    """How the hosts of a cluster agree to start together, and notice that one of them is gone.

    Every other host keeps one connection to the head. When all are there and say the same settings, the head calls a
    round (`prepare`); each checks its host and answers `ready`; then the head says `go`. Until then a
    host that leaves is missing again, and the next round has another number. After it, one that leaves ends all others.

    A round asks one host after the other, in the order of the members: each takes its turn to load before the next one
    does. All services of a cluster have this order, so two of them never wait for each other.

    Only lines count that prove the cluster's secret (seal.py). A connection without one takes a seat for a while, costs
    nobody else his own, and ends nothing.

    A thread of its own, so that signs of life go on while the host is being checked. Nobody else touches its state:
    orders reach it by a queue, and it says what happens by `post`.
    """

    def __init__(self, join: Join, secret: bytes, timing: Timing, post: Callable[[Any], None]) -> None:
        self.secret, self.timing, self.post = secret, timing, post
        self.join = join._replace(settings={name: keyed(secret, name, said) for name, said in join.settings.items()})
        self.own = join.members[join.rank]
        self.heads = join.rank == 0
        self.selector = selectors.DefaultSelector()
        self.orders: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self.wake, self.woken = socket.socketpair()
        self.woken.setblocking(False)
        self.selector.register(self.woken, selectors.EVENT_READ)
        self.listener: socket.socket | None = None
        self.peers: list[Peer] = []
        # Rounds of one life have numbers of their own: an answer to those of an earlier one counts nothing.
        self.round = int.from_bytes(os.urandom(4), "big") + 1
        self.called, self.ready_round, self.gone = False, 0, False
        self.asked = 0  # the last member that this round has come to
        self.others_missing: list[str] = []  # what the head says of the others
        self.unproven: set[str] = set()  # addresses of members where somebody called who is none
        self.said: Waiting | None = None
        self.beaten = self.tried = float("-inf")
        self.closing: str | None = None
        self.thread = threading.Thread(target=self._run, name="link", daemon=True)

    # From the main thread.

    def compares(self, name: str, digest: str) -> None:
        """Something more that all hosts must say alike. Before `start`."""
        self.join = self.join._replace(settings={**self.join.settings, name: keyed(self.secret, name, digest)})

    def start(self) -> None:
        self.thread.start()

    def ready(self, round_: int) -> None:
        self._order("ready", round_)

    def serves(self) -> None:
        self._order("served", None)

    def close(self, last_words: str) -> None:
        """Tell the others why, and be gone. It waits for a moment only: they notice a closed connection as well."""
        self._order("close", last_words)
        self.thread.join(BYE_S)

    def _order(self, name: str, value: Any) -> None:
        self.orders.put((name, value))
        with contextlib.suppress(OSError):
            self.wake.send(b".")

    # In the link's own thread.

    def _run(self) -> None:
        try:
            while self.closing is None:
                self._reach_out()
                self._look()
                for key, __ in self.selector.select(min(self.timing.retry, self.timing.heartbeat)):
                    if key.fileobj is self.woken:
                        self._obey()
                    elif self.listener and key.fileobj is self.listener:
                        self._accept(self.listener)
                    elif key.data in self.peers:
                        self._receive(key.data)
                self._beat()
        except Exception as error:
            # Without its link a host of a cluster cannot be trusted to stop when it must.
            self.post(Lost(f"the link to the other hosts broke down: {type(error).__name__}: {error}"))
        finally:
            for peer in list(self.peers):
                if peer.seal.met:
                    self._send(peer, {"bye": self.closing or ""})
                peer.connection.close()
            if self.listener:
                self.listener.close()

    def _obey(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self.woken.recv(64)
        with contextlib.suppress(queue.Empty):
            while True:
                name, value = self.orders.get_nowait()
                if name == "close":
                    self.closing = value
                elif name == "served":
                    self._tell({"served": True})
                else:
                    self.ready_round = value
                    if not self.heads:
                        self._tell({"ready": value})

    def _reach_out(self) -> None:
        """Listen, or call the head, as long as that has not succeeded."""
        now = time.monotonic()
        if self.gone or self.listener or (not self.heads and self.peers) or now < self.tried + self.timing.retry:
            return
        self.tried = now
        try:
            if self.heads:
                self.listener = socket.create_server((self.own.address, self.join.port), backlog=BACKLOG)
                self.listener.setblocking(False)
                self.selector.register(self.listener, selectors.EVENT_READ)
                return
            head = self.join.members[0]
            target = (head.address, self.join.port)
            connection = socket.create_connection(target, self.timing.greeting, (self.own.address, 0))
        except OSError as error:
            # The address may come later, with its rail; a port that somebody else has does not.
            if self.heads and error.errno == errno.EADDRINUSE:
                self.post(Unusable(f"port {self.join.port} at {self.own.address} is in use"))
            return
        self._admit(connection, head.address)

    def _accept(self, listener: socket.socket) -> None:
        """All that have called by now: a queue that strangers filled would keep a member out."""
        members = [member.address for member in self.join.members[1:]]
        for __ in range(BACKLOG):
            try:
                connection, (address, *__) = listener.accept()
            except OSError:  # no more, or gone before it was accepted
                return
            if address in members:
                self._seat(connection, address)
            else:
                connection.close()

    def _seat(self, connection: socket.socket, address: str) -> None:
        """Only so many are heard at a time that have not proven who they are: the last ones."""
        strangers = [peer for peer in self.peers if peer.rank is None]
        if len(strangers) >= MOST_STRANGERS:
            self._drop(strangers[0], "others wait")
        self._admit(connection, address)

    def _admit(self, connection: socket.socket, address: str) -> None:
        peer = Peer(connection, address, time.monotonic(), Seal(self.secret, calls=not self.heads))
        self.peers.append(peer)
        self.selector.register(connection, selectors.EVENT_READ, peer)
        self._write(peer, peer.seal.opening)

    def _receive(self, peer: Peer) -> None:
        try:
            data = peer.connection.recv(LONGEST_MESSAGE)
        except BlockingIOError:
            return
        except OSError as error:
            return self._drop(peer, error.strerror or "connection lost")
        *lines, peer.buffer = (peer.buffer + data).split(b"\n")
        for line in lines:
            if not self._hear(peer, line):
                return self._drop(peer, "it sent a message that this version does not know")
            if peer not in self.peers:  # what it said was the end
                return None
        if not data or len(peer.buffer) > LONGEST_MESSAGE:
            self._drop(peer, "it closed the connection")
        return None

    def _hear(self, peer: Peer, line: bytes) -> bool:
        """An opening, and after it what proves the secret; false for anything else."""
        if not peer.seal.met:
            if not peer.seal.meet(line):
                return False
            if not self.heads:
                hello = {"hello": PROTOCOL, "rank": self.join.rank, "settings": dict(self.join.settings)}
                self._send(peer, hello)
            return True
        message = peer.seal.open(line)
        if message is None:
            if peer.rank is None:
                self.unproven.add(peer.address)
            return False
        self.unproven.discard(peer.address)
        return self._understand(peer, message)

    def _understand(self, peer: Peer, message: Mapping[str, Any]) -> bool:
        peer.heard = time.monotonic()
        peer.messages += 1
        if peer.messages > MOST_MESSAGES:  # each may become an event that the main thread has to come to
            self._drop(peer, "it does not stop talking")
            return True
        if peer.rank is None and self.heads:
            return self._greet(peer, message)
        peer.rank = peer.rank or 0  # whom we called is the head, now that it has proven so
        if "bye" in message:
            self._drop(peer, printable(message["bye"]) or "it went down")
        elif self.heads and isinstance(message.get("ready"), int):
            peer.ready = message["ready"]
        elif not self.heads:
            return self._follow(peer, message)
        return True

    def _greet(self, peer: Peer, message: Mapping[str, Any]) -> bool:
        rank, settings = message.get("rank"), message.get("settings")
        members = self.join.members
        if message.get("hello") != PROTOCOL or not isinstance(settings, dict):
            return False
        if not isinstance(rank, int) or isinstance(rank, bool):
            return False
        if not 0 < rank < len(members) or members[rank].address != peer.address:
            return False
        for former in [other for other in self.peers if other.rank == rank]:
            self._drop(former, "it has begun anew")  # its power came back before its silence was noticed
        if self.gone:
            return False
        peer.rank = rank
        names = sorted({*settings, *self.join.settings})
        peer.differs = [printable(name) for name in names if settings.get(name) != self.join.settings.get(name)]
        if peer.differs:
            self._send(peer, {"differs": peer.differs})
        self._send(peer, {"missing": self.others_missing})
        return True

    def _follow(self, peer: Peer, message: Mapping[str, Any]) -> bool:
        """What the head says; false for a message that makes no sense."""
        for name, value in message.items():
            if name in ("differs", "missing") and not isinstance(value, list):
                return False
            if name == "prepare" and (not isinstance(value, int) or isinstance(value, bool)):
                return False
            if name == "go" and (not self.ready_round or value != self.ready_round):
                return False
        if "differs" in message:
            peer.differs = [printable(name) for name in message["differs"]]
        elif "missing" in message:
            self.others_missing = [printable(name) for name in message["missing"]]
        elif "prepare" in message:
            self.post(Prepare(message["prepare"]))
        elif "go" in message and not self.gone:
            self.gone = True
            self.post(Go())
        elif "served" in message:
            self.post(Served())
        return True

    def _look(self) -> None:
        """Judge who is there: call a round, start, or say who is missing."""
        now = time.monotonic()
        for peer in list(self.peers):
            if peer.rank is None and now - peer.since > self.timing.greeting:
                self._drop(peer, "it did not name its rank in time")
            elif now - peer.heard > self.timing.silence:
                self._drop(peer, f"nothing heard for {self.timing.silence:g} s")
        if self.gone:
            return
        members = self.join.members
        here = {peer.rank: peer for peer in self.peers if peer.rank is not None}
        differing = {members[rank].name: peer.differs for rank, peer in here.items() if peer.differs}
        awaited = range(1, len(members)) if self.heads else (0,)
        missing = [members[rank].name for rank in awaited if rank not in here]
        if self.heads and missing != self.others_missing:
            self.others_missing = missing
            self._tell({"missing": missing})
        if differing:
            self.called = False
            text = "; ".join(f"{name} has another {', '.join(names)}" for name, names in differing.items())
            return self._wait("peers_differ", text)
        missing = missing or [name for name in self.others_missing if name != self.own.name]
        if missing:
            self.called = False
            return self._wait("waiting_for_peers", f"waiting for {', '.join(map(self._with_hint, missing))}")
        if self.heads and not self.called:
            self.called, self.asked = True, 0
            self.round += 1
            self.post(Prepare(self.round))
        slow = [members[rank].name for rank, peer in sorted(here.items()) if peer.ready != self.round]
        if self.heads and self.ready_round == self.round:
            self._ask_next(here)
        if self.heads and not slow and self.ready_round == self.round:
            self.gone = True
            self._tell({"go": self.round})
            self.post(Go())
            return None
        return self._wait("waiting_for_peers", f"waiting for the checks of {', '.join(slow) or 'the others'}", True)

    def _ask_next(self, here: Mapping[int, Peer]) -> None:
        """The first member that has not said yet that it is ready, once."""
        rank = next((rank for rank in sorted(here) if here[rank].ready != self.round), 0)
        if rank > self.asked:
            self.asked = rank
            self._send(here[rank], {"prepare": self.round})

    def _with_hint(self, name: str) -> str:
        """A member that runs with the secret of an earlier run is missing like any other; this is how one sees why."""
        unproven = any(member.name == name and member.address in self.unproven for member in self.join.members)
        return f"{name} ({UNPROVEN})" if unproven else name

    def _wait(self, verdict: str, text: str, in_a_round: bool = False) -> None:
        said = Waiting(verdict, text, in_a_round)
        if said != self.said:
            self.said = said
            self.post(said)

    def _beat(self) -> None:
        now = time.monotonic()
        if now - self.beaten >= self.timing.heartbeat:
            self.beaten = now
            for peer in self.peers:
                peer.messages = 0
            self._tell({"beat": True})

    def _tell(self, message: Mapping[str, Any]) -> None:
        for peer in list(self.peers):
            if peer.rank is not None:
                self._send(peer, message)

    def _send(self, peer: Peer, message: Mapping[str, Any]) -> None:
        self._write(peer, peer.seal.seal(message))

    def _write(self, peer: Peer, data: bytes) -> None:
        try:
            sent = peer.connection.send(data)
        except OSError as error:  # also a peer that does not read: its buffer holds hours of signs of life
            self._drop(peer, error.strerror or "connection lost")
        else:
            if sent != len(data):
                self._drop(peer, "it does not read")

    def _drop(self, peer: Peer, why: str) -> None:
        if peer not in self.peers:
            return
        self.peers.remove(peer)
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(peer.connection)
        peer.connection.close()
        if self.gone and peer.rank is not None and self.closing is None:
            self.post(Lost(f"{self.join.members[peer.rank].name} is gone: {why}"))
        elif self.heads:
            self.called = self.called and peer.rank is None  # the round was for those that were there
        else:
            self.others_missing = []
