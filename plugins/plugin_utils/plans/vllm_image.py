# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of the role vllm_image: what somebody wants built, and what of it cannot be.

What is built follows from the base's own files: `plugin_utils/images/build_plan.py`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.plan import RolePlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.settings import RoleSettings
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.images import recipes
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import docker_words, host_folders, waits

_NAME = re.compile(r"[a-z0-9]+([._/-]+[a-z0-9]+)*\Z")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_FILE = re.compile(r"[A-Za-z0-9_.+-]+\Z")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*\Z")
_FOLDER = re.compile(r"/[^:,\x00-\x1f\x7f]*\Z")
_ARCHITECTURES = re.compile(r"(\d{1,2}[.]\d[af]?([+]PTX)?(?:[; ](?=\d)|\Z))*\Z")
_ENVIRONMENT = re.compile(r"--env(?:-file)?(?:=|\Z)|-[A-Za-z]*e")


@dataclass(frozen=True)
class VllmImageSettings(RoleSettings, role="vllm_image"):
    """The public variables of the role vllm_image."""

    vllm_image_base: str
    vllm_image_recipe: str
    vllm_image_source: Mapping[str, Any]
    vllm_image_architectures: str
    vllm_image_wheels: tuple[Mapping[str, Any], ...]
    vllm_image_patches: tuple[Mapping[str, Any], ...]
    vllm_image_name: str
    vllm_image_builder: str
    vllm_image_model: str
    vllm_image_serve_args: tuple[str, ...]
    vllm_image_docker_options: tuple[str, ...]
    vllm_image_port: int
    vllm_image_ready_timeout: int
    vllm_image_jobs: int
    vllm_image_force: bool
    vllm_image_experimental: bool


@dataclass(frozen=True, kw_only=True)
class VllmImagePlan(RolePlan):
    """``look`` is what the builder is asked first, ``trial`` how both images serve the small model."""

    name: str
    look: Mapping[str, Any]
    trial: Mapping[str, Any]
    platform: str
    wish: Mapping[str, Any]


def plan(view: View) -> VllmImagePlan:
    """The plan for one host."""
    settings = view.settings(VllmImageSettings)
    figures = recipes.load()["acceptance"]
    return VllmImagePlan(
        refusals=tuple(_refusals(settings)),
        name=settings.vllm_image_name,
        look={
            "base": settings.vllm_image_base,
            "source": _source(settings) if settings.vllm_image_recipe == recipes.KERNELS else [],
            "wheels": settings.vllm_image_wheels,
            "patches": settings.vllm_image_patches,
        },
        trial={
            "model": settings.vllm_image_model,
            "port": settings.vllm_image_port,
            "options": settings.vllm_image_docker_options,
            "arguments": settings.vllm_image_serve_args,
            "ready_s": settings.vllm_image_ready_timeout,
            "rounds": figures["rounds"]["value"],
            "tokens": figures["tokens"]["value"],
        },
        platform=catalog.load("image_rules")["platform"]["value"],
        wish={
            "recipe": settings.vllm_image_recipe,
            "base": settings.vllm_image_base,
            "architectures": settings.vllm_image_architectures,
            "jobs": settings.vllm_image_jobs,
            "force": settings.vllm_image_force,
            "experimental": settings.vllm_image_experimental,
        },
    )


def _refusals(settings: VllmImageSettings) -> Iterator[str]:
    if not settings.vllm_image_base:
        yield (
            "vllm_image_base is empty; name the image to start from, one that `docker image ls` shows on the builder"
        )
    elif not _IMAGE.match(settings.vllm_image_base):
        base = settings.vllm_image_base
        yield f"vllm_image_base is {base!a}, which names no image; write name:tag or name@sha256:..."
    if not _is_folder(settings.vllm_image_model):
        yield (
            f"vllm_image_model is {settings.vllm_image_model!a}; name a folder on the builder, without `:` and `,` and "
            "none of the system or of a role, with a small model that can chat: no image serves that was not asked"
        )
    if any(_ENVIRONMENT.match(word) for word in settings.vllm_image_docker_options):
        yield (
            "vllm_image_docker_options sets the environment; everybody on the builder would read it in the list of "
            "processes. The small model is on the builder and needs no token: leave it out"
        )
    elif refused := docker_words.refused(settings.vllm_image_docker_options):
        yield (
            f"vllm_image_docker_options holds {', '.join(refused)}, which gives the host to an image that nobody has "
            f"proven yet, or is nothing that a trial needs. Leave it out; it may hold {', '.join(docker_words.ALLOWED)}"
            ", with folders and devices that are not the host's own"
        )
    if not _ARCHITECTURES.match(settings.vllm_image_architectures):
        yield (
            f"vllm_image_architectures is {settings.vllm_image_architectures!a}; write it as PyTorch takes it, such as "
            "12.0 or 12.0;12.1a+PTX, or leave it out"
        )
    if not _NAME.match(settings.vllm_image_name):
        yield f"vllm_image_name is '{settings.vllm_image_name}'; give a name in small letters, without tag and digest"
    if not 0 < settings.vllm_image_port < 65536:
        yield f"vllm_image_port is {settings.vllm_image_port}; a port is 1 to 65535"
    if settings.vllm_image_ready_timeout < 1:
        yield f"vllm_image_ready_timeout is {settings.vllm_image_ready_timeout}; say 1 or more seconds"
    yield from waits.too_long(vllm_image_ready_timeout=settings.vllm_image_ready_timeout)
    if settings.vllm_image_jobs < 0:
        yield f"vllm_image_jobs is {settings.vllm_image_jobs}; 0 takes what the memory allows"
    files = {"source": _source(settings), "wheels": settings.vllm_image_wheels, "patches": settings.vllm_image_patches}
    for variable, entries in files.items():
        for each in entries:
            path, digest = str(each.get("path", "")), str(each.get("sha256", ""))
            if not path.startswith("/") or not _FILE.match(path.rpartition("/")[2]) or not _SHA256.match(digest):
                yield (
                    f"vllm_image_{variable} has the entry {dict(each)}; each has a path on the builder, whose last "
                    "part is of letters, digits and '._+-', and its sha256 (`sha256sum FILE`)"
                )
        names = [str(each.get("path", "")).rpartition("/")[2] for each in entries]
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield f"vllm_image_{variable} names two files {name}; the build has them in one folder: rename one of them"


def _source(said: VllmImageSettings) -> list[Mapping[str, Any]]:
    return [said.vllm_image_source] if said.vllm_image_source else []


def _is_folder(path: str) -> bool:
    """As Docker takes one to mount, and not the host's own: an image that nobody has proven yet sees all of it."""
    bare = path.rstrip("/")
    return bool(_FOLDER.match(path)) and posixpath.normpath(path) == bare and not host_folders.belongs_to_host(bare)
