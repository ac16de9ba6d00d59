# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The main process of gb10-vllm.service: one life of a served model, on this host alone or as one rank of a cluster.

It checks the host, meets the other hosts of the cluster, runs the container in the foreground, follows its log, and
leaves with a named verdict when anything of that fails. systemd does the rest: it starts the next life, and gives up
after too many. While hosts or rails are awaited the unit is `activating`, which no start limit counts.

The role `vllm` puts this very file on the host as a program: so it imports the standard library only, and knows nothing
of the rest of the project. What to run and all figures come from /etc/gb10-fleet/vllm.json, which has no secret in it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import queue
import re
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

CONFIG = "/etc/gb10-fleet/vllm.json"
STATUS = "/run/gb10-vllm/status.json"
COHERENCE = "usr/local/sbin/gb10-driver-coherence"
DROP_CACHES = "usr/local/sbin/gb10-drop-caches"
MEMORY_GATE = "usr/local/sbin/gb10-memory-gate"
GID_INDEX = "usr/local/sbin/gb10-gid-index"

# In the order of a life, which only goes forward.
PHASES = ("starting", "waiting", "formation", "weights", "graphs", "ready")
TEXTS = {
    "formation": "the container runs, vLLM starts",
    "weights": "loading weights",
    "graphs": "compiling and capturing graphs",
    "ready": "serving",
}
# Of the driver's verdicts those on what runs now. The others are about the next boot, and no reason to stay down.
NO_GPU_NOW = ("no_driver", "userland_newer", "module_newer", "module_not_loaded")
# What the next start will meet again: there is no use in waiting for it.
LASTING = (
    *("bad_settings", "driver_incoherent", "image_missing", "image_unfit", "docker_refused", "refused_flag"),
    "model_missing",
)
WAYS_OUT = {
    "bad_settings": "run site.yml: the role vllm writes /etc/gb10-fleet/vllm.json anew",
    "docker_down": "`systemctl status docker` and `journalctl -u docker` say why",
    "docker_refused": "the text is Docker's own; without the GPU's CDI file no container starts: gb10.fleet.doctor",
    "image_missing": "run site.yml: the role vllm pulls it; or `docker pull` it",
    "image_unfit": "the image must have vllm on its path: compare vllm_image with catalog/images.yml",
    "disk_full": "`df -h` and `du -xsh` of vllm_cache_directory; remove models that nobody serves",
    "memory_short": "stop what holds it (`nvidia-smi`, `ps`), or lower vllm_gpu_memory_utilization; a killed model can"
    " leave memory with the driver until a reboot",
    "driver_incoherent": "`sudo gb10-driver-coherence` says more; most often a reboot is missing",
    "rail_down": "look at cable, switch port and the other host's power; it goes on by itself when the rail is back",
    "gid_not_as_planned": "run `ansible-playbook gb10.fleet.site -i INVENTORY --tags fabric`",
    "join_port_busy": "`ss -ltnp` names who has the port; set another vllm_join_port on the cluster",
    "waiting_for_peers": "`systemctl status gb10-vllm` on the hosts that are missing says why; a firewall must"
    " let vllm_join_port pass",
    "peers_differ": "run site.yml for all hosts of the cluster, so that they get the same settings",
    "peer_lost": "the host that is named has the cause: `journalctl -u gb10-vllm` there; all start again together",
    "refused_flag": "vLLM of this image does not take a flag or its value: `gb10 plan` says which it knows",
    "model_missing": "check vllm_model, and vllm_huggingface_token for a gated model; without internet, the files"
    " must be in vllm_cache_directory",
    "out_of_memory": "`gb10 plan` says what fits: most often a shorter vllm_max_model_len, or another checkpoint",
    "killed": "`journalctl -u docker -u gb10-vllm` around that time; a `docker kill` or `docker stop` by hand does it",
    "start_failed": "the first error in `journalctl -u gb10-vllm` is the cause",
    "engine_died": "the first error in `journalctl -u gb10-vllm` is the cause; it starts again by itself",
}

