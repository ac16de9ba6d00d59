# SPDX-License-Identifier: GPL-3.0-or-later
"""Which driver and kernel a host keeps or gets, and which packages come and go for that.

Without a named host set the role adopts what is installed, if that is one set. With one, all packages of driver and
kernel move to it in one transaction of apt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.releases import host_set
from ansible_collections.gb10.fleet.plugins.module_utils.releases.host_set import OF_KERNEL, SERIES, HostSet
from ansible_collections.gb10.fleet.plugins.module_utils.system.driver_packages import HELPERS, KERNELS, PARTS
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.plan import RolePlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.settings import RoleSettings
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View

INSTALLED = "installed"  # of driver_host_set: keep what is there
# The release at the end of a kernel package's name: linux-modules-nvidia-580-open-6.17.0-1014-nvidia
_RELEASE = re.compile(r"linux-.*?-([0-9]+[.][0-9]+[.][0-9]+-[0-9]+-nvidia.*)$")
_OTHER_FLAVOUR = re.compile("linux-image-[0-9].*-nvidia-[a-z0-9]+$")  # linux-image-7.0.0-1019-nvidia-64k
_ABI = re.compile(r"[0-9]+[.][0-9]+[.][0-9]+-[0-9]+")


@dataclass(frozen=True)
class DriverSettings(RoleSettings, role="driver"):
    driver_host_set: str
    driver_allow_move: bool


@dataclass(frozen=True, kw_only=True)
class DriverPlan(RolePlan):
    """The set that a host keeps, and how it gets there.

    `userland` is the version of the driver's packages, `kernel` the ABI of the kernel, as in linux-image-ABI-nvidia.
    `installs` and `removes` are for apt, and empty where the host keeps what it has. `module_pins` and `staying` give
    the versions of packages that do not have that of the driver. `parts`, `held` and `free` are regular expressions of
    names; what is `free` is not held, whatever `held` says.
    """

    branch: str
    userland: str
    kernel: str
    installs: Mapping[str, str]
    removes: tuple[str, ...]
    module_pins: Mapping[str, str]
    staying: Mapping[str, str]
    free: tuple[str, ...]
    parts: tuple[str, ...]
    held: tuple[str, ...]
    of_kernel: tuple[str, ...] = OF_KERNEL


def plan(view: View) -> DriverPlan:
    content = catalog.load("host_sets")
    sets = {
        name: HostSet(entry["userland"], entry["kernel"], entry["modules"])
        for name, entry in content["host_sets"].items()
    }
    move = _Move(view, view.settings(DriverSettings), content["driver_branch"]["value"], sets)
    return DriverPlan(
        refusals=tuple(text for refusals in _REFUSALS for text in refusals(move)),
        branch=move.branch,
        userland=move.userland,
        kernel=move.kernel,
        installs=move.installs,
        removes=move.removes,
        module_pins=move.module_pins,
        staying=move.staying,
        free=tuple(move.free),
        parts=(*PARTS, *move.bound),
        held=(*PARTS, *move.bound, KERNELS),
    )


@dataclass(frozen=True)
class _Move:
    """One host between what is installed and what it shall have; without a named set these are the same."""

    view: View
    settings: DriverSettings
    branch: str
    sets: Mapping[str, HostSet]

    @cached_property
    def packages(self) -> Mapping[str, str]:
        packages: Mapping[str, str] = self.view.facts["packages"]
        return packages

    @property
    def named(self) -> HostSet | None:
        return self.sets.get(self.settings.driver_host_set)

    @cached_property
    def installed_userland(self) -> str:
        return host_set.installed_userland(self.packages, self.branch)

    @cached_property
    def installed_kernel(self) -> str:
        """The kernel that apt serves modules for, as their metapackage says; without it the running one."""
        version = self.packages.get(self.modules_series)
        found = _ABI.match(self.view.facts["kernel"] if version is None else version)
        return found[0] if found else ""

    @property
    def userland(self) -> str:
        return self.named.userland if self.named else self.installed_userland

    @property
    def kernel(self) -> str:
        return self.named.kernel if self.named else self.installed_kernel

    @property
    def modules_series(self) -> str:
        return f"linux-modules-nvidia-{self.branch}-open-{SERIES}"

    def modules_of(self, kernel: str) -> str:
        return host_set.modules_of(kernel, self.branch)

    @cached_property
    def of_branch(self) -> Mapping[str, str]:
        """The installed parts that move with the driver."""
        return host_set.of_branch(self.packages, self.branch)

    @cached_property
    def loose(self) -> Mapping[str, str]:
        return host_set.loose(self.packages)

    @cached_property
    def own_numbers(self) -> Mapping[str, str]:
        return host_set.own_numbers(self.packages, self.branch, self.userland)

    @property
    def bound(self) -> Iterator[str]:
        """The helpers that count as the driver does, so that they are parts of its set like any other."""
        yield from (f"^{name}$" for name in self.loose if re.match(HELPERS, name) and name not in self.own_numbers)

    @cached_property
    def staying(self) -> Mapping[str, str]:
        """The parts that stay at their version. A helper is no part of a set: a release may bring a newer one."""
        return {name: version for name, version in self.own_numbers.items() if not re.match(HELPERS, name)}

    @property
    def module_pins(self) -> Mapping[str, str]:
        """Canonical rebuilds the modules of one kernel for another driver under the same name, in a new version."""
        names = (self.modules_of(self.kernel), self.modules_series)
        if self.named:
            return dict.fromkeys(names, f"{self.named.modules}*")
        return {name: self.packages.get(name, f"{self.kernel}.*") for name in names}

    @property
    def installs(self) -> Mapping[str, str]:
        """Return what the named set brings. A part that the host does not have does not come."""
        return host_set.installs(self.packages, self.branch, self.named) if self.named else {}

    @cached_property
    def newer_kernels(self) -> tuple[str, ...]:
        return host_set.newer_kernels(self.packages, self.kernel, self.sets)

    @cached_property
    def old_kernels(self) -> tuple[str, ...]:
        """The releases that need no hold: without a GPU under this driver, and none of them runs, boots next or is the
        set's. Where GRUB does not tell, any of them may boot next."""
        driver = self.view.facts["driver"]
        if driver.get("next_kernel") is None:
            return ()
        running: str = self.view.facts["kernel"]
        modules = {kernel["release"]: kernel["module"] for kernel in driver["kernels"]}
        if running not in modules:  # this GRUB did not boot it, so its menu tells nothing
            return ()
        userland = self.userland.partition("-")[0]
        kept = {running, f"{self.kernel}-nvidia", driver["next_kernel"]}
        kept |= {release for release, module in modules.items() if module == userland}
        found = (_RELEASE.match(name) for name in self.packages)
        return tuple(sorted({release[1] for release in found if release and release[1] not in kept}))

    @property
    def free(self) -> Iterator[str]:
        """Old kernels, and the firmware of drivers that no kept kernel has. linux-nvidia-6.17-headers-6.17.0-1014 has
        no flavour behind its number."""
        for release in self.old_kernels:
            yield f"-{re.escape(release.partition('-nvidia')[0])}({re.escape(release[release.index('-nvidia') :])})?$"
        if self.old_kernels:
            driver = self.view.facts["driver"]
            used = {self.userland.partition("-")[0], driver["module_loaded"]}
            old = {kernel["module"] for kernel in driver["kernels"] if kernel["release"] in self.old_kernels} - used
            yield from (f"^nvidia-firmware-{self.branch}-{re.escape(module)}$" for module in sorted(filter(None, old)))

    @property
    def removes(self) -> tuple[str, ...]:
        return host_set.removes(self.packages, self.branch, self.named, self.sets) if self.named else ()


