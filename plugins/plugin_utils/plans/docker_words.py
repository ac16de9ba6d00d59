# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of `docker run`: the few that a container on trial may have, and those that are no server's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import host_folders

# As Docker has them.
LIMITS = (
    *("as", "core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc", "rss", "rtprio"),
    *("rttime", "sigpending", "stack"),
)
_LIMIT = re.compile(r"(-1|[0-9]{1,19})(:(-1|[0-9]{1,19}))?\Z", re.ASCII)
HIGHEST_LIMIT = 2**63 - 1  # Docker reads 64 bits
_NO_LIMIT = -1
# Of a GPU and of RDMA, in one way of writing.
_DEVICE = re.compile(
    r"(nvidia[.]com/gpu=[\w:.-]+|/dev/nvidia[\w-]*|/dev/nvidia-caps/[\w-]+|/dev/infiniband(/[\w-]+)?)\Z", re.ASCII
)
_SIZE = r"[0-9]{1,12}([.][0-9]{1,3})?[bkmgBKMG]?\Z"
# What no server has as a flag of its own. --pid and --network may be one, but hardly with this value.
_NEVER_A_SERVERS = {"--privileged", "--cap-add", "--security-opt", "--userns", "--cgroupns", "--volumes-from"}
_HOSTS_OWN = {f"{flag}=host" for flag in ("--pid", "--ipc", "--uts", "--network", "--net")}
_BARE = {"--init", "--interactive", "--read-only", "--rm", "--tty"}
_SHORT = {"i": "--interactive", "t": "--tty", "v": "--volume", "m": "--memory"}


def is_limit(value: str) -> bool:
    """SOFT or SOFT:HARD, where -1 is none, and no soft one is above its hard one."""
    if not _LIMIT.match(value):
        return False
    soft, __, hard = value.partition(":")
    figures = [int(each) for each in (soft, hard or soft)]
    low, high = (HIGHEST_LIMIT if each == _NO_LIMIT else each for each in figures)
    return low <= high <= HIGHEST_LIMIT


def _ulimit(value: str) -> bool:
    name, __, limit = value.partition("=")
    return name in LIMITS and is_limit(limit)


def _volume(value: str) -> bool:
    """A folder of its own, at an absolute path in the container."""
    host, __, rest = value.partition(":")
    inside, colon, mode = rest.partition(":")
    return host_folders.may_be_mounted(host) and host_folders.is_path(inside) and (not colon or mode == "ro")


def _like(pattern: str) -> Callable[[str], bool]:
    return lambda value: re.match(pattern, value, re.ASCII) is not None


# An option that takes a value, and which values; whatever is in neither list is refused.
_VALUED: dict[str, Callable[[str], bool]] = {
    "--cpus": _like(r"[0-9]{1,3}([.][0-9]{1,3})?\Z"),
    "--cpuset-cpus": _like(r"[0-9]{1,3}([,-][0-9]{1,3})*\Z"),
    "--device": _like(_DEVICE.pattern),
    "--gpus": _like(r"(all|[0-9]{1,2}|device=[\w.-]+)\Z"),
    "--ipc": _like(r"host\Z"),  # which a trial has anyway
    "--memory": _like(_SIZE),
    "--memory-reservation": _like(_SIZE),
    "--memory-swap": _like(rf"-1\Z|{_SIZE}"),
    "--pids-limit": _like(r"[0-9]{1,7}\Z"),
    "--shm-size": _like(_SIZE),
    "--ulimit": _ulimit,
    "--volume": _volume,
}
ALLOWED = tuple(sorted((*_BARE, *_VALUED)))


def refused(words: Sequence[str]) -> list[str]:
    """Those of these words of `docker run` that no container on trial may have, as they are written."""
    return list(dict.fromkeys(_refused(list(words))))


def meant_for_docker(words: Sequence[str]) -> list[str]:
    """Words of a server that only Docker understands."""
    return [word for word in words if word.partition("=")[0] in _NEVER_A_SERVERS or word in _HOSTS_OWN]


def _refused(words: list[str]) -> Iterator[str]:
    """Read from left to right as Docker does: an option that takes a value takes the next word, whatever that is."""
    while words:
        word = words.pop(0)
        option, value = _read(word)
        if value is None and option in _BARE:
            continue
        following = words[:1] if value is None and word.startswith("-") else []
        if option not in _VALUED and following and following[0].startswith("-"):
            following = []  # of an option that nobody knows: the next one is judged by itself
        del words[: len(following)]
        if value is None and following:
            value = following[0]
        if option not in _VALUED or value is None or not _VALUED[option](value):
            yield " ".join([word, *following])


def _read(word: str) -> tuple[str, str | None]:
    """The long name of an option, and the value in the same word; short ones may stand together, the last with one."""
    if word.startswith("--") or not word.startswith("-"):
        option, equals, value = word.partition("=")
        return option, value if equals else None
    for at, letter in enumerate(word[1:], start=1):
        option, rest = _SHORT.get(letter, ""), word[at + 1 :]
        if option in _BARE and rest:
            continue
        return option, (rest.removeprefix("=") if rest else None)
    return "", None
