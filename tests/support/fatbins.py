"""Small ELF files with fat binaries in them, as nvcc and the linker lay them out."""

from __future__ import annotations

import struct
from collections.abc import Sequence

CUBIN, PTX, LTO = 2, 1, 8
A, F = 0x100000, 0x200000
_PLAIN, _COMPRESSED = 0x11, 0x2011


def entry(
    architecture: int, kind: int = CUBIN, suffix: int = 0, payload: bytes = b"\x7fELF code", compressed: bool = False
) -> bytes:
    body = payload + b"\0" * (-len(payload) % 8)
    flags = suffix | (_COMPRESSED if compressed else _PLAIN)
    fixed = (len(payload) if compressed else 0, 0, 0, 0, architecture, 0, 0, flags, 0, 0)
    return struct.pack("<HHIQIIHHIIIQQQ", kind, 0x0101, 64, len(body), *fixed) + body


def fat_binary(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def section(*fat_binaries: bytes, align: int = 256) -> bytes:
    return b"".join(each + b"\0" * (-len(each) % align) for each in fat_binaries)


def elf(sections: Sequence[tuple[str, bytes]] = (), machine: int = 183, flags: int = 0, abi: int = 0) -> bytes:
    """A shared object with these sections, and the one of their names."""
    names, texts = b"\0", []
    for name, content in [*sections, (".shstrtab", b"")]:
        texts.append((len(names), content))
        names += name.encode() + b"\0"
    texts[-1] = (texts[-1][0], names)
    body, headers = b"", bytes(64)
    for at, content in texts:
        headers += struct.pack("<IIQQQQIIQQ", at, 1, 2, 0, 64 + len(body), len(content), 0, 0, 1, 0)
        body += content
    body += b"\0" * (-len(body) % 8)
    ident = b"\x7fELF" + bytes([2, 1, 1, 0, abi]) + bytes(7)
    count = len(texts) + 1
    fixed = (3, machine, 1, 0, 0, 64 + len(body), flags, 64, 0, 0, 64, count, count - 1)
    return ident + struct.pack("<HHIQQQIHHHHHH", *fixed) + body + headers


def extension(*entries: bytes) -> bytes:
    """A shared object with one fat binary of these entries."""
    return elf([(".text", b"\xc3" * 16), (".nv_fatbin", section(fat_binary(*entries)))])
