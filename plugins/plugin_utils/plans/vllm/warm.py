# SPDX-License-Identifier: GPL-3.0-or-later
"""The warm cache of a service: what it depends on, who may share it, and the container that makes it.

That container has no network: nobody can ask it anything that would end up in what others run. It is asked from inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.warm import SUMS
from ansible_collections.gb10.fleet.plugins.module_utils.serving.model_folder import marker_of
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View, digest
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import host_folders
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import container as vllm_container
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.services import Service
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.settings import VllmSettings
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.engines import vllm

SHELVES = "/var/cache/gb10-warm"  # root alone gets in
MAKING = f"{SHELVES}/making"  # what the container that makes a cache writes to
CONTAINER = "gb10-warm-cache"
_MARKERS = "/var/cache/gb10-files"  # of serving/host_files.py
_SHARED_MEMORY = "16g"  # a bound; its processes talk to each other there
# What is told apart from host to host, and compiles nothing.
_NO_KERNEL = {"--host", "--port", "--served-model-name", "--gpu-memory-utilization"}
_NO_KERNEL_ENVIRONMENT = {"VLLM_ENGINE_READY_TIMEOUT_S", *vllm_container.OF_ANY_FABRIC}


@dataclass(frozen=True)
class WarmCache:
    """`hosts` serve the same by themselves: one of them makes the cache, and the others take it."""

    shelf: str
    sums: str  # the folder that says what its archives are
    image: str  # its name on the hosts
    flags: str  # the digest of what is said to vLLM, as far as it compiles anything else
    markers: tuple[str, ...]  # files that say which commits model and draft are
    budget_gib: int
    hosts: tuple[str, ...]
    argv: tuple[str, ...]  # of the container that makes it


def plan(service: Service) -> WarmCache | None:
    """None where none is wished."""
    settings = service.planned.settings
    if not settings.warm:
        return None
    return WarmCache(
        shelf=f"{SHELVES}/{service.names.stem}",
        sums=f"/{SUMS}/{service.names.stem}",
        image=vllm_container.image_name(settings.vllm_image),
        flags=flags(service.view, settings),
        markers=tuple(_markers(settings)),
        budget_gib=settings.vllm_warm_cache_gib,
        hosts=service.siblings,
        argv=tuple(_argv(service)),
    )


def wish(cache: WarmCache) -> dict[str, Any]:
    """Return what the unit is told."""
    return {"shelf": cache.shelf, "flags": cache.flags, "markers": list(cache.markers)}


def flags(view: View, settings: VllmSettings) -> str:
    """The digest of words, environment and whatever else the container is given that compiles."""
    environment = vllm_container.environment(vllm.ENGINE, settings, {})
    told = {name: str(value) for name, value in environment.items() if name not in _NO_KERNEL_ENVIRONMENT}
    words = _without(vllm_container.serve_words(settings, view.size, view.rank, ""), _NO_KERNEL)
    return digest([settings.vllm_model, words, told, settings.vllm_mounts, settings.vllm_security_options])


def refusals(view: View, settings: VllmSettings) -> Iterator[str]:
    """All of them."""
    if settings.vllm_warm_cache_gib < 0:
        yield f"vllm_warm_cache_gib is {settings.vllm_warm_cache_gib}. Say how many GiB of disk; 0 is no warm cache."
    if settings.vllm_warm_cache_gib > (most := int(catalog.load("software")["highest_warm_cache"]["value"])):
        yield f"vllm_warm_cache_gib is {settings.vllm_warm_cache_gib}. Say at most {most} GiB: more is a mistake."
    if not settings.warm:
        return
    if view.size > 1:
        yield (
            f"vllm_warm_cache_gib is set, and {view.size} hosts serve together: each of them compiles its own part. "
            "Set it to 0, or let each host serve by itself (span: host)."
        )
    if not settings.vllm_fetch:
        yield (
            "vllm_warm_cache_gib is set and vllm_fetch is false: nobody knows which commit of the model vLLM gets. Set "
            "one of the two otherwise."
        )
    writable = [mount for mount in settings.vllm_mounts if not _read_only(mount)]
    if writable:
        yield (
            f"vllm_warm_cache_gib is set, and vllm_mounts holds {', '.join(writable)}, which the container may write "
            "to: what somebody leaves there would run in the start that makes the cache, and so on other hosts. Add "
            ":ro, or set vllm_warm_cache_gib to 0."
        )
    moved = [str(name) for name in settings.vllm_environment if name in vllm_container.WARM_HOME]
    if moved:
        yield (
            f"vllm_environment sets {', '.join(moved)}, and the warm cache is where the role says. Leave it out, or "
            "set vllm_warm_cache_gib to 0."
        )


def shared(served: Sequence[Service]) -> Iterator[str]:
    """Folders that the start of one service reads while it makes a cache, and that another service fills."""
    for service in served:
        read = [mount.partition(":")[0] for mount in service.said.vllm_mounts] if service.said.warm else []
        for other in served:
            both = [one for one in read if any(host_folders.overlap(one, each) for each in _filled(other.said))]
            if both and other is not service:
                yield (
                    f"{service.name}: vllm_warm_cache_gib is set, and {other.name} may write to {', '.join(both)} of "
                    "its vllm_mounts: what is left there would run in the start that makes the cache. Give each a "
                    "folder of its own, or set vllm_warm_cache_gib to 0."
                )


def _filled(settings: VllmSettings) -> list[str]:
    """Folders of the host that a container may write to."""
    mounts = [mount.partition(":")[0] for mount in settings.vllm_mounts if not _read_only(mount)]
    return mounts if settings.vllm_fetch or not settings.vllm_model else [*mounts, settings.vllm_cache_directory]


def _read_only(mount: str) -> bool:
    return mount.endswith(":ro")


def _markers(settings: VllmSettings) -> Iterator[str]:
    exclude = settings.vllm_model_exclude
    yield f"{_MARKERS}/{marker_of(settings.vllm_model, settings.vllm_model_revision, exclude)}"
    if settings.draft:
        yield f"{_MARKERS}/{marker_of(settings.draft.model, settings.draft.revision, exclude)}"


def _argv(service: Service) -> list[str]:
    """`docker run` of the same server, which nobody reaches and which keeps nothing but what it compiles."""
    view, settings = service.view, service.planned.settings
    environment = {**vllm_container.environment(vllm.ENGINE, settings, {}), vllm.ENGINE.address_variable: "127.0.0.1"}
    serve = vllm_container.words(vllm.ENGINE, settings, 1, 0, "")
    mounts = [f"{MAKING}:/root/.cache", vllm_container.models(settings), *settings.vllm_mounts]
    return [
        *("/usr/bin/docker", "run", "--detach"),
        *_secluded(vllm_container.docker_options(settings, view.size, CONTAINER)),
        *(word for name, value in environment.items() for word in ("--env", f"{name}={value}")),
        *(word for mount in mounts for word in ("--volume", mount)),
        *(*vllm_container.started(settings, vllm.ENGINE.program), *serve),
    ]


def _secluded(options: Sequence[str]) -> list[str]:
    """Its log outlives it, and its only network is its own loopback."""
    kept = _without([word for word in options if word != "--rm"], {"--network", "--ipc"})
    return [*kept, "--network", "none", "--shm-size", _SHARED_MEMORY]


def _without(words: Sequence[str], flags: set[str] | Mapping[str, Any]) -> list[str]:
    """Without these flags and the word after each."""
    kept, skip = [], False
    for word in words:
        if skip or word in flags:
            skip = not skip
        else:
            kept.append(word)
    return kept