KEPT_LINES = 20
LONGEST_TEXT = 300  # of a line in the status, and of what a peer says
LONGEST_LINE = 8192  # bytes; one that does not end must not grow
LONGEST_MESSAGE = 4096  # bytes of one message between hosts
MOST_STRANGERS = 16  # connections that have not said who they are
BYE_S = 1.0  # for the last words to peers
POLL_S = 0.2  # how soon a stop is noticed while a command runs
PROTOCOL = "gb10-vllm 1"
_TROUBLE = re.compile(r"error|exception|traceback|fatal|failed|killed|refused", re.IGNORECASE)
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")


# -- what is to be run -------------------------------------------------------------------------------------------------


class Member(NamedTuple):
    """A host of the cluster; the first one is the head."""

    name: str
    address: str


class Join(NamedTuple):
    """`settings` are what all members must say alike: names, and digests of their values."""

    rank: int
    members: tuple[Member, ...]
    port: int
    settings: Mapping[str, str]


class Rail(NamedTuple):
    """A rail that must be up; `gid` is its address as the GID table of its HCA shows it."""

    netdev: str
    hca: str
    hca_port: int
    gid: str
    address: str


class Timing(NamedTuple):
    """Seconds."""

    heartbeat: float  # between signs of life
    silence: float  # after which a peer is lost, and a rail
    greeting: float  # within which a connection says who it is
    retry: float  # between looks for what is missing
    gate: float  # for one check of the host
    stop: float  # for vLLM to end by itself


class Config(NamedTuple):
    container: str
    argv: tuple[str, ...]
    image: str
    memory_gib: int
    cache: str
    disk_gib: float
    env_file: str | None
    gid_file: str | None
    rails: tuple[Rail, ...]
    join: Join | None
    timing: Timing
    phases: tuple[tuple[str, re.Pattern[str]], ...]
    failures: tuple[tuple[str, re.Pattern[str]], ...]
    digest: str  # of all of it: another one is another model

    @property
    def docker(self) -> str:
        return self.argv[0]


def parse_config(text: str) -> Config:
    raw = json.loads(text)
    join = raw["join"]
    return Config(
        container=raw["container"],
        argv=tuple(raw["argv"]),
        image=raw["image"],
        memory_gib=raw["memory_gib"],
        cache=raw["cache"],
        disk_gib=raw["disk_gib"],
        env_file=raw["env_file"],
        gid_file=raw["gid_file"],
        rails=tuple(Rail(**rail) for rail in raw["rails"]),
        join=join
        and Join(
            rank=join["rank"],
            members=tuple(Member(**member) for member in join["members"]),
            port=join["port"],
            settings={name: sha256(json.dumps(value, sort_keys=True)) for name, value in join["settings"].items()},
        ),
        timing=Timing(**raw["timing"]),
        phases=tuple((phase, re.compile(pattern)) for phase, pattern in raw["phases"]),
        failures=tuple((verdict, re.compile(pattern)) for verdict, pattern in raw["failures"]),
        digest=sha256(text),
    )


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Failure(Exception):
    """The end of this life, by name."""

    def __init__(self, verdict: str, text: str) -> None:
        super().__init__(f"{verdict}: {text}")
        self.verdict, self.text = verdict, text


class Stopped(Exception):
    """systemd asked for the end."""


# -- what others see ---------------------------------------------------------------------------------------------------


class Notify:
    """systemd's protocol for services of Type=notify, over the socket that it names in the environment."""

    def __init__(self, address: str) -> None:
        self.address = "\0" + address[1:] if address.startswith("@") else address

    def __call__(self, *lines: str) -> None:
        if self.address:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.sendto("\n".join(lines).encode(), self.address)