def _unknown_set(move: _Move) -> Iterator[str]:
    name = move.settings.driver_host_set
    if name != INSTALLED and not move.named:
        yield (
            f"driver_host_set is {name}, which catalog/host_sets.yml does not list. Use 'installed' or one of"
            f" {', '.join(move.sets)}."
        )


def _nothing_to_keep(move: _Move) -> Iterator[str]:
    """Without a driver of the branch and its kernel there is no set, and the role installs none."""
    has, branch = move.installed_userland, move.branch
    if not has.startswith(f"{branch}."):
        yield (
            f"the installed driver userland is {has or 'none'}; this role keeps branch {branch} and installs none."
            f" Install nvidia-driver-{branch}-open with the DGX OS update first, then run again."
        )
    if not move.installed_kernel:
        yield (
            "no kernel with prebuilt NVIDIA modules was found (running kernel"
            f" {move.view.facts['kernel']}, package {move.modules_series} absent), so there is no kernel to pin."
            f" Install linux-{SERIES} and its modules package with the DGX OS update first."
        )


def _needs_consent(move: _Move) -> Iterator[str]:
    named, has = move.named, move.installed_userland
    if named and not move.settings.driver_allow_move and (has, move.installed_kernel) != (named.userland, named.kernel):
        yield (
            f"driver_host_set {move.settings.driver_host_set} is driver {named.userland} on kernel {named.kernel}; the"
            f" host has driver {has} on kernel {move.installed_kernel}. To move it, stop what uses the GPU and run once"
            f" with your consent: ansible-playbook site.yml -i INVENTORY --limit {','.join(move.view.members)} --tags"
            """ driver -e '{"driver_allow_move": true}'. The new driver answers after a reboot; docs/driver.md has"""
            " all steps. To keep what the host has, set driver_host_set to 'installed'."
        )


