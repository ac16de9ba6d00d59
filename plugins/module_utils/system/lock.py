# SPDX-License-Identifier: GPL-3.0-or-later
"""One writer at a time on a host; who only looks waits for it, so that nobody sees half of a change.

The kernel's lock on an open file: it is gone with the process, however that ended. What the file says outlives the
process, for the attempts of a rollout are numbered. Where the command was killed, its Ansible goes on as an orphan;
once the next attempt has written on a host, the orphan may not.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError, System

RUN_DIRECTORY = "/run/gb10-fleet"
LOCK = f"{RUN_DIRECTORY}/lock"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
PATIENCE_S = 10.0
# For a call that a killed command of the same person, or an earlier attempt of the same rollout, has left behind: it
# ends by itself, and a driver that is just being installed takes minutes. Shorter than a look may take, so that the
# look says whom it waits for.
ORPHAN_PATIENCE_S = 240.0
_POLL_S = 0.1
# How the name of a run ends that is part of a rollout.
ATTEMPT = r" rollout (?P<rollout>[A-Za-z0-9_.-]{1,64}) attempt (?P<attempt>[1-9][0-9]{0,5})\Z"


class Busy(HostError):
    """Somebody else has the lock, for longer than we wait."""


class Writer(NamedTuple):
    """Who wrote last, as the file says. `boot`: the boot of this host on which that was; `pid`: its process here."""

    run: str
    since: str
    pid: int
    boot: str

    @property
    def rollout(self) -> str | None:
        found = re.search(ATTEMPT, self.run)
        return found and found["rollout"]

    @property
    def whose(self) -> str | None:
        """The rollout that this run is part of, else its USER@MACHINE; a program of the host has neither."""
        first = self.run.partition(" ")[0]
        return self.rollout or (first if "@" in first else None)

    @property
    def attempt(self) -> int:
        found = re.search(ATTEMPT, self.run)
        return int(found["attempt"]) if found else 0


@contextlib.contextmanager
def held(system: System, run: str, *, exclusive: bool, patience: float = PATIENCE_S) -> Iterator[None]:
    """`run` is who we are, for whoever waits in vain. Busy if that is us, after `patience` seconds."""
    try:
        system.private_directory(RUN_DIRECTORY)
        descriptor = os.open(system.path(LOCK), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _fault("opened", error) from None
    we = Writer(run, system.clock.utc(), os.getpid(), (system.text(BOOT_ID) or "").strip())
    try:
        _wait(system, descriptor, we, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH, patience)
        if exclusive:
            _refuse_orphan(we, _last(descriptor))
            _note(descriptor, we)
        yield
    finally:
        os.close(descriptor)


def _note(descriptor: int, we: Writer) -> None:
    """Padded: in a full /run what stands there keeps its room, and stays when it has none."""
    text = json.dumps(we._asdict()).encode()
    try:
        os.pwrite(descriptor, text.ljust(os.fstat(descriptor).st_size), 0)
    except OSError as error:
        raise _fault("written", error) from None


def _fault(what: str, error: OSError) -> HostError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    way_out = f"free space (`df {RUN_DIRECTORY}`)" if full else "it is ours, so remove what is in its place"
    return HostError(f"{LOCK} cannot be {what}: {error.strerror}; {way_out}, then run again")


def writing_now(system: System) -> str:
    """Return the run that changes this host at this moment; empty if there is none."""
    try:
        descriptor = os.open(system.path(LOCK), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        writer = _writing(descriptor)
    finally:
        os.close(descriptor)
    return writer.run if writer else ""


def _wait(system: System, descriptor: int, we: Writer, operation: int, patience: float) -> None:
    began = system.clock.now()
    while not _taken(descriptor, operation):
        writer = _writing(descriptor)
        ours = writer is not None and writer.whose is not None and writer.whose == we.whose
        if system.clock.now() - began >= (ORPHAN_PATIENCE_S if ours else patience):
            raise Busy(f"{_words(writer)}; wait until it has ended, then run again") from None
        system.clock.sleep(_POLL_S)


def _writing(descriptor: int) -> Writer | None:
    """Who writes at this moment; None where others only read, for then the file speaks of earlier."""
    if not _taken(descriptor, fcntl.LOCK_SH):
        return _last(descriptor)
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return None


def _taken(descriptor: int, operation: int) -> bool:
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _refuse_orphan(we: Writer, last: Writer | None) -> None:
    """Of another boot or another rollout the file says nothing about us."""
    if last is not None and (last.boot, last.rollout) == (we.boot, we.rollout) and last.attempt > we.attempt:
        raise HostError(
            f"this ansible-playbook was left behind by a killed command, {we.run}: its rollout goes on here since"
            f" {last.since} as {last.run}; end it, it has changed nothing here since then"
        )


def _last(descriptor: int) -> Writer | None:
    try:
        raw: Any = json.loads(os.pread(descriptor, 4096, 0))
        return Writer(str(raw["run"]), str(raw["since"]), int(raw["pid"]), str(raw["boot"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _words(writer: Writer | None) -> str:
    if writer is None:
        return "somebody else is reading the state of this host at this moment"
    return f"another run is at work on this host: {writer.run}, since {writer.since}, as process {writer.pid} here"
