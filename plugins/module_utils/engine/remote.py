# SPDX-License-Identifier: GPL-3.0-or-later
"""The door of the engine on a host: one request, one answer, both JSON.

A request asks for the facts and for one of four things: to converge (or only to look, in check mode), the drift, an
undo, or a wish of the operator's. Whatever is in it, the answer is one: what is wrong with a request is named by its
field.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ansible_collections.gb10.fleet.plugins.module_utils.engine import guard, wishes
from ansible_collections.gb10.fleet.plugins.module_utils.engine.converge import converge
from ansible_collections.gb10.fleet.plugins.module_utils.engine.drift import drift
from ansible_collections.gb10.fleet.plugins.module_utils.engine.engine import (
    ROLE,
    ApplyError,
    Document,
    Outcome,
    Run,
    parse_documents,
    verify,
)
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.common import CONSENT, DocumentError, shown
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.profile_resource import Profile
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.profiles import wait_for_checkpoint
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.rail_proof import prove
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.units import UNIT
from ansible_collections.gb10.fleet.plugins.module_utils.engine.undo import undo
from ansible_collections.gb10.fleet.plugins.module_utils.reading.spark_facts import collect
from ansible_collections.gb10.fleet.plugins.module_utils.system import lock
from ansible_collections.gb10.fleet.plugins.module_utils.system import manifest as manifests
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError, System, sha256

_VERBS = ("converge", "drift", "undo", "wish")
_WISHES = ("stopped", "started")
_ORPHANS = ("show", "remove")
_PROJECT = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+-]{0,63}\Z")
_RUN = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.@:+\\ -]{0,199}\Z")
_ROLLOUT = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")
_KEY = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")
_GUARD = re.compile(r"[0-9a-f]{16}\Z")
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_UNTIL = re.compile(r"[0-9A-Za-z:+.-]{0,40}\Z")
_PATH = re.compile(r"/[^\0-\x1f\x7f]{0,4095}\Z")
_MAX_PATHS = 100
# In the environment, of a program of this host that has looked at the manifest: its time as that program saw it.
_SEEN = "GB10_MANIFEST_NS"


class Asked(NamedTuple):
    """A wish: of which unit, what, and until when (empty: until another one)."""

    unit: str
    state: str
    until: str


class Request(NamedTuple):
    """A request that is sound. `facts`: disks and folders of models that the facts tell of; None: no facts are wanted.

    `guard`: an id under which the way back from a change of the network is left armed, for a call over a new
    connection, which repeats the request with that id as `confirm`. Whoever asks makes it up, so that it is known where
    the change cuts off the answer. Without either, what holds at the end of this call is kept.
    """

    verb: str
    check: bool
    document: Document
    expect: Mapping[str, str]
    facts: dict[str, list[str]] | None
    run: Run
    remove_orphans: bool
    removes: list[str]  # roles of which no orphan stays, whatever `remove_orphans` says
    roles: list[str] | None
    known_roles: list[str]
    of: str | None  # the rollout that an undo takes back
    wish: Asked | None
    guard: str | None
    confirm: str | None


def answer(request: Any, system: System) -> dict[str, Any]:
    """What the host says to a request. Never raises for what the request or the host is like."""
    said: dict[str, Any] = {
        "facts": None,
        "stale": [],
        "changes": [],
        "pending": [],
        "orphans": [],
        "diff": [],
        "wishes": [],
        "ends": [],
        "known": True,
        "recorded": True,
        "guard": None,
        "error": None,
    }
    guarded: list[str] = []  # what goes back to how it was, unless the change of the network is confirmed
    try:
        parsed = parse_request(request)
        guarded = [profile.label for profile in _profiles(parsed)]
        _carry_out(parsed, system, said)
    except DocumentError as error:
        said["error"] = {"kind": "request", "message": str(error)}
    except ApplyError as error:
        said.update(changes=error.changes, facts=None)  # what the facts say is no longer true
        said["error"] = {"kind": "apply", "message": str(error)}
    except lock.Busy as error:
        said["error"] = {"kind": "busy", "message": str(error)}
    except HostError as error:
        said["error"] = {"kind": "host", "message": str(error)}
    except Exception as error:  # the controller must get an answer, and a traceback may quote a secret
        said["error"] = {"kind": "host", "message": f"this is a defect of gb10-fleet: {_place(error)}"}
    if system.guard is not None:  # it waits for a word, also where this call failed and could not take the change back
        said["guard"] = {"id": system.guard, "seconds": guard.left_s(system), "resources": guarded}
    return {**said, "subprocesses": system.commands}


def fact_digest(value: Any) -> str:
    """The SHA-256 of a fact in canonical JSON."""
    return sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())


def _carry_out(request: Request, system: System, said: dict[str, Any]) -> None:
    if not system.privileged:
        said["facts"] = _facts(request, system)
        raise HostError("the state of a host is for root to see and to change; set become: true")
    writes = request.verb != "drift" and not request.check
    # The call that is to be confirmed may be at work yet, without a connection: then it ends before its guard fires.
    patience = max(lock.PATIENCE_S, guard.left_s(system)) if request.confirm else lock.PATIENCE_S
    while True:
        with lock.held(system, request.run.name, exclusive=writes, patience=patience):
            if request.confirm or not guard.waits(system):
                _carry_out_as_seen(request, system, said, writes)
                return
        system.clock.sleep(1.0)  # the call that confirms what another run has changed needs the lock


def _carry_out_as_seen(request: Request, system: System, said: dict[str, Any], writes: bool) -> None:
    """Who looked had no lock yet. Of another manifest he knows nothing; of this one he hears what became of it."""
    seen = os.environ.get(_SEEN)
    if seen not in (None, str(manifests.changed_ns(system))):
        said["stale"] = ["manifest"]
        return
    try:
        _carry_out_alone(request, system, said, writes)
    finally:
        if seen is not None:
            said["changed_ns"] = manifests.changed_ns(system)


def _carry_out_alone(request: Request, system: System, said: dict[str, Any], writes: bool) -> None:
    if writes:
        _settle_guard(request, system)  # before the facts, which it may change
    facts = said["facts"] = _facts(request, system)
    if facts is not None:
        said["stale"] = [
            key for key, digest in request.expect.items() if key not in facts or fact_digest(facts[key]) != digest
        ]
    if said["stale"]:
        return
    outcome = _outcome(request, system)
    if outcome is None:
        said["known"] = False
        return
    said.update(vars(outcome))
    if writes and outcome.changes:
        system.forget()
        said["facts"] = _facts(request, system)


def _settle_guard(request: Request, system: System) -> None:
    """The way back that an earlier call left armed: confirmed if this call is the word it waits for."""
    system.confirmed_as = request.guard or request.confirm
    profiles = _profiles(request)
    if request.confirm is None:
        guard.take_over(system, lambda system: wait_for_checkpoint(system, len(profiles)))
        return

    def holds() -> None:
        verify(Document(tuple(profiles), request.document.consents), [], system)
        prove(system, profiles)

    guard.confirm(system, request.confirm, holds)
    system.confirmed_as = None


def _profiles(request: Request) -> list[Profile]:
    return [item for item in request.document.resources if isinstance(item, Profile)]


def _outcome(request: Request, system: System) -> Outcome | None:
    if request.verb == "drift":
        return drift(system)
    if request.verb == "undo":
        return undo(
            system,
            request.run,
            request.roles,
            request.document.consents,
            known_roles=request.known_roles,
            of=request.of,
            check_mode=request.check,
        )
    if request.wish is not None:
        unit, state, until = request.wish
        if state == "started":
            return wishes.start(system, unit, check_mode=request.check)
        return wishes.stop(system, unit, request.run.name.partition(" ")[0], until, check_mode=request.check)
    removes = request.document.roles if request.remove_orphans else request.removes
    return converge(request.document, system, request.run, check_mode=request.check, removes=removes)


def _facts(request: Request, system: System) -> Mapping[str, object] | None:
    return None if request.facts is None else collect(HostReader(system=system), **request.facts)


def _place(error: Exception) -> str:
    """The type of an unexpected error and where it was raised: nothing of what it says, which may be a secret."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__name__
    code = trace.tb_frame.f_code
    file = code.co_filename.rpartition("/")[2]
    return f"{type(error).__name__} in {code.co_name}, line {trace.tb_lineno} of {file}"


