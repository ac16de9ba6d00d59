# SPDX-License-Identifier: GPL-3.0-or-later
"""One step of a build on its builder."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.images import docker, ingredients, inside, trial
from ansible_collections.gb10.fleet.plugins.module_utils.images.build import Build
from ansible_collections.gb10.fleet.plugins.module_utils.images.layers import Layer
from ansible_collections.gb10.fleet.plugins.module_utils.serving.model_folder import private_folder

# What `docker run` uses of an image's configuration, and a build on top of it must leave alone.
_SETTINGS = ("Cmd", "Entrypoint", "Env", "ExposedPorts", "StopSignal", "User", "Volumes", "WorkingDir")


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
        "difference": difference(below, told, found),
        "facts": facts,
        "base_facts": base_facts,
        "inside": inside.ask(build.candidate, asked),
        "base_inside": inside.ask(request["base"], asked),
    }


def difference(base: Mapping[str, Any], image: Mapping[str, Any], found: Sequence[Layer]) -> dict[str, Any]:
    """`base` and `image` are what `docker image inspect` says, `found` the image's layers, the lowest first.

    `on_base`: the base's layers are the lowest ones. Where they are not, nothing else can be said.
    """
    below, all_ = base["RootFS"]["Layers"], image["RootFS"]["Layers"]
    on_base = all_[: len(below)] == below and len(found) == len(all_)
    above = found[len(below) :] if on_base else []
    changed = {path for layer in above for path in layer.taken}
    removed = {path for layer in above for path in layer.gone}
    emptied = {f"{path}/" for layer in above for path in layer.emptied}
    own, other = base.get("Config") or {}, image.get("Config") or {}
    return {
        "on_base": on_base,
        "changed": [f"/{path}" for path in sorted(changed)],
        "removed": [f"/{path}" for path in sorted(removed | emptied)],
        "settings": [key for key in _SETTINGS if (own.get(key) or None) != (other.get(key) or None)],
    }
