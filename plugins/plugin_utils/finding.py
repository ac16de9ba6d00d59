# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One finding of the doctor, and what a connection that failed comes down to."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Finding:
    """One statement about one host; severity is error, warn or info."""

    id: str
    severity: str
    host: str
    fact: str
    way_out: str
    accepted: str | None = None

    @property
    def blocks(self) -> bool:
        return self.severity == "error" and self.accepted is None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.host}: {self.id}: {self.fact}\n    way out: {self.way_out}"


_HOST_KEY = re.compile(r"host key verification failed|remote host identification|no .* host key is known", re.I)
_SUDO = re.compile(
    r"missing \w+ password|incorrect \w+ password|a (terminal|password) is required|not in the sudoers|"
    r"may not run sudo|sudo: (command )?not found|waiting for privilege escalation|not allowed to execute",
    re.I,
)
_PYTHON = re.compile(r"interpreter.*not found|python.*(not found|no such file)|no such file.*python", re.I | re.S)


def from_failure(host: str, text: str, answered: bool = False) -> Finding:
    """The finding behind a connection that failed, or behind facts that a host which answered did not give."""
    said = " ".join(text.split())[-300:] or "no reason given"
    if _HOST_KEY.search(text):
        way_out = (
            "compare the fingerprint on the host's own console (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub),"
            " then put it into known_hosts (ssh-keyscan HOST); do not switch host key checking off"
        )
        return Finding("host_key", "error", host, f"the SSH host key is unknown or has changed: {said}", way_out)
    if _SUDO.search(text):
        way_out = (
            "let this user run sudo without a password (a file in /etc/sudoers.d), or pass --ask-become-pass; "
            "check with: ssh HOST sudo -n true"
        )
        return Finding("no_sudo", "error", host, f"sudo was refused: {said}", way_out)
    if _PYTHON.search(text):
        way_out = "install python3 on the host, or set ansible_python_interpreter to the one it has"
        return Finding("unreadable", "error", host, f"no usable Python answered: {said}", way_out)
    if answered:
        way_out = "run once more with -vvv for the whole answer; if the host is sound, this is a defect of gb10-fleet"
        return Finding("unreadable", "error", host, f"the host's facts could not be read: {said}", way_out)
    way_out = (
        "check power, network, ansible_host and ansible_user: ssh USER@ADDRESS true, with those two, must work; "
        "to go on without it, leave its whole cluster out (--limit '!CLUSTER', the name of its gb10_cluster)"
    )
    return Finding("unreachable", "error", host, f"the host did not answer over SSH: {said}", way_out)
