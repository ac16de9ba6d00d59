# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPU code of an extension a GB10 loads. Pure; the chip is in catalog/sm.yml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

_NAME = re.compile(r"(?:sm|compute)_(\d+)(\d)([af]?)")


@dataclass(frozen=True)
class Kernels:
    """The GPU code of one extension."""

    name: str
    path: str
    owner: str
    native: Mapping[str, int]  # cubins that the chip loads, by architecture
    locked: Mapping[str, int]  # of its family, but locked to another chip (sm_120a)
    other: Mapping[str, int]  # for other families
    ptx: Mapping[str, int]  # that the driver compiles for the chip at the first use
    error: str = ""

    @property
    def state(self) -> str:
        """native | ptx (compiled when first used) | none | unread."""
        if self.error:
            return "unread"
        return "native" if self.native else "ptx" if self.ptx else "none"

    @property
    def text(self) -> str:
        told = [("", self.native), ("locked to another chip: ", self.locked), ("PTX: ", self.ptx)]
        parts = [before + ", ".join(f"{count} {name}" for name, count in each.items()) for before, each in told if each]
        return "; ".join(parts) or self.error or f"none of the family ({', '.join(self.other)})"


def of(extension: Mapping[str, Any]) -> Kernels:
    """An entry of the fact `extensions`."""
    cubins, ptx = extension["cubins"], extension["ptx"]
    return Kernels(
        name=extension["name"],
        path=extension["path"],
        owner=extension["owner"],
        native={name: count for name, count in cubins.items() if loads(name)},
        locked={name: count for name, count in cubins.items() if in_family(name) and not loads(name)},
        other={name: count for name, count in cubins.items() if not in_family(name)},
        ptx={name: count for name, count in ptx.items() if compiles(name)},
        error=extension["error"] or "",
    )


def chip() -> tuple[int, int]:
    """Compute capability."""
    major, __, minor = str(catalog.load("sm")["chip"]["compute_capability"]["value"]).partition(".")
    return int(major), int(minor)


def loads(name: str) -> bool:
    """Whether the chip loads a cubin: of its major version and no later minor one; with `a` only its very own."""
    parsed = _parsed(name)
    if parsed is None:
        return False
    capability, suffix = parsed
    return capability == chip() if suffix == "a" else capability[0] == chip()[0] and capability[1] <= chip()[1]


def in_family(name: str) -> bool:
    parsed = _parsed(name)
    return parsed is not None and parsed[0][0] == chip()[0]


def compiles(name: str) -> bool:
    """Return whether the driver makes code for the chip of this PTX: of any earlier version, where it has no suffix."""
    parsed = _parsed(name)
    if parsed is None:
        return False
    return loads(name) if parsed[1] else parsed[0] <= chip()


def _parsed(name: str) -> tuple[tuple[int, int], str] | None:
    match = _NAME.fullmatch(name)
    return ((int(match.group(1)), int(match.group(2))), match.group(3)) if match else None
