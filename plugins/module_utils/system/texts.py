# SPDX-License-Identifier: GPL-3.0-or-later
"""What every reader of health shares: bounded texts, and a reason for each value that is missing."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader

T = TypeVar("T")

LARGEST_TEXT = 2**20  # characters of one file or answer; a sound one is far below
LARGEST_QUOTE = 200
_LARGEST_FILE = 48 * 2**20  # bytes of a document; a proof of a thousand hosts has some 32 MB
_LARGEST_READ = 4096  # characters of what is quoted; hiding makes it shorter, seldom by so much
LATEST_S = 2**37  # a time of day in the year 6325; what is later is no time
Values = dict[str, Any]
Reasons = dict[str, str]
Part = tuple[Values, Reasons]  # a value that is None has its reason
_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,9})?\Z")
# How a secret is called. What is counted in tokens has a number behind it: `time per output token: 12`.
_NAMES = (
    r"(?:api|private|access)[_-]?key(?:[_-]id)?|passw(?:or)?d|passphrase|secret(?:[_-](?:access[_-])?key)?|authorization"
    r"|credentials?"
    r"|token(?!\W{1,4}[\d.]{1,12}(?:[\s,;)\]}%]|\Z))"
)
# What opens a door somewhere. Every repetition that can be tried in vain is bounded, so that no text takes long.
_SECRET = r"""
    # Account and password of an address, which may hold / and @ themselves.
    (?<=://)\S{1,500}(?=@)
    # Keys by how they begin, in their own spelling: HF_HUB_CACHE and SK-hynix are none.
    | \b(?-i:hf_[A-Za-z0-9]{16,} | (?:sk|nvapi)-[\w-]{6,})
    | (?<=\bbearer\ )\S{8,}
    # What a name says to be one: an option or field, a variable, a header. Without `=`, `:` or dashes it is prose.
    | (
        (?: --[\w-]{0,40}(?:NAMES)[\\"']{0,8}[\s=,:]{1,3}\\? | (?:NAMES)[\\"']{0,8}\s{0,3}(?::=|[:=]>?|%3[AD])\s{0,3} )
        (?! (?:None|null|"{2}|'{2}|\[\]|["']?\(hidden\)["']?) (?:[\s,;)\]}]|\Z) )
        (?: (?:basic|bearer|digest|negotiate|token) \s{1,3} )?
      )
      (?: "[^"]{1,500}"? | '[^']{1,500}'? | \[[^\]]{1,500}\]? | \S+ )
    """.replace("NAMES", _NAMES)
# A text without any of these, in whatever case, has no secret. To compile the pattern costs a tenth of a look.
_SIGNS = ("://", "hf_", "sk-", "nvapi-", "bearer", "key", "pass", "secret", "author", "token", "credential")
_GPU_UUID = r"\b(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"


class Unknown(ValueError):
    """Why there is no value."""


class Notes:
    """The reasons of one reading, each under the path of its value."""

    def __init__(self) -> None:
        self.reasons: Reasons = {}

    def read(self, where: str, reader: Callable[[], T]) -> T | None:
        """What `reader` returns, or None with its reason."""
        try:
            return reader()
        except Unknown as reason:
            self.reasons[where] = str(reason)
        except OSError as error:
            self.reasons[where] = error.strerror or "it cannot be read"
        except (ValueError, RecursionError) as error:  # a number of a million digits, a name with a NUL, deep JSON
            self.reasons[where] = quoted(str(error))
        return None

    def part(self, where: str, reader: Callable[[], Part]) -> Values | None:
        """The values of a part; the reasons of its missing ones are noted."""
        found = self.read(where, reader)
        if found is None:
            return None
        values, reasons = found
        self.reasons.update({f"{where}.{name}": reason for name, reason in reasons.items()})
        return values


def document(text: str | bytes | None) -> dict[str, Any]:
    """Return the JSON object that a text is; nothing where it is none. No value of it is checked."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def document_in(path: Path) -> dict[str, Any]:
    """The same of a file; nothing where it cannot be read."""
    try:
        return document(bytes_of(path))
    except OSError:
        return {}


def bytes_of(path: Path) -> bytes:
    """A file that somebody else may have made. OSError where it is no plain one, or without an end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # it waits for no pipe
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no plain file", str(path))
        content = file.read(_LARGEST_FILE + 1)
    if len(content) > _LARGEST_FILE:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return content


def text_of(host: HostReader, path: str) -> str:
    """A file, as far as a sound one goes; Unknown where it is absent, empty or far too large."""
    try:
        with open(host.system.place(path), "rb") as file:  # noqa: PTH123 - a text, not a path
            content = file.read(LARGEST_TEXT + 1)
    except OSError as error:
        raise Unknown(f"{path}: {error.strerror}") from None
    return checked(content.decode("utf-8", "replace"), path)


def checked(text: str, source: str) -> str:
    if len(text) > LARGEST_TEXT:
        raise Unknown(f"{source} gave more than {LARGEST_TEXT} characters, which no sound one does")
    if not text.strip():
        raise Unknown(f"{source} is empty")
    return text


def number(cell: str) -> float:
    """A plain number; Unknown with the text instead: `[N/A]` is no zero."""
    if not _NUMBER.match(cell.strip()):
        raise Unknown(f"{quoted(cell) or 'nothing'} is no number")
    return float(cell)


def quoted(text: str) -> str:
    """What somebody else said, on one line, short, without the identity of a GPU and without what looks secret."""
    line = " ".join(text[:_LARGEST_READ].split())
    if "GPU-" in line or "MIG-" in line:
        line = re.sub(_GPU_UUID, "GPU-(hidden)", line)
    said = "".join(char if char.isprintable() else "?" for char in hidden(line))
    return said if len(said) <= LARGEST_QUOTE else f"{said[: LARGEST_QUOTE - 4]} ..."


def hidden(text: str) -> str:
    """A text without what looks secret in it."""
    folded = text.casefold()
    if not any(sign in folded for sign in _SIGNS):
        return text
    return re.sub(_SECRET, r"\g<1>(hidden)", text, flags=re.VERBOSE | re.IGNORECASE)
