"""The list of facts in docs/architecture/facts.md: each key with its shape, and the comment above it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from ansible_collections.gb10.fleet.plugins.module_utils.reading.spark_facts import Facts

from scripts.gates import ROOT

PAGE = ROOT / "docs/architecture/facts.md"
_WORDS = {NoneType: "null", str: "text", int: "number", float: "number", bool: "true|false", object: "anything"}
_PLAIN = r": (text|number|true.false|anything)(?=$|.null$)"
_KEY = re.compile(r"((?: {4}# .+\n)*) {4}(\w+): ")


def parts() -> dict[str, list[str]]:
    """Return the list of all keys."""
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "plugins/module_utils/reading").glob("*.py"))
    classes = (found for source in sources for found in re.findall(r"(?m)^class \w*Facts\(.*\n((?: {4}.+\n)+)", source))
    about = {key: " ".join(re.findall("# (.+)", text)) for body in classes for text, key in _KEY.findall(body)}
    return {"keys": ["```", *(f"{key}: {_shape(kind)}   {about[key]}".rstrip() for key, kind in _hints(Facts)), "```"]}


def _hints(kind: Any) -> Iterator[tuple[str, Any]]:
    yield from get_type_hints(kind, localns={"NotRequired": NotRequired}).items()


def _shape(kind: Any) -> str:
    """Return a type as a reader of JSON meets it; of a text or a number in a mapping its name alone."""
    if is_typeddict(kind):
        inner = (f"{key}: {_shape(each)}" for key, each in _hints(kind))
        return f"{{{', '.join(re.sub(_PLAIN, '', each) for each in inner)}}}"
    origin, of = get_origin(kind), get_args(kind)
    if origin in (Annotated, NotRequired):
        return _shape(of[0])
    if origin in (Union, UnionType):
        return "|".join(map(_shape, of))
    if origin is list:
        return f"[{_shape(of[0])}]"
    return f"{{{_shape(of[0])}: {_shape(of[1])}}}" if origin is dict else _WORDS[kind]
