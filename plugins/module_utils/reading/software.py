# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages, the driver, apt, Docker, and services that kill by memory."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.reading import (
    apt_preferences,
    apt_sources,
    containers,
    other_docker,
)
from ansible_collections.gb10.fleet.plugins.module_utils.reading import driver as installed
from ansible_collections.gb10.fleet.plugins.module_utils.reading.dpkg import (
    DPKG_LOCK,
    Database,
    lock_holder,
    read_database,
)
from ansible_collections.gb10.fleet.plugins.module_utils.reading.meanings import upstream_version
from ansible_collections.gb10.fleet.plugins.module_utils.reading.network import COMMAND_DEADLINE_S
from ansible_collections.gb10.fleet.plugins.module_utils.system import manifest
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError, sha256
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import document
from ansible_collections.gb10.fleet.plugins.module_utils.system.values import PackageName, Version, Word

if TYPE_CHECKING:  # a host may have Python 3.9
    from typing import NotRequired

# Services that kill by memory, beside the kernel.
OOM_DAEMONS = ("earlyoom", "systemd-oomd")

# The role vllm writes them: one for vllm_model, and one for each service of vllm_services that spans a cluster.
SETTINGS = "/etc/gb10-fleet"
JOIN_KEY = f"{SETTINGS}/join.key"

_APT_LOCKS = (DPKG_LOCK, "/var/lib/dpkg/lock", "/var/lib/apt/lists/lock")
# The installed packages that roles and findings ask about.
PACKAGES = re.compile(
    r"(lib)?nvidia|libnvsdm|linux-.*nvidia|cuda-drivers|.*-video-nvidia"
    r"|docker|containerd|perftest\Z|systemd-oomd|earlyoom|nginx\Z|landscape-client\Z"
)
# Not installed, what sources offer them decides whether a role brings a source of its own.
_SOURCED = ("docker-ce", "nvidia-container-toolkit")
_RUNNING = "/run/systemd/units/invocation:"  # systemd keeps a link of this name while the unit is up
_SERVICE = r"(gb10-vllm(?:-[a-z0-9-]{1,31})?)\.service\Z"
_JOIN_KEY_OF = r"join-([a-z0-9-]{1,31})\.key\Z"
_PHASE = r"[a-z]{1,20}\Z"


class Apt(TypedDict):
    lock_held_by: int | None
    dpkg_interrupted: bool


class AptSources(TypedDict):
    entries: list[apt_sources.AptSource]
    conflicts: list[apt_sources.Conflict]
    offered: list[str]


class Docker(TypedDict):
    present: bool
    version: Version | None
    running: bool
    cgroup_driver: Word | None
    ends: list[str]


# Functional: one key is a word of Python.
JoinKey = TypedDict("JoinKey", {"for": str, "sha256": str})


class SoftwareFacts(TypedDict):
    # see below
    driver: installed.Driver
    # version by name, of those that roles care about (nvidia*, linux-*nvidia*, docker*, containerd*, perftest, nginx)
    packages: dict[PackageName, Version]
    # of these, the packages that the host did not have before us, by its manifest
    installed_by_us: list[PackageName]
    holds: list[PackageName]
    # pins of others on these packages and on other drivers, in files that apt reads before the role driver's; of
    # Docker's and the container toolkit's in any file
    apt_preferences: list[apt_preferences.Preference]
    # lock_held_by: a pid
    apt: Apt
    apt_sources: AptSources
    # ends: the containers of others that run, where the driver is systemd
    docker: Docker
    # kind: docker.io, moby-engine, podman-docker, snap, rootless
    other_docker: NotRequired[list[other_docker.OtherDocker]]
    # systemd-oomd and earlyoom, where they run
    oom_daemons: list[str]
    # of the secret of the host's cluster: what it is for, and its digest
    join_key: NotRequired[JoinKey | None]
    # the same of each service of vllm_services
    join_keys: NotRequired[dict[str, JoinKey | None]]
    # of the services that are up, by their status.json, the first that is not ready: weights, graphs, ready, ...
    model_phase: NotRequired[str | None]


