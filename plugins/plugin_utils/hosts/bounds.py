# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much a host may send. A sick or hostile one must not eat the controller's memory or disk.

`scan` reads its own pipes and counts. Ansible's connection plugins collect all that comes, so there the process gets a
bound on its memory.
"""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path

ANSWER_LIMIT = 16 * 2**20  # bytes; a real answer has some thousands
ERRORS_LIMIT = 2**20  # bytes of standard error, of which the end is shown
MEMORY_LIMIT = 256 * 2**20  # bytes; Ansible keeps an answer several times over


class TooMuch(Exception):
    """A host sent more than it may; the text says what."""


def too_much(stream: str, limit: int) -> str:
    return f"it wrote more than {limit / 2**20:g} MiB to {stream}, and was not read to the end"


@contextlib.contextmanager
def memory(limit: int = MEMORY_LIMIT) -> Iterator[None]:
    """What runs within may take so many bytes more than now; TooMuch where it wants more.

    Only what is written to counts, so a proxy command that reserves address space runs all the same.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    taken = _taken()
    if taken is None:
        yield
        return
    own = taken + limit if soft == resource.RLIM_INFINITY else min(soft, taken + limit)
    resource.setrlimit(resource.RLIMIT_DATA, (own, hard))
    try:
        yield
    except MemoryError:
        raise TooMuch(too_much("standard output or error", limit)) from None
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _taken() -> int | None:
    """Bytes of data of this process; None where the system is no Linux."""
    try:
        rows = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return int(rows["VmData"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
