# SPDX-License-Identifier: GPL-3.0-or-later
"""What each call begins with on the host: the kept engine answers. Where there is none, the host asks for it.

The controller sends this file and a call of `start`. The host compiles it in each call, so it holds no more than that.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from ansible_collections.gb10.fleet.plugins.module_utils.bootstrap.texts import Places

ANSWER = "GB10-ANSWER:"  # the engine's answer behind it, as JSON
MISSING = "GB10-MISSING:"  # digests behind it
# From the question to the end of what comes back. Without it, a host that loses its controller here waits for ever.
PATIENCE_S = 60


def start(folder: str, engine: str, request: str, places: Places, given: Mapping[str, str]) -> None:
    """Answer the request with the engine of this digest. The other arguments are those of `texts.answer`."""
    # Nobody lives here for long: this and a tidy end would cost a host as much as most of its facts.
    gc.disable()
    path = f"{folder}/engine-{engine}"
    try:
        if not (private(folder) and private(path)):
            raise PermissionError(path)
        os.utime(path)
        sys.path.insert(0, path)
        from ansible_collections.gb10.fleet.plugins.module_utils.bootstrap import texts
    except Exception:  # absent, somebody else's, or damaged
        ask([engine, *places])
    texts.answer(folder, request, places, given)


def ask(digests: Iterable[str]) -> NoReturn:
    """Go on with the program that the controller sends next. It has what was asked for in it.

    A controller that cannot send anything any more makes another call of it.
    """
    import signal  # takes longer than the rest of this file, and a host asks once for each new engine

    sys.stdout.write(f"\n{MISSING}{' '.join(digests)}\n")
    sys.stdout.flush()
    signal.alarm(PATIENCE_S)
    size = int(sys.stdin.buffer.readline()[1:] or 0)
    program = sys.stdin.buffer.read(size)
    signal.alarm(0)
    if size and len(program) == size:
        exec(compile(program, "install.py", "exec"), {"__name__": "__main__"})  # noqa: S102 - as this one came
    os._exit(0)


def private(path: str) -> bool:
    """Return whether it is a folder where nobody but us can have put anything."""
    status = os.lstat(path)
    return (status.st_mode, status.st_uid) == (0o40700, os.geteuid())
