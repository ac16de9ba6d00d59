# SPDX-License-Identifier: GPL-3.0-or-later
"""What widens the container of vLLM: folders of the host, Docker's confinement, limits. Refused without a consent."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import docker_words, host_folders
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.settings import VllmSettings

# What the role puts into the container itself, and what a folder there would hide.
_OF_THE_ROLE = ("/root/.cache", "/root/.cache/huggingface", "/root/.cache/huggingface/hub")
_SYSTEM_INSIDE = re.compile(r"/(bin|dev|etc|lib|lib64|proc|root|run|sbin|sys|usr|usr/.*|gb10-(ray|warm).*)\Z")
_OPTION = re.compile(r"(seccomp|apparmor)=[\w./-]+\Z")
_SHOWN = 61  # characters of a limit that is none
# memlock is the role's own.
_LIMITS = tuple(name for name in docker_words.LIMITS if name != "memlock")


def refusals(_view: View, settings: VllmSettings) -> Iterator[str]:
    """All of them, in the order of the role's variables."""
    if settings.vllm_mounts and not settings.vllm_allow_mounts:
        yield (
            f"vllm_mounts gives the container {', '.join(settings.vllm_mounts)}, and whoever gets into the server gets "
            "these folders of the host. Leave them out, or set vllm_allow_mounts to true."
        )
    for mount in settings.vllm_mounts:
        yield from _mount(mount, settings.vllm_cache_directory)
    if settings.vllm_security_options and not settings.vllm_allow_security_options:
        yield (
            f"vllm_security_options says {', '.join(settings.vllm_security_options)}, and that changes how Docker "
            "confines the container. Leave it out, or set vllm_allow_security_options to true."
        )
    for option in settings.vllm_security_options:
        if not _OPTION.match(option):
            yield (
                f"vllm_security_options holds {option!r}. Write seccomp=... or apparmor=..., for example "
                "seccomp=unconfined."
            )
    for name, value in settings.vllm_ulimits.items():
        if name not in _LIMITS or not docker_words.is_limit(str(value)):
            yield (
                f"vllm_ulimits holds {name}: {str(value)[:_SHOWN]}. Write one of {', '.join(_LIMITS)} with a number or "
                f"SOFT:HARD, each from 0 to {docker_words.HIGHEST_LIMIT} or -1 for none, SOFT not above HARD; "
                "memlock is unlimited anyway."
            )


def _mount(mount: str, models: str) -> Iterator[str]:
    """`models`: the folder of the models, which a container only reads."""
    host, __, rest = mount.partition(":")
    inside, colon, mode = rest.partition(":")
    if not (host_folders.is_path(host) and host_folders.is_path(inside)) or (colon and mode != "ro"):
        yield (
            f"vllm_mounts holds {mount!r}. Write HOST:CONTAINER or HOST:CONTAINER:ro, two absolute paths without '..' "
            "and slash at the end."
        )
    elif not host_folders.may_be_mounted(host) or host_folders.overlap(host, models):
        yield (
            f"vllm_mounts: {host} belongs to the host's system or to the role. Name a folder of its own, for example "
            "/var/cache/gb10-triton."
        )
    elif inside in _OF_THE_ROLE or inside.startswith(f"{_OF_THE_ROLE[-1]}/") or _SYSTEM_INSIDE.match(inside):
        yield f"vllm_mounts: {inside} in the container is the role's own or the image's system. Name another folder."
