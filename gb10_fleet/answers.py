"""What each command prints with `--json`: one table of types, and the schema that follows from them.

docs/json.md shows it, answers.schema.json is the same for programs, and each answer in a unit test is held to it.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, Union, get_args, get_origin, get_type_hints, is_typeddict

from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import Finding
from ansible_collections.gb10.fleet.plugins.plugin_utils.health.rows import Row
from ansible_collections.gb10.fleet.plugins.plugin_utils.health.why import Cause
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.comparison import Contradiction
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.recipes import Recipe
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.rules import Fired

from gb10_fleet.seed.store import Seed
from gb10_fleet.switch.judging import Seen, SwitchName, SwitchRail, Verdict

End = Literal["done", "failed", "unreachable", "refused", "drift", "partial", "unfinished", "interrupted"]


class Error(TypedDict):
    """A question that cannot be asked so: a wrong option, an inventory that is not there."""

    error: str
    outcome: NotRequired[End]


class Counts(TypedDict):
    """Tasks of a host, as Ansible's recap counts them."""

    ok: int
    changed: int
    unreachable: int
    failed: int


class Ended(TypedDict):
    """How a run ended; `messages`: why something failed, by host; `errors` of Ansible come before any task."""

    outcome: End
    messages: dict[str, list[str]]
    errors: list[str]


class Ran(Ended):
    """A run of a playbook. Any command that gets no answer prints this in its place."""

    playbook: str
    hosts: dict[str, Counts]
    findings: list[Finding]
    evidence: str | None
    drift: NotRequired[dict[str, Any]]  # drift.schema.json


class Changed(Ran):
    """A run that changes hosts; by host, each entry with role, resource and action."""

    changes: dict[str, list[dict[str, Any]]]
    pending: dict[str, list[dict[str, Any]]]
    orphans: dict[str, list[dict[str, Any]]]


class Explained(TypedDict):
    """What was decided for a host, by role."""

    uncertain: list[str]
    roles: dict[str, dict[str, Any]]


class WhyHost(TypedDict):
    """What happened to a host."""

    host: str
    at: str
    uptime_s: float | None
    causes: list[Cause]
    findings: list[Finding]
    unsure: dict[str, Any]
    timeline: list[dict[str, Any]]
    unknown: dict[str, str]
    load: NotRequired[dict[str, Any]]
    cold_power: NotRequired[str]  # where a cold start may cure it


class Why(Ended):
    """The likeliest causes; `findings` are of hosts without an answer."""

    hosts: list[WhyHost]
    findings: list[Finding]


class Releases(TypedDict):
    """Which release each host has."""

    outcome: End
    messages: dict[str, list[str]]
    newest: dict[str, Any] | None
    newer: dict[str, Any] | None
    hosts: dict[str, dict[str, Any]]
    mixed_firmware: dict[str, Any]


class Rehearsed(TypedDict):
    """What an update to a release would do."""

    outcome: End
    messages: dict[str, list[str]]
    to: dict[str, Any] | None
    hosts: dict[str, dict[str, Any]]


class Services(Ended):
    """One entry for each service on a host; `silent`: hosts without an answer; `reserved`: who has a host."""

    schema_version: int
    read: str
    silent: list[str]
    reserved: dict[str, str]
    services: list[dict[str, Any]]
    findings: list[Finding]


class Rows(Ended):
    """One look at each host."""

    hosts: list[Row]


class Planned(TypedDict):
    """How a model would be served."""

    model: str
    task: Any
    checkpoint: str | None
    quantization: str | None
    image: str
    version: str | None
    hosts: int
    args: list[str]
    environment: dict[str, str]
    utilization: float | None
    max_model_len: int | None
    fit: dict[str, Any] | None
    expected: dict[str, Any] | None
    predicted: dict[str, Any] | None
    verdict: Any
    bandwidth_limit: float
    bandwidth_limit_with_drafts: float
    path: list[str]
    reasons: list[str]
    hosts_needed: int | None
    rejected: list[dict[str, str]]
    fired: list[dict[str, Any]]
    refused: bool
    variables: dict[str, Any]
    engines: list[dict[str, Any]]
    recommended: dict[str, Any] | None
    engine: NotRequired[dict[str, Any]]


class AllPlanned(TypedDict):
    """Each model of the catalog, on one host and on two."""

    models: list[list[Planned]]


