# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of two package versions is the newer one, for dpkg (deb-version(7)): `1.19~rc.1-1` comes before `1.19-1`.

Ansible's own test `version` takes such a pre-release for the newer one, and cannot compare `1.19-1` with `1.19.0-1`.
"""

from __future__ import annotations

import re

_VERSION = r"(?:(?P<epoch>[0-9]+):)?(?P<upstream>[0-9][A-Za-z0-9.+~-]*?)(?:-(?P<revision>[A-Za-z0-9.+~]+))?(?<!-)\Z"


def newer_than(version: str, other: str) -> bool:
    """Return whether dpkg takes `version` for newer than `other`. ValueError where one of them is no version."""
    return order(version) > order(other)


def order(version: str) -> tuple[int, list[tuple[list[int], int]], list[tuple[list[int], int]]]:
    """What to sort by, the oldest first. ValueError where it is no version."""
    found = re.match(_VERSION, version)
    if found is None:
        raise ValueError(f"{version!a} is no version of a package, such as 1.19.1-1 or 5:29.2.1-1~ubuntu.24.04~noble")
    # No revision is the same as revision 0.
    return int(found["epoch"] or 0), _parts(found["upstream"]), _parts(found["revision"] or "0")


def _parts(text: str) -> list[tuple[list[int], int]]:
    """Text and number in turn; the last pair is empty, so that what goes on is compared with an end."""
    return [(_weights(word), int(digits or 0)) for word, digits in re.findall(r"([^0-9]*)([0-9]*)", text)]


def _weights(word: str) -> list[int]:
    """A tilde stands before the end, the end before letters, letters before all else."""
    return [-1 if char == "~" else ord(char) + (0 if char.isalpha() else 256) for char in word] + [0]
