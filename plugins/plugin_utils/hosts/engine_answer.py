# SPDX-License-Identifier: GPL-3.0-or-later
"""What an answer of the engine looks like (module_utils/engine/remote.py): every value of it is checked on arrival.

A host may be sick or hostile: what it says must neither keep a run waiting for ever nor end it for the others.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, NotRequired, TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.reading.spark_facts import Facts
from ansible_collections.gb10.fleet.plugins.module_utils.reading.stop_requests import ShownWish
from ansible_collections.gb10.fleet.plugins.module_utils.system.values import AtMost, Between, Matching
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import schema

# A host goes back within some 20 s for each rail and 70 s more (engine/kinds.py); a Spark has four rails.
LONGEST_GUARD_S = 600
MOST_COMMANDS = 10**6
MOST_RESOURCES = 10_000  # of a list; all roles together have some hundreds. A rollout keeps them of each of its steps


# A person pastes it into a command line.
_Consent = Annotated[str, Matching(re.compile(r"[A-Za-z_]\w{0,99}\Z", re.ASCII), "the name of a consent")]
_Role = Annotated[str, Matching(schema.ROLE, "the name of a role")]


class Change(TypedDict):
    role: _Role
    resource: str
    action: str
    detail: NotRequired[str]
    consent: NotRequired[_Consent]


class Orphan(TypedDict):
    role: _Role
    resource: str


class Guard(TypedDict):
    id: str
    seconds: Annotated[float, Between(0, LONGEST_GUARD_S)]
    resources: list[str]


class Failure(TypedDict):
    kind: str
    message: str


class Answer(TypedDict):
    """All but the facts, whose types are with their readers."""

    stale: list[str]
    changes: Annotated[list[Change], AtMost(MOST_RESOURCES)]
    pending: Annotated[list[Change], AtMost(MOST_RESOURCES)]
    orphans: Annotated[list[Orphan], AtMost(MOST_RESOURCES)]
    diff: list[dict[str, str]]
    wishes: list[ShownWish]
    ends: list[str]
    known: bool
    recorded: bool
    guard: Guard | None
    error: Failure | None
    subprocesses: Annotated[int, Between(0, MOST_COMMANDS)]


def problem(answer: dict[str, Any]) -> str | None:
    """The first value that is missing or not what it must be, in words; of the facts only those that are there."""
    if "facts" not in answer:
        return "answer.facts is missing"
    wrong = schema.unsound(answer["facts"], Facts, "facts") if answer["facts"] is not None else None
    return wrong or schema.problem(answer, Answer, "answer")


def known(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer that has no problem, without what nobody has judged."""
    return {**schema.known(answer, Answer), "facts": schema.known(answer["facts"], Facts | None)}
