"""Values that somebody would put into a document to break out of it: every one in every field of every kind.

Refused with the name of the field before anything is read, or harmless and then the kind's example says why. The
same for the fields of a request. Then a fuzz of the plan: random documents on random hosts.
"""

from __future__ import annotations

import itertools
import os
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.engine.engine import parse_documents
from ansible_collections.gb10.fleet.plugins.module_utils.engine.remote import answer
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.common import DocumentError

from tests.support.kinds import EXAMPLES, GOOD
from tests.support.world import CONSENTS, MODULES, PACKAGES, PATHS, SYSCTLS, UNITS, VERSIONS, World, request

# ------------------------------------------------------------------------------------------------------------- values


def nested(levels: int) -> Any:
    """Deeper than Python's recursion goes; built and compared without recursion."""
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


HOSTILE: dict[str, Any] = {
    "newline": "a\nb",
    "carriage return": "a\rb",
    "NUL": "a\0b",
    "escape sequence": "\x1b[2Ja",
    "line separator": "a\u2028b",
    "right-to-left": "a\u202eb",
    "expression": "{{ 7 * 7 }}",
    "statement": "{% for x in y %}",
    "shell": "$(touch /tmp/x); `id` | tee &",
    "dash": "-rf",
    "long option": "--root=/",
    "ten megabytes": "x" * 10_000_000,
    "invalid UTF-8": "a\udc80b",
    "parent": "../../etc/shadow",
    "parent inside": "/etc/../etc/shadow",
    "blank": " ",
    "empty": "",
    "percent": "%s%n",
    "number": 7,
    "huge number": 10**5000,
    "negative number": -1,
    "fraction": 0.5,
    "not a number": float("nan"),
    "true": True,
    "list": ["a"],
    "mapping": {"a": "b"},
    "mapping with a number as key": {1: "b"},
    "bytes": b"a",
    "object": object(),
    "nesting": nested(20_000),
}
FIELDS = [(shape, field) for shape, good in GOOD.items() for field in good]
# (shape, field) -> the hostile values that are fine there; the examples say why. `field[]`: as an item of a list.
PLAIN = {"shell", "dash", "long option", "parent", "parent inside", "percent"}
HARMLESS: dict[tuple[str, str], set[str]] = {
    (shape, field): (set(rule["values"]) - {"plain"}) | (PLAIN if "plain" in rule["values"] else set())
    for found in EXAMPLES.values()
    for shape, rules in found.get("harmless", {}).items()
    for field, rule in rules.items()
}
# The same for the fields of a request.
REQUEST_HARMLESS: dict[str, set[str]] = {
    "check": {"true"},
    "roles": {"list"},
}