# -- the request -------------------------------------------------------------------------------------------------------


def parse_request(request: Any) -> Request:
    """The request, or DocumentError with the field that is wrong. Looks at nothing but its argument."""
    if not isinstance(request, dict):
        raise DocumentError("request: expected a JSON object")
    fields = dict(request)

    def take(name: str, check: Callable[[str, Any], Any], *default: Any) -> Any:
        if name not in fields and not default:
            raise DocumentError(f"{name}: is missing")
        return check(name, fields.pop(name)) if name in fields else default[0]

    verb = take("verb", _one_of(_VERBS))
    documents = take("documents", _documents, *([] if verb == "converge" else [[]]))
    parsed = Request(
        verb=verb,
        check=take("check", _flag),
        document=parse_documents(documents, take("consents", _consents, {})),
        expect=take("expect", _expect, {}),
        facts=take("facts", _asked_facts, None),
        run=Run(take("run", _line(_RUN, "who runs this")), take("project", _line(_PROJECT, "a version"))),
        remove_orphans=take("orphans", _one_of(_ORPHANS), "show") == "remove",
        removes=take("removes", _roles, None) or [],
        roles=take("roles", _roles, None),
        known_roles=take("known_roles", _roles, None) or [],
        of=take("of", _line(_ROLLOUT, "a rollout"), None),
        wish=take("wish", _wish, *([] if verb == "wish" else [None])),
        guard=take("guard", _line(_GUARD, "16 hexadecimal digits"), None),
        confirm=take("confirm", _line(_GUARD, "16 hexadecimal digits"), None),
    )
    if (verb == "wish") != (parsed.wish is not None):
        raise DocumentError("wish: belongs to the verb wish, and to no other")
    if fields:
        raise DocumentError(f"{shown(min(fields, key=str))[1:-1]}: a request has no such field")
    if parsed.expect and parsed.facts is None:
        raise DocumentError("expect: there are digests of facts to compare, but no facts are asked for")
    return parsed


