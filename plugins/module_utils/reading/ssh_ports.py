# SPDX-License-Identifier: GPL-3.0-or-later
"""The ports where sshd listens."""

from __future__ import annotations

import os
import re

from ansible_collections.gb10.fleet.plugins.module_utils.reading.network import session_words
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader

SSH_PORT = 22  # where nothing says another one
# A port of sshd_config(5) or of a socket unit; an IPv6 address stands in brackets where a port follows it. The value
# may be quoted, and a comment or a routing domain may follow.
_SSH_PORT = re.compile(
    r"^[ \t]*(?:Port[ \t=]+\"?|ListenAddress[ \t=]+\"?(?:\[[^]\s]*\]|[^:\s]+):|ListenStream[ \t]*=[ \t]*(?:\S*:)?)"
    r"(\d+)\"?[ \t\r]*(?:[#r].*)?$",
    re.MULTILINE | re.IGNORECASE,
)
_SSH_INCLUDE = re.compile(r"^[ \t]*Include[ \t=]+(.*)$", re.MULTILINE | re.IGNORECASE)
_SSH_FOLDERS = (
    "/etc/ssh/sshd_config.d",
    "/etc/systemd/system/ssh.socket.d",
    "/run/systemd/generator/ssh.socket.d",
)


def read_ssh_ports(host: HostReader) -> list[int]:
    """Where sshd listens: what this very session came in by, and what its files say, those of its socket unit too."""
    files = ["/etc/ssh/sshd_config"]
    for folder in _SSH_FOLDERS:
        files += [f"{folder}/{name}" for name in host.names(folder) if name.endswith(".conf")]
    said = []
    for file in files:  # which grows by what they include
        text = host.system.text(file) or ""
        said += _SSH_PORT.findall(text)
        files += [found for found in _ssh_included(host, text) if found not in files]
    words = host.system.once(session_words)
    return sorted({int(port) for port in [*said, *(words or ())[3:]] if port.isdigit()} or {SSH_PORT})


def _ssh_included(host: HostReader, text: str) -> list[str]:
    """The files that a file of sshd includes, where only their names are a pattern, and not those of folders."""
    found = []
    for pattern in (word.strip('"') for line in _SSH_INCLUDE.findall(text) for word in line.split()):
        folder, __, name = os.path.join("/etc/ssh", pattern).rpartition("/")  # noqa: PTH118 - a path on the host
        if folder not in _SSH_FOLDERS:  # those are read anyway
            from fnmatch import fnmatchcase  # rarely needed, and each probe would pay for it

            found += [f"{folder}/{entry}" for entry in host.names(folder) if fnmatchcase(entry, name)]
    return found
