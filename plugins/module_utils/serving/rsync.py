# SPDX-License-Identifier: GPL-3.0-or-later
"""The two ends of a transfer between hosts: rsync's daemon and its client. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

USER = "gb10"  # of rsync; no account
SEATS = 4  # of each peer: the connection of a client that was killed is held until its time is out


class Peer(NamedTuple):
    """Who offers files. `password` is a file."""

    address: str
    port: int
    password: Path


def daemon_config(modules: Mapping[str, str], allow: Sequence[str], secrets: Path, lock: Path) -> str:
    """What a peer may read, and who is one. rsync takes the rest of a line as it is, so no value may hold a break."""
    lines = [
        *("use chroot = yes", "uid = root", "gid = root", "read only = yes", "list = no", "numeric ids = yes"),
        *(f"hosts allow = {' '.join(allow)}", "hosts deny = *", f"auth users = {USER}", f"secrets file = {secrets}"),
        *("strict modes = yes", f"max connections = {SEATS * len(allow)}", f"lock file = {lock}", "timeout = 120"),
        "reverse lookup = no",
    ]
    for name, path in modules.items():
        lines += [f"[{name}]", f"path = {path}"]
    if any("\n" in line for line in lines):
        raise ValueError("a line break in a path or address")
    return "\n".join(lines) + "\n"


def daemon_argv(config: Path, address: str, port: int) -> list[str]:
    return ["rsync", "--daemon", "--no-detach", f"--config={config}", f"--address={address}", f"--port={port}"]


def client_argv(peer: Peer, module: str, target: Path) -> list[str]:
    """--append-verify goes on where a transfer stopped, and rejects what was there before if it was something else."""
    return [
        *("rsync", "--append-verify", "--partial", "--chmod=F0644", "--timeout=120", "--contimeout=20"),
        *("--files-from=-", f"--port={peer.port}", f"--password-file={peer.password}"),
        *(f"rsync://{USER}@{peer.address}/{module}/", f"{target}/"),
    ]
