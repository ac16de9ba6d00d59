# SPDX-License-Identifier: GPL-3.0-or-later
"""The files by which containers name the GPU."""

from __future__ import annotations

import re

from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader

CDI_SPECIFICATION = "/var/run/cdi/nvidia.yaml"
# As text, so that it is compiled when it is first used: a look at a host needs none of it.
_CDI_LIBRARY = r"/libcuda\.so\.(\d{3}\.\d+(?:\.\d+)?)\b"


def read_cdi(host: HostReader) -> list[str]:
    """The specifications by which containers name NVIDIA's GPUs."""
    folders = ("/etc/cdi", "/var/run/cdi")
    return [f"{folder}/{name}" for folder in folders for name in host.names(folder) if name.startswith("nvidia")]


def read_cdi_driver(host: HostReader) -> str | None:
    """The driver that the vendor's specification was written for: it mounts the libraries of one version by name."""
    found = re.search(_CDI_LIBRARY, host.system.text(CDI_SPECIFICATION) or "")
    return found[1] if found else None
