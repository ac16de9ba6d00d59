# SPDX-License-Identifier: GPL-3.0-or-later
"""What the unit is to run, and all figures: /etc/gb10-fleet/vllm.json, which has no secret in it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .warm import Wish


class Member(NamedTuple):
    """A host of the cluster; the first one is the head."""

    name: str
    address: str


class Join(NamedTuple):
    """`settings` are what all members must say alike: names, and digests of their values. `key` names a file."""

    rank: int
    members: tuple[Member, ...]
    port: int
    key: str
    settings: Mapping[str, str]


class WatchedRail(NamedTuple):
    """A rail that must be up; `gid` is its address as the GID table of its HCA shows it."""

    netdev: str
    hca: str
    hca_port: int
    gid: str
    address: str


class Api(NamedTuple):
    """Where the server takes requests."""

    address: str
    port: int


class Timing(NamedTuple):
    """Seconds."""

    heartbeat: float  # between signs of life
    silence: float  # after which a peer is lost, and a rail
    greeting: float  # within which a connection says who it is
    retry: float  # between two checks for what is missing
    gate: float  # for one check of the host
    stop: float  # for vLLM to end by itself
    gone: float  # for a container to end whose engine is gone
    door: float  # for the container to be all that listens, when its log says that it serves
    fault_memory: float  # within which faults of the host itself count


class Config(NamedTuple):
    service: str
    container: str
    argv: tuple[str, ...]
    image: str
    memory_gib: int
    cache: str
    disk_gib: float
    faults: int  # of the host itself, after which the unit stays down
    load_s: float  # after which others may load, though nothing said that this one serves
    ready_url: str | None  # answers 200 when it serves; None of vLLM, whose log says so
    api: Api | None  # of a rank without an API there is none
    env_file: str | None
    gid_file: str | None
    warm: Wish | None  # where it has a warm cache
    measures: Mapping[str, Any]  # what a start is that is measured: image, model, revision and flags; empty: none is
    rails: tuple[WatchedRail, ...]
    join: Join | None
    timing: Timing
    phases: tuple[tuple[str, re.Pattern[str]], ...]
    failures: tuple[tuple[str, re.Pattern[str]], ...]
    places: tuple[tuple[str, re.Pattern[str]], ...]  # code that raises an error whose words nobody knows
    remarks: tuple[tuple[str, re.Pattern[str]], ...]  # what is no end, and not as it should be
    docker_said: tuple[tuple[str, re.Pattern[str]], ...]
    measured: tuple[re.Pattern[str], ...]  # lines with what a start took
    gone: tuple[re.Pattern[str], ...]  # what only says that the engine is gone
    digest: str  # of all of it: another one is another model

    @property
    def docker(self) -> str:
        return self.argv[0]


def parse_config(text: str) -> Config:
    raw = json.loads(text)
    join = raw["join"]
    return Config(
        service=raw["service"],
        container=raw["container"],
        argv=_as_root(raw["argv"]) if raw["env_file"] else tuple(raw["argv"]),
        image=raw["image"],
        memory_gib=raw["memory_gib"],
        cache=raw["cache"],
        disk_gib=raw["disk_gib"],
        faults=raw["faults"],
        load_s=raw["load_s"],
        ready_url=raw["ready_url"],
        api=raw["api"] and Api(**raw["api"]),
        env_file=raw["env_file"],
        gid_file=raw["gid_file"],
        warm=raw["warm"] and Wish(raw["warm"]["shelf"], raw["warm"]["flags"], tuple(raw["warm"]["markers"])),
        measures=raw["measures"],
        rails=tuple(WatchedRail(**rail) for rail in raw["rails"]),
        join=join
        and Join(
            rank=join["rank"],
            members=tuple(Member(**member) for member in join["members"]),
            port=join["port"],
            key=join["key"],
            settings={name: sha256(json.dumps(value, sort_keys=True)) for name, value in join["settings"].items()},
        ),
        timing=Timing(**raw["timing"]),
        phases=_patterns(raw["phases"]),
        failures=_patterns(raw["failures"], re.IGNORECASE),
        places=_patterns(raw["places"], re.IGNORECASE),
        remarks=_patterns(raw["remarks"]),
        docker_said=_patterns(raw["docker_said"], re.IGNORECASE),
        measured=tuple(re.compile(pattern) for pattern in raw["measured"]),
        gone=tuple(re.compile(pattern) for pattern in raw["gone"]),
        digest=sha256(text),
    )


def _as_root(argv: Sequence[str]) -> tuple[str, ...]:
    """An image may name a user, and a login of the host with that number reads the environment, with the key in it."""
    docker, run, *words = argv
    return (docker, run, "--user=0:0", *words)


def _patterns(named: Sequence[Sequence[str]], flags: int = 0) -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((name, re.compile(pattern, flags)) for name, pattern in named)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
