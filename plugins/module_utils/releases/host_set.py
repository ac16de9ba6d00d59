# SPDX-License-Identifier: GPL-3.0-or-later
"""What a move to a host set exchanges and removes, by the packages that a host has. Pure.

The role driver applies it, and the rehearsal of a release asks apt for the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ansible_collections.gb10.fleet.plugins.module_utils.reading.meanings import upstream_version
from ansible_collections.gb10.fleet.plugins.module_utils.system import debian_version
from ansible_collections.gb10.fleet.plugins.module_utils.system.driver_packages import HELPERS, LOOSE, is_of_branch

SERIES = "nvidia-hwe-24.04"  # in the names of the metapackages of kernels and modules
# What comes with a kernel from its own source, in its version. nvidia-fs (GPUDirect Storage) is built for no driver.
OF_KERNEL = ("image", "headers", "tools", "modules", "modules-nvidia-fs")
# NVIDIA's pinning package has a version of its own. The firmware has the driver's in its name: the new one comes, and
# the old one stays for the module that is still loaded.
_NOT_MOVING = re.compile(f"nvidia-(firmware|driver-pinning)-|{LOOSE}")


@dataclass(frozen=True)
class HostSet:
    """Driver, kernel and kernel modules that belong together: an entry of catalog/host_sets.yml."""

    userland: str
    kernel: str
    modules: str  # version of kernel and modules, without the suffix of a rebuild


def modules_of(kernel: str, branch: str) -> str:
    return f"linux-modules-nvidia-{branch}-open-{kernel}-nvidia"


def of_branch(packages: Mapping[str, str], branch: str) -> dict[str, str]:
    """The installed parts that move with the driver."""
    return {
        name: version
        for name, version in packages.items()
        # One of another architecture is `name:architecture`; what both share has to be of one version.
        if is_of_branch(name.partition(":")[0], branch) and not _NOT_MOVING.match(name.partition(":")[0])
    }


def installed_userland(packages: Mapping[str, str], branch: str) -> str:
    """Empty without a driver. A move that was interrupted may have left only some of these packages."""
    names = (f"nvidia-driver-{branch}-open", f"nvidia-kernel-common-{branch}", f"libnvidia-compute-{branch}")
    return next((packages[name] for name in names if name in packages), "")


def loose(packages: Mapping[str, str]) -> dict[str, str]:
    return {name: version for name, version in packages.items() if re.match(f"{LOOSE}|{HELPERS}", name)}


def own_numbers(packages: Mapping[str, str], branch: str, userland: str) -> dict[str, str]:
    """Those with a numbering of their own; those that count as the driver does move with it."""
    moving = {*of_branch(packages, branch).values(), userland}
    return {name: version for name, version in loose(packages).items() if version not in moving}


def installs(packages: Mapping[str, str], branch: str, to: HostSet) -> dict[str, str]:
    """What the set brings, `1.2*` for any rebuild. A part that the host does not have does not come."""
    apart = own_numbers(packages, branch, to.userland)
    moving = [*of_branch(packages, branch), *(name for name in loose(packages) if name not in apart)]
    if any(name.startswith(f"nvidia-firmware-{branch}-") for name in packages):
        moving.append(f"nvidia-firmware-{branch}-{upstream_version(to.userland)}")
    kernel = dict.fromkeys(_kernel_packages(packages, branch, to.kernel), f"{to.modules}*")
    return {**dict.fromkeys(moving, to.userland), **kernel}


def _kernel_packages(packages: Mapping[str, str], branch: str, kernel: str) -> Iterator[str]:
    """For the set's kernel what the host has for its other kernels. All by name, because an undo must know what
    came even where apt was killed."""
    parts = "|".join(OF_KERNEL)
    for name in packages:
        found = re.match(f"(linux-({parts}))-[0-9].*-nvidia$", name)
        if found:
            yield f"{found[1]}-{kernel}-nvidia"
    yield modules_of(kernel, branch)
    series = re.compile(f"linux-(({parts}|modules-nvidia-{branch}-open)-)?{re.escape(SERIES)}$")
    yield from filter(series.match, packages)


def newer_kernels(packages: Mapping[str, str], kernel: str, sets: Mapping[str, HostSet]) -> tuple[str, ...]:
    """GRUB boots the newest kernel, so a kernel that is newer than the set's must go."""
    images = (re.match(r"linux-image-([0-9].*-[0-9]+).*-nvidia$", name) for name in packages)
    known = [*(image[1] for image in images if image), *(entry.kernel for entry in sets.values())]
    return tuple(each for each in dict.fromkeys(known) if debian_version.newer_than(each, kernel or "0"))


def removes(packages: Mapping[str, str], branch: str, to: HostSet, sets: Mapping[str, HostSet]) -> tuple[str, ...]:
    """Kernels that are newer than the set's, and modules that were built for another driver: their dependencies
    would keep the set's driver away."""
    newer = newer_kernels(packages, to.kernel, sets)
    other_driver = [entry.kernel for entry in sets.values() if entry.userland != to.userland]
    gone = [f"linux-{part}-{kernel}-nvidia" for part in OF_KERNEL for kernel in newer]
    gone += [modules_of(kernel, branch) for kernel in (*newer, *other_driver)]
    if installed_userland(packages, branch) != to.userland:
        gone += [name for name in packages if re.match("linux-modules-nvidia-[0-9].*-[0-9]+-nvidia$", name)]
    return tuple(name for name in dict.fromkeys(gone) if name != modules_of(to.kernel, branch))
