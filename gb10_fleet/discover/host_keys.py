"""The SSH host keys of places, and how ssh is told to believe only these."""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gb10_fleet import home
from gb10_fleet.discover.places import Place

KEYSCAN_TIMEOUT_S = 5  # for one connection; ssh-keyscan makes them side by side
LATE_S = 4 * KEYSCAN_TIMEOUT_S  # then it is ended: a byte without more holds it up for ever, and those beside it
AT_ONCE = 32  # of ssh-keyscan
ALONE_AT_ONCE = 128  # of those that ask one place: all that a stranger may announce (256 names of 8) take 3 minutes
KEY_TYPES = ("ed25519", "ecdsa", "rsa")  # the first that a place has is the one that people compare
Keys = Mapping[str, str]  # {"ssh-ed25519": the key in base64}


def keys_of(asked: Sequence[Place], keyscan: str = "ssh-keyscan") -> dict[Place, dict[str, str]]:
    """The host key of every place that answers SSH: the one that people compare, and no other.

    ssh-keyscan asks for no proof: a stranger could show the key of a Spark, and be believed by another one, its own.
    """
    found: dict[Place, dict[str, str]] = {}
    groups = list(_groups(asked))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        said = list(pool.map(lambda group: _lines(group, keyscan, LATE_S), groups))
    # Where somebody holds it up, each is asked by one of its own.
    held = [group for group, lines in zip(groups, said, strict=True) if lines is None and len(group) > 1]
    late = [[place] for group in held for place in group]
    groups += late
    with ThreadPoolExecutor(ALONE_AT_ONCE) as pool:
        said += pool.map(lambda group: _lines(group, keyscan, LATE_S / 2), late)
    for group, lines in zip(groups, said, strict=True):
        here = {place.known_as: place for place in group}
        for line in lines or ():
            parts = line.split()
            if len(parts) == 3 and parts[0] in here and _is_key(parts[1], parts[2]):
                found.setdefault(here[parts[0]], {})[parts[1]] = parts[2]
    return {place: dict([min(keys.items(), key=_rank)]) for place, keys in found.items()}


def _rank(key: tuple[str, str]) -> int:
    return next(number for number, kind in enumerate(KEY_TYPES) if kind in key[0])


def _groups(asked: Sequence[Place]) -> Iterator[list[Place]]:
    """Those of a port together, as many as there may be at once."""
    for port in sorted({place.port for place in asked}):
        here = [place for place in dict.fromkeys(asked) if place.port == port]
        size = math.ceil(len(here) / AT_ONCE)
        yield from (here[first : first + size] for first in range(0, len(here), size))


def _lines(group: Sequence[Place], keyscan: str, late_s: float) -> list[str] | None:
    """What ssh-keyscan says of these places; None where it did not come to its end."""
    argv = [keyscan, "-T", str(KEYSCAN_TIMEOUT_S), "-p", str(group[0].port), "-t", ",".join(KEY_TYPES), "-f", "-"]
    names = "".join(f"{place.address}\n" for place in group)
    try:
        done = subprocess.run(
            argv, input=names, capture_output=True, text=True, errors="replace", check=False, timeout=late_s
        )
    except subprocess.TimeoutExpired:
        return None
    return done.stdout.splitlines()


def _is_key(kind: str, text: str) -> bool:
    """Tell whether it is what it says: the blob of a key begins with its own type (RFC 4253, 6.6)."""
    try:
        blob = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    name = kind.encode(errors="replace")
    return blob.startswith(len(name).to_bytes(4, "big") + name)


def fingerprint(key: str) -> str:
    """As `ssh-keygen -lf` prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(base64.b64decode(key)).digest()).decode().rstrip("=")


def ssh_options(known_hosts: Path) -> dict[str, str]:
    """Options of ssh towards hosts that nobody has vouched for."""
    return {
        "BatchMode": "yes",
        "StrictHostKeyChecking": "yes",
        "UserKnownHostsFile": str(known_hosts),
        "GlobalKnownHostsFile": "/dev/null",
        "ConnectTimeout": str(KEYSCAN_TIMEOUT_S),
        # What the user's own configuration gives to all hosts is not for these.
        **home.NOT_GIVEN,
        "ControlPath": "none",  # a master of an earlier run has seen other keys, or none
    }


def known_hosts_lines(keys: Mapping[Place, Keys]) -> Iterator[str]:
    for place, by_kind in keys.items():
        for kind, key in sorted(by_kind.items()):
            yield f"{place.known_as} {kind} {key}\n"
