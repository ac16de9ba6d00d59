# SPDX-License-Identifier: GPL-3.0-or-later
"""Name what a value of an answer must be beside its type: `Annotated[list[Sample], Filled()]`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple


class Holding(NamedTuple):
    """What has to hold of a value, and how it is said to whoever gave another one."""

    holds: Callable[[Any], bool]
    wanted: str


def Parsed(parse: Callable[[str], object], wanted: str) -> Holding:
    """A text that this function takes."""

    def holds(value: Any) -> bool:
        try:
            parse(value)
        except ValueError:
            return False
        return True

    return Holding(holds, wanted)


def Matching(form: re.Pattern[str], wanted: str) -> Holding:
    """A text of this form."""
    return Holding(lambda value: bool(form.match(value)), wanted)


def Between(least: float, most: float) -> Holding:
    """A number within these limits."""
    return Holding(lambda value: least <= value <= most, f"a number from {least:g} to {most:g}")


def Counted(number: int) -> Holding:
    """A list of so many entries."""
    return Holding(lambda value: len(value) == number, f"a list of {number}")


def AtMost(number: int) -> Holding:
    """A list or a mapping of so many entries, or fewer."""
    return Holding(lambda value: len(value) <= number, f"a list of {number} at most")


def Filled(wanted: str = "a list with an entry") -> Holding:
    """A list with something in it."""
    return Holding(bool, wanted)


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
TimeSource = Annotated[str, Matching(re.compile(r"[A-Za-z0-9._ -]{1,100}\Z"), "the name of a time daemon")]
Cidr = Annotated[str, Parsed(_interface, "an address")]
Address = Annotated[str, Parsed(_address, "an address")]
