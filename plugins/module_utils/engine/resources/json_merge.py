# SPDX-License-Identifier: GPL-3.0-or-later
"""A JSON object that is ours in part: merge our keys into it, note what they held before, take them out again.

A note is {place: {"put": ours, "was": former}}, or with "made" in place of "was" if there was nothing: how many of the
place's keys were there already. The place is the list of keys as JSON, because the notes are kept as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

OF_ANOTHER = "(not ours)"


def merge(base: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    """`changes` over `base`, mapping by mapping; keys and list items that `changes` does not name survive.

    An item such as `native.cgroupdriver=cgroupfs` takes the place of one with another value.
    """
    merged = dict(base) if isinstance(base, dict) else {}
    for key, value in changes.items():
        present = merged.get(key)
        if isinstance(value, dict):
            merged[key] = merge(present, value)
        elif isinstance(value, list) and isinstance(present, list):
            ours = {canonical(item) for item in value}
            rest = (item for item in present if canonical(item) not in ours and not _displaced(item, value))
            merged[key] = [*value, *rest]
        else:
            merged[key] = value
    return merged


def _displaced(item: Any, ours: Sequence[Any]) -> bool:
    """Return whether one of our items says another value for the same key."""
    name, equals, __ = item.partition("=") if isinstance(item, str) else ("", "", "")
    return bool(equals) and any(isinstance(own, str) and own != item and own.startswith(f"{name}=") for own in ours)


def canonical(value: Any) -> str:
    """To compare as JSON does: Python takes true for 1."""
    return json.dumps(value, sort_keys=True)


def noted(notes: Mapping[str, Any], present: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The notes with those for a merge of `changes` into `present`; what a place held first is never overwritten."""
    result = dict(notes)
    for path, put, former in _places(changes, present, ()):
        place = json.dumps(path)
        known = result.get(place)
        if known is None:
            result[place] = {"put": put, **former}
        elif isinstance(put, list) and isinstance(known["put"], list):
            result[place] = {**known, "put": merge({"": known["put"]}, {"": put})[""]}
        else:
            result[place] = {**known, "put": put}
    return result


def part(value: Any, ours: Any) -> Any:
    """Of a value only what is in our places; items of a list that are not ours keep their place and are not shown."""
    if isinstance(ours, dict) and isinstance(value, dict):
        return {key: part(value[key], inner) for key, inner in ours.items() if key in value}
    if isinstance(ours, list) and isinstance(value, list):
        known = {canonical(item) for item in ours}
        return [item if canonical(item) in known else OF_ANOTHER for item in value]
    return value


def noted_part(notes: Mapping[str, Any]) -> dict[str, Any]:
    """The object that our places make."""
    result: dict[str, Any] = {}
    for place, note in notes.items():
        value = note["put"]
        for key in reversed(json.loads(place)):
            value = {key: value}
        result = merge(result, value)
    return result


def taken_out(live: Mapping[str, Any], notes: Mapping[str, Any]) -> dict[str, Any]:
    """The object without what the notes say is ours; what somebody has changed since is theirs and stays."""
    result: dict[str, Any] = json.loads(json.dumps(live))
    for place, note in reversed(list(notes.items())):
        *path, last = json.loads(place)
        parents: list[dict[str, Any]] = [result]
        for key in path:
            inner = parents[-1].get(key)
            if not isinstance(inner, dict):
                break
            parents.append(inner)
        if len(parents) <= len(path) or last not in parents[-1]:
            continue
        value = _former(parents[-1][last], note)
        if value is not None:
            parents[-1][last] = value[0]
            continue
        del parents[-1][last]
        for depth in range(len(path), note["made"], -1):
            if not parents[depth]:
                del parents[depth - 1][path[depth - 1]]
    return result


def _places(
    changes: Mapping[str, Any], present: Mapping[str, Any], path: tuple[str, ...], made: int | None = None
) -> Iterator[tuple[tuple[str, ...], Any, dict[str, Any]]]:
    """Each place that a merge sets, with what it puts and what was there."""
    for key, value in changes.items():
        there = key in present
        depth = made if made is not None or there else len(path)
        if isinstance(value, dict) and value and (not there or isinstance(present[key], dict)):
            yield from _places(value, present.get(key, {}), (*path, key), depth)
        else:
            yield (*path, key), value, {"was": present[key]} if there else {"made": depth}


def _former(value: Any, note: Mapping[str, Any]) -> tuple[Any] | None:
    """What a place is to hold, or None for nothing."""
    put, was = note["put"], note.get("was")
    if isinstance(put, list) and isinstance(value, list) and ("was" not in note or isinstance(was, list)):
        ours, theirs = ({canonical(item) for item in items or ()} for items in (put, was))
        rest = [item for item in value if canonical(item) in theirs or canonical(item) not in ours]
        displaced = {canonical(item) for item in was or () if _displaced(item, put)}
        if was is not None and {canonical(item) for item in rest} == theirs - displaced:
            rest = was  # in its former order, and with what it held twice
        return (rest,) if rest or "was" in note else None
    if canonical(value) != canonical(put):
        return (value,)
    return (was,) if "was" in note else None
