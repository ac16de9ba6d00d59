#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin drifted."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: drifted
short_description: Give each host the result of a scan for drift
version_added: "0.1.0"
description:
  - Takes what M(gb10.fleet.drift) found out of this host, and asks nobody.
  - Is ok for a clean host, and fails for a host that drifted, has no manifest, did not see the end of its last run, or
    gave no answer that can be read. A host that was not reached is unreachable.
options:
  record:
    description: This host of C(hosts) in the result of M(gb10.fleet.drift).
    type: raw
    required: true
author:
  - gb10-fleet contributors (@gb10-fleet)
extends_documentation_fragment: gb10.fleet.controller
seealso:
  - module: gb10.fleet.drift
"""

EXAMPLES = r"""
- name: Which hosts drifted?
  hosts: sparks
  gather_facts: false
  become: true
  tasks:
    - name: Scan all hosts
      gb10.fleet.drift:
        report_only: true
      register: scan

    - name: Fail the hosts that drifted, and no other
      gb10.fleet.drifted:
        record: "{{ scan.hosts[inventory_hostname] }}"
"""

RETURN = r"""
state:
  description: V(clean), V(drift), V(unfinished), V(no_manifest) or V(silent).
  returned: always
  type: str
  sample: drift
msg:
  description: What differs, one line for each resource, or why the host is silent.
  returned: always
  type: str
  sample: "spark-a  driver  hold:driver-set  update: to hold: libcuda"
"""