def read_facts(host: HostReader) -> SoftwareFacts:
    """Return what spark_facts says of it."""
    database = database_of(host)
    packages = {name: database.installed[name].version for name in sorted(database.installed) if PACKAGES.match(name)}
    return {
        "driver": driver_of(host, packages, database.holds),
        "packages": packages,
        "installed_by_us": sorted(installed_by_us(host).intersection(packages)),
        "holds": list(database.holds),
        "apt_preferences": apt_preferences.read_earlier(host.system, list(packages)),
        "apt": read_apt(host, database),
        "apt_sources": read_apt_sources(host, database),
        "docker": read_docker(host, packages),
        "other_docker": other_docker.read_others(host, database),
        "oom_daemons": [name for name in OOM_DAEMONS if host.path(f"{_RUNNING}{name}.service").is_symlink()],
        "join_key": read_join_key(host),
        "join_keys": read_join_keys(host),
        "model_phase": read_model_phase(host),
    }


def driver_of(host: HostReader, packages: Mapping[str, str], holds: Collection[str]) -> installed.Driver:
    def run(argv: Sequence[str]) -> str:
        return host.system.run(argv, timeout=COMMAND_DEADLINE_S).stdout

    return installed.read_driver(host.system.root, packages, holds, run)


def database_of(host: HostReader) -> Database:
    try:
        return host.system.once(read_database)
    except HostError:
        return Database({}, ())


def installed_by_us(host: HostReader) -> set[str]:
    """The packages that the host did not have before us: what they start is ours to decide."""
    try:
        known = host.system.once(manifest.load).resources
    except HostError:
        return set()  # a task that changes the host says what is wrong with the manifest
    packages = ((label.partition(":"), entry.before) for label, entry in known.items())
    return {name for (kind, __, name), before in packages if kind == "package" and before.get("version", "") is None}


def read_apt(host: HostReader, database: Database) -> Apt:
    holder = lock_holder(host.system, *_APT_LOCKS)
    # While somebody works, half-done is normal.
    return {"lock_held_by": holder, "dpkg_interrupted": holder is None and bool(database.unfinished)}


def read_apt_sources(host: HostReader, database: Database) -> AptSources:
    """Apart from `apt`, whose lock comes and goes: roles decide by these."""
    sources = apt_sources.read_sources(host.system)
    missing = [name for name in _SOURCED if name not in database.installed]
    return {
        "entries": [source.as_fact() for source in sources],
        "conflicts": apt_sources.conflicts(sources),
        "offered": apt_sources.offered(host.system, sources, missing),
    }


def read_docker(host: HostReader, packages: Mapping[str, str]) -> Docker:
    package = next((packages[name] for name in ("docker-ce", "docker.io") if name in packages), None)
    facts: Docker = {
        "present": package is not None or host.path("/usr/bin/dockerd").exists(),
        "version": upstream_version(package) if package else None,
        "running": False,
        "cgroup_driver": None,
        "ends": [],
    }
    if not containers.runs(host):
        return facts
    said = containers.ask_info(host)
    version, driver = said.get("ServerVersion"), said.get("CgroupDriver")
    # Containers come and go, and a fact that changes costs a call; so only where a refusal has to name them.
    others = containers.ended(host, said) if driver == "systemd" else []
    return {
        "present": True,
        "version": version or facts["version"],
        "running": True,
        "cgroup_driver": driver or None,
        "ends": [*map(str, others)],
    }


def read_join_keys(host: HostReader) -> dict[str, JoinKey | None]:
    """The same of each named service, by its name."""
    files = {found[1]: name for name in host.names(SETTINGS) if (found := re.match(_JOIN_KEY_OF, name))}
    return {service: read_join_key(host, f"{SETTINGS}/{name}") for service, name in sorted(files.items())}


def read_join_key(host: HostReader, path: str = JOIN_KEY) -> JoinKey | None:
    """What the secret of the host's cluster is for, and its digest. The secret itself stays where it is."""
    text = host.system.text(path) or ""
    purpose, __, secret = text.strip().partition(" ")
    return {"for": purpose, "sha256": sha256(text.encode())} if secret else None


def read_model_phase(host: HostReader) -> str | None:
    """Return how far the services that are up have come: the first one that is not ready, or ready."""
    folder, __, prefix = _RUNNING.rpartition("/")
    units = (found[1] for name in host.names(folder) if (found := re.match(_SERVICE, name[len(prefix) :])))
    known = [phase for unit in units if (phase := _phase_of(host, unit))]
    return next((phase for phase in known if phase != "ready"), known[0] if known else None)


def _phase_of(host: HostReader, unit: str) -> str | None:
    """In the words of the unit; they outlive it, and then they say nothing."""
    phase = document(host.read(f"/run/{unit}/status.json")).get("phase")
    return phase if isinstance(phase, str) and re.match(_PHASE, phase) else None
