"""The answer of a hostile host: each value of it that is wrong is that host's error, by name."""

from __future__ import annotations

import json
from typing import Any, get_type_hints

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.engine.remote import answer as engine
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import System
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import schema
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import engine_answer, transport

from tests.support.answers import EMPTY
from tests.support.attacker import tally

CHANGE = {"role": "fabric", "resource": "nm_profile:a", "action": "create", "detail": "x"}
FULL: dict[str, Any] = {
    **EMPTY,
    "facts": {"rails": []},
    "stale": ["rails"],
    "changes": [CHANGE],
    "pending": [{**CHANGE, "consent": "fabric_allow_activation"}],
    "orphans": [{"role": "fabric", "resource": "file:/a"}],
    "diff": [{"prepared": "x\n"}],
    "wishes": [{"unit": "gb10-vllm.service", "who": "me", "since": "a", "until": "", "shown": ""}],
    "guard": {"id": "f" * 16, "seconds": 130, "resources": ["nm_profile:a"]},
    "error": {"kind": "busy", "message": "another run is at work"},
    "subprocesses": 9,
}
WRONG: tuple[Any, ...] = (
    None, True, 5, -1, 1e12, 10**400, float("nan"), "", "text", [], [7], [None], [[]], [{}], {}, {"a": 1},
)  # fmt: skip


def parsed(said: Any) -> dict[str, Any]:
    return transport.parse(transport.MARKER + json.dumps(said))


def test_a_sound_answer_passes() -> None:
    assert parsed(FULL) == FULL and parsed(EMPTY) == EMPTY


@pytest.mark.parametrize("role", ["{{ lookup('ansible.builtin.pipe', 'id') }}", "all", "docker,firewall", "a" * 65])
@pytest.mark.parametrize("key", ["changes", "pending", "orphans"])
def test_a_role_is_the_name_of_a_role(key: str, role: str) -> None:
    """A rollback has it taken back, and before it was a template of the playbook that did."""
    with pytest.raises(schema.WrongFact) as refused:
        parsed({**FULL, key: [{**FULL[key][0], "role": role}]})
    assert str(refused.value).startswith(f"answer.{key}[0].role is ")


def test_what_no_type_names_goes_no_further() -> None:
    """It stood in `gb10 site --json` and in the kept facts, and a NaN is no JSON."""
    deep: Any = 1
    for _ in range(300):
        deep = {"x": deep}
    more = {"x": float("nan"), "y": deep, "host": "spark-b"}
    said = {**FULL, **more, "changes": [{**CHANGE, **more}], "facts": {"rails": [], **more}}
    lost = parsed(said) != FULL
    tally("a host speaks for another one, or ends an answer of all, by what no type names", 1, int(lost))
    assert not lost


def test_the_schema_has_all_that_the_engine_says(tmp_path: Any) -> None:
    said = engine({"verb": "nonsense"}, System(tmp_path))
    assert {*said} == {*get_type_hints(engine_answer.Answer), "facts"} == {*EMPTY}
    assert parsed(said)["error"]["kind"] == "request"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"guard": {**FULL["guard"], "seconds": 1e12}}, "answer.guard.seconds is 1000000000000.0, and must be"),
        ({"guard": {**FULL["guard"], "seconds": -1}}, "answer.guard.seconds is -1, and must be"),
        ({"guard": {"seconds": 5}}, "answer.guard.id is missing"),
        ({"changes": 5}, "answer.changes is 5, and must be a list"),
        ({"changes": [{"role": "x"}]}, "answer.changes[0].resource is missing"),
        (
            {"pending": [{**CHANGE, "consent": "x=1; reboot #"}]},
            "answer.pending[0].consent is 'x=1; reboot #', and must",
        ),
        ({"changes": [CHANGE] * 10_001}, "answer.changes is [{'role': "),
        ({"error": "no"}, "answer.error is 'no', and must be a mapping"),
        ({"diff": [1]}, "answer.diff[0] is 1, and must be a mapping"),
        ({"subprocesses": 10**9}, "answer.subprocesses is 1000000000, and must be"),
        ({"facts": []}, "facts is [], and must be a mapping"),
    ],
)
def test_a_wrong_value_is_named(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(schema.WrongFact) as caught:
        parsed({**FULL, **wrong})
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize("key", EMPTY)
def test_a_key_that_is_missing_is_named(key: str) -> None:
    with pytest.raises(schema.WrongFact, match=f"answer.{key} is missing"):
        parsed({name: value for name, value in EMPTY.items() if name != key})


def test_no_wrong_value_ends_in_an_error_of_pythons() -> None:
    refused = passed = tracebacks = 0
    for key in FULL:
        for wrong in WRONG:
            try:
                parsed({**FULL, key: wrong})
                passed += 1
            except schema.WrongFact:
                refused += 1
            except Exception:
                tracebacks += 1
    tally("a host sends an answer with a value of a wrong type", refused + passed + tracebacks, tracebacks)
    assert refused > 3 * passed > 0 and not tracebacks
