#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin probe."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: probe
short_description: Read and judge all hosts in one task
version_added: "0.1.0"
description:
  - One task for all hosts of the play that are still in it. Each is read and judged as by M(gb10.fleet.doctor),
    in one call that changes nothing, as many at a time as Ansible's C(forks).
  - Names the hosts that are as they should be, with their whole cluster. For each host it has the result that its own
    M(gb10.fleet.doctor) would have, to be handed on to that one, which then asks nobody.
  - Reaches a host as any task does, through Ansible's own ssh plugin, or on the spot where C(ansible_connection) is
    V(local). A host that needs a password or another connection is not asked and is in neither result, so that its
    M(gb10.fleet.doctor) asks it. A host that gives no answer within 300 seconds counts as unreachable.
  - Fails for no host; to refuse is left to M(gb10.fleet.doctor).
  - Warns of what is no failure, once for all hosts that have it in common.
options:
  recap:
    description:
      - With V(changed), unchanged hosts are in RV(left_out) and not in RV(judged). They get no task of their own.
    type: str
    choices: [all, changed]
    default: all
  unreachable_max:
    description:
      - With how many silent hosts the run goes on; a number (V(2)), or a share of the hosts (V(10%)), rounded down.
    type: raw
    default: 0
author:
  - gb10-fleet contributors (@gb10-fleet)
extends_documentation_fragment: [gb10.fleet.controller.scan, gb10.fleet.controller]
notes:
  - Use it with C(run_once=true), which gives the registered result to all hosts.
seealso:
  - module: gb10.fleet.doctor
  - module: gb10.fleet.drift
"""

EXAMPLES = r"""
- name: Look at all hosts, and refuse before the first change
  hosts: sparks
  gather_facts: false
  become: true
  any_errors_fatal: true
  tasks:
    - name: Look at all hosts at once
      gb10.fleet.probe:
      register: gb10_seen
      run_once: true

    - name: Say what each host is and what would block
      gb10.fleet.doctor:
        judged: "{{ gb10_seen.judged[inventory_hostname] | default(omit) }}"
"""

RETURN = r"""
unchanged:
  description: The hosts where nothing blocks and nothing is to be done, nor on another host of their cluster.
  returned: always
  type: list
  elements: str
  sample: [spark-a, spark-b]
loading:
  description: Those of RV(unchanged) whose model still loads, by the fact C(model_phase).
  returned: always
  type: list
  elements: str
judged:
  description: The result of M(gb10.fleet.doctor) for each host that could be asked and is not left out, by host name.
  returned: always
  type: dict
tolerated:
  description: Silent hosts that the run goes on without. Empty where there are more than O(unreachable_max).
  returned: always
  type: list
  elements: str
beside:
  description: Hosts whose cluster has a tolerated host; nothing is changed on them.
  returned: always
  type: list
  elements: str
left_out:
  description: Unchanged hosts that get no task of their own, as O(recap) says.
  returned: always
  type: list
  elements: str
findings:
  description: What there is to say about the hosts left out, as M(gb10.fleet.doctor) returns it.
  returned: always
  type: list
  elements: dict
probes:
  description: C(gb10_probe) of the hosts left out, as M(gb10.fleet.doctor) sets it, by host name.
  returned: always
  type: dict
msg:
  description: How many hosts are unchanged.
  returned: always
  type: str
  sample: 58 of 60 hosts are as they should be
"""
