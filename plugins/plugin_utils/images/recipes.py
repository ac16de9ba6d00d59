# SPDX-License-Identifier: GPL-3.0-or-later
"""What catalog/image_recipes.yml says of a wish: which build fits, and which known dead end it runs into. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.images.ingredients import Patch, Source, Wheel
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import models

KERNELS, OVERLAY = "kernels", "overlay"
_CUDA_OF_WHEEL = re.compile(r"[+.]cu(\d{2})\d?(?=[.-]|$)")
EXPERIMENTAL = "experimental"


@dataclass(frozen=True)
class Wish:
    """What somebody wants built."""

    recipe: str
    base: str
    architectures: str = ""  # empty: the recipe's
    source: Source | None = None
    wheels: Sequence[Wheel] = ()
    patches: Sequence[Patch] = ()
    jobs: int = 0  # 0: what the memory allows
    force: bool = False
    experimental: bool = False


def load() -> Mapping[str, Any]:
    return catalog.load("image_recipes")


def of_version(version: str | None) -> Mapping[str, Any] | None:
    """The build of the extensions of this vLLM; None where nobody knows one."""
    return next((each for each in load()["kernels"] if version and models.within(version, each["versions"])), None)


def trust(base: str) -> str | None:
    """Of the first source that the name of an image fits; None: of a maker that the catalog does not know."""
    return next((str(each["trust"]) for each in load()["sources"] if re.search(each["value"], base)), None)


def dead_ends(wish: Wish, architectures: str, versions: Mapping[str, Any]) -> Iterator[str]:
    """Each way that is known to lead nowhere, with reason and way out. `versions`: those of the base."""
    for entry in load()["dead_ends"]:
        if not models.within(versions.get("vllm"), entry.get("versions", "")):
            continue
        met = _met(entry["match"], wish, architectures, versions)
        if met:
            yield f"{entry['value']}: {met}: {entry['reason']} Fix: {entry['way_out']}."


def _met(match: Mapping[str, Any], wish: Wish, architectures: str, versions: Mapping[str, Any]) -> str:
    """What of the wish it is that fits; empty where something does not."""
    found: list[str] = []
    for key, wanted in match.items():
        if key == "cuda_of_wheel":
            named = [each.name for each in wish.wheels if _other_cuda(each.name, versions.get("torch_cuda"))]
        elif key == "wheel":
            named = [each.name for each in wish.wheels if re.search(wanted, each.name, re.IGNORECASE)]
        elif key == "patch":
            named = [each.name for each in wish.patches if re.search(wanted, each.text, re.MULTILINE)]
        elif key == "architectures":
            asked = architectures.split(";") if wish.recipe == KERNELS else []
            named = [each for each in asked if re.search(wanted, each)]
        elif key == "recipe":
            named = [wish.recipe] if wish.recipe == wanted else []
        else:
            named = [wish.base] if re.search(wanted, wish.base) else []
        if not named:
            return ""
        found += [each for each in named if key != "recipe"]
    return ", ".join(found)


def _other_cuda(wheel: str, cuda: str | None) -> bool:
    """Return whether the name of a wheel says another CUDA (`+cu129`) than this one (`13.0`)."""
    told = _CUDA_OF_WHEEL.search(wheel)
    return bool(told and cuda and told.group(1) != cuda.split(".")[0])
