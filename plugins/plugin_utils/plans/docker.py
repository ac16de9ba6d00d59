# SPDX-License-Identifier: GPL-3.0-or-later
"""Which Docker a host gets, from which source, with which options of its daemon, and what needs consent."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.reading.other_docker import ROOTLESS, SNAP
from ansible_collections.gb10.fleet.plugins.module_utils.system.consent import give
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.plan import RolePlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.settings import RoleSettings
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vendor_packages import Source, VendorPackages

DOCKER = VendorPackages("docker", package="docker-ce", vendor="docker", whose="Docker's")
# A hold on one of these keeps Docker from being exchanged.
HELD_TOGETHER = ("docker-ce", "docker-ce-cli", "containerd.io")
_GIVE = give("docker_allow_restart")
_KEPT = "then it needs `features.cdi` in its daemon.json, and the model serves in it as it is"
CGROUPFS = "native.cgroupdriver=cgroupfs"
# Docker reads CDI descriptions only when told. With systemd as cgroup driver, `systemctl daemon-reload` takes the GPU
# from containers that have it from NVIDIA's hook (NVIDIA/nvidia-container-toolkit#48, #251, #1227); CDI devices are
# safe from runc 1.1.7 on (opencontainers/runc#3671).
OPTIONS: Mapping[str, Any] = {"features": {"cdi": True}, "exec-opts": [CGROUPFS]}


@dataclass(frozen=True)
class DockerSettings(RoleSettings, role="docker"):
    docker_version: str
    docker_source: str
    docker_daemon_options: Mapping[str, Any]
    docker_allow_restart: bool


@dataclass(frozen=True, kw_only=True)
class DockerPlan(RolePlan):
    """`version` is that of docker-ce and docker-ce-cli, `daemon_options` go into daemon.json."""

    version: str
    source: Source
    exchanged: tuple[str, ...]  # packages of another Docker, which leave
    daemon_options: Mapping[str, Any]


def plan(view: View) -> DockerPlan:
    settings = view.settings(DockerSettings)
    version = DOCKER.version(view, settings.docker_version)
    source = DOCKER.source(view, settings.docker_source)
    options = merged(OPTIONS, settings.docker_daemon_options)
    return DockerPlan(
        refusals=(
            *source.refusals,
            *_others(view, settings),
            *_exchange(view, settings, version),
            *_cgroup_driver(view, settings, options),
        ),
        findings=tuple(_beside(view)),
        version=version,
        source=source,
        exchanged=tuple(dict.fromkeys(name for other in _there(view) for name in other["packages"])),
        daemon_options=options,
    )


def merged(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings are merged, at any depth; any other value of theirs replaces ours."""
    result = dict(ours)
    for key, value in theirs.items():
        both = isinstance(value, Mapping) and isinstance(ours.get(key), Mapping)
        result[key] = merged(ours[key], value) if both else value
    return result


def _there(view: View) -> list[Mapping[str, Any]]:
    """Other Dockers whose place this role takes. One that is beside Docker's own packages has found its place."""
    others = [] if DOCKER.installed(view) else view.facts.get("other_docker") or []
    return [other for other in others if other["kind"] != ROOTLESS]


def _others(view: View, settings: DockerSettings) -> Iterator[str]:
    for other in _there(view):
        name = f"{other['kind']} {other['version'] or ''}".strip()
        there = f"the snap docker {other['version'] or ''}".strip() if other["kind"] == SNAP else name
        keep = f"To keep it, leave docker out of gb10_roles ({_KEPT})."
        if other["kind"] == SNAP:
            yield (
                f"{there} is installed, and {_ends(other)}. It and docker-ce would take the same socket, and a snap is"
                f" not this role's to remove. Run `sudo snap remove docker` first. {keep}"
            )
        elif not settings.docker_allow_restart:
            yield (
                f"{there} is installed, and this role would put docker-ce in its place and remove"
                f" {', '.join(other['packages'])}; {_ends(other)}. To allow that, {_GIVE}. {keep}"
            )


def _ends(other: Mapping[str, Any]) -> str:
    containers = other["containers"]
    if containers is None:
        return "which containers run in it is not known"
    return f"these containers would end: {', '.join(containers)}" if containers else "no container runs in it"


def _beside(view: View) -> Iterator[Mapping[str, Any]]:
    if any(other["kind"] == ROOTLESS for other in view.facts.get("other_docker") or []):
        yield {
            "id": "other_docker",
            "severity": "info",
            "fact": "a user runs a Docker of his own (rootless) beside the host's",
            "way_out": "nothing to do; its containers stay, and what they hold of the GPU's memory is not planned with",
            "accepted": None,
        }


def _ended(containers: Sequence[str]) -> str:
    """What a restart of Docker means for those who are not ours."""
    if not containers:
        return "ends no container of yours that runs now"
    return f"ends {', '.join(containers)}; they are started again, with their files and without what was in memory"


def _exchange(view: View, settings: DockerSettings, version: str) -> Iterator[str]:
    """An installed Docker that is older than asked for."""
    installed, asked = DOCKER.installed(view), settings.docker_version
    if installed in (None, version):
        return
    if not settings.docker_allow_restart:
        yield (
            f"docker-ce {installed} is installed and docker_version asks for at least {asked}; the exchange stops"
            f" every container on the host. To keep what is there, set docker_version to"
            f" '{installed}'. To exchange it, {_GIVE}."
        )
    held = [name for name in view.facts["holds"] if name in HELD_TOGETHER]
    if held:
        yield (
            f"docker_version asks for at least {asked} in place of {installed}, and somebody has put"
            f" {', '.join(held)} on hold (this role holds nothing). If it may move, free it first:"
            f" `sudo apt-mark unhold {shlex.join(held)}`."
        )


def _cgroup_driver(view: View, settings: DockerSettings, options: Mapping[str, Any]) -> Iterator[str]:
    """A change of the cgroup driver restarts Docker. It is refused before anything changes: any unit of any role may
    need a `systemctl daemon-reload`, long before Docker restarts."""
    docker = view.facts["docker"]
    now = docker["cgroup_driver"]
    changes = docker["running"] and now != "cgroupfs" and CGROUPFS in (options.get("exec-opts") or ())
    if not changes or settings.docker_allow_restart:
        return
    if now == "systemd":
        yield (
            "Docker runs with the cgroup driver systemd, with which every `systemctl daemon-reload` takes the GPU from"
            " containers that have it from NVIDIA's hook (`--gpus`), which adds it behind systemd's back; the change to"
            f" cgroupfs restarts Docker, which {_ended(docker['ends'])}. When it may, {_GIVE}."
        )
        return
    unknown = "has not said with which cgroup driver (it was asked for `docker info` and did not answer in time)"
    yield (
        f"Docker runs, and {unknown if now is None else f'its cgroup driver is {now}'}: with systemd, every `systemctl"
        " daemon-reload` would take the GPU from containers that have it from NVIDIA's hook (`--gpus`). Run again when"
        f" `sudo docker info` says cgroupfs. Or when containers may stop, {_GIVE}."
    )
