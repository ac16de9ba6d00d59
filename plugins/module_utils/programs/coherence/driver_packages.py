# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packages are parts of the NVIDIA driver, and which are kernels: the only definition of both.

The role driver pins and holds by these names, the engine's repair leaves them alone, and the coherence check compares
their versions. They are POSIX extended regular expressions, because apt reads them as well; Python reads them the same.
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
LOOSE = "^(libnvidia-nscq|libnvsdm|nvidia-fabricmanager|nvidia-imex|nvidia-modprobe|nvidia-persistenced)(-[0-9]{3})?$"
PARTS = (*VERSIONED, LOOSE)
# NVIDIA's kernels with their modules and metapackages.
KERNELS = "^linux-(nvidia|image|headers|modules|objects-nvidia|signatures-nvidia|tools)-.*nvidia|^linux-nvidia(-|$)"
# Of these several versions may stand beside the driver: firmware carries its version in its name, and the
# packages of the fabric manager are released on their own.
_ASIDE = "^(lib)?nvidia-(.*-)?(firmware|fabricmanager|imex|nscq)(-|$)"
_VERSIONED, _OF_THEIR_OWN = re.compile("|".join(VERSIONED)), re.compile(_ASIDE)
# What no repair of dpkg may bring or take unasked. It is wider than the parts: any kernel may boot next, and an unknown
# package of NVIDIA's may be a part.
_UNASKED = re.compile("|".join((*PARTS, KERNELS, "^(lib)?nvidia-(?!container)", "^linux-(image|modules|headers)-")))


def has_the_drivers_version(name: str) -> bool:
    """Whether a package is built from one version of the driver, so that all installed ones must have the same."""
    return _VERSIONED.match(name) is not None and _OF_THEIR_OWN.match(name) is None


def moves_on_purpose(name: str) -> bool:
    """Whether nothing but a move of the host set may exchange a package (`name` or `name:architecture`)."""
    return _UNASKED.match(name.partition(":")[0]) is not None
