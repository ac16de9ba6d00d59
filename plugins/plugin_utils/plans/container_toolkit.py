# SPDX-License-Identifier: GPL-3.0-or-later
"""Which NVIDIA Container Toolkit a host gets, from which source, and what the CDI description of its GPU must say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.plan import RolePlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.settings import RoleSettings
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vendor_packages import Source, VendorPackages

TOOLKIT = VendorPackages("container_toolkit", package="nvidia-container-toolkit", vendor="nvidia", whose="NVIDIA's")
DESCRIPTION = "/var/run/cdi/nvidia.yaml"  # written by the vendor's units
# Docker reads every description in this folder that has one of these endings, whatever its name.
_BY_HAND = re.compile("/etc/cdi/nvidia.*[.](json|yaml)$")


@dataclass(frozen=True)
class ContainerToolkitSettings(RoleSettings, role="container_toolkit"):
    container_toolkit_version: str
    container_toolkit_source: str


@dataclass(frozen=True, kw_only=True)
class ContainerToolkitPlan(RolePlan):
    """`version` is that of all packages; `description` must contain `library`, where that can be judged."""

    version: str
    source: Source
    description: str = DESCRIPTION
    library: str | None


def plan(view: View) -> ContainerToolkitPlan:
    settings = view.settings(ContainerToolkitSettings)
    source = TOOLKIT.source(view, settings.container_toolkit_source)
    return ContainerToolkitPlan(
        refusals=(*source.refusals, *_by_hand(view)),
        version=TOOLKIT.version(view, settings.container_toolkit_version),
        source=source,
        library=_library(view),
    )


def _library(view: View) -> str | None:
    """The library of the driver that an up-to-date description names.

    It can be written anew only while userland and kernel module agree: between a driver move and its reboot the
    vendor's unit would fail, and at boot it runs by itself. A description that names no such library cannot be judged
    by it. One that is yet to come will name it, so the first run declares what the next one does.
    """
    driver = view.facts["driver"]
    if not driver["userland"] or driver["userland"] != driver["module_loaded"]:
        return None
    can_tell = view.facts["cdi_driver"] or DESCRIPTION not in view.facts["cdi"]
    return f"/libcuda.so.{driver['userland']}" if can_tell else None


def _by_hand(view: View) -> Iterator[str]:
    files = [path for path in view.facts["cdi"] if _BY_HAND.match(path)]
    if files:
        yield (
            f"Nobody keeps {', '.join(files)} fresh, so with the next driver it goes stale, and containers get the GPU"
            f" from it all the same; {DESCRIPTION} is kept fresh. Remove what is under /etc/cdi."
        )
