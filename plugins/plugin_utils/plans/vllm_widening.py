# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What widens the container of vLLM: folders of the host, Docker's confinement, limits. Refused without a consent."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ansible_collections.gb10.fleet.plugins.module_utils.engine import manifest
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit import warm
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import vllm_container
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm_settings import VllmSettings

_FOLDER = re.compile(r"(/[^/:\n\r\0]+)+\Z")  # Docker splits --volume at colons
_DOTS = re.compile(r"/[.][.]?(/|\Z)")
# Who writes there is root on the host, or reads its secrets. A folder below /home or /var may be somebody's own; what
# cron, apt, snap and logs have below /var is not, and what is hidden in a home are its keys and what runs at a login.
_OF_THE_HOST = re.compile(
    r"/(bin|boot|dev|etc|lib|lib32|lib64|lost[+]found|proc|root|run|sbin|snap|sys|tmp|usr)(/.*)?\Z"
    r"|/var/(backups|crash|log|mail|run|snap|spool)(/.*)?\Z"
    r"|/var/lib/(AccountsService|NetworkManager|apt|cloud|containerd|dkms|docker|dpkg|fwupd|gdm3|kubelet|polkit-1|snapd"
    r"|sudo|systemd|tailscale|ucf|update-manager|update-notifier)(/.*)?\Z"
    r"|/var/cache/(apparmor|apt|debconf|private|snapd)(/.*)?\Z"
    r"|/opt/(cni|containerd|mellanox|nvidia)(/.*)?\Z"
    r"|/home/[^/]+/[.](?!cache/)"
    r"|/(home(/[^/]+)?|mnt|media|opt|srv|var(/(cache|lib|tmp))?)\Z"
)
# What comes from the hub and is proven there, what is compiled, and what root believes of all that.
_KEPT = (
    *("/var/cache/gb10-files", "/var/cache/gb10-warm", vllm_container.COMPILED),
    *(f"/{warm.SUMS}", manifest.STATE_DIRECTORY),
)
# What the role puts into the container itself, and what a folder there would hide.
_OF_THE_ROLE = ("/root/.cache", "/root/.cache/huggingface", "/root/.cache/huggingface/hub")
_SYSTEM_INSIDE = re.compile(r"/(bin|dev|etc|lib|lib64|proc|root|run|sbin|sys|usr|usr/.*|gb10-(ray|warm).*)\Z")
_OPTION = re.compile(r"(seccomp|apparmor)=[\w./-]+\Z")
_LIMIT = re.compile(r"-?[0-9]+(:-?[0-9]+)?\Z")
# As Docker has them; memlock is the role's own.
_LIMITS = (
    *("as", "core", "cpu", "data", "fsize", "locks", "msgqueue", "nice", "nofile", "nproc", "rss", "rtprio"),
    *("rttime", "sigpending", "stack"),
)


def refusals(_view: View, said: VllmSettings) -> Iterator[str]:
    """All of them, in the order of the role's variables."""
    if said.vllm_mounts and not said.vllm_allow_mounts:
        yield (
            f"vllm_mounts gives the container {', '.join(said.vllm_mounts)}, and whoever gets into the server gets "
            "these folders of the host. Leave them out, or set vllm_allow_mounts to true."
        )
    for mount in said.vllm_mounts:
        yield from _mount(mount, said.vllm_cache_directory)
    if said.vllm_security_options and not said.vllm_allow_security_options:
        yield (
            f"vllm_security_options says {', '.join(said.vllm_security_options)}, and that changes how Docker confines "
            "the container. Leave it out, or set vllm_allow_security_options to true."
        )
    for option in said.vllm_security_options:
        if not _OPTION.match(option):
            yield (
                f"vllm_security_options holds {option!r}. Write seccomp=... or apparmor=..., for example "
                "seccomp=unconfined."
            )
    for name, value in said.vllm_ulimits.items():
        if name not in _LIMITS or not _LIMIT.match(str(value)):
            yield (
                f"vllm_ulimits holds {name}: {value}. Write one of {', '.join(_LIMITS)} with a number or SOFT:HARD; "
                "memlock is unlimited anyway."
            )


def _mount(mount: str, models: str) -> Iterator[str]:
    """`models`: the folder of the models, which a container only reads."""
    host, _, rest = mount.partition(":")
    inside, colon, mode = rest.partition(":")
    if not all(_FOLDER.match(path) and not _DOTS.search(path) for path in (host, inside)) or (colon and mode != "ro"):
        yield (
            f"vllm_mounts holds {mount!r}. Write HOST:CONTAINER or HOST:CONTAINER:ro, two absolute paths without '..' "
            "and slash at the end."
        )
    elif _OF_THE_HOST.match(host) or overlap(host, models) or is_kept(host):
        yield (
            f"vllm_mounts: {host} belongs to the host's system or to the role. Name a folder of its own, for example "
            "/var/cache/gb10-triton."
        )
    elif inside in _OF_THE_ROLE or inside.startswith(f"{_OF_THE_ROLE[-1]}/") or _SYSTEM_INSIDE.match(inside):
        yield f"vllm_mounts: {inside} in the container is the role's own or the image's system. Name another folder."


def is_kept(folder: str) -> bool:
    """Whether the role keeps there, above or below what no container may write to."""
    return any(overlap(folder, kept) for kept in _KEPT)


def overlap(one: str, other: str) -> bool:
    """Whether one folder is in the other, or the same."""
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")
