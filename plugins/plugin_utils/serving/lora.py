# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vllm_lora`: adapters of a model, as an inventory and as vLLM's command line have them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.serving.model_folder import name_of

FLAG = "--lora-modules"
COMMIT = re.compile(r"[0-9a-f]{40}\Z")


@dataclass(frozen=True)
class Adapter:
    """One of them."""

    name: str  # that clients ask for
    model: str  # id of the hub
    revision: str  # a commit; empty: main

    @property
    def place(self) -> str:
        """Where vLLM finds it: by its id, or the folder of its commit, for it takes no revision of an adapter."""
        return f"/root/.cache/{name_of(self.model)}/snapshots/{self.revision}" if self.revision else self.model


def adapter(said: Mapping[str, Any]) -> Adapter:
    """What an inventory says of one, as it stands there."""
    return Adapter(*(str(said.get(key) or "") for key in ("name", "model", "revision")))


def words(adapters: Sequence[Adapter]) -> list[str]:
    """Of `vllm serve`."""
    return ["--enable-lora", FLAG, *(f"{each.name}={each.place}" for each in adapters)] if adapters else []
