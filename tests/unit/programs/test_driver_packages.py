"""The names of the driver's parts, for everybody who asks: pins and holds, the repair of dpkg, verdicts, facts."""

from __future__ import annotations

import re

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.reading import software
from ansible_collections.gb10.fleet.plugins.module_utils.system import driver_packages

OWN_NUMBERS = ["libnvidia-nscq", "libnvsdm", "nvidia-imex-580"]
HELPERS = ["nvidia-modprobe", "nvidia-persistenced"]
ONE_VERSION = [
    *("libnvidia-compute-580", "nvidia-driver-580-open", "nvidia-580", "xserver-xorg-video-nvidia-580", "nvidia-open"),
    *("libnvidia-gl", "nvidia-kernel-common", "nvidia-dkms-open", "cuda-drivers", "cuda-drivers-fabricmanager-590"),
]
SIDE_BY_SIDE = ["nvidia-firmware-580-580.142", "nvidia-firmware", "nvidia-fabricmanager-580", "libnvidia-nscq-580"]
KERNELS = ["linux-image-6.17.0-1014-nvidia", "linux-modules-nvidia-580-open-nvidia-hwe-24.04", "linux-nvidia-hwe-24.04"]
OTHER_KERNELS = ["linux-image-6.8.0-100-generic", "linux-headers-generic"]
HARMLESS = ["nvidia-system-core", "libnvidia-egl-wayland1", "nvidia-extra", "nvidia-spark-ota-check", "nvidia-settings"]
FREE = ["nvidia-container-toolkit", "libnvidia-container1", "docker-ce", "linux-libc-dev", "linux-firmware"]


def matches(expressions: str | tuple[str, ...], name: str) -> bool:
    return re.search(expressions if isinstance(expressions, str) else "|".join(expressions), name) is not None


@pytest.mark.parametrize(
    ("names", "part", "versioned", "kernel", "guarded"),
    [
        (ONE_VERSION, True, True, False, True),
        (SIDE_BY_SIDE, True, False, False, True),
        (OWN_NUMBERS, True, False, False, True),
        (KERNELS, False, False, True, True),
        (OTHER_KERNELS, False, False, False, True),
        (HARMLESS, False, False, False, False),
        (HELPERS, False, False, False, False),
        (FREE, False, False, False, False),
    ],
)
def test_a_name_means_the_same_to_all(
    names: list[str], part: bool, versioned: bool, kernel: bool, guarded: bool
) -> None:
    for name in names:
        said = (
            matches(driver_packages.PARTS, name),
            driver_packages.has_the_drivers_version(name),
            matches(driver_packages.KERNELS, name),
            driver_packages.moves_on_purpose(name),
            driver_packages.moves_on_purpose(f"{name}:armhf"),
        )
        assert said == (part, versioned, kernel, guarded, guarded), name


@pytest.mark.parametrize("name", [*ONE_VERSION, *SIDE_BY_SIDE, *OWN_NUMBERS, *HELPERS, *KERNELS])
def test_the_facts_name_every_part(name: str) -> None:
    assert software.PACKAGES.match(name)
