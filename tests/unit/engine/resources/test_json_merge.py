"""Our keys go into a JSON object and come out of it again, whatever was and whatever comes in between."""

from __future__ import annotations

import random
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.json_merge import merge, noted, taken_out


def some(chance: random.Random, depth: int = 3) -> dict[str, Any]:
    def value() -> Any:
        kind = chance.randrange(4 if depth else 3)
        if kind == 3:
            return some(chance, depth - 1)
        return (
            chance.choice([1, True, "x", None]) if kind else [chance.randrange(4) for _ in range(chance.randrange(4))]
        )

    return {key: value() for key in chance.sample("abc", chance.randrange(4))}


def test_what_was_merged_comes_out_again() -> None:
    chance = random.Random(1)  # noqa: S311 - the same numbers each time
    for _ in range(2000):
        base = some(chance)
        notes: dict[str, Any] = {}
        live = dict(base)
        changes = some(chance)
        for _again in range(2):  # the second time it changes nothing, and takes nothing of ours for theirs
            notes = noted(notes, live, changes)
            live = merge(live, changes)
        assert taken_out(live, notes) == base, (base, changes)
        assert taken_out({**live, "theirs": 1}, notes) == {**base, "theirs": 1}


def test_what_an_earlier_merge_put_comes_out_as_well() -> None:
    base: dict[str, Any] = {"a": 1}
    first: dict[str, Any] = {"a": 2, "b": [1], "c": {"d": {"e": 1}}}
    second: dict[str, Any] = {"b": [2], "c": {"d": {"f": 1}}}
    live = merge(base, first)
    notes = noted(noted({}, base, first), live, second)
    live = merge(live, second)
    assert live == {"a": 2, "b": [2, 1], "c": {"d": {"e": 1, "f": 1}}}
    assert taken_out(live, notes) == base


def test_what_somebody_changed_since_is_theirs() -> None:
    notes = noted({}, {}, {"a": 1, "b": {"c": 1}})
    assert taken_out({"a": 5, "b": 6}, notes) == {"a": 5, "b": 6}


def test_of_two_values_for_one_key_of_an_option_ours_stays_and_an_undo_brings_theirs_back() -> None:
    """Docker does not start with two drivers of cgroups."""
    theirs = {"exec-opts": ["native.cgroupdriver=systemd", "other=1", "plain"]}
    ours = {"exec-opts": ["native.cgroupdriver=cgroupfs"]}
    merged = merge(theirs, ours)
    assert merged == {"exec-opts": ["native.cgroupdriver=cgroupfs", "other=1", "plain"]}
    assert taken_out(merged, noted({}, theirs, ours)) == theirs
    assert merge(merged, ours) == merged
