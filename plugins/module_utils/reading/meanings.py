# SPDX-License-Identifier: GPL-3.0-or-later
"""What single facts of a host mean: pure, for the host and for the controller.

The controller reads facts without importing what gathers them: Ansible compiles every module of ours in every run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GIB = 2**30
# The way out of many a fault of a rail.
RUN_FABRIC = "run `ansible-playbook gb10.fleet.site -i INVENTORY --tags fabric`"
# A GPU that does not answer, by `state` as reading/gpu.py has it.
SILENT_GPU = {
    "silent": "nvidia-smi hangs",
    "absent": "the driver finds no GPU",
    "mismatch": "the driver in memory is not the installed one",
    "no_driver": "no NVIDIA driver runs",
    "no_program": "nvidia-smi is not there",
    "unreadable": "nvidia-smi's answer makes no sense",
}
RAILS_OF_A_PORT = 2  # the twins: behind each QSFP port of a GB10 are two PCIe functions


def mount_of(path: str, mounts: set[str]) -> str:
    """The mount point, out of `mounts`, that holds an absolute path."""
    holders = (mount for mount in mounts if path == mount or path.startswith(mount.rstrip("/") + "/"))
    return max(holders, key=len, default="/")


def short_of(path: str, disk: Mapping[str, Any], gib: float) -> str:
    """Say that `path` has less than `gib` free on the file system that holds it; an empty text where it has enough."""
    free = disk["free_bytes"] / GIB
    if free >= gib:
        return ""
    return f"{path} (file system {disk['mount']}) has {free:.1f} GiB free, needed are {gib} GiB"


def silent_gpu(state: str, said: str | None) -> tuple[str, str]:
    """Return the finding of a GPU that does not answer, and the fact; `said`: the words of nvidia-smi."""
    known = state if state in SILENT_GPU else "unreadable"
    return f"gpu_{known}", f"{SILENT_GPU[known]}: {said}"


def lifelines(facts: Mapping[str, Any]) -> dict[str, list[str]]:
    """`{interface: [what it carries]}` of all interfaces that we would cut ourselves off with."""
    below = {item["name"]: item.get("lower") or [] for item in facts.get("interfaces") or []}
    ssh = facts.get("ssh") or {}
    # By both: where a host has one address on several ways, answers may leave by another one than calls arrive at.
    uses = [(name, "this very SSH session") for name in dict.fromkeys([ssh.get("interface"), ssh.get("way_back")])]
    uses += [(name, "the default route") for name in facts.get("default_route_interfaces") or []]
    found: dict[str, list[str]] = {}
    for name, use in uses:
        if name:
            found.setdefault(name, []).append(use)
        for lower in below.get(name, ()):
            found.setdefault(lower, []).append(f"{use} (below {name})")
    return found


def upstream_version(package_version: str) -> str:
    """`29.2.1` of `5:29.2.1-1~ubuntu.24.04~noble`: without epoch and packaging revision."""
    return package_version.rpartition(":")[2].partition("-")[0]
