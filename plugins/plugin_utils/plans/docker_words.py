# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of `docker run` that give a container the host: its rights, its processes or its files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_ANY = re.compile(r"")
# The files of the host's system, among them the socket of Docker: who reaches that is root on the host.
_SYSTEM = re.compile(
    r"(/+|/*/(bin|boot|dev|etc|home|lib|lib64|media|mnt|opt|proc|root|run|sbin|srv|sys|usr|var|var/(lib|run))/*"
    r"|.*(docker|containerd)[^/]*[.]sock|/+(boot|dev|etc|proc|root|run|sys|usr|var/run|var/lib/(docker|containerd))/.*"
    r"|.*/[.][.](/.*)?)\Z"
)
_WIDE = {
    "--privileged": _ANY,
    "--pid": _ANY,
    "--userns": _ANY,
    "--uts": _ANY,
    "--cgroupns": _ANY,
    "--cgroup-parent": _ANY,
    "--cap-add": _ANY,
    "--security-opt": _ANY,
    "--volumes-from": _ANY,
    "--device-cgroup-rule": _ANY,
    "--device": re.compile(r"/dev/(?!nvidia|infiniband(/|:|\Z))"),
}
# What no server has as a flag of its own. --pid and --network may be one, but hardly with this value.
_NEVER_A_SERVERS = {"--privileged", "--cap-add", "--security-opt", "--userns", "--cgroupns", "--volumes-from"}
_HOSTS_OWN = {f"{flag}=host" for flag in ("--pid", "--ipc", "--uts", "--network", "--net")}
_SHORT_VOLUME = re.compile(r"-[a-zA-Z]*?v=?(?P<value>.*)\Z", re.DOTALL)
_SOURCE = re.compile(r"(?:\A|,)(?:source|src)=(?P<value>[^,]*)")


def wide(words: Sequence[str]) -> list[str]:
    """The options among these of `docker run` that give it the host, as they are written."""
    return list(dict.fromkeys(_wide(words)))


def meant_for_docker(words: Sequence[str]) -> list[str]:
    """Words of a server that only Docker understands."""
    return [word for word in words if word.partition("=")[0] in _NEVER_A_SERVERS or word in _HOSTS_OWN]


def _wide(words: Sequence[str]) -> Iterator[str]:
    for word, following in zip(words, (*words[1:], ""), strict=True):
        flag, equals, value = word.partition("=")
        said = word if equals or flag == "--privileged" else f"{word} {following}".strip()
        value = value if equals else following
        if short := None if word.startswith("--") else _SHORT_VOLUME.match(word):
            flag, value = "--volume", short["value"] or following
            said = word if short["value"] else f"{word} {following}"
        if flag in _WIDE and _WIDE[flag].match(value):
            yield said
        if flag == "--volume" and _SYSTEM.match(value.partition(":")[0]):
            yield said
        if flag == "--mount" and (found := _SOURCE.search(value)) and _SYSTEM.match(found["value"]):
            yield said
