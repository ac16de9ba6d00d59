#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: rail_survey
short_description: Read GID tables, neighbours and pings of a Spark's rails in one call
version_added: "0.1.0"
description:
  - Does what M(gb10.fleet.show_gids) and M(gb10.fleet.rail_neighbours) do. While it listens for neighbours, it pings
    every given peer from a given address of a given interface, with the Don't Fragment bit set, all at once.
  - One packet more than C(count) is sent, because the first one may be lost while ARP resolves.
  - A ping that fails is a result with a name and a way out; the module itself only fails on wrong arguments.
  - It is one call, because a task costs a host more than each of the three.
  - All hosts must run it in the same task, because each hears only those that call at the same time.
options:
  address_range:
    description: As of M(gb10.fleet.show_gids).
    type: str
  rails:
    description: As of M(gb10.fleet.show_gids), an IPv4 address for each network interface.
    type: dict
    default: {}
  token:
    description: As of M(gb10.fleet.rail_neighbours).
    type: str
    required: true
  host:
    description: As of M(gb10.fleet.rail_neighbours).
    type: str
    required: true
  calls:
    description: The rails of M(gb10.fleet.rail_neighbours). Without one, nobody is called.
    type: list
    elements: dict
    default: []
  pings:
    description:
      - What to ping, which M(gb10.fleet.plan) calls C(fabric.pings). Each has C(name), C(interface), the IPv4 addresses
        C(source) and C(peer), C(size_bytes) (8972 fills a packet of MTU 9000) and C(count), the answers needed.
    type: list
    elements: dict
    default: []
extends_documentation_fragment: gb10.fleet.reads
author:
  - gb10-fleet contributors (@gb10-fleet)
"""

EXAMPLES = r"""
- name: Read what the rails say of themselves and of each other
  gb10.fleet.rail_survey:
    address_range: "{{ gb10_plan.fabric.mine.environment.NCCL_IB_ADDR_RANGE | default(omit) }}"
    rails: "{{ gb10_plan.fabric.mine.profiles | items2dict(key_name='netdev', value_name='address') }}"
    token: "{{ ansible_facts['gb10_run'] | hash('sha256') }}"
    host: "{{ inventory_hostname }}"
    calls: "{{ gb10_plan.fabric.calls }}"
    pings: "{{ gb10_plan.fabric.pings }}"
  register: survey
"""

RETURN = r"""
gids:
  description: What M(gb10.fleet.show_gids) returns.
  returned: always
  type: dict
heard:
  description: As M(gb10.fleet.rail_neighbours) returns it; V(none) where nobody was to be called.
  returned: always
  type: list
  elements: dict
pings:
  description:
    - One result for each ping, in order, with its arguments. C(rtt_ms) is the average in milliseconds. C(fault) has
      C(name), C(text) and C(way_out). Names are V(no_interface), V(no_route) (this host lacks address or route),
      V(link_down), V(loop) (routes lead in a circle), V(mtu), V(firewall), V(unreachable), V(timeout), V(loss),
      V(other_address) (another address answered), V(corrupted), V(duplicates), V(failed) (ping could not run or
      send, its last line is quoted) and V(missing_package).
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

import ipaddress
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gb10.fleet.plugins.module_utils.fabric import (
    gid_remarks,
    gid_report,
    gids,
    neighbours,
    rail_ping,
)
from ansible_collections.gb10.fleet.plugins.module_utils.system.children import StuckError

ROUTES = Path("/proc/net/route")
LISTEN_S = 20  # at most; it ends when all that are expected were heard


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "address_range": {"type": "str"},
            "rails": {"type": "dict", "default": {}},
            "token": {"type": "str", "required": True, "no_log": False},
            "host": {"type": "str", "required": True},
            "calls": {"type": "list", "elements": "dict", "default": []},
            "pings": {"type": "list", "elements": "dict", "default": []},
        },
        supports_check_mode=True,
    )
    given = module.params
    try:
        network = str(ipaddress.IPv4Network(given["address_range"])) if given["address_range"] else None
        rails = gid_remarks.parse_rails(given["rails"])
        calls, pings = neighbours.parse_rails(given["calls"]), rail_ping.parse_pings(given["pings"])
    except (ValueError, KeyError, TypeError) as error:
        module.fail_json(msg=f"address_range, rails, calls and pings are those of gb10.fleet.plan: {error!r}")
    try:
        routes = ROUTES.read_text(encoding="ascii", errors="replace")
    except OSError:
        routes = ""  # a kernel without it: prefixes are then assumed
    tables = gid_report.describe(gids.read_hcas(gids.Sysfs(), routes), network, rails)
    try:
        ping = module.get_bin_path("ping")
        with rail_ping.started(pings, ping) as answers:
            heard = neighbours.talk(given["token"], given["host"], calls, LISTEN_S)[0] if calls else None
            answered = answers()
    except PermissionError:
        module.fail_json(msg="to listen on an interface takes root; set become: true")
    except StuckError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, gids=tables, heard=heard, pings=answered)


if __name__ == "__main__":
    main()
