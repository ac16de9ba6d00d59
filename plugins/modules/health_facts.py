#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Front of module_utils/health/read.py."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: health_facts
short_description: Read how a GB10 host is
version_added: "0.1.0"
description:
  - Reads GPU, memory, rails, sensors and disks of an NVIDIA DGX Spark (GB10), and what its journal and apt's history
    tell of boots, faults and changes. One call.
  - Changes nothing, and is no part of a probe. Every external command is optional and has a deadline.
  - What cannot be read is V(none), never 0, and C(unknown) in RV(health) has the reason.
options:
  samples:
    description:
      - How often to read what changes by the second. Several are needed to see a load, or a counter that rises.
    type: int
    default: 1
  every_s:
    description: Seconds from one sample to the next.
    type: float
    default: 1.0
author:
  - gb10-fleet contributors (@gb10-fleet)
extends_documentation_fragment: gb10.fleet.reads
notes:
  - Without root, journal, kernel log and disks may be V(none).
"""

EXAMPLES = r"""
- name: Read how the host is
  gb10.fleet.health_facts:
    samples: 5
  become: true
  register: read

- name: Show the GPU
  ansible.builtin.debug:
    var: read.health.samples[-1].gpu
"""

RETURN = r"""
health:
  description: The reading; docs/health.md lists the keys.
  returned: always
  type: dict
  sample:
    schema_version: 1
    uptime_s: 86400.5
    samples:
      - at_s: 1795420800.5
        gpu: {state: ok, temperature_c: 41, power_w: 4.7, clock_mhz: 208, utilization_percent: 0, reasons: [gpu_idle]}
    unknown:
      gpu.tlimit_c: "nvidia-smi says [N/A]"
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gb10.fleet.plugins.module_utils.facts.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.health.read import collect


def main() -> None:
    """Read, return."""
    spec = {"samples": {"type": "int", "default": 1}, "every_s": {"type": "float", "default": 1.0}}
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)  # type: ignore[no-untyped-call]
    for name in spec:
        if not module.params[name] > 0:
            module.fail_json(msg=f"{name} is {module.params[name]}; it must be above 0")
    module.exit_json(changed=False, health=collect(HostReader(), module.params["samples"], module.params["every_s"]))


if __name__ == "__main__":
    main()
