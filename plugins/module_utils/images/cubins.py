# SPDX-License-Identifier: GPL-3.0-or-later
"""The CUDA architectures that a shared object has code for, from its fat binaries; no CUDA toolkit is needed.

nvcc puts fat binaries one behind the other into a section of the ELF file. A fat binary is a header of 16 bytes and
entries. An entry has a header that names kind and architecture, and a payload, often compressed, that is not read. So
a file of any size costs one small read for each entry. The section `.nvFatBinSegment` only points to these fat
binaries, by addresses that the loader fills in, so it says nothing more.

Files come from strangers: each offset is proven to be inside its file, each step goes forward, and counts are bounded.
"""

from __future__ import annotations

import os
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from ansible_collections.gb10.fleet.plugins.module_utils.system.budget import Budget

# ELF (System V ABI): what we use of the file's header and of a section's.
_ELF = struct.Struct("<4sBB10xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_BITS_64, _LITTLE = 2, 1
_CUDA = 190  # e_machine of a cubin
_NO_BITS, _COMPRESSED = 8, 0x800
_PIECE = 1024  # bytes of one read: padding, header and entry
_MANY = 0xFFFF  # section 0 has the index of the names
_NAME_BYTES = 32
# `__nv_relfatbin` is that of relocatable device code.
_FAT_SECTIONS = (b".nv_fatbin", b"__nv_relfatbin")
# Fat binary: magic, version, size of this header, size of what follows.
_FAT = struct.Struct("<IHHQ")
_MAGIC = 0xBA55ED50
# Entry: kind, size of this header and of the payload, compressed size (0: it is not), architecture, flags.
_ENTRY = struct.Struct("<H2xIQI8xI8xQ16x")
_PTX, _CUBIN = 1, 2
_SUFFIXES = ((0x100000, "a"), (0x200000, "f"))  # of the flags: for this chip alone, for its family
# A cubin's own header (as seen in those of vLLM 0.17.0 and 0.33.0) has architecture and `a`, from ABI 8 on elsewhere.
# It does not tell sm_120f from sm_120.
_NEW_ABI, _OLD_A, _NEW_A = 8, 0x800, 0xC
# Bounds of one file; that of all of them is the budget. Linkers pad with 256 bytes.
MOST_SECTIONS, MOST_PADDING, MOST_ARCHITECTURE = 100_000, 65_536, 999


class CubinError(Exception):
    """A file that cannot be read as what it claims to be. `name`: not_elf | foreign_elf | truncated | bad_elf |
    bad_fatbin | too_many."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name


@dataclass
class Code:
    """What a file has for GPUs: number of entries by architecture, as `sm_120f` and `compute_80`."""

    cubins: Counter[str] = field(default_factory=Counter)
    ptx: Counter[str] = field(default_factory=Counter)
    compressed: int = 0  # of all entries
    entries: int = 0

    def __bool__(self) -> bool:
        return self.entries > 0


def of(opened: BinaryIO, budget: Budget) -> Code:
    """The GPU code of a file; empty where it has none. One that shrinks meanwhile is `truncated`, never a signal."""
    file = _File(opened)
    budget.spend("nodes", 1)
    head = file.bytes(0, min(file.size, _ELF.size))
    if head[:4] != b"\x7fELF":
        raise CubinError("not_elf", "the file does not begin as an ELF file")
    __, bits, order, __, machine, __, __, __, sections, flags, *__b, section_size, count, names = file.unpack(_ELF, 0)
    if (bits, order) != (_BITS_64, _LITTLE):
        raise CubinError("foreign_elf", "the file is not a 64-bit little-endian ELF file")
    if machine == _CUDA:
        return Code(cubins=Counter([_of_cubin(head[8], flags)]), entries=1)
    code = Code()
    if not sections:
        raise CubinError("bad_elf", "the file has no section headers, so its fat binaries cannot be found")
    if section_size != _SECTION.size:
        raise CubinError("bad_elf", f"a section header has {section_size} bytes and not {_SECTION.size}")
    for offset, length in _fat_sections(file, sections, count, names, budget):
        _walk(file, offset, offset + length, code, budget)
    return code


class _File:
    """The last piece that was read is kept: headers that stand together cost one read."""

    def __init__(self, opened: BinaryIO) -> None:
        opened.seek(0, os.SEEK_END)
        self._opened, self.size = opened, opened.tell()
        self._start, self._piece = 0, b""

    def bytes(self, offset: int, length: int) -> bytes:
        if offset + length > self.size:
            raise CubinError("truncated", f"it ends at {self.size}, before offset {offset} and {length} bytes")
        if not self._start <= offset <= offset + length <= self._start + len(self._piece):
            self._opened.seek(offset)
            self._start = offset
            self._piece = self._opened.read(min(max(length, _PIECE), self.size - offset))
        at = offset - self._start
        if len(self._piece) < at + length:
            raise CubinError("truncated", f"it has become shorter than {offset + length} while it was read")
        return self._piece[at : at + length]

    def unpack(self, layout: struct.Struct, offset: int) -> tuple[int, ...]:
        return layout.unpack(self.bytes(offset, layout.size))


def _of_cubin(abi: int, flags: int) -> str:
    if abi >= _NEW_ABI:
        return f"sm_{flags >> 8 & 0xFF}" + ("a" if flags & _NEW_A else "")
    return f"sm_{flags & 0xFF}" + ("a" if flags & _OLD_A else "")


def _fat_sections(file: _File, table: int, count: int, names: int, budget: Budget) -> Iterator[tuple[int, int]]:
    """Offset and length of the sections that hold fat binaries."""
    if not count or names == _MANY:  # more than a 16-bit field counts: section 0 says it
        size, link = file.unpack(_SECTION, table)[5:7]
        count, names = count or size, link if names == _MANY else names
    if count > MOST_SECTIONS:
        raise CubinError("too_many", f"{count} sections are more than {MOST_SECTIONS}")
    if names >= count:
        raise CubinError("bad_elf", f"the names are in section {names} of {count}")
    budget.spend("nodes", count)
    headers = list(_SECTION.iter_unpack(file.bytes(table, count * _SECTION.size)))
    texts, texts_size = headers[names][4], headers[names][5]
    for name, kind, flags, __, offset, size, *__rest in headers:
        if kind == _NO_BITS or name >= texts_size:
            continue
        text = file.bytes(texts + name, min(_NAME_BYTES, texts_size - name)).split(b"\0", 1)[0]
        if text not in _FAT_SECTIONS:
            continue
        if flags & _COMPRESSED:
            raise CubinError("bad_elf", f"the section {text.decode()} is compressed as a whole")
        if offset + size > file.size:
            raise CubinError("truncated", f"the section {text.decode()} ends at {offset + size}, behind the file's end")
        yield offset, size


def _walk(file: _File, at: int, end: int, code: Code, budget: Budget) -> None:
    """Every fat binary between two offsets."""
    while (at := _next(file, at, end, budget)) < end:
        if end - at < _FAT.size:
            raise CubinError("bad_fatbin", f"a header at {at} ends behind its section")
        magic, __, header, size = file.unpack(_FAT, at)
        if magic != _MAGIC:
            raise CubinError("bad_fatbin", f"what stands at {at} is no fat binary")
        last = at + header + size
        if header < _FAT.size or last > end:
            raise CubinError("bad_fatbin", f"the fat binary at {at} ends at {last}, its section at {end}")
        budget.spend("nodes", 1)
        _entries(file, at + header, last, code, budget)
        at = last


def _next(file: _File, at: int, end: int, budget: Budget) -> int:
    """Where the padding ends. Sections may all be one place, so what is nothing but padding is spent, too."""
    start = at
    while at < end:
        piece = file.bytes(at, min(_FAT.size * 16, end - at))
        rest = piece.lstrip(b"\0")
        at += len(piece) - len(rest)
        if rest:
            break
        budget.spend("nodes", 1)
        if at - start > MOST_PADDING:
            raise CubinError("bad_fatbin", f"more than {MOST_PADDING} zeros stand at {start}")
    return at


def _entries(file: _File, at: int, end: int, code: Code, budget: Budget) -> None:
    while at < end:
        budget.spend("nodes", 1)
        if end - at < _ENTRY.size:
            raise CubinError("bad_fatbin", f"the entry at {at} ends behind its fat binary, at {end}")
        kind, header, size, compressed, architecture, flags = file.unpack(_ENTRY, at)
        if header < _ENTRY.size or at + header + size > end:
            raise CubinError("bad_fatbin", f"the entry at {at} has {header} and {size} bytes, and ends at {end}")
        if architecture > MOST_ARCHITECTURE:
            raise CubinError("bad_fatbin", f"the entry at {at} is for architecture {architecture}")
        name = f"{architecture}{next((letter for bit, letter in _SUFFIXES if flags & bit), '')}"
        if kind == _CUBIN:
            code.cubins[f"sm_{name}"] += 1
        elif kind == _PTX:
            code.ptx[f"compute_{name}"] += 1
        code.entries += 1
        code.compressed += bool(compressed)
        at += header + size
