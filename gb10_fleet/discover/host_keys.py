"""The SSH host keys of places, and how ssh is told to believe only these."""

from __future__ import annotations

import base64
import binascii
import hashlib
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gb10_fleet.discover.places import Place

KEYSCAN_TIMEOUT_S = 5  # for one connection; ssh-keyscan makes them side by side
KEY_TYPES = ("ed25519", "ecdsa", "rsa")

Keys = Mapping[str, str]  # {"ssh-ed25519": the key in base64}


def keys_of(asked: Sequence[Place], keyscan: str = "ssh-keyscan") -> dict[Place, dict[str, str]]:
    """The host keys of every place that answers SSH."""
    found: dict[Place, dict[str, str]] = {}
    for port in sorted({place.port for place in asked}):
        here = {place.known_as: place for place in asked if place.port == port}
        argv = [keyscan, "-T", str(KEYSCAN_TIMEOUT_S), "-p", str(port), "-t", ",".join(KEY_TYPES), "-f", "-"]
        lines = "".join(f"{place.address}\n" for place in here.values())
        done = subprocess.run(argv, input=lines, capture_output=True, text=True, errors="replace", check=False)
        for line in done.stdout.splitlines():
            parts = line.split()
            if len(parts) == 3 and parts[0] in here and _is_key(parts[1], parts[2]):
                found.setdefault(here[parts[0]], {})[parts[1]] = parts[2]
    return found


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
        "ForwardAgent": "no",
        "ControlPath": "none",  # a master of an earlier run has seen other keys, or none
    }


def known_hosts_lines(keys: Mapping[Place, Keys]) -> Iterator[str]:
    for place, by_kind in keys.items():
        for kind, key in sorted(by_kind.items()):
            yield f"{place.known_as} {kind} {key}\n"
