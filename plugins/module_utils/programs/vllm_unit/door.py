# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the gateway lets requests through to this service: only while its container is who listens at its port.

NGINX and HAProxy know a model by its port on loopback, and any user of the host can take a port that is free. So the
gateway looks for a file beside the status. It is there from when the container listens until the container is gone.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from ansible_collections.gb10.fleet.plugins.module_utils.reading.sockets import (
    LISTEN,
    PROC,
    Mark,
    end,
    kin,
    owners,
    sockets,
    sockets_of,
)
from ansible_collections.gb10.fleet.plugins.module_utils.system.asking import SERVING
from ansible_collections.gb10.fleet.plugins.module_utils.system.service_failures import Failure

from .config import Api
from .status import printable

_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - as the kernel shows it, nothing is bound here


class Door:
    """`api` is None of a rank that has no API of its own: there is nothing to open."""

    def __init__(self, folder: Path, api: Api | None, proc: Path = PROC) -> None:
        self.file, self.api, self.proc = folder / SERVING, api, proc
        self.is_open = False
        self._held: set[Mark] = set()  # the sockets that it was opened for

    def opens(self, process: int) -> bool:
        """Open it if the control group of this process is all that listens there. True when it has just been opened.

        One that is open is closed when other sockets listen there, or none: a server may stop to listen and live on.
        """
        if self.api is None or not process:
            return False
        there = self._listeners(self.api)
        if self.is_open:
            if there != self._held:
                self.close()
            return False
        if not there or not there <= sockets_of(kin(process, self.proc), self.proc):
            return False
        with contextlib.suppress(OSError):  # a full /run: once more at the next look
            self.file.touch(mode=0o644)
            self.is_open, self._held = True, there
        return self.is_open

    def close(self) -> None:
        """From now on nothing new comes in. What is under way comes to its end."""
        self.is_open = False
        with contextlib.suppress(OSError):
            self.file.unlink()

    def fault(self, process: int) -> Failure | None:
        """Return why it stays shut."""
        if self.api is None or self.is_open:
            return None
        where, there = f"at {self.api.address}:{self.api.port}", self._listeners(self.api)
        strange = there - sockets_of(kin(process, self.proc), self.proc)
        if not there:
            return Failure("not_listening", f"nothing listens {where}, and the container's log says that it serves")
        if not strange:
            return None
        who = " and ".join(owners(strange, self.proc)) or "another process"
        if self._listeners(self.api) != there:  # it came or went while we asked whose it is: the next look tells
            return None
        beside = "as well as the container" if there - strange else "and the container does not"
        return Failure("port_busy", printable(f"{who} listens {where}, {beside}"))

    def _listeners(self, api: Api) -> set[Mark]:
        """All sockets that take connections to the API.

        The kernel prefers one at the very address to those that listen everywhere.
        """
        ends = {end(address, api.port) for address in (api.address, *_EVERYWHERE)}
        found = list(sockets(ends, state=LISTEN, proc=self.proc))
        exact = {each.mark for each in found if each.mark and each.local == end(api.address, api.port)}
        return exact or {each.mark for each in found if each.mark}
