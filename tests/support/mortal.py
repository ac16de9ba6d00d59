"""`python -m tests.support.mortal N WORD...`: `gb10 WORD...`, killed by SIGKILL after its n-th transaction."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator

from gb10_fleet import cli
from gb10_fleet.rollout import journal

_original = journal.Journal._transaction
_left = int(sys.argv.pop(1))


@contextlib.contextmanager
def _transaction(self: journal.Journal) -> Iterator[None]:
    global _left  # of a process that ends here
    with _original(self):
        yield
    _left -= 1
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)


journal.Journal._transaction = _transaction  # type: ignore[method-assign]
cli.main()
