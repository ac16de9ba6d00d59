#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: rail_neighbours
short_description: Find out who is behind each port of a Spark
version_added: "0.1.0"
description:
  - Calls out of every given interface with a small broadcast frame (Ethernet type 0x88B5, for local experiments) and
    listens for those of the other hosts. It needs no addresses, so it tells wrong cables before anything is configured.
  - All hosts must run it in the same task, because each hears only those that call at the same time.
  - A host that hears nobody is a result; the module itself only fails on wrong arguments or without root.
options:
  token:
    description: Names this run; frames of others are ignored. The same on all hosts.
    type: str
    required: true
  host:
    description: The name to call with.
    type: str
    required: true
  rails:
    description: The interfaces, which M(gb10.fleet.plan) calls C(fabric.calls).
    type: list
    elements: dict
    required: true
    suboptions:
      netdev:
        description: Network interface.
        type: str
        required: true
      port:
        description: Its port, V(p0) or V(p1).
        type: str
        required: true
      expect:
        description: Hosts that the plan puts behind the port. When all of them were heard, the module ends soon.
        type: list
        elements: str
        default: []
  seconds:
    description: For how long to listen at most.
    type: int
    default: 20
extends_documentation_fragment: gb10.fleet.reads
author:
  - gb10-fleet contributors (@gb10-fleet)
"""

EXAMPLES = r"""
- name: Find the partner behind each port
  gb10.fleet.rail_neighbours:
    # gb10.fleet.spark_facts sets it, the same on all hosts of a run.
    token: "{{ ansible_facts['gb10_run'] | hash('sha256') }}"
    host: "{{ inventory_hostname }}"
    rails: "{{ gb10_plan.fabric.calls }}"
  register: neighbours
"""

RETURN = r"""
heard:
  description: Who called, with the interface that heard it and the one that it came out of.
  returned: always
  type: list
  elements: dict
  sample:
    - netdev: enp1s0f0np0
      port: p0
      host: spark-b
      there_netdev: enp1s0f0np0
      there_port: p0
mute:
  description: Interfaces that do not exist.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gb10.fleet.plugins.module_utils.fabric import neighbours

RAIL = {
    "netdev": {"type": "str", "required": True},
    "port": {"type": "str", "required": True},
    "expect": {"type": "list", "elements": "str", "default": []},
}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "token": {"type": "str", "required": True, "no_log": False},
            "host": {"type": "str", "required": True},
            "rails": {"type": "list", "elements": "dict", "options": RAIL, "required": True},
            "seconds": {"type": "int", "default": 20},
        },
        supports_check_mode=True,
    )
    given = module.params
    try:
        rails = neighbours.parse_rails(given["rails"])
        heard, mute = neighbours.talk(given["token"], given["host"], rails, given["seconds"])
    except ValueError as error:
        module.fail_json(msg=str(error))
    except PermissionError:
        module.fail_json(msg="to listen on an interface takes root; set become: true")
    module.exit_json(changed=False, heard=heard, mute=mute)


if __name__ == "__main__":
    main()
