# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose key an armoured OpenPGP block is: the fingerprints of its primary keys (RFC 4880, keys of version 4).

apt trusts every primary key in a file of /etc/apt/keyrings, so one behind the right one matters as much as a wrong one.
gpg is not asked: a document is checked before anything is read. The checksum of the armour is not compared: all that it
protects besides are signatures, and a damaged one is worth nothing.
"""

from __future__ import annotations

import binascii
import re
import struct

_BLOCK = (
    r"\s*-----BEGIN PGP PUBLIC KEY BLOCK-----\n(?:[A-Za-z]+: .*\n)*\n(?P<body>[A-Za-z0-9+/=\n]+?)"
    r"\n(?:=[A-Za-z0-9+/]{4}\n)?-----END PGP PUBLIC KEY BLOCK-----\s*\Z"
)
_PUBLIC_KEY = 6  # packet tag of a primary key; subkeys are 14


def fingerprints(armoured: str) -> list[str]:
    """40 upper-case hexadecimal digits for each primary key; ValueError with what is wrong with the text."""
    block = re.match(_BLOCK, armoured)
    if block is None:
        raise ValueError("is not one armoured public key block")
    import base64  # only a host that is given a key needs it

    try:
        data = base64.b64decode(block["body"].replace("\n", ""), validate=True)
    except binascii.Error as error:
        raise ValueError(f"is not base64: {error}") from None
    return [_fingerprint(body) for tag, body in _packets(data) if tag == _PUBLIC_KEY]


def _packets(data: bytes) -> list[tuple[int, bytes]]:
    packets = []
    place = 0
    try:
        while place < len(data):
            head = data[place]
            place += 1
            if head & 0xC0 == 0xC0:  # new format
                tag, first = head & 0x3F, data[place]
                if first < 192:
                    length, size = first, 1
                elif first < 224:
                    length, size = ((first - 192) << 8) + data[place + 1] + 192, 2
                elif first == 255:
                    (length,), size = struct.unpack_from(">I", data, place + 1), 5
                else:
                    raise ValueError("holds a packet of unknown length")
            elif head & 0x80 and head & 3 != 3:  # old format
                tag, size = (head >> 2) & 0xF, 1 << (head & 3)
                length = int.from_bytes(data[place : place + size], "big")
            else:
                raise ValueError("holds something that is no OpenPGP packet")
            place += size
            if place + length > len(data):
                raise ValueError("ends in the middle of a packet")
            packets.append((tag, data[place : place + length]))
            place += length
    except (IndexError, struct.error):
        raise ValueError("ends in the middle of a packet") from None
    return packets


def _fingerprint(body: bytes) -> str:
    if body[:1] != b"\x04":
        raise ValueError("holds a key of another version than 4")
    # Python's own implementation: hashlib would load OpenSSL, which takes 6 ms.
    sha1 = __import__("_sha1").sha1
    return str(sha1(b"\x99" + struct.pack(">H", len(body)) + body).hexdigest()).upper()
