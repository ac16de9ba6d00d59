# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare an answer of a host with the types of its reader, on arrival; and what a file of ours says.

A host may be sick or hostile, so everything behind this may rely on the types. What no type names is no problem, and
goes no further (`known`). A type may say more than Python's own: module_utils/system/values.py. A file that becomes a
dataclass is compared with that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

SHOWN = 60  # characters of a wrong value
_MOST = 2**63  # of a number; the kernel has no larger ones
_LEAST = 1 / _MOST  # but nought: what is divided by such a number stays one


MOST_VALUES = 2**18  # of one answer; a host with 4,000 packages has some 10,000
# In a change of a host. A rollback has the role taken back, and there `all` is the name of none.
ROLE = re.compile(r"(?!all\Z)[a-z][a-z0-9_]{0,63}\Z")


class TooMany(ValueError):
    """An answer that is not parsed."""


def parsed(text: str) -> Any:
    """The JSON of a host; ValueError where it is none, TooMany where it has more values than anybody reads.

    They are counted before there are any: each takes 50 bytes and more, however short it is to write.
    """
    if sum(map(text.count, ",[{")) > MOST_VALUES:
        raise TooMany(f"its answer has more than {MOST_VALUES} values")
    return json.loads(text)


class WrongFact(ValueError):
    """A value of a host that is missing or of another type than it must be; the text names it."""


def problem(value: object, kind: Any, where: str) -> str | None:
    """The first value that is missing or not what its type says, in words; None where all are sound."""
    if is_typeddict(kind) or is_dataclass(kind):
        return missing(value, kind, where) or unsound(value, kind, where)
    if kind in (object, Any):  # whoever reads it judges it
        return None
    origin, inner = _parts(kind)
    if origin is Annotated:
        wrong = problem(value, inner[0], where)
        return wrong or (None if inner[1].holds(value) else _wrong(value, inner[1].wanted, where))
    if origin in (Union, UnionType):
        choices = [choice for choice in inner if choice is not NoneType]
        if value is None and len(choices) < len(inner):
            return None
        found = [problem(value, choice, where) for choice in choices]
        return found[0] if all(found) else None
    if origin in (list, Sequence):
        if not isinstance(value, list):
            return _wrong(value, "a list", where)
        return _first(problem(item, inner[0], f"{where}[{number}]") for number, item in enumerate(value))
    if origin in (dict, Mapping):
        if not isinstance(value, dict):
            return _wrong(value, "a mapping", where)
        keys = _first(problem(key, inner[0], f"a key of {where}") for key in value)
        return keys or _first(problem(item, inner[1], f"{where}.{key}"[:SHOWN]) for key, item in value.items())
    return None if _is(value, kind) else _wrong(value, _NAMES[kind], where)


def missing(value: object, kind: Any, where: str) -> str | None:
    """The first key of a mapping that is not there."""
    if not isinstance(value, dict):
        return _wrong(value, "a mapping", where)
    return _first(f"{where}.{key} is missing" for key, __, needed in _keys(kind) if needed and key not in value)


def unsound(value: object, kind: Any, where: str) -> str | None:
    """The first value of those that are there which is not what its type says."""
    if not isinstance(value, dict):
        return _wrong(value, "a mapping", where)
    return _first(problem(value[key], hint, f"{where}.{key}") for key, hint, __ in _keys(kind) if key in value)


_NAMES = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", NoneType: "null"}


def known(value: Any, kind: Any) -> Any:
    """A value that has no problem, without keys that no type names: nobody has judged what they hold."""
    if is_typeddict(kind):
        return {key: known(value[key], hint) for key, hint, __ in _keys(kind) if key in value}
    origin, inner = _parts(kind)
    if value is None or origin is None:
        return value
    if origin is list:
        return [known(item, inner[0]) for item in value]
    if origin is dict:
        return {key: known(item, inner[1]) for key, item in value.items()}
    return known(value, next(choice for choice in inner if choice is not NoneType))


@cache
def _keys(kind: Any) -> tuple[tuple[str, Any, bool], ...]:
    """Of each key of a mapping its name, its type, and whether it has to be there."""
    if is_dataclass(kind):
        bare = {field.name for field in fields(kind) if field.default is field.default_factory is MISSING}
        return tuple((key, hint, key in bare) for key, hint in get_type_hints(kind, include_extras=True).items())
    # The types of what travels to a host cannot import NotRequired there.
    hints = get_type_hints(kind, localns={"NotRequired": NotRequired}, include_extras=True)
    return tuple((key, _bare(hint), get_origin(hint) is not NotRequired) for key, hint in hints.items())


@cache
def _parts(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(kind), get_args(kind)


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is NotRequired else hint


def _is(value: object, kind: type) -> bool:
    """A truth value is no number here, and a number beyond these limits is none either."""
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    if isinstance(value, (int, float)):
        sound = value == 0 or _LEAST < abs(value) < _MOST  # of NaN neither
        return isinstance(value, (int, float) if kind is float else kind) and sound
    return isinstance(value, kind)


def _wrong(value: object, wanted: str, where: str) -> str:
    shown = repr(value)
    return f"{where} is {shown[:SHOWN]}{'...' if len(shown) > SHOWN else ''}, and must be {wanted}"


def _first(problems: Any) -> str | None:
    return next((found for found in problems if found), None)
