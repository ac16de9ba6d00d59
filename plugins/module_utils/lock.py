# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One writer at a time on a host; who only looks waits for it, so that nobody sees half of a change.

The kernel's lock on an open file: it is gone with the process, however that ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator

from ansible_collections.gb10.fleet.plugins.module_utils.system import HostError, System

RUN_DIRECTORY = "/run/gb10-fleet"
LOCK = f"{RUN_DIRECTORY}/lock"
PATIENCE_S = 10.0
_POLL_S = 0.1


@contextlib.contextmanager
def held(system: System, run: str, *, exclusive: bool) -> Iterator[None]:
    """`run` is who we are, for whoever waits in vain."""
    try:
        system.private_directory(RUN_DIRECTORY)
        descriptor = os.open(system.path(LOCK), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise HostError(
            f"{LOCK} cannot be opened: {error.strerror}; it is ours, so remove what is in its place"
        ) from None
    try:
        _wait(system, descriptor, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        # There is no writer now, so a name in the file is that of one who was killed.
        os.ftruncate(descriptor, 0)
        if exclusive:
            os.pwrite(descriptor, json.dumps({"run": run, "since": system.clock.utc()}).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _wait(system: System, descriptor: int, operation: int) -> None:
    deadline = system.clock.now() + PATIENCE_S
    while True:
        try:
            fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            if system.clock.now() >= deadline:
                raise HostError(f"{_owner(descriptor)}; wait until it has ended, then run again") from None
            system.clock.sleep(_POLL_S)
        else:
            return


def _owner(descriptor: int) -> str:
    try:
        owner = json.loads(os.pread(descriptor, 4096, 0))
        return f"another run is at work on this host: {owner['run']}, since {owner['since']}"
    except (ValueError, KeyError, TypeError):
        return "somebody else is reading the state of this host at this moment"
