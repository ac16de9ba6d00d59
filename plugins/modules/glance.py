#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin glance."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: glance
short_description: Look at all hosts at once
version_added: "0.1.0"
description:
  - One task for all hosts of the play reads GPU, memory, rails and services of each, as C(gb10 status --hosts) and
    C(gb10 top) show them. Nothing is changed on a host, and nothing is kept there.
  - Reaches a host as any task does, through Ansible's own ssh plugin.
  - With O(pipe), each host is looked at over one connection that stays open until the reader of the pipe is gone. A
    host that needs a password for SSH or sudo is left out then.
options:
  every_s:
    description: Seconds from one look to the next, with O(pipe).
    type: float
    default: 2.0
  pipe:
    description: A named pipe for each look, as one line of JSON. Without it, each host is looked at once.
    type: path
  services:
    description:
      - Of each host only its services, as RV(gb10.fleet.spark_facts#module:services) has them. Not with O(pipe).
    type: bool
    default: false
  concurrency:
    description: How many hosts are asked at the same time, without O(pipe).
    type: int
    default: 50
  timeout_s:
    description: How long one host may take, in seconds, without O(pipe).
    type: int
    default: 30
author:
  - gb10-fleet contributors (@gb10-fleet)
extends_documentation_fragment: [gb10.fleet.controller.scan, gb10.fleet.controller]
seealso:
  - module: gb10.fleet.spark_facts
"""

EXAMPLES = r"""
- name: How are they?
  hosts: sparks
  gather_facts: false
  become: true
  tasks:
    - name: Look at all hosts
      gb10.fleet.glance:
      register: seen

    - name: Show the GPU's temperatures
      ansible.builtin.debug:
        msg: "{{ item.key }}: {{ item.value.looks[-1].reading.samples[-1].gpu.temperature_c }}"
      loop: "{{ seen.hosts | dict2items | rejectattr('value.silent') }}"
      run_once: true
"""

RETURN = r"""
hosts:
  description:
    - What each host said, without O(pipe). C(looks) are one or two, C(silent) is the reason where there is none.
    - With O(services), a host has C(services), or C(error), or C(silent), the finding of one
      that gave no answer.
    - C(reserved) is there where C(gb10_reserved) of the host holds now.
    - C(wall_w) is there where C(gb10_power_plug) of the host has a meter, and no other host has this plug.
    - A look has C(reading), as RV(gb10.fleet.spark_facts#module:health) with one sample, and C(services).
  returned: always
  type: dict
  sample:
    spark-a:
      looks: [{reading: {}, services: []}]
      silent: null
"""
