# SPDX-License-Identifier: GPL-3.0-or-later
"""What a model's name alone says, where nobody here has its files: catalog/models.yml, `named`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import host_count
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import memory_fit

_TOTAL = re.compile(r"(?:^|[-_/ ])(\d+(?:[.]\d+)?)([BT])(?![a-z])", re.IGNORECASE)  # 397B, 2.4T; not the 17B of A17B
_ACTIVE = re.compile(r"\d[BT][-_]A\d+(?:[.]\d+)?B(?![a-z])", re.IGNORECASE)
_BILLIONS = {"B": 1.0, "T": 1000.0}


@dataclass(frozen=True)
class Named:
    """The words of a name, in those of catalog/models.yml."""

    quantization: str | None
    traits: frozenset[str]
    parameters: float  # billions; 0: nobody knows
    weights: float = 0.0  # GiB of its files; 0: they follow from the parameters


def read(name: str) -> Named:
    """Take format, family and size from a name."""
    said = catalog.load("models")["named"]
    total = _TOTAL.search(name)
    number = float(total[1]) * _BILLIONS[total[2].upper()] if total else 0.0
    formats = [*_found(said["formats"]["value"], name), *_found(said["own"]["value"], name)]
    return Named(
        quantization=next(iter(formats), None),
        traits=frozenset([*_found(said["families"]["value"], name), *(["moe"] if _ACTIVE.search(name) else [])]),
        parameters=_first(said["sizes"]["value"], name) or number,
        weights=_first(said["weights"]["value"], name),
    )


def _first(amounts: dict[str, float], name: str) -> float:
    return next((amount for pattern, amount in amounts.items() if re.search(pattern, name, re.IGNORECASE)), 0.0)


def _found(patterns: dict[str, str], name: str) -> list[str]:
    return [word for word, pattern in patterns.items() if re.search(pattern, name, re.IGNORECASE)]


def too_small(name: str, memory_bytes: float, hosts: int, share: float = 0.0, narrowed: bool = False) -> str:
    """Say why the weights that a name promises do not fit the hosts; empty where they may.

    `share`: of the memory, that vLLM is told to take. `narrowed`: it quantizes what is not, as it loads it.
    """
    said, bits = read(name), catalog.load("models")["bits"]
    form = said.quantization
    if form is None or (narrowed and form == "bf16"):
        form = min(bits, key=lambda each: float(bits[each]))
    weights = said.weights or said.parameters * 1e9 * bits[form] / 8 / memory_fit.GIB
    total = memory_bytes / memory_fit.GIB
    room = total * min(share or 1.0, memory_fit.highest_utilization(total))
    beside = float(catalog.load("models")["fit"]["overhead"]["value"]) if weights else 0.0
    if weights / hosts + beside <= room:
        return ""
    counted = f"{said.parameters:g} billion parameters take {weights:.0f} GiB in {form}"
    what = f"the files take {weights:.0f} GiB" if said.weights else counted
    each = f"{weights / hosts:.0f} on each of {host_count(hosts)}"
    return f"{what}, {each}, with {beside:g} beside them, and {room:.0f} of {total:.0f} GiB are there to take"
