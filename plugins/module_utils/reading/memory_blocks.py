# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the free memory of a host is cut: a model wants large blocks, and each server that ran leaves smaller ones."""

from __future__ import annotations

import os
import re

from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import Facts, HostReader

LARGE = 32 * 2**20  # bytes: what the field counts blocks in (sparkring pull requests 173 and 202)
# As text, so that it is compiled when it is first used: a look at a host needs none of it.
_ZONE = r"^Node +\d+, +zone +\w+ +(\d[\d ]*)$"


def read_blocks(host: HostReader) -> Facts | None:
    """None where the kernel does not tell."""
    return blocks(host.read("/proc/buddyinfo") or "", os.sysconf("SC_PAGE_SIZE"))


def blocks(text: str, page_bytes: int) -> Facts | None:
    """Free bytes, and how many of them lie in blocks of at least LARGE; null where the kernel keeps no such blocks.

    A zone is a line; its columns count free blocks of one page, two, four and so on.
    """
    counts = [[int(word) for word in zone.split()] for zone in re.findall(_ZONE, text, re.MULTILINE)]
    if not counts:
        return None
    sizes = [[(page_bytes << order, count) for order, count in enumerate(zone)] for zone in counts]
    kept = max(len(zone) for zone in counts)
    large = sum(size * count for zone in sizes for size, count in zone if size >= LARGE)
    return {
        "free_bytes": sum(size * count for zone in sizes for size, count in zone),
        "large_bytes": large if page_bytes << (kept - 1) >= LARGE else None,
    }
