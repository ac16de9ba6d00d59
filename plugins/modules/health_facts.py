#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Front of module_utils/reading/health.py."""

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
  - With O(load) a container keeps the GPU busy for the time of the samples, and is removed.
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
  load:
    description:
      - Consent to a load of our own while the samples are taken, so that a power supply that holds the GPU back shows.
        Matrix products by torch, in a container without a network, of an image that is on the host.
      - It never runs beside a service that has requests or does not say, and ends where one gets some.
    type: dict
    suboptions:
      image:
        description: The image. By default that of a service of this host.
        type: str
      seconds:
        description: How long it works.
        type: float
        required: true
      size:
        description: Rows and columns of the matrices.
        type: int
        required: true
      free_gib:
        description: Memory that must be available before it starts.
        type: float
        required: true
      start_s:
        description: How long Docker and torch may take to start.
        type: float
        required: true
      idle_percent:
        description: A GPU that works more than this is not loaded further.
        type: float
        required: true
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
from ansible_collections.gb10.fleet.plugins.module_utils.programs.load_run import Load, Wish
from ansible_collections.gb10.fleet.plugins.module_utils.reading.health import collect
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader

COUNTS = ("samples", "every_s")
LOAD = {
    "image": {"type": "str"},
    "seconds": {"type": "float", "required": True},
    "size": {"type": "int", "required": True},
    "free_gib": {"type": "float", "required": True},
    "start_s": {"type": "float", "required": True},
    "idle_percent": {"type": "float", "required": True},
}


def main() -> None:
    """Read, return."""
    spec = {
        "samples": {"type": "int", "default": 1},
        "every_s": {"type": "float", "default": 1.0},
        "load": {"type": "dict", "options": LOAD},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    asked = module.params
    for name in COUNTS:
        if not asked[name] > 0:
            module.fail_json(msg=f"{name} is {asked[name]}; it must be above 0")
    host = HostReader()
    loaded = Load(host, Wish(**asked["load"])) if asked["load"] and not module.check_mode else None
    module.exit_json(changed=False, health=collect(host, asked["samples"], asked["every_s"], loaded=loaded))


if __name__ == "__main__":
    main()
