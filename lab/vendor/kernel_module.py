# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in nvidia.ko: the smallest ELF file whose `.modinfo` the real `modinfo` and `depmod` read."""

from __future__ import annotations

import struct

SECTION_HEADER = "<IIQQQQIIQQ"
HEADER_SIZE, SECTION_HEADER_SIZE = 64, 64
SHT_PROGBITS, SHT_STRTAB, SHF_ALLOC = 1, 3, 2
ET_REL, EM_AARCH64 = 1, 183  # a Spark's, also where the lab's host is an x86-64 machine


def stand_in(version: str, license_: str = "Dual MIT/GPL") -> bytes:
    """The module of one driver version (`580.142`), without any code in it; the proprietary flavour says `NVIDIA`."""
    facts = {"license": license_, "version": version, "supported": "external", "name": "nvidia"}
    modinfo = b"".join(f"{key}={value}\0".encode() for key, value in facts.items())
    names = b"\0.modinfo\0.shstrtab\0"

    sections = [bytes(SECTION_HEADER_SIZE)]  # the first section header of every ELF file is empty
    body = b""
    for name, kind, flags, content in (
        (b".modinfo\0", SHT_PROGBITS, SHF_ALLOC, modinfo),
        (b".shstrtab\0", SHT_STRTAB, 0, names),
    ):
        offset = HEADER_SIZE + len(body)
        sections.append(
            struct.pack(SECTION_HEADER, names.index(name), kind, flags, 0, offset, len(content), 0, 0, 1, 0)
        )
        body += content
    body += b"\0" * (-len(body) % 8)

    identity = b"\x7fELF" + bytes([2, 1, 1]) + b"\0" * 9  # 64 bits, little endian, ELF version 1
    header = identity + struct.pack(
        "<HHIQQQIHHHHHH",
        ET_REL, EM_AARCH64, 1, 0, 0, HEADER_SIZE + len(body), 0, HEADER_SIZE, 0, 0,
        SECTION_HEADER_SIZE, len(sections), len(sections) - 1,
    )  # fmt: skip
    return header + body + b"".join(sections)
