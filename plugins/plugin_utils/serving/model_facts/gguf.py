# SPDX-License-Identifier: GPL-3.0-or-later
"""What a model in GGUF is, by the header of its file: geometry for the memory that it takes. No weights are read."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.build import Files
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.reading import FactsError, limit

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
# Of each type of a value its form; a number below 8 or above 9 is a number or a truth.
_FORMS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
# The file is a stranger's: what is beyond these is no geometry, and would be multiplied.
_MOST_ENTRIES, _MOST_LAYERS, _MOST_PARTS = 10_000, 10_000, 1_000
_MOST_WIDE, _MOST_TOKENS = 2**24, 2**40
_MOST_KEPT = 1_000_000
_MOST_WORDS = 2_000_000  # of tokenizers; the largest has some 800,000 tokens and merges, and 12 million took a minute
_PIECE = 2**20
_ARCHITECTURE = re.compile(r"[\w.-]{1,64}\Z", re.ASCII)
_PARTS = re.compile(r"-00001-of-(\d{5})[.]gguf\Z")
# Bytes of a number in the KV cache, of each type that llama.cpp has for it: blocks of 32 numbers with their scales
# (0c1e570, ggml/src/ggml-common.h).
CACHE = {
    **{"f32": 4.0, "f16": 2.0, "bf16": 2.0, "q8_0": 34 / 32, "q5_1": 24 / 32, "q5_0": 22 / 32, "q4_1": 20 / 32},
    **{"q4_0": 18 / 32, "iq4_nl": 18 / 32},
}


@dataclass(frozen=True)
class Gguf:
    """Sizes in bytes, context in tokens."""

    name: str
    architecture: str
    context: int
    weights: int
    keys: int  # numbers that a token leaves in the KV cache, of all layers
    values: int

    def cache_bytes(self, tokens: int, of_keys: str = "f16", of_values: str = "f16") -> float:
        """Return the KV cache of so many tokens, at most: layers with a window take less."""
        return tokens * (self.keys * CACHE[of_keys] + self.values * CACHE[of_values])


def read(files: Files, name: str) -> Gguf:
    """Return what the header of a file says, with the size of all its parts."""
    where = f"{files.source}/{name}"
    said = _Reader(files, name, where).header()
    architecture = str(said.get("general.architecture", ""))
    if not _ARCHITECTURE.match(architecture):
        raise FactsError(f"{where} names no architecture (general.architecture), which is a short word")
    layers = _whole(said, f"{architecture}.block_count", where, _MOST_LAYERS)
    keys, values = _numbers(said, architecture, layers, where)
    return Gguf(
        name=name,
        architecture=architecture,
        context=_whole(said, f"{architecture}.context_length", where, _MOST_TOKENS),
        weights=sum(files.size(part) for part in _parts(name, where)),
        keys=keys,
        values=values,
    )


def _numbers(said: dict[str, Any], architecture: str, layers: int, where: str) -> tuple[int, int]:
    """Return those of keys and of values. A list of heads has one for each layer; 0 is a layer that keeps nothing."""
    count = said.get(f"{architecture}.attention.head_count")
    heads = said.get(f"{architecture}.attention.head_count_kv", count)
    each = heads if isinstance(heads, list) else [heads] * layers
    usual = 0
    if _is_whole(count, _MOST_WIDE) and count:
        usual = _whole(said, f"{architecture}.embedding_length", where, _MOST_WIDE) // count
    widths = [said.get(f"{architecture}.attention.{part}_length", usual) for part in ("key", "value")]
    if not all(_is_whole(number, _MOST_WIDE) for number in (*each, *widths)) or not sum(each) or not all(widths):
        raise FactsError(
            f"{where} does not say what a token keeps ({architecture}.attention.head_count_kv, key_length)"
        )
    key, value = (int(sum(each) * width) for width in widths)
    return key, value


def _is_whole(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _whole(said: dict[str, Any], key: str, where: str, most: int) -> int:
    value: Any = said.get(key)
    if not _is_whole(value, most) or not value:
        raise FactsError(f"{where} has no whole number from 1 to {most} as {key}")
    return int(value)


def _parts(name: str, where: str) -> list[str]:
    found = _PARTS.search(name)
    if not found:
        return [name]
    if int(found[1]) > _MOST_PARTS:
        raise FactsError(f"{where} names more than {_MOST_PARTS} parts")
    return [f"{name[: found.start()]}-{number:05}-of-{found[1]}.gguf" for number in range(1, int(found[1]) + 1)]


class _Reader:
    """Reads forwards, and never more than a header may have."""

    def __init__(self, files: Files, name: str, where: str) -> None:
        self.files, self.name, self.where = files, name, where
        self.buffer, self.at = b"", 0
        self.kept = 0  # numbers of lists: in Python one takes ten times the byte that it may have in the file
        self.words = 0  # of lists of texts: each takes time, also an empty one

    def header(self) -> dict[str, Any]:
        """All entries but long lists: those are the words of the tokenizer."""
        version = self.number("I") if self.take(4) == _MAGIC else 0
        if version not in _VERSIONS:
            raise FactsError(f"{self.where} is no model in GGUF of version {' or '.join(map(str, _VERSIONS))}")
        self.number("Q")  # tensors
        entries = self.number("Q")
        if entries > _MOST_ENTRIES:
            raise FactsError(f"{self.where} says that it has {entries} entries")
        return {self.text(): self.value(self.number("I")) for __ in range(entries)}

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            return self.number(self.form(kind))
        inner, length = self.number("I"), self.number("Q")
        if inner == _ARRAY or length > limit("header_bytes"):
            raise FactsError(f"{self.where} has a list that no model has")
        if inner == _STRING:
            self.words += length
            if self.words > _MOST_WORDS:
                raise FactsError(f"{self.where} has more than {_MOST_WORDS} texts in its lists")
            for __ in range(length):
                self.take(self.number("Q"))
            return None
        form = self.form(inner)
        packed = self.take(length * struct.calcsize(f"<{form}"))
        if length > _MOST_LAYERS:
            return None
        self.kept += length
        if self.kept > _MOST_KEPT:
            raise FactsError(f"{self.where} has more than {_MOST_KEPT} numbers in its lists")
        return list(struct.unpack(f"<{length}{form}", packed))

    def form(self, kind: int) -> str:
        if kind not in _FORMS:
            raise FactsError(f"{self.where} has a value of the type {kind}, which GGUF has not")
        return _FORMS[kind]

    def number(self, form: str) -> Any:
        return struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}")))[0]

    def text(self) -> str:
        return self.take(self.number("Q")).decode("utf-8", "replace")

    def take(self, length: int) -> bytes:
        end = self.at + length
        if end > limit("header_bytes"):
            raise FactsError(f"{self.where} has a header of more than {limit('header_bytes')} bytes")
        while len(self.buffer) < end:
            piece = self.files.part(self.name, len(self.buffer), max(_PIECE, len(self.buffer)))
            if not piece:
                raise FactsError(f"{self.where} ends within its header")
            self.buffer += piece
        taken, self.at = self.buffer[self.at : end], end
        return taken
