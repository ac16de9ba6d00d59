# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter of the play validate: the part of every host in the evidence, also of one that the run went on without."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

PROOF = "__validate_proof"


def proofs(hosts: Iterable[str], hostvars: Mapping[str, Any], judged: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: _proof(hostvars[name], judged.get(name, {})) for name in hosts}


def _proof(variables: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    if PROOF in variables:
        return dict(variables[PROOF])
    names = {"cluster": "gb10_cluster", "topology": "fabric_topology"}
    own = {key: variables[name] for key, name in names.items() if name in variables}
    return {**own, "facts": {}, "findings": list(said.get("findings", []))}


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"proofs": proofs}