def everything_in(shape: str, field: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, value in HOSTILE.items():
        yield name, {**GOOD[shape], field: value}


def refusal(resource: Mapping[str, Any]) -> str | None:
    try:
        parse_documents([("demo", [resource])], {})
    except DocumentError as error:
        return str(error)
    return None


@pytest.mark.parametrize("shape", GOOD)
def test_the_good_ones_are_good(shape: str) -> None:
    assert refusal(GOOD[shape]) is None


@pytest.mark.parametrize(("shape", "field"), FIELDS, ids=lambda value: value)
def test_hostile_values_are_refused_by_the_name_of_their_field(shape: str, field: str) -> None:
    accepted = set()
    for name, resource in everything_in(shape, field):
        said = refusal(resource)
        if said is None:
            accepted.add(name)
            continue
        assert said.startswith(f"resources[0].{field}"), f"{name}: {said[:200]}"
        assert said.isprintable(), f"{name}: an error message must not carry what it refuses into a terminal"
        assert len(said) < 6000, f"{name}: the message quotes {len(said)} characters"
    harmless = HARMLESS.get((shape, field), set())
    assert accepted == harmless


@pytest.mark.parametrize(
    ("shape", "field"), [(shape, field) for shape, field in FIELDS if isinstance(GOOD[shape][field], list)]
)
def test_hostile_items_of_lists_are_refused_by_their_place(shape: str, field: str) -> None:
    accepted = set()
    for name, value in HOSTILE.items():
        said = refusal({**GOOD[shape], field: [*GOOD[shape][field], value]})
        if said is None:
            accepted.add(name)
            continue
        assert said.startswith(f"resources[0].{field}[{len(GOOD[shape][field])}]"), f"{name}: {said[:200]}"
        assert said.isprintable()
    harmless = HARMLESS.get((shape, f"{field}[]"), set())
    assert accepted == harmless


# ----------------------------------------------------------------------------------------------------- the whole engine


@pytest.mark.parametrize(("shape", "field"), FIELDS, ids=lambda value: value)
def test_the_engine_touches_nothing_for_a_hostile_value(shape: str, field: str, tmp_path: Path) -> None:
    """Through the door that the controller uses: a request error with the field, no command, no file, no traceback."""
    world = World(tmp_path)
    before = world.digest()
    harmless = HARMLESS.get((shape, field), set())
    for name, resource in everything_in(shape, field):
        if name in harmless:
            continue
        said = world.ask([{"role": "demo", "resources": [resource]}])
        assert said["error"] is not None and said["error"]["kind"] == "request", name
        assert f"resources[0].{field}" in said["error"]["message"], name
        assert "Traceback" not in said["error"]["message"]
        assert said["changes"] == []
    assert world.calls == []
    assert world.digest() == before


@pytest.mark.parametrize("field", request([]))
def test_the_fields_of_a_request_are_refused_by_their_name(field: str, tmp_path: Path) -> None:
    world = World(tmp_path)
    before = world.digest()
    accepted = set()
    for name, value in HOSTILE.items():
        said = answer({**request([{"role": "demo", "resources": [GOOD["file"]]}]), field: value}, world.system)
        if said["error"] is None or said["error"]["kind"] != "request":
            accepted.add(name)
            continue
        assert field in said["error"]["message"], f"{name}: {said['error']['message'][:200]}"
        assert said["error"]["message"].isprintable(), name
    assert accepted == REQUEST_HARMLESS.get(field, set())
    assert world.digest() == before


# ---------------------------------------------------------------------------------------------------------------- fuzz


def make_up(chance: random.Random) -> list[dict[str, Any]]:
    """Documents of up to three roles, most of them sound, some of them in each other's way."""
    documents = []
    seen: set[str] = set()
    names = chance.sample(PACKAGES, 2)  # few, so that documents say more than one thing of the same package
    for role in chance.sample(("driver", "docker", "vllm"), chance.randint(1, 3)):
        resources = []
        for resource in (_resource(chance, names) for _ in range(chance.randint(0, 6))):
            name = str(next(iter(resource.items())))
            if name not in seen or chance.random() < 0.05:
                resources.append(resource)
            seen.add(name)
        documents.append({"role": role, "resources": resources})
    return documents


_MADE_UP = ("file", "json", "folder", "package", "hold", "holds", "unit", "sysctl", "kernel_module")
_RANDOM = {kind: found["random"] for kind, found in EXAMPLES.items() if "random" in found}


def _from_choices(chance: random.Random, choices: Mapping[str, Any]) -> dict[str, Any]:
    named = {key.removesuffix("?"): chance.choice(values) for key, values in choices.items()}
    return {key: value for key, value in named.items() if key in choices or chance.random() < 0.4}


def _resource(chance: random.Random, names: Sequence[str]) -> dict[str, Any]:
    def maybe(**attributes: Any) -> dict[str, Any]:
        return {key: value for key, value in attributes.items() if chance.random() < 0.4}

    kind = chance.choice((*_MADE_UP, *_RANDOM))
    if kind in _RANDOM:
        return _from_choices(chance, chance.choice(_RANDOM[kind]))
    if kind == "file":
        access = maybe(mode=chance.choice(("0644", "0600", "0755")), secret=True)
        content = {"content": chance.choice(("a\n", "b\n", "", "{{ x }}\n"))}
        gone = chance.random() < 0.2
        return {"file": _path(chance, ""), **({"state": "absent"} if gone else {**content, **access})}
    if kind == "json":
        value = chance.choice(({"a": {"x": 2}}, {"a": [1, 2]}, {"c": [2]}, {"d": None}))
        return {"file": _path(chance, ".json"), chance.choice(("merge_json", "default_json")): value}
    if kind == "folder":
        return {"file": _path(chance, "fleet"), "state": "directory", **maybe(mode="0750")}
    if kind == "package":
        gone = chance.random() < 0.2
        more = maybe(version=chance.choice(VERSIONS), consent=chance.choice(CONSENTS))
        return {"package": chance.choice(names), **({"state": "absent"} if gone else more)}
    if kind == "hold":
        return {"hold": chance.choice(names), **maybe(state="free")}
    if kind == "holds":
        return {"hold": "set", "match": [chance.choice(("a$", "^nvidia", "."))], **maybe(**{"except": ["^beta"]})}
    if kind == "unit":
        paths = chance.sample(PATHS, 1) if chance.random() < 0.1 else []
        more = maybe(enabled=chance.random() < 0.5, state=chance.choice(("started", "stopped")), consent=CONSENTS[0])
        return {"unit": chance.choice(UNITS), "restart_on": paths, **more}
    if kind == "sysctl":
        return {"sysctl": chance.choice(SYSCTLS), "value": chance.choice(("0", "1", 2))}
    return {"kernel_module": chance.choice(MODULES), **maybe(state="absent")}


def _path(chance: random.Random, end: str) -> str:
    """Most documents say of a path what fits to what most hosts have there."""
    fitting = [path for path in PATHS if path.endswith(end or ("conf", "service", "tool"))]
    return chance.choice(fitting if chance.random() < 0.9 else PATHS)


@pytest.mark.parametrize("seed", range(40))
def test_any_document_on_any_host_is_refused_in_words_or_done_as_foretold(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check mode foretells the same thing twice and touches nothing; what was applied leaves nothing to do.

    And what was applied can be undone, unless a secret or the only package of its version went with it: the host is the
    one of before. 25 hosts and 125 documents for each seed.
    """
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    chance = random.Random(seed)  # noqa: S311  # made-up hosts, not keys
    applied = 0
    for number in range(25):
        world = World(tmp_path / str(number), chance)
        before = world.digest()
        for _ in range(4):
            _look(world, make_up(chance), _consents(chance))
        assert world.digest() == before
        documents, consents = make_up(chance), _consents(chance)
        foretold = _look(world, documents, consents)
        if foretold is None:
            continue
        outcome = world.ask(documents, consents=consents)
        if _refused(outcome, documents):
            assert not outcome["error"]["message"].startswith("hold:"), (outcome["error"], documents)
            continue
        told = [(change["role"], change["resource"], change["action"]) for change in outcome["changes"]]
        assert told == [(row["role"], row["resource"], row["action"]) for row in foretold["changes"]], documents
        assert world.ask(documents, consents=consents, check=True)["changes"] == [], documents
        undone = world.ask([], verb="undo", consents=dict.fromkeys(CONSENTS, True))
        if undone["error"] is None:
            assert world.digest() == before, documents
        elif "no apt source offers" not in undone["error"]["message"]:
            assert "of a secret" in undone["error"]["message"], documents
            assert undone["error"]["kind"] == "host" and undone["changes"] == [], "refused before the first change"
        applied += 1
    assert applied > 3, "most documents were refused, so that little was tested"


_HOLDS = [{"hold": "alpha"}, {"hold": "alpha", "state": "free"}, {"hold": "set", "match": ["^alpha"]}]
_HOLDS += [{"hold": "set", "match": ["^alpha"], "state": "free"}]
_WISHES: list[dict[str, Any]] = [{}, {"version": "1.1"}, {"version": "1.1", "consent": CONSENTS[1]}]
_WISHES += [{"state": "absent"}, {"state": "absent", "consent": CONSENTS[1]}]


@pytest.mark.parametrize("first", ["hold", "package"])
@pytest.mark.parametrize("hold", _HOLDS, ids=lambda hold: "-".join(map(str, hold.values())))
def test_a_hold_beside_its_package_is_refused_or_done_and_undone_in_one_go(
    first: str, hold: dict[str, Any], tmp_path: Path
) -> None:
    """Every pair that documents can make of the two, on every host: random documents seldom hit one."""
    done = 0
    for number, (wish, stood) in enumerate(itertools.product(_WISHES, ("absent", "there", "held"))):
        world = World(tmp_path / str(number))
        world.offers["alpha"] = list(VERSIONS)
        world.packages = {} if stood == "absent" else {"alpha": "1.0"}
        world.held = {"alpha"} if stood == "held" else set()
        world.write_status()
        before = world.digest()
        pair = [hold, {"package": "alpha", **wish}]
        # Between the two a file, so that the package is not moved in front of everything.
        between = {"file": "/etc/between", "content": "x"}
        resources = [between, *(pair if first == "hold" else pair[::-1])]
        documents = [{"role": "demo", "resources": resources}]
        consents = dict.fromkeys(CONSENTS, True)
        if world.ask(documents, consents=consents, check=True)["error"] is not None:
            assert world.digest() == before
            continue
        said = world.ask(documents, consents=consents)
        assert said["error"] is None, (documents, stood, said["error"])
        undone = world.ask([], verb="undo", consents=consents)
        assert undone["error"] is None, (documents, stood, undone["error"])
        assert world.digest() == before, (documents, stood)
        done += 1
    assert done > 3


def test_a_package_cannot_be_held_and_free(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.packages, world.offers["alpha"] = {"alpha": "1.0"}, list(VERSIONS)
    world.write_status()
    resources = [{"hold": "alpha", "state": "free"}, {"hold": "set", "match": ["^al"]}]
    said = world.ask([{"role": "demo", "resources": resources}])
    assert said["error"]["message"].startswith("hold:set: alpha shall be held, and free by hold:alpha")
    assert said["error"]["kind"] == "host" and world.held == set()


def _look(world: World, documents: Any, consents: Mapping[str, bool]) -> dict[str, Any] | None:
    """What check mode says, or None if it refuses; either way it says so twice."""
    foretold = world.ask(documents, consents=consents, check=True)
    assert foretold == world.ask(documents, consents=consents, check=True), documents
    return None if _refused(foretold, documents) else foretold


def _consents(chance: random.Random) -> dict[str, bool]:
    return {name: chance.random() < 0.7 for name in CONSENTS}


def _refused(said: Mapping[str, Any], documents: Any) -> bool:
    """Whether the engine refused; in its own words, not in those of an exception that nobody thought of."""
    if said["error"] is None:
        return False
    assert said["error"]["kind"] in ("request", "host", "apply"), documents
    assert not re.search(r"\b[A-Z]\w*(Error|Exception)\b", said["error"]["message"]), (said["error"], documents)
    return True
