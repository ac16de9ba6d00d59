# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
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
    vllm_image_source: str
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
    architectures: str
    platform: str
    jobs: int
    force: bool
    experimental: bool


def plan(view: View) -> VllmImagePlan:
    """The plan for one host."""
    said = view.settings(VllmImageSettings)
    figures = recipes.load()["acceptance"]
    kernels = said.vllm_image_recipe == recipes.KERNELS
    return VllmImagePlan(
        refusals=tuple(_refusals(said)),
        name=said.vllm_image_name,
        look={
            "base": said.vllm_image_base,
            "recipe": said.vllm_image_recipe,
            "source": said.vllm_image_source if kernels else "",
            "wheels": said.vllm_image_wheels,
            "patches": said.vllm_image_patches,
        },
        trial={
            "model": said.vllm_image_model,
            "port": said.vllm_image_port,
            "options": said.vllm_image_docker_options,
            "arguments": said.vllm_image_serve_args,
            "ready_s": said.vllm_image_ready_timeout,
            "rounds": figures["rounds"]["value"],
            "tokens": figures["tokens"]["value"],
        },
        architectures=said.vllm_image_architectures,
        platform=catalog.load("image_rules")["platform"]["value"],
        jobs=said.vllm_image_jobs,
        force=said.vllm_image_force,
        experimental=said.vllm_image_experimental,
    )


def _refusals(said: VllmImageSettings) -> Iterator[str]:
    if not said.vllm_image_base:
        yield (
            "vllm_image_base is empty; name the image to start from, one that `docker image ls` shows on the builder"
        )
    elif not _IMAGE.match(said.vllm_image_base):
        yield f"vllm_image_base is {said.vllm_image_base!a}, which names no image; write name:tag or name@sha256:..."
    if not _is_folder(said.vllm_image_model):
        yield (
            f"vllm_image_model is {said.vllm_image_model!a}; name a folder on the builder, without `:` and `,` and "
            "none of the system or of a role, with a small model that can chat: no image serves that was not asked"
        )
    if any(_ENVIRONMENT.match(word) for word in said.vllm_image_docker_options):
        yield (
            "vllm_image_docker_options sets the environment; everybody on the builder would read it in the list of "
            "processes. The small model is on the builder and needs no token: leave it out"
        )
    elif refused := docker_words.refused(said.vllm_image_docker_options):
        yield (
            f"vllm_image_docker_options holds {', '.join(refused)}, which gives the host to an image that nobody has "
            f"proven yet, or is nothing that a trial needs. Leave it out; it may hold {', '.join(docker_words.ALLOWED)}"
            ", with folders and devices that are not the host's own"
        )
    if said.vllm_image_source and not _is_folder(said.vllm_image_source):
        yield (
            f"vllm_image_source is {said.vllm_image_source!a}; name the folder on the builder by its absolute path, "
            "without `:`, `,` and `..`, and none of the system or of a role"
        )
    if not _ARCHITECTURES.match(said.vllm_image_architectures):
        yield (
            f"vllm_image_architectures is {said.vllm_image_architectures!a}; write it as PyTorch takes it, such as "
            "12.0 or 12.0;12.1a+PTX, or leave it out"
        )
    if not _NAME.match(said.vllm_image_name):
        yield f"vllm_image_name is '{said.vllm_image_name}'; give a name in small letters, without tag and digest"
    if not 0 < said.vllm_image_port < 65536:
        yield f"vllm_image_port is {said.vllm_image_port}; a port is 1 to 65535"
    if said.vllm_image_ready_timeout < 1:
        yield f"vllm_image_ready_timeout is {said.vllm_image_ready_timeout}; say 1 or more seconds"
    yield from waits.too_long(vllm_image_ready_timeout=said.vllm_image_ready_timeout)
    if said.vllm_image_jobs < 0:
        yield f"vllm_image_jobs is {said.vllm_image_jobs}; 0 takes what the memory allows"
    for variable, entries in (("wheels", said.vllm_image_wheels), ("patches", said.vllm_image_patches)):
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


def _is_folder(path: str) -> bool:
    """As Docker takes one to mount, and not the host's own: an image that nobody has proven yet sees all of it."""
    bare = path.rstrip("/")
    return bool(_FOLDER.match(path)) and posixpath.normpath(path) == bare and not host_folders.belongs_to_host(bare)
