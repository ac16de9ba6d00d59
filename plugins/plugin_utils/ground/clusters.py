# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster of a host, by the group of the inventory that gb10_cluster names."""

from __future__ import annotations

import difflib
from collections.abc import Collection


def not_its_group(cluster: str, groups: Collection[str]) -> tuple[str, str]:
    """The fact and the way out for a host that is not in the group that its gb10_cluster names."""
    if cluster in groups:
        return f"gb10_cluster is {cluster}, which does not hold this host", "name the group that this host is in"
    near = difflib.get_close_matches(cluster, [name for name in groups if name not in ("all", "ungrouped")], n=1)
    meant = f"did you mean {near[0]}? If not, " if near else ""
    return (
        f"gb10_cluster is {cluster}, which is no group of the inventory",
        f"{meant}name the group that this host is in",
    )