def _torn(move: _Move) -> Iterator[str]:
    """Refuse to adopt what is installed where it is no one set: a pin would keep what is broken."""
    sets, has = ", ".join(move.sets), move.installed_userland
    built_for = None if move.named else _built_for(move)
    if built_for and not has.startswith(f"{built_for}-"):
        yield (
            f"driver {has} stands beside kernel {move.installed_kernel}, whose modules were built for driver"
            f" {built_for}, so no program finds the GPU after a boot. Name a set in driver_host_set ({sets}) and run"
            " once with driver_allow_move, or bring driver or kernel back with apt, then run again."
        )
    versions = list(dict.fromkeys(move.of_branch.values()))
    if not move.named and len({version.partition("-")[0] for version in versions}) > 1:
        yield (
            f"the parts of the driver are of several versions: {', '.join(versions)}. Name a set in driver_host_set"
            f" ({sets}) and run once with driver_allow_move, or bring them together with apt, then run again."
        )


def _other_flavour(move: _Move) -> Iterator[str]:
    """GRUB boots the newest kernel of any flavour, and a set names the flavour nvidia alone."""
    if not move.named:
        return
    running = f"linux-image-{move.view.facts['kernel']}"
    images = sorted(name for name in {*move.packages, running} if _OTHER_FLAVOUR.match(name))
    if images:
        yield (
            f"{', '.join(images)} is a kernel of another flavour than nvidia, and driver_host_set"
            f" {move.settings.driver_host_set} would leave it in GRUB's menu, without modules of the new driver. Boot a"
            " kernel of the flavour nvidia and remove the other with apt, then run again; or set driver_host_set to"
            " 'installed', which keeps what is there."
        )


def _must_not_go(move: _Move) -> Iterator[str]:
    """The running kernel is not taken away."""
    running = re.match(r"[0-9.]+-[0-9]+", move.view.facts["kernel"]) if move.named else None
    if running and running[0] in move.newer_kernels:
        yield (
            f"the host runs kernel {move.view.facts['kernel']}, which is newer than that of driver_host_set"
            f" {move.settings.driver_host_set} and would have to be removed. Boot {move.kernel}-nvidia once"
            ' (docs/driver.md, "Move back"), then run again.'
        )


def _built_for(move: _Move) -> str | None:
    """The driver that the modules of the installed kernel were built for, as their file says; None if unknown."""
    release = f"{move.installed_kernel}-nvidia"
    kernels: Sequence[Mapping[str, Any]] = move.view.facts["driver"]["kernels"] if move.installed_kernel else ()
    return next((kernel["module"] for kernel in kernels if kernel["release"] == release), None)


def _opposed(move: _Move) -> Iterator[str]:
    """Find what steers apt elsewhere."""
    pinning = "nvidia-driver-pinning-"
    others = [name for name in move.packages if name.startswith(pinning) and name != f"{pinning}{move.branch}"]
    if others:
        yield (
            f"{', '.join(others)} is installed and steers apt to another branch than {move.branch}. Remove it:"
            f" apt-get remove {' '.join(others)}."
        )
    rows = [row for row in move.view.facts["apt_preferences"] if _decides_otherwise(row, move)]
    if rows:
        files, packages, pins = (
            ", ".join(dict.fromkeys(row[key] for row in rows)) for key in ("file", "package", "pin")
        )
        yield (
            f"{files} comes before this role's preferences and gives {packages} to {pins}, where driver"
            f" {move.userland} and kernel {move.kernel} are to stay. Remove those stanzas, or rename the file so that"
            " it sorts behind 10-gb10-nvidia."
        )


def _decides_otherwise(row: Mapping[str, Any], move: _Move) -> bool:
    """Tell whether a stanza that apt reads before ours gives a part of the set another version.

    A refusal does no harm.
    """
    same = f"version ({re.escape(move.userland)}|{re.escape(move.kernel)}[^0-9].*)$"
    names = "|".join((*PARTS, KERNELS, "^src:"))
    return bool(row["priority"] >= 0 and re.search(names, row["package"]) and not re.match(same, row["pin"]))


_REFUSALS = (_unknown_set, _nothing_to_keep, _needs_consent, _torn, _other_flavour, _must_not_go, _opposed)