class Judged(TypedDict):
    """What is in an image, and what that comes down to."""

    facts: dict[str, Any]
    judgement: dict[str, Any]


class Built(Ended):
    """What a build came to, by host."""

    hosts: dict[str, dict[str, Any]]


class Checked(TypedDict):
    """How old the catalog's entries are, and what a newer measurement contradicts."""

    today: str
    entries: int
    oldest: str
    newest: str
    past: list[dict[str, Any]]
    contradicted: list[Contradiction]


class Spark(TypedDict):
    """A DGX Spark that answered."""

    name: str
    address: str
    port: int
    also: list[str]
    product: str
    boot_id: str
    fingerprints: Any


class Discovered(TypedDict):
    """The machines of a network."""

    outcome: End
    sparks: list[Spark]
    others: list[str]
    locked: dict[str, str]
    silent: list[str]
    duplicates: list[dict[str, Any]]
    way_out: str | None
    inventory: str | None
    known_hosts: str | None


class Seeded(TypedDict):
    """What was written for new hosts."""

    outcome: End
    seeds: list[Seed]
    images: list[str]


class Shredded(TypedDict):
    """How many files with secrets are gone."""

    outcome: End
    removed: int


class Joined(TypedDict):
    """A host that was waited for."""

    host: str
    enrolled: bool
    set_up: bool
    text: str


class Enrolled(TypedDict):
    """Hosts that were waited for."""

    outcome: End
    hosts: list[Joined]


class Shared(TypedDict):
    """A client that may use the model; `key` is a secret."""

    outcome: End
    client: str
    addresses: list[str]
    key: str
    trust: str


class Clients(TypedDict):
    """Who has a key."""

    outcome: End
    clients: list[str]
    certificate_ends: NotRequired[str]
    revoked: NotRequired[str]


class Up(TypedDict):
    """How far a first start came; what it did not reach is absent."""

    outcome: End
    error: NotRequired[str]
    hosts: NotRequired[list[str]]
    clusters: NotRequired[list[Any]]
    left_alone: NotRequired[dict[str, list[str]]]
    models: NotRequired[list[dict[str, Any]]]
    consents: NotRequired[dict[str, list[str]]]
    changes: NotRequired[Any]
    inventory: NotRequired[str]
    evidence: NotRequired[str | None]
    model: NotRequired[str | None]
    findings: NotRequired[list[Finding]]


class Waves(TypedDict):
    """The waves of a rollout that has not begun."""

    playbook: str
    policy: dict[str, Any]
    wave_s: Any
    widened: str | None
    left_out: list[str]
    waves: list[dict[str, Any]]


class SwitchChecked(Ended):
    """A switch beside what its hosts need; `switch` is null where only the hosts were asked."""

    switch: SwitchName | None
    ports: list[Seen]
    rails: list[SwitchRail]
    verdicts: list[Verdict]


class SwitchPlanned(TypedDict):
    """Commands for the switch, those back, and what no command here can do."""

    outcome: End
    switch: SwitchName | None
    commands: list[str]
    back: list[str]
    left: list[str]


class SwitchApplied(TypedDict):
    """Ports that were changed and proven; with a `reason`, those that are as before, and commands for a person."""

    outcome: End
    ports: list[str]
    reason: str
    returned: list[str]
    stuck: list[str]


class PlugSeen(TypedDict):
    """The plug of a host; `watts` is null without a meter, `error` says why nothing is known."""

    plug: str
    on: bool | None
    watts: float | None
    error: str | None


class Powered(TypedDict):
    """How the plugs are at the end, by host."""

    outcome: End
    hosts: dict[str, PlugSeen]


class Retired(TypedDict):
    """What was taken off a host; `before`, `after`: names with gb10 in them; `secrets`: what it knew, by variable."""

    outcome: End
    schema_version: int
    host: str
    at: str
    before: list[str]
    after: list[str]
    secrets: list[str]
    changes: list[dict[str, Any]]
    remains: list[str]
    keys: bool
    clients: NotRequired[list[str]]
    file: NotRequired[str]


class Replaced(TypedDict):
    """The board that has the name now."""

    outcome: End
    host: str
    address: str
    port: int
    host_key: str
    product: str


class NoRun(TypedDict):
    """There is no run."""

    run: None


