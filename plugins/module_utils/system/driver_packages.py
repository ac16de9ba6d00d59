# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packages are parts of the NVIDIA driver, and which are kernels: the only definition of both.

Pins, holds, the engine's repair and the coherence check go by these names. They are POSIX extended regular
expressions, because apt reads them as well; Python reads them the same.
"""

from __future__ import annotations

import re

BRANCH = "580"  # as catalog/host_sets.yml: the branch that a Spark stays on

# The parts of a driver. NVIDIA's other packages keep receiving their fixes: container toolkit, egl-wayland, prime,
# repository keys, system packages.
VERSIONED = (
    "^(lib)?nvidia-(.*-)?[0-9]{3}(-.*)?$",  # with a branch: libnvidia-gl-580, nvidia-driver-590-open
    "^xserver-xorg-video-nvidia(-[0-9]{3}(-.*)?)?$",
    # NVIDIA's own repository names them without a branch from 590 on.
    "^libnvidia-(cfg1|common|compute|decode|encode|extra|fbc1|gl|gpucomp)$",
    "^nvidia-(compute-utils|dkms|driver|firmware|headless|headless-no-dkms|kernel-common|kernel-source|open|utils)$",
    "^nvidia-(dkms-.*|driver-cuda|driver-open|firmware-.*|headless-open|headless-no-dkms-open|kernel-open-dkms"
    "|kernel-source-open)$",
    "^cuda-drivers(-.*)?$",
)
# Few packages need an exact version of these, so apt takes the newest one beside a driver of any branch.
LOOSE = "^(libnvidia-nscq|libnvsdm|nvidia-fabricmanager|nvidia-imex)(-[0-9]{3})?$"
PARTS = (*VERSIONED, LOOSE)
# Helpers: NVIDIA's releases bring those of newer branches (nvidia-modprobe 610 beside driver 580), which work with an
# older driver. Such a one is part of no set: neither pinned nor held. One that counts as the driver does moves with it.
HELPERS = "^(nvidia-modprobe|nvidia-persistenced)$"
# NVIDIA's kernels with their modules and metapackages.
KERNELS = "^linux-(nvidia|image|headers|modules|objects-nvidia|signatures-nvidia|tools)-.*nvidia|^linux-nvidia(-|$)"
# Of these several versions may stand beside the driver: firmware carries its version in its name, and the
# packages of the fabric manager are released on their own.
_ASIDE = "^(lib)?nvidia-(.*-)?(firmware|fabricmanager|imex|nscq)(-|$)"
_VERSIONED = "|".join(VERSIONED)
# Any kernel may boot next, so those of other flavours count as well.
OTHER_KERNELS = "^linux-(image|modules|headers)-"
_ON_PURPOSE = "|".join((*PARTS, KERNELS, OTHER_KERNELS))


def has_the_drivers_version(name: str) -> bool:
    """Whether a package is built from one version of the driver, so that all installed ones must have the same."""
    return re.match(_VERSIONED, name) is not None and re.match(_ASIDE, name) is None


def is_of_branch(name: str, branch: str = BRANCH) -> bool:
    """Return whether a part of the driver has this branch in its name."""
    return re.match(_VERSIONED, name) is not None and re.search(f"-{branch}(-|$)", name) is not None


def moves_on_purpose(name: str) -> bool:
    """Return whether nothing but a move of the host set may exchange a package (`name` or `name:architecture`).

    The parts of the driver, and kernels. All else of NVIDIA's may come and go, also in a repair.
    """
    return re.match(_ON_PURPOSE, name.partition(":")[0]) is not None
