# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the doctor says of a host's free memory before a model is started."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import Finding
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.subject import Subject

_GIB = 2**30


def check_blocks(subject: Subject) -> Iterator[Finding]:
    """Only where enough is free for a start: beside a model or a full page cache blocks are small anyway."""
    found = subject.facts.get("memory_blocks")
    limits = {name: entry["value"] for name, entry in subject.catalog["memory"]["fragmentation"].items()}
    if not found or found["large_bytes"] is None or found["free_bytes"] < limits["judged_from"] * _GIB:
        return
    large = found["large_bytes"] / _GIB
    if large < limits["large_least"]:
        yield subject.say(
            "memory_fragmented",
            f"{found['free_bytes'] / _GIB:.1f} GiB of memory are free, only {large:.1f} GiB of it in blocks of 32 MiB"
            f" or more; below {limits['large_least']} models were 4 to 5 % slower, or did not start",
            "reboot this host before you start the model; dropping caches or compacting brings no block back",
        )


CHECKS = (check_blocks,)