class Run(TypedDict):
    """A rollout; report/report.schema.json has all of it."""

    schema_version: int
    run: str | None
    kind: str
    of: Any
    version: str
    attempt: int
    order: Any
    policy: Any
    created: str | None
    ended: str | None
    outcome: str | None
    reason: Any
    counts: Any
    models: Any
    waves: list[dict[str, Any]]


# By command: the objects that it may print. Each may print Error as well.
ANSWERS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("doctor", "drift", "validate", "benchmark"), (Ran,)),
    "site": (Changed, Ran),
    "undo": (Changed,),
    "why": (Why, Ran),
    "release": (Releases, Rehearsed, Ran),
    "ps": (Services,),
    "top": (Row, Rows),
    "status": (Run, NoRun, Rows),
    **dict.fromkeys(("rollout", "resume", "rollback"), (Run, Waves)),
    "report": (Run,),
    "plan": (Planned, AllPlanned, Recipe),
    "image inspect": (Judged, Ran),
    "image build": (Built,),
    "catalog check": (Checked,),
    "discover": (Discovered,),
    "seed": (Seeded, Shredded),
    "enrol": (Enrolled,),
    "share": (Shared, Clients),
    "up": (Up,),
    "switch check": (SwitchChecked,),
    "switch plan": (SwitchPlanned,),
    "switch apply": (SwitchApplied,),
    "power": (Powered,),
    "retire": (Retired,),
    "replace": (Replaced,),
}
_BY_HOST = {"explain": (Explained, Ran)}  # the first one by the names of hosts
COMMANDS = (*ANSWERS, *_BY_HOST)
_OPEN = {Run, Recipe}  # of a run another schema has the rest; a recipe also says what it comes to here
_ELSEWHERE = {"Fired": Fired}  # what a module of theirs imports for its types alone
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", types.NoneType: "null"}


FILE = Path(__file__).with_name("answers.schema.json")


def schema() -> dict[str, Any]:
    """Return a JSON schema with a definition for each command and for each type."""
    defined: dict[str, Any] = {}
    for command, kinds in {**ANSWERS, **_BY_HOST}.items():
        found = [_schema(kind, defined) for kind in (*kinds, Error)]
        if command in _BY_HOST:
            found[0] = {"type": "object", "additionalProperties": found[0]}
        defined[command] = {"anyOf": found}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": dict(sorted(defined.items()))}


def _schema(kind: Any, defined: dict[str, Any]) -> dict[str, Any]:
    """The schema of a type; an object goes into `defined`, under its name."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if kind is Any:
        return {}
    if kind == End:
        defined["End"] = {"description": "How a command ended.", "enum": [*parts]}
        return {"$ref": "#/$defs/End"}
    if origin is Literal:
        return {"enum": [*parts]}
    if origin in (Union, types.UnionType):
        found = [_schema(part, defined) for part in parts]
        plain = all(part.keys() == {"type"} for part in found)
        return {"type": [part["type"] for part in found]} if plain else {"anyOf": found}
    if origin in (list, tuple, Sequence):
        return {"type": "array", "items": _schema(parts[0], defined)}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _schema(parts[1], defined)}
    if kind.__name__ not in defined:
        defined[kind.__name__] = {}  # one that has itself as a part
        defined[kind.__name__] = _object(kind, defined)
    return {"$ref": f"#/$defs/{kind.__name__}"}


def _object(kind: Any, defined: dict[str, Any]) -> dict[str, Any]:
    fields = _fields(kind)
    return {
        "type": "object",
        "description": " ".join(str(kind.__doc__).split()),
        "required": [name for name, (_, needed) in fields.items() if needed],
        "additionalProperties": kind in _OPEN,
        "properties": {name: _schema(part, defined) for name, (part, _) in fields.items()},
    }


def _fields(kind: Any) -> dict[str, tuple[Any, bool]]:
    """Each field with its type, and whether it is always there; a dataclass has all of its own."""
    hints = get_type_hints(kind, localns=_ELSEWHERE, include_extras=True)
    if is_typeddict(kind):
        optional = {name for name, hint in hints.items() if get_origin(hint) is NotRequired}
        return {
            name: (get_args(hint)[0] if name in optional else hint, name not in optional)
            for name, hint in hints.items()
        }
    return {each.name: (hints[each.name], True) for each in dataclasses.fields(kind)}
