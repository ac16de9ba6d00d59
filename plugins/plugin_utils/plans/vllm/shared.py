# SPDX-License-Identifier: GPL-3.0-or-later
"""What the services of a host share: their folders, the programs that run them, and files that none of them needs.

A field that is None is not said: the resource has its default.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.warm import SUMS
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import programs as modules
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import service as vllm_service
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import warm as vllm_warm
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.service import ServicePlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.services import COMPILED

_SETTINGS = "/etc/gb10-fleet"
_WAKE = "/usr/local/sbin/gb10-wake"
_ROOT_ALONE = "0700"
_EXECUTABLE = "0755"
_OF_THE_ROLE = "/var/cache/gb10-"


@dataclass(frozen=True)
class Folder:
    """A folder of the host. Without a mode here, one that exists keeps its owner and mode."""

    path: str
    mode: str | None = None
    with_files: bool | None = None  # true: the plain files in it are the role's own, and go with it
    with_all: bool | None = None  # true: all that is in it is, however deep


@dataclass(frozen=True)
class Program:
    """A file of a program. Its text is `first_line` and that of plugins/module_utils/SOURCE.py."""

    path: str
    source: str
    first_line: str = ""  # none: Python imports it
    mode: str | None = None


@dataclass(frozen=True)
class Unused:
    """A file that goes, if it is there."""

    path: str
    secret: bool | None = None


def folders(plans: Sequence[ServicePlan]) -> Iterator[Folder]:
    """All of them, each behind the one that it lies in."""
    # Of models, and of vllm_mounts: it may be one of yours, with models in it. Where a container writes as root, no
    # other user of the host may come by a file: it may be a program with the setuid bit.
    yours = [*(each.files.cache for each in plans), *(folder for each in plans for folder in each.folders)]
    written = {each.files.cache for each in plans if each.files.model and not each.files.fetch}
    for path in dict.fromkeys(yours):
        yield Folder(path, _ROOT_ALONE if path in written and path.startswith(_OF_THE_ROLE) else None)
    # Of what vLLM compiles, for the same reason. The folder of a service is seen by no container: each has one in it.
    compiled = [posixpath.dirname(each.compiled) for each in plans if each.compiled]
    yield from (Folder(COMPILED, _ROOT_ALONE),) if compiled else ()
    yield from (Folder(path, with_all=True) for path in compiled)
    # Of warm caches, and of what their archives are. What root keeps there is the role's own.
    warm = [each.warm for each in plans if each.warm]
    yield from _of_warm_caches(vllm_warm.SHELVES, [each.shelf for each in warm])
    yield from _of_warm_caches(f"/{SUMS}", [each.sums for each in warm])
    yield Folder(_SETTINGS)


def _of_warm_caches(top: str, inside: Sequence[str]) -> Iterator[Folder]:
    yield from (Folder(top, _ROOT_ALONE),) if inside else ()
    yield from (Folder(path, _ROOT_ALONE, with_files=True) for path in inside)


def programs(plans: Sequence[ServicePlan]) -> Iterator[Program]:
    """Yield what units and containers run, beside gb10-vllm itself."""
    if by_ray(plans):
        yield Program(vllm_service.RAY_START, "programs/ray_start", "#!/usr/bin/python3\n", _EXECUTABLE)
    imported = modules.modules_of(vllm_service.PROGRAM)
    yield from (Program(modules.installed("vllm_unit", module), module) for module in imported)
    if any(each.on_demand for each in plans):
        yield Program(_WAKE, "programs/wake", "#!/usr/bin/python3 -ISB\n", _EXECUTABLE)


def unused(plans: Sequence[ServicePlan]) -> Iterator[Unused]:
    """Yield files that no service needs. Each unit names them: one of restart_on goes, and it starts anew."""
    for each in plans:
        yield from () if each.secrets else (Unused(each.env_file, secret=True),)
        yield from () if each.join_for else (Unused(each.join_file, secret=True),)
    if not by_ray(plans):
        yield Unused(vllm_service.RAY_TOKEN, secret=True)
        yield Unused(vllm_service.RAY_START)


def by_ray(plans: Sequence[ServicePlan]) -> str:
    """The service that runs by Ray; empty where none does."""
    return next((each.name for each in plans if each.by_ray), "")
