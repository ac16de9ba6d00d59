# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPU, and the files by which containers name it."""

from __future__ import annotations

import re

from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import Facts, HostReader

GPU_DEADLINE_S = 10.0  # a driver that has lost its GPU can let nvidia-smi hang for ever
CDI_SPECIFICATION = "/var/run/cdi/nvidia.yaml"
# As text, so that it is compiled when it is first used: a look at a host needs none of it.
_CDI_LIBRARY = r"/libcuda\.so\.(\d{3}\.\d+(?:\.\d+)?)\b"


def read_gpu(host: HostReader) -> Facts:
    """Temperature in degrees Celsius, power in watts (the GPU's alone). Memory is [N/A] on a GB10: use memory_bytes."""
    query = ["--query-gpu=name,driver_version,temperature.gpu,power.draw", "--format=csv,noheader,nounits"]
    done = host.system.run(["nvidia-smi", *query], timeout=GPU_DEADLINE_S)
    row = next((line.split(",") for line in done.stdout.splitlines() if line.count(",") == 3), None)
    found = done.rc == 0 and row is not None
    error = done.words if done.rc else "nvidia-smi listed no GPU"
    cells = [None if "N/A" in cell or "Not" in cell else cell.strip() for cell in row] if found and row else [None] * 4
    return {
        "present": found,
        "name": cells[0],
        "driver": cells[1],
        "temperature_c": _decimal(cells[2]),
        "power_w": _decimal(cells[3]),
        "query_error": None if found else error[:300],
    }


def _decimal(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def read_cdi(host: HostReader) -> list[str]:
    """The specifications by which containers name NVIDIA's GPUs."""
    folders = ("/etc/cdi", "/var/run/cdi")
    return [f"{folder}/{name}" for folder in folders for name in host.names(folder) if name.startswith("nvidia")]


def read_cdi_driver(host: HostReader) -> str | None:
    """The driver that the vendor's specification was written for: it mounts the libraries of one version by name."""
    found = re.search(_CDI_LIBRARY, host.system.text(CDI_SPECIFICATION) or "")
    return found[1] if found else None
