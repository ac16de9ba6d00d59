# SPDX-License-Identifier: GPL-3.0-or-later
"""What two units say to each other: each line proves that its speaker knows the secret of the cluster.

Any user of a member can connect from its address. So both sides begin with a number that was never used, and each line
after it carries a checksum that takes the secret, both numbers, the direction and how many lines came before. A line
of another connection, one that is repeated, and one that comes back to its speaker are none.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import document

PROTOCOL = "gb10-vllm 2"
SHORTEST_SECRET = 32  # characters
_OPENING = re.compile(rb"%s ([0-9a-f]{32})\Z" % PROTOCOL.encode())
_DIGITS = 64  # of a checksum


def read_secret(path: str) -> bytes:
    """The cluster's secret, with what it was made for; nothing where it cannot be read."""
    try:
        text = Path(path).read_bytes().strip()
    except OSError:
        return b""
    return text if len(text) >= SHORTEST_SECRET else b""


class Seal:
    """One side of one connection. `calls`: it is the side that called."""

    def __init__(self, secret: bytes, calls: bool) -> None:
        self.secret, self.calls = secret, calls
        self.number = os.urandom(16).hex().encode()
        self.met = False
        self.keys = {True: b"", False: b""}  # for what the calling side says, and for the other
        self.said = self.heard = 0

    @property
    def opening(self) -> bytes:
        return b"%s %s\n" % (PROTOCOL.encode(), self.number)

    def meet(self, line: bytes) -> bool:
        """The other side's opening; false for anything else."""
        found = _OPENING.match(line)
        if not found:
            return False
        numbers = (self.number, found[1]) if self.calls else (found[1], self.number)
        for calls in self.keys:
            words = b" ".join((PROTOCOL.encode(), *numbers, b"calls" if calls else b"is called"))
            self.keys[calls] = hmac.new(self.secret, words, hashlib.sha256).digest()
        self.met = True
        return True

    def seal(self, message: Mapping[str, Any]) -> bytes:
        text = json.dumps(message).encode()
        self.said += 1
        return b"%s %s\n" % (_checksum(self.keys[self.calls], self.said, text), text)

    def open(self, line: bytes) -> dict[str, Any] | None:
        """What the other side said; None where somebody else said it, or where it is no message."""
        self.heard += 1
        checksum, text = line[:_DIGITS], line[_DIGITS + 1 :]
        if not self.met or not hmac.compare_digest(checksum, _checksum(self.keys[not self.calls], self.heard, text)):
            return None
        return document(text) or None


def _checksum(key: bytes, count: int, text: bytes) -> bytes:
    return hmac.new(key, b"%d " % count + text, hashlib.sha256).hexdigest().encode()


def keyed(secret: bytes, name: str, digest: str) -> str:
    """What a member says of a setting: others who hear it cannot try values until one fits."""
    return hmac.new(secret, f"setting {name} {digest}".encode(), hashlib.sha256).hexdigest()
