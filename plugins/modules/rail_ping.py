#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: rail_ping
short_description: Ping peers over their rails without fragmentation
version_added: "0.1.0"
description:
  - Pings every given peer from a given address of a given interface, with the Don't Fragment bit set, all at once.
  - One packet more than O(pings[].count) is sent, because the first one may be lost while ARP resolves.
  - A ping that fails is a result with a name and a way out; the module itself only fails on wrong arguments.
options:
  pings:
    description: What to ping, which M(gb10.fleet.plan) calls C(fabric.pings).
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the ping.
        type: str
        required: true
      interface:
        description: Network interface of the rail.
        type: str
        required: true
      source:
        description: IPv4 address of that interface to ping from.
        type: str
        required: true
      peer:
        description: IPv4 address to ping.
        type: str
        required: true
      size_bytes:
        description: ICMP payload in bytes. 8972 fills a packet of MTU 9000, 1472 one of MTU 1500.
        type: int
        default: 8972
      count:
        description: How many answers are needed.
        type: int
        default: 3
extends_documentation_fragment: gb10.fleet.reads
author:
  - gb10-fleet contributors (@gb10-fleet)
"""

EXAMPLES = r"""
- name: Ping every peer over every rail with jumbo frames
  gb10.fleet.rail_ping:
    pings: "{{ gb10_plan.fabric.pings }}"
  register: pings
"""

RETURN = r"""
pings:
  description:
    - One result for each ping, in order, with its arguments. C(rtt_ms) is the average in milliseconds. C(fault) has
      C(name), C(text) and C(way_out). Names are V(no_interface), V(no_route) (this host lacks address or route),
      V(mtu), V(firewall), V(unreachable), V(timeout), V(loss), V(other_address) (another address answered),
      V(corrupted), V(duplicates), V(failed) (ping could not run or send, its last line is quoted) and
      V(missing_package).
  returned: always
  type: list
  elements: dict
  sample:
    - name: enp1s0f0np0 to spark-b enp1s0f0np0
      interface: enp1s0f0np0
      source: 192.168.100.10
      peer: 192.168.100.11
      size_bytes: 8972
      count: 3
      ok: true
      sent: 4
      received: 4
      rtt_ms: 0.062
      fault: null
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gb10.fleet.plugins.module_utils.fabric import rail_ping
from ansible_collections.gb10.fleet.plugins.module_utils.system.children import StuckError

PING = {
    "name": {"type": "str", "required": True},
    "interface": {"type": "str", "required": True},
    "source": {"type": "str", "required": True},
    "peer": {"type": "str", "required": True},
    "size_bytes": {"type": "int", "default": 8972},
    "count": {"type": "int", "default": 3},
}


def main() -> None:
    module = AnsibleModule(
        argument_spec={"pings": {"type": "list", "elements": "dict", "options": PING, "required": True}},
        supports_check_mode=True,
    )
    try:
        pings = rail_ping.parse_pings(module.params["pings"])
    except ValueError as error:
        module.fail_json(msg=str(error))
    executable = module.get_bin_path("ping")
    try:
        results = rail_ping.run_pings(pings, executable)
    except StuckError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, pings=results)


if __name__ == "__main__":
    main()
