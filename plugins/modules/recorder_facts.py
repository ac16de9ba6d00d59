#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Front of module_utils/reading/last_words.py."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: recorder_facts
short_description: Read the last seconds that this host has kept of another one
version_added: "0.1.0"
description:
  - Reads what the role flight_recorder has kept of a host, shortly before each of its boots ended without a shutdown.
  - Changes nothing.
  - Delegated to the next host of the cluster, which keeps it.
options:
  of:
    description: Name of the host in the inventory.
    type: str
    required: true
  boots:
    description: Its boots, as RV(gb10.fleet.health_facts#module:health) has them.
    type: list
    elements: dict
    required: true
  shown_s:
    description: How many seconds before each end.
    type: float
    default: 10.0
author:
  - gb10-fleet contributors (@gb10-fleet)
extends_documentation_fragment: gb10.fleet.reads
"""

EXAMPLES = r"""
- name: Read what spark-b has kept of spark-a
  gb10.fleet.recorder_facts:
    of: spark-a
    boots: "{{ read.health.boots }}"
  become: true
  delegate_to: spark-b
  register: kept
"""

RETURN = r"""
recorded:
  description: A line for each sample and each line of the kernel, from the oldest on.
  returned: always
  type: list
  elements: dict
  sample: [{"at_s": 1795420800.5, "text": "2418 MHz, 86 W, 68 °C, 96 % busy, 23.1 GiB available"}]
"""

import re
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gb10.fleet.plugins.module_utils.programs.recorder import ring
from ansible_collections.gb10.fleet.plugins.module_utils.reading import last_words as record


def main() -> None:
    """Read, return."""
    spec = {
        "of": {"type": "str", "required": True},
        "boots": {"type": "list", "elements": "dict", "required": True},
        "shown_s": {"type": "float", "default": 10.0},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    name = module.params["of"]
    if not re.match(r"[A-Za-z0-9][A-Za-z0-9_.-]*\Z", name):
        module.fail_json(msg=f"of is {name!r}; it must be the name of a host")
    lines = list(ring.lines(Path(ring.STATE), name))
    found = record.last_seconds(lines, record.ends(module.params["boots"]), module.params["shown_s"])
    module.exit_json(changed=False, recorded=found)


if __name__ == "__main__":
    main()
