#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Front of module_utils/reading/spark_facts.py."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: spark_facts
short_description: Read what a GB10 host is
version_added: "0.1.0"
description:
  - Reads identity, disks, rails, GPU, driver, packages and Docker of an NVIDIA DGX Spark (GB10) in one call.
  - Changes nothing. Every external command is optional and has a deadline (C(nvidia-smi) 10 seconds, C(ip) and
    C(modinfo), C(dmesg) and C(journalctl) 5).
  - What cannot be read is V(none), never a guess.
options:
  paths:
    description: Paths whose file systems shall be among C(disks), besides C(/), C(/boot) and C(/var/lib/docker).
    type: list
    elements: str
    default: []
author:
  - gb10-fleet contributors (@gb10-fleet)
extends_documentation_fragment: gb10.fleet.reads
attributes:
  action:
    description: The controller adds which run has read the facts.
    support: full
  facts:
    description: Sets C(gb10_spark) and C(gb10_run).
    support: full
notes:
  - Without root, the SSH session, package locks and some hardware fields may be V(none).
"""

EXAMPLES = r"""
- name: Read what the host is
  gb10.fleet.spark_facts:
  become: true

- name: Show the rails
  ansible.builtin.debug:
    msg: "{{ ansible_facts['gb10_spark']['rails'] | map(attribute='netdev') }}"
"""

RETURN = r"""
ansible_facts:
  description: Facts to add to the host.
  returned: always
  type: dict
  contains:
    gb10_run:
      description: The run that said so, for P(gb10.fleet.this_run#test); a fact cache may keep facts for later ones.
      type: str
      returned: always
    gb10_spark:
      description: All facts; docs/architecture/facts.md lists the keys.
      type: dict
      returned: always
      sample:
        hostname: spark-a
        kernel: 6.17.0-1014-nvidia
        architecture: aarch64
        rails:
          - netdev: enp1s0f0np0
            hca: rocep1s0f0
            port: p0
            twin_index: 0
            carrier: true
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gb10.fleet.plugins.module_utils.reading.spark_facts import collect
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader


def main() -> None:
    """Read, return."""
    spec = {"paths": {"type": "list", "elements": "str", "default": []}}
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    module.exit_json(changed=False, ansible_facts={"gb10_spark": collect(HostReader(), module.params["paths"])})


if __name__ == "__main__":
    main()
