# SPDX-License-Identifier: GPL-3.0-or-later
"""The weights by type and part, from the headers of safetensors files or their index; no weight is read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from ansible_collections.gb10.fleet.plugins.module_utils.system.budget import Budget
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.facts import Weights
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.reading import (
    FactsError,
    Fields,
    limit,
    parse,
)

LENGTH = 8  # bytes before a header: its size, little endian
_BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I8", "U8", "BOOL"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}
_DRAFT = re.compile(r"(^|\.)(mtp|nextn|mtp_layers?)\.")
_LAYER = re.compile(r"^(model\.)?layers\.(\d{1,6})\.")  # DeepSeek keeps draft layers behind the last layer
_VISION = re.compile(
    r"(^|\.)(visual|vision_tower|vision_model|vision_encoder|vit|image_encoder|audio_tower|audio_encoder)\."
)


def header_size(start: bytes, file: str) -> int:
    """Return how long the header is, by the first bytes of a file."""
    if len(start) < LENGTH:
        raise FactsError(f"{file} has {len(start)} bytes, which is no safetensors file. Fetch it again")
    size = int.from_bytes(start[:LENGTH], "little")
    if not 2 <= size <= limit("header_bytes"):
        raise FactsError(f"{file} says that its header has {size} bytes, which is no safetensors file. Fetch it again")
    return size


def tensors(header: bytes, file: str, size: int, spent: Budget) -> list[tuple[str, str, int]]:
    """(name, type, bytes) of each tensor. `size` is that of the whole file: a file that was cut is an error."""
    found = []
    furthest = 0
    content = parse(header, file, spent)
    for name in content.data:
        if name == "__metadata__":
            continue
        entry = content.child(name)
        if entry is None:
            raise FactsError(f"{file}: {name[: limit('shown')]} is null; expected an object")
        kind = entry.text("dtype")
        begin, end = _offsets(entry)
        if kind not in _BITS:
            raise entry.wrong("dtype", kind, "a type of safetensors")
        if (end - begin) * 8 != _elements(entry) * _BITS[kind]:
            raise FactsError(f"{file}: {entry.path}data_offsets hold {end - begin} bytes, which shape and dtype do not")
        furthest = max(furthest, end)
        found.append((name, kind, end - begin))
    whole = LENGTH + len(header) + furthest
    if size < whole:
        raise FactsError(f"{file} has {size} bytes and its header asks for {whole}: it was cut. Fetch it again")
    return found


def _offsets(entry: Fields) -> tuple[int, int]:
    found = entry.wholes("data_offsets")
    if len(found) != 2 or not 0 <= found[0] <= found[1]:
        raise FactsError(f"{entry.where('data_offsets')} is wrong; expected the first and the last byte")
    return found[0], found[1]


def _elements(entry: Fields) -> int:
    shape = entry.wholes("shape")
    if any(length < 0 for length in shape):
        raise entry.wrong("shape", shape, "lengths of 0 or more")
    found = 1 if all(shape) else 0
    for length in shape:
        found *= length
        if found > limit("number"):  # a product of thousands of lengths takes minutes
            raise FactsError(f"{entry.where('shape')} has more than {limit('number')} elements")
    return found


def of_headers(found: Iterable[tuple[str, str, int]], layers: int) -> Weights:
    """What the tensors of all files are together, of a model with so many layers."""
    by_type: Counter[str] = Counter()
    draft = vision = 0
    for name, kind, size in found:
        by_type[kind] += size
        draft += size if _is_draft(name, layers) else 0
        vision += size if _VISION.search(name) else 0
    return Weights(dict(by_type), draft, vision, "headers")


def _is_draft(name: str, layers: int) -> bool:
    layer = _LAYER.match(name)
    return bool(_DRAFT.search(name)) or (layer is not None and int(layer[2]) >= layers > 0)


def of_index(index: Fields) -> tuple[Weights | None, tuple[str, ...]]:
    """What the index says of the sum (None: nothing), and the files that it names."""
    names = index.child("weight_map")
    if names is None:
        raise FactsError(f"{index.file} has no weight_map. Fetch it again")
    files: dict[str, None] = {}
    for tensor, file in names.data.items():
        if not isinstance(file, str):
            raise names.wrong(tensor[: limit("shown")], file, "the name of a file")
        if "/" in file or "\\" in file or file.startswith("."):
            raise FactsError(
                f"{index.file}: {names.path}{tensor[: limit('shown')]} leads out of the folder of the model"
            )
        files[file] = None
    if len(files) > limit("shards"):
        raise FactsError(f"{index.file} names {len(files)} files; at most {limit('shards')} are read")
    metadata = index.child("metadata")
    total = metadata.whole("total_size") if metadata else 0
    return (Weights({"": total}, basis="index") if total else None), tuple(files)
