# SPDX-License-Identifier: GPL-3.0-or-later
"""Which version `NAME=1.2*` means: the newest that starts so and fits the rest of the transaction. Pure.

Canonical rebuilds the modules of one kernel for a later driver: same name, same start, a higher suffix. apt takes the
highest suffix, does not fall back to one that fits, and ends with "held broken packages" (measured with apt 2.6).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.gb10.fleet.plugins.module_utils.system.debian_version import order

_ALTERNATIVE = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9+.-]+)(?::\S+)?\s*(?:\((?P<operator><<|<=|=|>=|>>)\s*(?P<version>\S+)\))?"
)


@dataclass(frozen=True)
class Needed:
    """One alternative of a dependency; without a version any will do."""

    name: str
    operator: str
    version: str

    def accepts(self, version: str) -> bool:
        own, asked = order(version), order(self.version or "0")
        return {
            "": True,
            "<<": own < asked,
            "<=": own <= asked,
            "=": own == asked,
            ">=": own >= asked,
            ">>": own > asked,
        }[self.operator]


Groups = Sequence[Sequence[Needed]]  # all groups are needed, of each one alternative
Offers = Mapping[str, Mapping[str, Groups]]  # {package: {version: what it depends on}}


class NoneFits(Exception):
    """No offered version of a package fits the rest; the text says why for each."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(why)
        self.name = name


def parse(text: str) -> Offers:
    """The stanzas of `apt-cache show`, or of dpkg's status file."""
    offers: dict[str, dict[str, Groups]] = {}
    for block in text.split("\n\n"):
        fields = dict(re.findall(r"^(Package|Version|Depends|Pre-Depends): *(.*)$", block, re.MULTILINE))
        if fields.get("Package") and fields.get("Version"):
            relations = ", ".join(fields[key] for key in ("Pre-Depends", "Depends") if fields.get(key))
            offers.setdefault(fields["Package"], {})[fields["Version"]] = _groups(relations)
    return offers


def _groups(relations: str) -> Groups:
    groups = []
    for group in filter(None, map(str.strip, relations.split(","))):
        found = filter(None, map(_ALTERNATIVE.match, map(str.strip, group.split("|"))))
        groups.append([Needed(one["name"], one["operator"] or "", one["version"] or "") for one in found])
    return groups


def choose(wanted: Mapping[str, str], offers: Offers) -> dict[str, str]:
    """{package: exact version} of those whose version ends with `*`; what apt does not offer at all is left out.

    `wanted`: {package: version} of the transaction; an exact one is as good as installed. NoneFits where one cannot be.
    """
    allowed = {name: [version] for name, version in wanted.items() if version and not version.endswith("*")}
    open_ = [name for name, version in wanted.items() if version.endswith("*")]
    for name in open_:
        allowed[name] = sorted(
            (each for each in offers.get(name, ()) if each.startswith(wanted[name][:-1])), key=order, reverse=True
        )
    open_ = [name for name in open_ if allowed[name]]
    chosen: dict[str, str] = {}
    for name in open_:
        _narrow(open_, allowed, offers)
        chosen[name] = allowed[name][0]
        allowed[name] = allowed[name][:1]
    return chosen


def fits(groups: Groups, wanted: Mapping[str, str]) -> bool:
    """Return whether what an installed version depends on agrees with the exact versions of the transaction."""
    allowed = {name: [each] for name, each in wanted.items() if each and not each.endswith("*")}
    return _unmet(groups, allowed) is None


def _narrow(open_: Sequence[str], allowed: dict[str, list[str]], offers: Offers) -> None:
    """Drop the versions of which a dependency can no longer be met, until none is left to drop."""
    dropped = True
    while dropped:
        dropped = False
        for name in open_:
            unmet = {version: _unmet(offers[name][version], allowed) for version in allowed[name]}
            left = [version for version in allowed[name] if unmet[version] is None]
            if not left:
                raise NoneFits(name, "; ".join(f"{version} needs {_told(group)}" for version, group in unmet.items()))
            dropped = dropped or len(left) < len(allowed[name])
            allowed[name] = left


def _unmet(groups: Groups, allowed: Mapping[str, Sequence[str]]) -> Sequence[Needed] | None:
    """The first group that the transaction cannot meet; what it does not name is for apt to judge."""
    for group in groups:
        if group and all(one.name in allowed and not any(map(one.accepts, allowed[one.name])) for one in group):
            return group
    return None


def _told(group: Sequence[Needed] | None) -> str:
    return " | ".join(f"{one.name} ({one.operator} {one.version})" for one in group or ())
