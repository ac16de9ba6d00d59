# SPDX-License-Identifier: GPL-3.0-or-later
"""One life of the unit, from its start to its end."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ansible_collections.gb10.fleet.plugins.module_utils.reading.sockets import accepted_by
from ansible_collections.gb10.fleet.plugins.module_utils.system.asking import NoHttp, Stranger, ask
from ansible_collections.gb10.fleet.plugins.module_utils.system.service_failures import (
    NOT_AGAIN,
    OUTSIDE,
    Failure,
    Stopped,
)

from .before_start import check_mounts, image_digest
from .config import Config
from .door import Door
from .link import Go, Link, Lost, Prepare, Served, Unusable, Waiting
from .log import TEXTS, Log, read_lines, read_secrets, stream, verdict_of_end, verdict_of_gone
from .measured import Keeper
from .rails import Rails, read
from .seal import read_secret
from .status import Notify, Status, printable, say
from .turn import Turn
from .warm import find as warm_find
from .warm import key as warm_key
from .warm import now as warm_now
from .warm import words as warm_words

COHERENCE = "usr/local/sbin/gb10-driver-coherence"
DROP_CACHES = "usr/local/sbin/gb10-drop-caches"
MEMORY_GATE = "usr/local/sbin/gb10-memory-gate"
SYSTEMCTL = "usr/bin/systemctl"
GID_INDEX = "usr/local/sbin/gb10-gid-index"
# Of the driver's verdicts those on what runs now. The others are about the next boot, and no reason to stay down.
NO_GPU_NOW = ("no_driver", "userland_newer", "module_newer", "module_not_loaded", "module_rejected")
LOADING = "run/gb10-loading/turn"
CGROUPS, GROUPS = "sys/fs/cgroup", ("system.slice", "docker")  # where Docker has its containers, by its driver
ANSWER_S = 2.0  # a server that is there and says nothing is not ready
LARGEST_ANSWER = 2**16  # bytes
NO_MORE = 3  # the exit status after which systemd does not try again: RestartPreventExitStatus= of the unit
POLL_S = 0.2  # how soon a stop is noticed while a command runs


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
    """From the start of the unit to its end. `root` is where the files of the host are; a test has its own."""

    def __init__(self, config: Config, status: Status, notify: Notify, root: Path = Path("/")) -> None:
        self.config, self.status, self.notify, self.root = config, status, notify, root
        self.events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.log = Log(config, read_secrets(config.env_file))
        join = config.join
        self.link = Link(join, read_secret(join.key), config.timing, self.events.put) if join else None
        self.turn = Turn(root / LOADING, config.service)
        self.door = Door(status.path.parent, config.api)
        self.shut_since: float | None = None  # of a server whose log says that it serves
        self.image = ""  # the digest of what is about to run
        self.rails = Rails(config.rails, root)
        self.keeper = Keeper(config, root, self.turn)
        self.stranger = False  # at the port of a server that does not serve yet
        self.stopping = self.announced = False
        self.child: subprocess.Popen[bytes] | None = None

    def stop(self, *__: Any) -> None:
        """The handler of SIGTERM: a queue of this kind may be written to from there."""
        self.stopping = True
        self.events.put(Stop())

    def announce(self, *__: Any) -> None:
        """The handler of SIGUSR1: the whole cluster is about to be stopped, so a peer that goes is not lost."""
        self.announced = True

    def run(self) -> int:
        """The exit status. Whatever happens, the peers hear of it and no container is left."""
        try:
            self._live()
        except Stopped:
            say("stopping")
            self.notify("STOPPING=1")
            self._leave("it was stopped")
            self.status.stop()
            self._give_back()
            return 0
        except Failure as failure:
            say(f"{failure}; {self.status.way_out(failure.verdict)}")
            self.status.fail(failure, self.log.tail)
            self._leave(str(failure))
            return self._after(failure)
        except BaseException:
            self._leave("its unit has a defect")
            raise
        finally:
            self.turn.end()
        return 0

    def _after(self, failure: Failure) -> int:
        """The exit status of a failed life."""
        if failure.verdict in NOT_AGAIN and self.log.phase != "ready":
            return NO_MORE
        if failure.verdict in OUTSIDE:
            self._give_back()
            return 1
        most, within_s = self.config.faults, self.config.timing.fault_memory
        if not self.status.gives_up(most, within_s):
            return 1
        say(f"failed {most} times within {within_s / 60:g} min by itself: it stays down until somebody starts it")
        return NO_MORE

    def _give_back(self) -> None:
        """Have systemd forget this start, and those before it: its limit is for faults of the host itself.

        Those it has had are in the status, and count on.
        """
        argv = [str(self.root / SYSTEMCTL), "reset-failed", f"{self.status.unit}.service"]
        self._run(argv, self.config.timing.gate, always=True)

    def _live(self) -> None:
        self.door.close()  # an earlier life was killed
        self.status.enter("starting", "checking the host")
        self._ask_docker()
        self._remove()  # what an earlier life left
        self._check_image()
        self._check_disk()
        self._check_driver()
        if self.link:
            self._meet(self.link)
        else:
            self._await_turn()
            self._prepare()
        self._serve()

    def _leave(self, last_words: str) -> None:
        self.door.close()
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
        argv = [self.config.docker, "rm", "--force", "--volumes", self.config.container]
        self._run(argv, self.config.timing.gate, always=True)

    def _next(self, seconds: float) -> Any:
        """What happens next, None if nothing does."""
        with contextlib.suppress(queue.Empty):
            event = self.events.get(timeout=seconds)
            if isinstance(event, Stop):
                raise Stopped
            if isinstance(event, Lost) and self.announced:
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
            child = subprocess.Popen(  # pylint: disable=ansible-bad-function
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
                out, __ = child.communicate(timeout=POLL_S)
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

    # Checks of this host alone.

    def _ask_docker(self) -> None:
        code, said = self._ask(self.config.docker, "version", "--format", "{{.Server.Version}}")
        if code:
            raise Failure("docker_down", printable(said))

    def _check_image(self) -> None:
        code, said = self._ask(self.config.docker, "image", "inspect", "--format", "{{json .}}", self.config.image)
        if code:
            raise Failure("image_missing", f"{self.config.image} is not on this host: {printable(said)}")
        self.image = image_digest(said)
        if self.link and self.image:
            self.link.compares("image", self.image)

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
        __, said = self._ask(str(program))
        try:
            verdicts = [verdict for verdict in json.loads(said)["verdicts"] if verdict["id"] in NO_GPU_NOW]
        except (ValueError, KeyError, TypeError):
            return say(f"the driver's gate gives no verdict: {printable(said)}")
        if verdicts:
            raise Failure("driver_incoherent", f"{verdicts[0]['id']}: {verdicts[0]['fact']}; {verdicts[0]['way_out']}")
        return None

    # Meeting the others.

    def _meet(self, link: Link) -> None:
        timing = self.config.timing
        if not link.secret:
            raise Failure("bad_settings", f"{link.join.key} is missing, and no other host would believe this one")
        self._await_rails()  # before the link: its address is one of a rail
        link.start()
        said, asked = Waiting("waiting_for_peers", "looking for the other hosts"), 0
        while True:
            event = self._next(timing.retry)
            if isinstance(event, Prepare):
                asked = event.round
            elif isinstance(event, Go):
                return
            elif isinstance(event, Waiting):
                said = event
                if not said.in_a_round:  # hosts may be away for long, and others here may load meanwhile
                    asked = 0
                    self.turn.end()
            if asked and self.turn.take():
                self._prepare()
                link.ready(asked)
                asked = 0
            fault, busy = self.rails.fault(), Waiting("another_loads", self._who_loads())
            self.status.wait(*(("rail_down", fault) if fault else (busy if asked else said)[:2]))

    def _await_turn(self) -> None:
        """No failure of this start, however long another service of the host loads."""
        while not self.turn.take():
            self.status.wait("another_loads", self._who_loads())
            self._next(self.config.timing.retry)

    def _who_loads(self) -> str:
        return f"waits for {self.turn.holder}, which loads"

    def _await_rails(self) -> None:
        """A cable that is out is no failure of this start: it would use up those that systemd grants."""
        while True:
            fault = self.rails.fault()
            if not fault:
                return
            self.status.wait("rail_down", fault)
            if self.stopping:
                raise Stopped
            time.sleep(min(POLL_S, self.config.timing.retry))

    def _prepare(self) -> None:
        """What must be true at the moment of the start, however long the others were awaited."""
        self._await_rails()
        check_mounts(self.config.argv, self.root)
        code, said = self._ask(str(self.root / DROP_CACHES))
        say(said if code == 0 else f"the page cache was not dropped: {printable(said)}")
        code, said = self._ask(str(self.root / MEMORY_GATE), str(self.config.memory_gib))
        say(said)
        if code:
            there = (self.root / MEMORY_GATE).exists()
            raise Failure("memory_short" if there else "bad_settings", printable(said))
        self.rails.check_gid_by_hand(self.config.argv)
        if self.config.gid_file:
            code, said = self._ask(str(self.root / GID_INDEX), self.config.gid_file, str(self.root / "sys"))
            if code:
                raise Failure("gid_not_as_planned", printable(said))

    # Serving.

    def _serve(self) -> None:
        timing = self.config.timing
        ooms, argv = self._ooms(), self._argv()
        self.keeper.begins()
        self.status.enter("formation", TEXTS["formation"])
        self.child = subprocess.Popen(  # pylint: disable=ansible-bad-function
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        threading.Thread(target=self._follow, args=(self.child,), name="log", daemon=True).start()
        process, rails_seen = 0, time.monotonic()
        load_until = rails_seen + self.config.load_s
        while True:
            event = self._next(timing.heartbeat if process and not self._listens_soon() else POLL_S)
            if isinstance(event, Ended):
                self._ask_docker()  # its end is the container's, too
                raise verdict_of_end(event.code, self.log, self._ooms() - ooms)
            if isinstance(event, Followed):
                self.status.enter(event.phase, event.text)
                if event.phase == "ready":
                    self.turn.end()
                if event.phase == "ready" and self.link and self.link.heads:
                    self.link.serves()
            elif isinstance(event, Served) or (process and self.log.phase != "ready" and self._answers(process)):
                self.log.serves()
                self.turn.end()
                self.status.enter("ready", self.log.text)
                if self.link and self.link.heads:
                    self.link.serves()
            if not process:
                process = self._main_process()
                if process:
                    self.notify("READY=1")
            # A server that is asked may listen and refuse long before it serves.
            asked_still = bool(self.config.ready_url) and self.log.phase != "ready"
            if not asked_still and self.door.opens(process):
                say("the container listens: the gateway lets requests through")
                if self.status.phase == "waiting":
                    self.status.enter("ready", self.log.text)
            self._judge_door(process)
            if self.log.phase == "ready":
                self.keeper.look(self.log.measured.figures, self.status.phases, self.image)
            if self.log.remark and not self.status.remark:
                self.status.notice(self.log.remark)
            gone = self.log.gone_since
            if gone is not None and time.monotonic() - gone > timing.gone:
                raise verdict_of_gone(self.log)
            # A cable that is out stops NCCL for good, also where the hosts hear each other over another network.
            fault, now = self.rails.fault(), time.monotonic()
            if now > load_until:
                self.turn.end()
            if not fault:
                rails_seen = now
            elif now - rails_seen > timing.silence:
                raise Failure("rail_down", f"{fault}, for {timing.silence:g} s")

    def _argv(self) -> Sequence[str]:
        """The words of `docker run`, with the warm cache of what runs now. Any other one stays where it is."""
        if not self.config.warm:
            return self.config.argv
        made = warm_now(self.config.warm, self.image, self.root)
        try:
            name = warm_key(made)
        except ValueError as error:
            name, why = "", str(error)
        else:
            why = "nobody has made one for this image, model, driver and flags"
        found = warm_find(self.config.warm, name, self.root) if name else None
        self.status.warm = {"key": name, "cold_s": found.cold_s if found else None}
        say(f"starts with the warm cache {name[:12]}" if found else f"starts without a warm cache: {why}")
        return warm_words(self.config.argv, str(found.path)) if found else self.config.argv

    def _answers(self, process: int) -> bool:
        """Return whether a server whose log says nothing to us serves by now. Only the container's own is asked."""
        url = urllib.parse.urlsplit(self.config.ready_url or "")
        if not url.hostname:
            return False
        self.stranger = False
        try:
            status, __ = ask(
                url.hostname,
                url.port or 80,
                url.path,
                lambda connection: accepted_by(process, connection),
                seconds=ANSWER_S,
                most=LARGEST_ANSWER,
            )
        except (OSError, NoHttp) as error:
            self.stranger = isinstance(error, Stranger)
            return False
        return status == 200

    def _listens_soon(self) -> bool:
        """Ready by its log: it listens a moment later."""
        return self._awaits_door() and self.status.phase == "ready"

    def _awaits_door(self) -> bool:
        """While a server runs, its status waits for the door alone; so it does where another one has its port."""
        phase = self.stranger or self.status.phase in ("ready", "waiting")
        return bool(self.config.api) and not self.door.is_open and phase

    def _judge_door(self, process: int) -> None:
        """Say why it stays shut, and again only when that changes."""
        if not process or not self._awaits_door():
            self.shut_since = None
            return
        now = time.monotonic()
        if self.shut_since is None:
            self.shut_since = now
        fault = self.door.fault(process) if now - self.shut_since > self.config.timing.door else None
        if fault:
            self.status.hold(fault)

    def _main_process(self) -> int:
        """Of the container; 0 where it does not run."""
        argv = [self.config.docker, "container", "inspect", "--format", "{{.State.Pid}}", self.config.container]
        code, said = self._ask(*argv)
        return int(said) if code == 0 and said.isdigit() else 0

    def _ooms(self) -> int:
        """Processes that the kernel has killed for want of memory, since the boot: those of services and containers.

        Where nobody counts them by group, all: then a user's own count, too, that he has killed by a limit of his own.
        """
        own = [read(self.root / CGROUPS / group / "memory.events") for group in GROUPS]
        said = "\n".join(own if any(own) else [read(self.root / "proc/vmstat")])
        return sum(map(int, re.findall(r"(?m)^oom_kill (\d+)$", said)))

    def _follow(self, child: subprocess.Popen[bytes]) -> None:
        """Pass the container's output on to the journal, and read it along."""
        journal = stream(self.status.unit)
        for line in read_lines(child.stdout, self.log.secrets):
            line = self.log.clean(line)
            with contextlib.suppress(OSError):
                journal.write(f"{line}\n")
                journal.flush()
            if self.log.feed(line):
                self.events.put(Followed(self.log.phase, self.log.text))
        code = child.wait()
        self.door.close()
        self.events.put(Ended(128 - code if code < 0 else code))
