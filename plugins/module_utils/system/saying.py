# SPDX-License-Identifier: GPL-3.0-or-later
"""A line of a program for the journal, which may not take it."""

from __future__ import annotations

import contextlib
import os
import sys


def say(text: str) -> None:
    """journald refuses a unit's stream where logins hold all that it has (4,096): nothing may end by that."""
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except OSError:
        # What is still in the buffer would fail once more at the end, and make that a failure (exit status 120).
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
