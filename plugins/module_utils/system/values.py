# SPDX-License-Identifier: GPL-3.0-or-later
"""Name what a value of an answer must be beside its type: `Annotated[list[Sample], Filled()]`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple


class Parsed(NamedTuple):
    """A text that this function takes."""

    parse: Callable[[str], object]
    wanted: str

    def holds(self, value: Any) -> bool:
        try:
            self.parse(value)
        except ValueError:
            return False
        return True


class Matching(NamedTuple):
    """A text of this form."""

    form: re.Pattern[str]
    wanted: str

    def holds(self, value: Any) -> bool:
        return bool(self.form.match(value))


class Between(NamedTuple):
    """A number within these limits."""

    least: float
    most: float

    @property
    def wanted(self) -> str:
        return f"a number from {self.least:g} to {self.most:g}"

    def holds(self, value: Any) -> bool:
        return bool(self.least <= value <= self.most)


class Counted(NamedTuple):
    """A list of so many entries."""

    number: int

    @property
    def wanted(self) -> str:
        return f"a list of {self.number}"

    def holds(self, value: Any) -> bool:
        return len(value) == self.number


class AtMost(NamedTuple):
    """A list or a mapping of so many entries, or fewer."""

    number: int

    @property
    def wanted(self) -> str:
        return f"a list of {self.number} at most"

    def holds(self, value: Any) -> bool:
        return len(value) <= self.number


class Filled(NamedTuple):
    """A list with something in it."""

    wanted: str = "a list with an entry"

    def holds(self, value: Any) -> bool:
        return bool(value)


def _interface(text: str) -> object:
    import ipaddress  # a host that only says its addresses does not need it

    return ipaddress.ip_interface(text)


def _address(text: str) -> object:
    import ipaddress

    return ipaddress.ip_address(text)


# Names that commands hold which a person pastes: no word of a shell, and no longer than a name can be.
PackageName = Annotated[
    str, Matching(re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]{0,199}(:[a-z0-9-]{1,30})?\Z"), "the name of a package")
]
KernelRelease = Annotated[str, Matching(re.compile(r"[A-Za-z0-9][A-Za-z0-9+._~-]{0,199}\Z"), "the release of a kernel")]
Version = Annotated[str, Matching(re.compile(r"[A-Za-z0-9.+:~_-]{0,200}\Z"), "a version")]  # empty: half installed
Word = Annotated[str, Matching(re.compile(r"[A-Za-z0-9._-]{0,100}\Z"), "a word")]
Cidr = Annotated[str, Parsed(_interface, "an address")]
Address = Annotated[str, Parsed(_address, "an address")]
