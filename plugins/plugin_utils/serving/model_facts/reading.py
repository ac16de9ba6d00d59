# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON that somebody else wrote, read with bounds: a wrong file is an error that names the file and the field."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ansible_collections.gb10.fleet.plugins.module_utils.system.budget import Budget
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import unadvised
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

_MISSING: Any = object()
Value = TypeVar("Value")


class FactsError(ValueError):
    """Facts of a model that cannot be read; the text names the file or source, the fact and the way out."""

    def __init__(self, text: str) -> None:
        super().__init__(unadvised(text))


def limit(name: str) -> int:
    """A bound of catalog/model_facts.yml."""
    return int(catalog.load("model_facts")["limits"][name]["value"])


def budget(source: str) -> Budget:
    """What all files of one model may cost together."""
    most = {what: limit(what) for what in ("bytes", "nodes")}
    return Budget(most, lambda text: FactsError(f"{source}: {text}; no model has so many. Fetch it from its maker"))


def parse(text: bytes, file: str, spent: Budget, doubts: dict[str, None] | None = None) -> Fields:
    """A JSON object of a file, with at most as many values and levels as the catalog allows.

    `doubts`: gathers what is wrong of single values. Without it, each is an error.
    """
    spent.spend_json(text)
    try:
        content = json.loads(text)
    except RecursionError:
        raise FactsError(f"{file} is nested too deeply to be read") from None
    except ValueError as error:  # also text that is no UTF-8, and numbers of thousands of digits
        raise FactsError(f"{file} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise FactsError(f"{file} holds a {_kind(content)}; expected an object")
    if _deeper(content, limit("depth")):
        raise FactsError(f"{file} is nested more than {limit('depth')} levels deep")
    return Fields(content, file, doubts=doubts)


def _deeper(node: Any, levels: int) -> bool:
    """Return whether anything lies below that many levels; level by level, as the depth is not ours."""
    level = [node]
    for __ in range(levels):
        level = [item for each in level for item in _inside(each)]
        if not level:
            return False
    return True


def _inside(node: Any) -> list[Any]:
    found = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return [item for item in found if isinstance(item, dict | list)]


@dataclass(frozen=True)
class Fields:
    """An object of a file. A field that is null is a field that is not there.

    With `doubts` it is read with care: a value of another kind than expected is told, and is as if it were not there.
    """

    data: Mapping[str, Any]
    file: str
    path: str = ""
    doubts: dict[str, None] | None = field(default=None, compare=False)

    def with_(self, more: Mapping[str, Any]) -> Fields:
        """With these fields in the place of its own."""
        return replace(self, data={**self.data, **more})

    def doubt(self, text: str) -> None:
        if self.doubts is not None and len(self.doubts) < limit("doubts"):
            self.doubts[unadvised(text)] = None

    def has(self, name: str) -> bool:
        return self.data.get(name) is not None

    def whole(self, *names: str, default: int = 0, least: int = 0) -> int:
        """The first of these fields that is there, as a whole number."""
        name, value = self._first(names)
        if value is _MISSING:
            return default
        if isinstance(value, list) and value and self.doubts is not None:
            self.doubt(f"{self.where(name)} is a list here, of which the largest number counts")
            return self.layered(name, default=default)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            return self._unfit(name, value, "a whole number", default)
        if not least <= value <= limit("number"):
            return self._unfit(name, value, f"a number from {least} to {limit('number')}", default)
        return value

    def layered(self, *names: str, default: int = 0) -> int:
        """As `whole`; of a list with a number for each layer, the largest."""
        name, value = self._first(names)
        if isinstance(value, list):
            return max(self.wholes(name), default=default)
        return self.whole(*names, default=default)

    def number(self, *names: str, default: float = 0.0) -> float:
        name, value = self._first(names)
        if value is _MISSING:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= limit("number"):
            return self._unfit(name, value, "a number", default)
        return float(value)

    def text(self, *names: str, default: str = "") -> str:
        name, value = self._first(names)
        if value is _MISSING:
            return default
        if not isinstance(value, str):
            return self._unfit(name, value, "a text", default)
        return unadvised(self._bounded(name, value))

    def flag(self, *names: str, default: bool = False) -> bool:
        name, value = self._first(names)
        if value is _MISSING:
            return default
        if self.doubts is not None and value in (0, 1):  # some write a number
            return bool(value)
        if not isinstance(value, bool):
            return self._unfit(name, value, "true or false", default)
        return value

    def items(self, *names: str) -> list[Any]:
        """A list; empty where there is none."""
        name, value = self._first(names)
        if value is _MISSING:
            return []
        if not isinstance(value, list):
            return self._unfit(name, value, "a list", [])
        if len(value) > limit("items"):
            raise FactsError(f"{self.where(name)} has {len(value)} items; at most {limit('items')} are read")
        return value

    def wholes(self, *names: str) -> list[int]:
        found = self.items(*names)
        return [self._item(names[0], index, value) for index, value in enumerate(found)]

    def _item(self, name: str, index: int, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > limit("number"):
            return self._unfit(f"{name}[{index}]", value, "a whole number", 0)
        return value

    def texts(self, *names: str) -> list[str]:
        named = ({f"{names[0]}[{index}]": value} for index, value in enumerate(self.items(*names)))
        found = (Fields(each, self.file, self.path, self.doubts) for each in named)
        return [each.text(*each.data) for each in found]

    def child(self, *names: str) -> Fields | None:
        """An object below this one; None where there is none."""
        name, value = self._first(names)
        if value is _MISSING:
            return None
        if not isinstance(value, dict):
            return self._unfit(name, value, "an object", None)
        return Fields(value, self.file, f"{self.path}{name}.", self.doubts)

    def where(self, name: str) -> str:
        return f"{self.file}: {self.path}{name}"

    def wrong(self, name: str, value: Any, wanted: str) -> FactsError:
        return FactsError(f"{self.where(name)} is {_shown(value)}; expected {wanted}")

    def _unfit(self, name: str, value: Any, wanted: str, instead: Value) -> Value:
        wrong = self.wrong(name, value, wanted)
        if self.doubts is None:
            raise wrong
        self.doubt(f"{wrong}, so it counts as not there")
        return instead

    def _bounded(self, name: str, value: str) -> str:
        if len(value) > limit("text"):
            raise FactsError(f"{self.where(name)} has {len(value)} characters; at most {limit('text')} are read")
        return value

    def _first(self, names: Sequence[str]) -> tuple[str, Any]:
        return next(((name, self.data[name]) for name in names if self.has(name)), ("", _MISSING))


def _kind(value: Any) -> str:
    return {list: "list", dict: "object", str: "text", bool: "boolean", type(None): "null"}.get(type(value), "number")


def _shown(value: Any) -> str:
    """Short, and without what could steer a terminal."""
    if isinstance(value, list | dict):
        return f"a {_kind(value)}" if isinstance(value, list) else "an object"
    text = ascii(value)
    most = limit("shown")
    return text if len(text) <= most else f"{text[:most]}..."
