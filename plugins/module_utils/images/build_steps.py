# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One step of a build on its builder."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.images import difference, docker, ingredients, inside, trial
from ansible_collections.gb10.fleet.plugins.module_utils.images.build import Build
from ansible_collections.gb10.fleet.plugins.module_utils.serving.model_folder import private_folder


def carry_out(step: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """What the step found."""
    if step == "look":
        return _look(request)
    build = Build(request["name"], request["tag"])
    if step == "read":
        return build.read()
    if step == "start":
        build.start(request)
        return {}
    with alone(build.state):
        if step == "examine":
            return _examine(request, build)
        if step == "serve":
            images = {"base_served": request["base"], "served": build.candidate}
            return {key: trial.serve(image, request["trial"]) for key, image in images.items()}
        image = build.settle(request["labels"], request["platform"], accepted=request["accepted"])
        return {"image": image, "digests": build.names(image)}


@contextlib.contextmanager
def alone(state: Path) -> Iterator[None]:
    """One step at a time: that of a controller which was killed goes on, and its model holds port and memory."""
    private_folder(state)
    with (state / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _look(request: Mapping[str, Any]) -> dict[str, Any]:
    """The base's facts, what the builder has, and the ingredients."""
    return {
        "facts": docker.read(request["base"]),
        "builder": asdict(ingredients.builder()),
        "source": [asdict(ingredients.source(each)) for each in request["source"]],
        "wheels": [asdict(ingredients.wheel(each)) for each in request["wheels"]],
        "patches": [asdict(ingredients.patch(each)) for each in request["patches"]],
    }


def _examine(request: Mapping[str, Any], build: Build) -> dict[str, Any]:
    """What needs no GPU, of both images."""
    base_facts, __, below = docker.examined(request["base"])
    facts, found, told = docker.examined(build.candidate)
    asked = {"modules": request["modules"], "files": request["files"]}
    return {
        "difference": difference.of(below, told, found),
        "facts": facts,
        "base_facts": base_facts,
        "inside": inside.ask(build.candidate, asked),
        "base_inside": inside.ask(request["base"], asked),
    }
