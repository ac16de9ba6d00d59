"""What a journal may say of a run. It is a file, so a disk or a hand may have changed it.

Everything behind the journal relies on these types, as on those of a host's answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import Annotated, Any, NotRequired, TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.system.values import Between, Filled, Holding, Matching, Parsed
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import schema

# Of a host. `planned`, `running` and `done` are the way of a good one; each other word says what is wrong.
GOOD = ("planned", "running", "done")
BAD = ("failed", "unreachable", "rescued", "ignored", "absent", "unhealthy", "timed_out", "skipped")
_FORM = "%Y-%m-%dT%H:%M:%SZ"


def text_of(moment: datetime) -> str:
    """As all files of the project have times: 2026-11-21T01:02:03Z."""
    return moment.astimezone(UTC).strftime(_FORM)


def moment_of(text: str) -> datetime:
    """Read such a time; ValueError where it is none."""
    return datetime.strptime(text, _FORM).replace(tzinfo=UTC)


def first_line(text: str) -> str:
    """What a long reason says first; a line that ends in a colon, as the doctor's refusal, says it in the next one."""
    said, *more = text.splitlines() or [""]
    if more and said.endswith(":"):
        said, more = f"{said} {more[0].strip()}", more[1:]
    return f"{said} ..." if more else said


def _words(words: tuple[str, ...]) -> Holding:
    return Matching(re.compile(rf"({'|'.join(words)})\Z"), f"one of {', '.join(words)}")


def _in_our_days(text: str) -> object:
    if not text.startswith("20"):  # what is counted on from the year 9999 is behind all dates
        raise ValueError
    return moment_of(text)


Name = Annotated[str, Matching(re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}\Z"), "the name of a run")]  # of files, too
_Path = Annotated[str, Matching(re.compile(r"[^\0]+\Z"), "a path")]
_Time = Annotated[str, Parsed(_in_our_days, "a time like 2026-11-21T01:02:03Z")]
_Count = Annotated[int, Between(0, 10**6)]
_State = Annotated[str, _words((*GOOD, *BAD))]


class Play(TypedDict):
    import_playbook: str
    vars: NotRequired[dict[str, Any]]


class _Step(TypedDict):
    plays: list[Play]


class _To(TypedDict):
    driver_host_set: NotRequired[str]
    vllm_image: NotRequired[str]
    release_update_to: NotRequired[str]


class _Order(TypedDict):
    """What an order says, closer than the types of a recipe."""

    inventories: list[_Path]
    directory: _Path
    steps: Annotated[list[_Step], Filled()]
    to: _To


class Run(TypedDict):
    run: Name
    kind: Annotated[str, _words(("rollout", "rollback"))]
    of: Name | None
    version: str
    attempt: _Count
    created: _Time
    ended: _Time | None
    outcome: str | None
    reason: str | None


def _is_change(said: object) -> bool:
    """Tell it without a type, which takes longer: a large fleet has hundreds of thousands."""
    if not isinstance(said, dict):
        return False
    role, more = said.get("role"), ("action", "detail")
    return (
        isinstance(role, str)
        and bool(schema.ROLE.match(role))
        and isinstance(said.get("resource"), str)
        and all(isinstance(said.get(key, ""), str) for key in more)
    )


class Host(TypedDict):
    host: str
    cluster: str | None
    state: _State
    reason: str | None
    started: _Time | None
    ended: _Time | None
    changes: object


class Wave(TypedDict):
    wave: _Count
    clusters: list[str]
    state: Annotated[str, _words(("planned", "running", "done", "stopped"))]
    step: _Count
    started: _Time | None
    ended: _Time | None
    evidence: _Path | None
    hosts: list[Host]


class Parts(TypedDict):
    waves: list[Wave]


class Board(TypedDict):
    """What tells one board from another: the digest of its machine id, new with each installation; its MACs."""

    machine: str | None
    macs: list[str]


class Event(TypedDict):
    at: _Time
    wave: _Count | None
    kind: str
    data: dict[str, object]


def refuse_run(run: Mapping[str, Any]) -> None:
    """Raise ValueError with the first word of a run, its order or its policy that cannot be."""
    from gb10_fleet.rollout.recipes import Recipe  # here, for it needs the journal
    from gb10_fleet.rollout.waves import Policy

    refuse(run, Run, "run")
    for key, kind in (("order", Recipe), ("policy", Policy)):
        refuse(run[key], kind, key)
        if unknown := run[key].keys() - {field.name for field in fields(kind)}:
            raise ValueError(f"{key}.{min(unknown)} is not known")
    refuse(run["order"], _Order, "order")


def refuse_parts(parts: Mapping[str, Any]) -> None:
    """Raise ValueError with the first word of its waves that cannot be."""
    refuse(parts, Parts, "run")
    numbers = [wave["wave"] for wave in parts["waves"]]
    if numbers != [*range(1, len(numbers) + 1)]:
        raise ValueError(f"its waves are {numbers}")
    for host in (host for wave in parts["waves"] for host in wave["hosts"]):
        if not isinstance(host["changes"], list) or not all(map(_is_change, host["changes"])):
            raise ValueError(f"the changes of {host['host']} are no list of changes")


def refuse(said: object, kind: Any, where: str) -> None:
    """Raise ValueError with the first value that is not what its type says."""
    if wrong := schema.problem(said, kind, where):
        raise ValueError(wrong)
