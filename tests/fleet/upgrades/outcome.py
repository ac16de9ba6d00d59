"""What an upgrade did to a host, in one word.

Pure, and ignorant of the role under test: the names of the driver's parts come from the lab's table of packages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from lab.vendor import packages

# Prints a host's state; `parse` reads it.
READ = """
dpkg-query -W -f 'package|${db:Status-Abbrev}|${Package}|${Version}\\n'
for image in /boot/vmlinuz-*-nvidia; do
	release=${image#/boot/vmlinuz-}
	module=$(find "/lib/modules/$release/kernel" -name nvidia.ko 2>/dev/null | head -n 1)
	echo "kernel|$release|${module:+$(modinfo -F version "$module")}|${module:+$(modinfo -F license "$module")}"
done
"""
BRANCH = "580"
UNRELATED = {package.name: package.version for package in packages.unrelated("2.0-1")}


def _driver_names() -> Iterator[str]:
    for upstream in (packages.DRIVER, packages.LATER_DRIVER, packages.NEXT_DRIVER):
        yield from (package.name for package in packages.driver_set(upstream))
    yield from (package.name for package in packages.renamed_driver_set(packages.NEXT_DRIVER))


DRIVER = frozenset(_driver_names())
KERNEL = re.compile(r"linux-(image|headers|modules|tools|nvidia)-.*(nvidia|hwe)")
MODULES = re.compile(r"linux-modules-nvidia-(\d+)(-open)?-")


@dataclass(frozen=True)
class Host:
    packages: dict[str, str]  # installed -> version
    broken: frozenset[str]  # unpacked or half configured
    holds: frozenset[str]
    modules: dict[str, tuple[str, str]] = field(
        default_factory=dict
    )  # bootable kernel -> version and licence; "" if none

    @property
    def host_set(self) -> dict[str, str]:
        """The packages that must move together: driver, kernels and their modules."""
        return {name: version for name, version in self.packages.items() if name in DRIVER or KERNEL.match(name)}

    @property
    def foreign(self) -> list[str]:
        """What is installed of another branch than 580, or of another flavour than the open one."""
        return sorted(
            f"{name}={version}"
            for name, version in self.host_set.items()
            if (name in DRIVER and not version.startswith(f"{BRANCH}."))
            or ((built := MODULES.match(name)) and built.groups() != (BRANCH, "-open"))
        )

    @property
    def bare_kernels(self) -> list[str]:
        """Kernels that GRUB may boot and that have no module of 580."""
        return sorted(release for release, (version, _) in self.modules.items() if not version.startswith(f"{BRANCH}."))

    @property
    def unheld(self) -> list[str]:
        return sorted(self.host_set.keys() - self.holds)

    @property
    def updated(self) -> bool:
        """Whether the updates came that have nothing to do with the driver."""
        return all(self.packages.get(name, "").endswith(version) for name, version in UNRELATED.items())


def parse(output: str) -> Host:
    rows = [line.split("|") for line in output.splitlines()]
    listed = [row[1:] for row in rows if row[0] == "package"]
    return Host(
        packages={name: version for status, name, version in listed if status[1] == "i"},
        broken=frozenset(name for status, name, _ in listed if status[1] not in "icn"),
        holds=frozenset(name for status, name, _ in listed if status[0] == "h"),
        modules={row[1]: (row[2], row[3]) for row in rows if row[0] == "kernel" and row[1] != "*-nvidia"},
    )


def word(before: Host, after: Host) -> str:
    """The worst that is true of the host now; `kept` if driver, kernels and modules stand as they stood."""
    userland = [name for name in after.host_set if name.startswith(("libnvidia-compute", "nvidia-driver"))]
    if len(userland) < 2:
        return "REMOVED"
    if any(not version for version, _ in after.modules.values()):
        return "NO MODULE"
    drivers = {version.partition("-")[0] for name, version in after.host_set.items() if name in DRIVER}
    boots_next = max(after.modules, key=lambda release: [int(number) for number in re.findall(r"\d+", release)])
    if len(drivers | {after.modules[boots_next][0]}) > 1 or after.broken:
        return "MIXED"
    if any(MODULES.match(name) and "-open-" not in name for name in after.host_set):
        return "CLOSED"
    if after.foreign:
        return "590"
    return "kept" if after.host_set == before.host_set else "moved"
