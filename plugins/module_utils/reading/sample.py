# SPDX-License-Identifier: GPL-3.0-or-later
"""What changes by the second, once: GPU, memory, pressure, rails."""

from __future__ import annotations

from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.reading import gpu, memory
from ansible_collections.gb10.fleet.plugins.module_utils.reading import rail_counters as rails
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import Notes


def read_sample(host: HostReader, notes: Notes) -> dict[str, Any]:
    """One sample of a reading of health, without what servers count and without the blocks of free memory."""
    return {
        "at_s": round(host.time_of_day(), 2),
        "steady_s": round(host.system.clock.now(), 2),
        "gpu": notes.part("gpu", lambda: gpu.read_gpu(host)),
        "serving": None,
        "memory": notes.part("memory", lambda: memory.read_memory(host)),
        "blocks": None,
        "pressure": memory.read_pressures(host, notes),
        "rails": notes.read("rails", lambda: rails.read_rails(host)),
    }