def _one_of(choices: tuple[str, ...]) -> Callable[[str, Any], str]:
    def check(name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in choices:
            raise DocumentError(f"{name}: expected one of {', '.join(choices)}, found {shown(value)}")
        return value

    return check


def _line(pattern: re.Pattern[str], expected: str) -> Callable[[str, Any], str]:
    def check(name: str, value: Any) -> str:
        if not isinstance(value, str) or not pattern.match(value):
            raise DocumentError(f"{name}: expected {expected}, found {shown(value)}")
        return value

    return check


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise DocumentError(f"{name}: expected true or false, found {shown(value)}")
    return value


def _mapping(name: str, value: Any, key: re.Pattern[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DocumentError(f"{name}: expected a mapping, found {shown(value)}")
    for found in value:
        if not isinstance(found, str) or not key.match(found):
            raise DocumentError(f"{name}: {shown(found)} is no name that it may hold")
    return value


def _list(name: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise DocumentError(f"{name}: expected a list, found {shown(value)}")
    return value


def _documents(name: str, value: Any) -> list[tuple[Any, Any]]:
    documents = []
    for place, document in enumerate(_list(name, value)):
        if not isinstance(document, dict) or document.keys() != {"role", "resources"}:
            raise DocumentError(f"{name}[{place}]: expected a mapping with role and resources, found {shown(document)}")
        documents.append((document["role"], document["resources"]))
    return documents


def _consents(name: str, value: Any) -> dict[str, bool]:
    return {key: _flag(f"{name}.{key}", item) for key, item in _mapping(name, value, CONSENT).items()}


def _expect(name: str, value: Any) -> dict[str, str]:
    digest = _line(_DIGEST, "a SHA-256 in hexadecimal")
    return {key: digest(f"{name}.{key}", item) for key, item in _mapping(name, value, _KEY).items()}


def _asked_facts(name: str, value: Any) -> dict[str, list[str]] | None:
    if value is None:
        return None
    if not isinstance(value, dict) or not {"paths"} <= value.keys() <= {"paths", "models"}:
        raise DocumentError(f"{name}: expected null or a mapping with paths, found {shown(value)}")
    return {key: _fact_paths(f"{name}.{key}", paths) for key, paths in value.items()}


def _fact_paths(name: str, value: Any) -> list[str]:
    paths = _list(name, value)
    if len(paths) > _MAX_PATHS:
        raise DocumentError(f"{name}: expected at most {_MAX_PATHS}, found {len(paths)}")
    absolute = _line(_PATH, "an absolute path")
    return [absolute(f"{name}[{place}]", path) for place, path in enumerate(paths)]


def _wish(name: str, value: Any) -> Asked | None:
    if value is None:
        return None
    if not isinstance(value, dict) or value.keys() != {"unit", "state", "until"}:
        raise DocumentError(f"{name}: expected a mapping with unit, state and until, found {shown(value)}")
    return Asked(
        _line(UNIT, "the full name of a unit")(f"{name}.unit", value["unit"]),
        _one_of(_WISHES)(f"{name}.state", value["state"]),
        _line(_UNTIL, "a time")(f"{name}.until", value["until"]),
    )


def _roles(name: str, value: Any) -> list[str] | None:
    role = _line(ROLE, "the name of a role")
    return None if value is None else [role(f"{name}[{place}]", item) for place, item in enumerate(_list(name, value))]