class Status:
    """What a person and `serving_probe` read: the phase, the seconds of each, and how the last failure came about.

    It outlives the process, so that a verdict is still there when the next life has begun. `failures` counts lives in a
    row that ended before the model was ready; other settings begin anew.
    """

    def __init__(self, path: Path, notify: Notify, digest: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.path, self.notify, self.clock = path, notify, clock
        former = read_status(path)
        same = former.get("settings") == digest
        self.attempt = _count(former.get("attempt")) + 1
        self.failures = _count(former.get("failures")) if same else 0
        self.failure: dict[str, Any] | None = former.get("failure") if same else None
        self.settings = digest
        self.phase, self.text = "", ""
        self.waiting: dict[str, str] | None = None
        self.phases: dict[str, float] = {}
        self.entered = clock()

    def enter(self, phase: str, text: str) -> None:
        now = self.clock()
        if self.phase and phase != self.phase:
            self.phases[self.phase] = round(self.phases.get(self.phase, 0.0) + now - self.entered, 1)
        if phase != self.phase:
            self.entered, self.since = now, _utc()
        self.phase, self.text, self.waiting = phase, text, None
        if phase == "ready":
            self.failures = 0
        self.show()

    def wait(self, verdict: str, text: str) -> None:
        """What is missing; nothing has failed."""
        waiting = {"verdict": verdict, "text": text, "way_out": WAYS_OUT[verdict]}
        if (self.phase, self.waiting) != ("waiting", waiting):
            self.enter("waiting", text)
            self.waiting = waiting
            self.show()

    def fail(self, failure: Failure, lines: Sequence[str]) -> None:
        self.failures += 1
        self.failure = {
            "verdict": failure.verdict,
            "text": failure.text,
            "way_out": WAYS_OUT[failure.verdict],
            "lasting": failure.verdict in LASTING,
            "at": _utc(),
            "attempt": self.attempt,
            "lines": list(lines),
        }
        self.enter("failed", str(failure))

    def stop(self) -> None:
        self.failures = 0
        self.enter("stopped", "stopped in good order")

    def show(self) -> None:
        self.notify(f"STATUS={self.text}")
        names = ("phase", "text", "since", "attempt", "failures", "phases", "waiting", "failure", "settings")
        text = json.dumps({name: getattr(self, name) for name in names}, ensure_ascii=False) + "\n"
        new = self.path.with_name(f".{self.path.name}.new")
        with contextlib.suppress(OSError):  # a full /run must not take the model down
            new.write_text(text, encoding="utf-8")
            new.chmod(0o644)
            new.replace(self.path)


def read_status(path: Path) -> dict[str, Any]:
    """What the last life left; nothing where it cannot be read."""
    try:
        status = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return status if isinstance(status, dict) else {}


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value >= 0 else 0


def _utc() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def say(text: str) -> None:
    print(f"gb10-vllm: {text}", flush=True)


def printable(value: Any) -> str:
    """What somebody else said, short and fit for a line of a log."""
    return _UNPRINTABLE.sub("?", str(value))[:LONGEST_TEXT]


# -- the container's log -----------------------------------------------------------------------------------------------


class Log:
    """Follows what vLLM writes: the phase that it is in, what went wrong, and the last lines."""

    def __init__(self, config: Config, secrets: Sequence[str]) -> None:
        self.config, self.secrets = config, secrets
        self.phase = "formation"
        self.percent = ""
        self.fault: tuple[str, str] | None = None  # the first verdict and its line, since the start or since it served
        self.last: deque[str] = deque(maxlen=KEPT_LINES)
        self.trouble: deque[str] = deque(maxlen=KEPT_LINES)

    def clean(self, line: str) -> str:
        for secret in self.secrets:
            line = line.replace(secret, "***")
        return line

    def feed(self, line: str) -> bool:
        """Whether phase or percentage changed."""
        kept = line[:LONGEST_TEXT]
        self.last.append(kept)
        if _TROUBLE.search(line):
            self.trouble.append(kept)
        if self.fault is None:
            self.fault = next(
                ((verdict, kept) for verdict, pattern in self.config.failures if pattern.search(line)), None
            )
        for phase, pattern in self.config.phases:
            found = pattern.search(line)
            if found and PHASES.index(phase) >= PHASES.index(self.phase):
                percent = str(found.groupdict().get("percent") or "")
                if (phase, percent) != (self.phase, self.percent):
                    self.phase, self.percent = phase, percent
                    if phase == "ready":
                        self.serves()
                    return True
        return False

    def serves(self) -> None:
        """Also for a rank without an API, whose own log does not say so."""
        self.phase, self.percent, self.fault = "ready", "", None

    @property
    def text(self) -> str:
        return f"{TEXTS[self.phase]} {self.percent} %" if self.percent else TEXTS[self.phase]

    @property
    def tail(self) -> list[str]:
        return list(self.trouble or self.last)


def read_lines(stream: Any, secrets: Sequence[str] = ()) -> Iterator[str]:
    """The lines of a pipe; a progress bar ends them with a carriage return. One that is too long comes in parts, which
    are not cut within a secret.
    """
    rest, hidden = b"", [secret.encode() for secret in secrets]
    longest = max(map(len, hidden), default=0)
    while True:
        chunk = stream.read1(LONGEST_LINE)
        *lines, rest = re.split(rb"[\r\n]+", rest + chunk)
        if not chunk:
            lines, rest = [*lines, rest], b""
        elif len(rest) > LONGEST_LINE:
            for secret in hidden:
                rest = rest.replace(secret, b"***")
            cut = max(0, len(rest) - longest)  # behind it one may begin
            lines, rest = [*lines, rest[:cut]], rest[cut:]
        for line in lines:
            if line.strip():
                yield line.decode("utf-8", "replace")
        if not chunk:
            return


def read_secrets(path: str | None) -> list[str]:
    """The values of the environment file: they show in no line that we pass on."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines() if path else []
    except OSError:
        return []
    return [value for value in (line.partition("=")[2] for line in lines if not line.startswith("#")) if value]


def verdict_of_end(code: int, log: Log, ooms: int) -> Failure:
    """Why a container that should have run on ended. vLLM leaves with status 0 when its engine has died."""
    ended = f"the container left with exit status {code}"
    verdict, line = log.fault or ("", log.trouble[0] if log.trouble else "")
    said = f"{ended}: {line}" if line else ended
    if code == 125:
        return Failure("docker_refused", log.last[-1] if log.last else ended)
    if code in (126, 127):
        return Failure("image_unfit", log.last[-1] if log.last else ended)
    if code == 2 or verdict == "refused_flag":
        return Failure("refused_flag", said)
    if ooms:
        return Failure("out_of_memory", f"{ended}; the kernel killed {ooms} processes meanwhile, for want of memory")
    if verdict:
        return Failure(verdict, said)
    if code in (128 + signal.SIGKILL, 128 + signal.SIGTERM):
        return Failure("killed", f"{ended}: somebody killed it")
    return Failure("engine_died" if log.phase == "ready" else "start_failed", said)


# -- the other hosts ---------------------------------------------------------------------------------------------------


class Waiting(NamedTuple):
    """Who is missing, and who runs with other settings."""

    verdict: str
    text: str


class Prepare(NamedTuple):
    """All are there: check the host once more, and say `ready` for this round."""

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
    """One connection. `rank` is None until it has said who it is."""

    def __init__(self, connection: socket.socket, address: str, now: float) -> None:
        connection.setblocking(False)
        self.connection, self.address = connection, address
        self.rank: int | None = None
        self.buffer = b""
        self.since = self.heard = now
        self.ready = 0
        self.differs: list[str] = []


class Link:
    """How the hosts of a cluster agree to start together, and notice that one of them is gone.

    Every other host keeps one connection to the head. When all are there and say the same settings, the head calls a
    round (`prepare`); each checks its host and answers `ready`; then the head says `go`. Until then a host that leaves
    is merely missing again, and the next round has another number. After it, one that leaves takes all others along.

    A thread of its own, so that signs of life go on while the host is being checked. Nobody else touches its state:
    orders reach it by a queue, and it says what happens by `post`.
    """

    def __init__(self, join: Join, timing: Timing, post: Callable[[Any], None]) -> None:
        self.join, self.timing, self.post = join, timing, post
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
        self.others_missing: list[str] = []  # what the head says of the others
        self.said: Waiting | None = None
        self.beaten = self.tried = float("-inf")
        self.closing: str | None = None
        self.thread = threading.Thread(target=self._run, name="link", daemon=True)

    # From the main thread.

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
                for key, _ in self.selector.select(min(self.timing.retry, self.timing.heartbeat)):
                    if key.fileobj is self.woken:
                        self._obey()
                    elif key.fileobj is self.listener:
                        self._accept()
                    elif key.data in self.peers:
                        self._receive(key.data)
                self._beat()
        except Exception as error:
            # Without its link a host of a cluster cannot be trusted to stop when it must.
            self.post(Lost(f"the link to the other hosts broke down: {type(error).__name__}: {error}"))
        finally:
            for peer in list(self.peers):
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
                self.listener = socket.create_server((self.own.address, self.join.port), backlog=MOST_STRANGERS)
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
        peer = self._admit(connection, head.address)
        peer.rank = 0
        hello = {"hello": PROTOCOL, "rank": self.join.rank, "settings": dict(self.join.settings)}
        self._send(peer, hello)

    def _accept(self) -> None:
        """Only members are listened to, and only so many at a time that have not said who they are."""
        if self.listener is None:
            return
        try:
            connection, (address, *_) = self.listener.accept()
        except OSError:  # gone before it was accepted
            return
        strangers = [peer for peer in self.peers if peer.rank is None]
        if address not in [member.address for member in self.join.members[1:]] or len(strangers) >= MOST_STRANGERS:
            connection.close()
        else:
            self._admit(connection, address)

    def _admit(self, connection: socket.socket, address: str) -> Peer:
        peer = Peer(connection, address, time.monotonic())
        self.peers.append(peer)
        self.selector.register(connection, selectors.EVENT_READ, peer)
        return peer

    def _receive(self, peer: Peer) -> None:
        try:
            data = peer.connection.recv(LONGEST_MESSAGE)
        except BlockingIOError:
            return
        except OSError as error:
            return self._drop(peer, error.strerror or "connection lost")
        *lines, peer.buffer = (peer.buffer + data).split(b"\n")
        for line in lines:
            message = parse_message(line)
            if message is None or not self._understand(peer, message):
                return self._drop(peer, "it does not speak our language")
            if peer not in self.peers:  # what it said was the end
                return None
        if not data or len(peer.buffer) > LONGEST_MESSAGE:
            self._drop(peer, "it closed the connection")
        return None

    def _understand(self, peer: Peer, message: Mapping[str, Any]) -> bool:
        peer.heard = time.monotonic()
        if peer.rank is None:
            return self._greet(peer, message)
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
        if message.get("hello") != PROTOCOL or not isinstance(settings, dict) or type(rank) is not int:
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
        """What the head says; false if that makes no sense, as from a program that is none."""
        for name, value in message.items():
            if name in ("differs", "missing") and not isinstance(value, list):
                return False
            if name == "prepare" and type(value) is not int:
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
                self._drop(peer, "it did not say who it is")
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
            return self._wait("waiting_for_peers", f"waiting for {', '.join(missing)}")
        if self.heads and not self.called:
            self.called = True
            self.round += 1
            self._tell({"prepare": self.round})
            self.post(Prepare(self.round))
        slow = [members[rank].name for rank, peer in here.items() if peer.ready != self.round]
        if self.heads and not slow and self.ready_round == self.round:
            self.gone = True
            self._tell({"go": self.round})
            self.post(Go())
            return None
        return self._wait("waiting_for_peers", f"waiting for the checks of {', '.join(slow) or 'the others'}")

    def _wait(self, verdict: str, text: str) -> None:
        said = Waiting(verdict, text)
        if said != self.said:
            self.said = said
            self.post(said)

    def _beat(self) -> None:
        now = time.monotonic()
        if now - self.beaten >= self.timing.heartbeat:
            self.beaten = now
            self._tell({"beat": True})

    def _tell(self, message: Mapping[str, Any]) -> None:
        for peer in list(self.peers):
            if peer.rank is not None:
                self._send(peer, message)

    def _send(self, peer: Peer, message: Mapping[str, Any]) -> None:
        data = json.dumps(message).encode() + b"\n"
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


def parse_message(line: bytes) -> dict[str, Any] | None:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


# -- one life ----------------------------------------------------------------------------------------------------------


class Followed(NamedTuple):
    """The log says another phase, or another percentage of it."""

    phase: str
    text: str


class Ended(NamedTuple):
    """The container is gone."""

    code: int


class Stop(NamedTuple):
    """systemd asks for the end."""


class Life:
    """From the start of the unit to its end. `root` is where the host's own files are looked up; a test has its own."""

    def __init__(self, config: Config, status: Status, notify: Notify, root: Path = Path("/")) -> None:
        self.config, self.status, self.notify, self.root = config, status, notify, root
        self.events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.log = Log(config, read_secrets(config.env_file))
        self.link = Link(config.join, config.timing, self.events.put) if config.join else None
        self.stopping = False
        self.child: subprocess.Popen[bytes] | None = None

    def stop(self, *_: Any) -> None:
        """The handler of SIGTERM: a queue of this kind may be written to from there."""
        self.stopping = True
        self.events.put(Stop())

    def run(self) -> int:
        """The exit status. Whatever happens, the peers hear of it and no container is left."""
        try:
            self._live()
        except Stopped:
            say("stopping")
            self.notify("STOPPING=1")
            self._leave("it was stopped")
            self.status.stop()
            return 0
        except Failure as failure:
            say(f"{failure}; {WAYS_OUT[failure.verdict]}")
            self.status.fail(failure, self.log.tail)
            self._leave(str(failure))
            return 1
        except BaseException:
            self._leave("its unit has a defect")
            raise
        return 0

    def _live(self) -> None:
        self.status.enter("starting", "checking the host")
        self._check_docker()
        self._check_image()
        self._check_disk()
        self._check_driver()
        if self.link:
            self._meet(self.link)
        else:
            self._prepare()
        self._serve()

    def _leave(self, last_words: str) -> None:
        if self.link and self.link.thread.is_alive():
            self.link.close(last_words)
        if self.child and self.child.poll() is None:
            stop = self.config.timing.stop
            self._run([self.config.docker, "stop", "-t", f"{stop:.0f}", self.config.container], 2 * stop, always=True)
        self._remove()
        if self.child:
            until = time.monotonic() + self.config.timing.stop
            while time.monotonic() < until:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.child.wait(POLL_S)
                    break
                self._remove()  # once more: Docker was still making it
            self.child.kill()

    def _remove(self) -> None:
        argv = [self.config.docker, "rm", "--force", self.config.container]
        self._run(argv, self.config.timing.gate, always=True)

    def _next(self, seconds: float) -> Any:
        """What happens next, None if nothing does."""
        with contextlib.suppress(queue.Empty):
            event = self.events.get(timeout=seconds)
            if isinstance(event, Stop):
                raise Stopped
            if isinstance(event, Lost):
                raise Failure("peer_lost", event.text)
            if isinstance(event, Unusable):
                raise Failure("join_port_busy", event.text)
            return event
        return None

    def _run(self, argv: Sequence[str], seconds: float, always: bool = False) -> tuple[int, str]:
        """Exit status and output of a command; 124 if its time ran out. `always`: also while we are being stopped."""
        try:
            child = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, "LC_ALL": "C"},
                start_new_session=True,
            )
        except OSError as error:
            return 127, f"{argv[0]}: {error.strerror}"
        until = time.monotonic() + seconds
        while True:
            try:
                out, _ = child.communicate(timeout=POLL_S)
                return child.returncode, out.decode("utf-8", "replace").strip()
            except subprocess.TimeoutExpired:
                stopped = self.stopping and not always
                if stopped or time.monotonic() > until:
                    os.killpg(child.pid, signal.SIGKILL)
                    child.wait()
                    if stopped:
                        raise Stopped from None
                    return 124, f"{argv[0]} did not end within {seconds:g} s"

    def _ask(self, *argv: str) -> tuple[int, str]:
        """A check of the host; one that a stop interrupts ends this life."""
        return self._run(argv, self.config.timing.gate)

    # The checks that nobody need be waited for.

    def _check_docker(self) -> None:
        code, said = self._ask(self.config.docker, "version", "--format", "{{.Server.Version}}")
        if code:
            raise Failure("docker_down", printable(said))
        self._remove()  # what an earlier life left

    def _check_image(self) -> None:
        code, said = self._ask(self.config.docker, "image", "inspect", "--format", "{{.Id}}", self.config.image)
        if code:
            raise Failure("image_missing", f"{self.config.image} is not on this host: {printable(said)}")

    def _check_disk(self) -> None:
        try:
            disk = os.statvfs(self.config.cache)
        except OSError as error:
            raise Failure("disk_full", f"{self.config.cache}: {error.strerror}") from error
        free = disk.f_bavail * disk.f_frsize / 2**30
        if free < self.config.disk_gib:
            raise Failure(
                "disk_full", f"{self.config.cache} has {free:.1f} GiB left, {self.config.disk_gib:g} are needed"
            )

    def _check_driver(self) -> None:
        program = self.root / COHERENCE
        if not program.exists():
            return
        _, said = self._ask(str(program))
        try:
            verdicts = [verdict for verdict in json.loads(said)["verdicts"] if verdict["id"] in NO_GPU_NOW]
        except (ValueError, KeyError, TypeError):
            return say(f"the driver's gate gives no verdict: {printable(said)}")
        if verdicts:
            raise Failure("driver_incoherent", f"{verdicts[0]['id']}: {verdicts[0]['fact']}; {verdicts[0]['way_out']}")
        return None

    def _rail_fault(self) -> str:
        """The first rail that is not up with its address."""
        for rail in self.config.rails:
            if _read(self.root / f"sys/class/net/{rail.netdev}/carrier") != "1":
                return f"{rail.netdev} has no carrier"
            table = self.root / f"sys/class/infiniband/{rail.hca}/ports/{rail.hca_port}/gids"
            if rail.gid not in (_read(slot) for slot in _slots(table)):
                return f"{rail.netdev} has not its address {rail.address}"
        return ""

    # Meeting the others.

    def _meet(self, link: Link) -> None:
        timing = self.config.timing
        self._await_rails()  # before the link: its address is one of a rail
        link.start()
        said = Waiting("waiting_for_peers", "looking for the other hosts")
        while True:
            event = self._next(timing.retry)
            if isinstance(event, Prepare):
                self._prepare()
                link.ready(event.round)
            elif isinstance(event, Go):
                return
            elif isinstance(event, Waiting):
                said = event
            fault = self._rail_fault()
            self.status.wait(*(("rail_down", fault) if fault else said))

    def _await_rails(self) -> None:
        """A cable that is out is no failure of this start: it would use up those that systemd grants."""
        while True:
            fault = self._rail_fault()
            if not fault:
                return
            self.status.wait("rail_down", fault)
            if self.stopping:
                raise Stopped
            time.sleep(min(POLL_S, self.config.timing.retry))

    def _prepare(self) -> None:
        """What must be true at the moment of the start, however long the others were awaited."""
        self._await_rails()
        code, said = self._ask(str(self.root / DROP_CACHES))
        say(said if code == 0 else f"the page cache was not dropped: {printable(said)}")
        code, said = self._ask(str(self.root / MEMORY_GATE), str(self.config.memory_gib))
        say(said)
        if code:
            raise Failure("memory_short", printable(said))
        if self.config.gid_file:
            code, said = self._ask(str(self.root / GID_INDEX), self.config.gid_file, str(self.root / "sys"))
            if code:
                raise Failure("gid_not_as_planned", printable(said))

    # Serving.

    def _serve(self) -> None:
        timing = self.config.timing
        ooms = self._ooms()
        self.status.enter("formation", TEXTS["formation"])
        self.child = subprocess.Popen(
            self.config.argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        threading.Thread(target=self._follow, args=(self.child,), name="log", daemon=True).start()
        started, rails_seen = False, time.monotonic()
        while True:
            event = self._next(timing.heartbeat if started else POLL_S)
            if isinstance(event, Ended):
                raise verdict_of_end(event.code, self.log, self._ooms() - ooms)
            if isinstance(event, Followed):
                self.status.enter(event.phase, event.text)
                if event.phase == "ready" and self.link and self.link.heads:
                    self.link.serves()
            elif isinstance(event, Served):
                self.log.serves()
                self.status.enter("ready", self.log.text)
            if not started:
                started = self._is_started()
                if started:
                    self.notify("READY=1")
            # A cable that is out stops NCCL for good, also where the hosts hear each other over another network.
            fault, now = self._rail_fault(), time.monotonic()
            if not fault:
                rails_seen = now
            elif now - rails_seen > timing.silence:
                raise Failure("rail_down", f"{fault}, for {timing.silence:g} s")

    def _is_started(self) -> bool:
        argv = [self.config.docker, "container", "inspect", "--format", "{{.State.Running}}", self.config.container]
        return self._ask(*argv) == (0, "true")

    def _ooms(self) -> int:
        """Processes that the kernel has killed for want of memory, since the boot."""
        found = re.search(r"(?m)^oom_kill (\d+)$", _read(self.root / "proc/vmstat"))
        return int(found[1]) if found else 0

    def _follow(self, child: subprocess.Popen[bytes]) -> None:
        """Pass the container's output on to the journal, and read it along."""
        for line in read_lines(child.stdout, self.log.secrets):
            line = self.log.clean(line)
            with contextlib.suppress(OSError):
                print(line, flush=True)
            if self.log.feed(line):
                self.events.put(Followed(self.log.phase, self.log.text))
        self.events.put(Ended(_exit_status(child.wait())))


def _exit_status(code: int) -> int:
    return 128 - code if code < 0 else code


def _slots(table: Path) -> list[Path]:
    try:
        return list(table.iterdir())
    except OSError:
        return []


def _read(path: Path) -> str:
    """A file of the kernel; empty where it has no value."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def main() -> int:
    notify = Notify(os.environ.pop("NOTIFY_SOCKET", ""))  # nobody below us speaks for the unit
    try:
        text = Path(CONFIG).read_text(encoding="utf-8")
        config = parse_config(text)
    except (OSError, ValueError, KeyError, TypeError) as error:
        failure = Failure("bad_settings", f"{CONFIG}: {type(error).__name__}: {error}")
        Status(Path(STATUS), notify, "").fail(failure, [])
        say(f"{failure}; {WAYS_OUT[failure.verdict]}")
        return 1
    life = Life(config, Status(Path(STATUS), notify, config.digest), notify)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, life.stop)
    return life.run()


if __name__ == "__main__":
    sys.exit(main())
