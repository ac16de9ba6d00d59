# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What it may cost to read one image, whatever its layers and files are: a bound on each part is none on their sum."""

from __future__ import annotations

from ansible_collections.gb10.fleet.plugins.module_utils.images.errors import ImageError

# A large image has 40 GB, some hundred thousand files with names of 80 characters, 5 MB of packages' own words, and
# some hundred thousand kernels.
MOST = {
    "bytes": 64 << 30,  # that gzip and zstd unpack
    "characters": 64 << 20,  # of names, texts and documents
    "nodes": 2_000_000,  # files, once when read and once when their layer is laid on the others; sections and kernels
}


class Budget:
    """Of one image. Each reader spends of it; who finds it empty ends."""

    def __init__(self) -> None:
        self._left = dict(MOST)

    def spend(self, what: str, amount: int) -> None:
        self._left[what] -= amount
        if self._left[what] < 0:
            text = f"all of it together has more than {MOST[what]} {what}, and no image has so many"
            raise ImageError("too_much", text, "take another image; this one was made to cost time and memory")
