#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin drift."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: drift
short_description: Find out on all hosts at once what differs from what was applied
version_added: "0.1.0"
description:
  - One task for all hosts of the play, whatever C(serial) or earlier failures left of them. Each host compares itself
    with its own manifest (C(/var/lib/gb10-fleet/manifest.json)). Nothing is rendered on the controller, and nothing is
    changed on a host.
  - Reaches a host as any task does (user, port, keys, jump host, host key checking, become), through Ansible's own ssh
    plugin, or on the spot where C(ansible_connection) is V(local). Where a host needs a password, for SSH or for sudo,
    Ansible's own connection types it, also within this one task. It may come from the inventory, with or without a
    vault, from a file (C(--become-password-file), C(--connection-password-file)), or from C(-k) and C(-K).
  - Writes C(drift/drift.json), C(drift/drifted.txt) and C(drift/silent.txt). The second is made for C(--limit) and has
    the whole clusters of the hosts that drifted, without clusters of which a host is silent. A list without hosts is
    removed, for Ansible takes an empty limit for all hosts.
  - Fails when a host drifted, has no manifest, did not see the end of its last run, or is silent.
options:
  path:
    description: Directory below which the directory C(drift) is written; relative to the current directory.
    type: path
    default: evidence
  concurrency:
    description: How many hosts are asked at the same time.
    type: int
    default: 50
  timeout_s:
    description: How long one host may take, in seconds, with all attempts to connect.
    type: int
    default: 60
  report_only:
    description: Do not fail, whatever is found.
    type: bool
    default: false
author:
  - gb10-fleet contributors (@gb10-fleet)
extends_documentation_fragment: [gb10.fleet.controller.scan, gb10.fleet.controller]
attributes:
  check_mode:
    description: Scans, but writes no file.
    support: full
seealso:
  - module: gb10.fleet.host_state
  - module: gb10.fleet.undo
"""

EXAMPLES = r"""
- name: Which hosts drifted?
  hosts: sparks
  gather_facts: false
  become: true
  tasks:
    - name: Scan all hosts, and fail where one differs
      gb10.fleet.drift:

- name: A report only, of many hosts on a big controller
  hosts: sparks
  gather_facts: false
  become: true
  tasks:
    - name: Scan all hosts
      gb10.fleet.drift:
        concurrency: 200
        report_only: true
      register: scan

    - name: Show what differs
      ansible.builtin.debug:
        msg: "{{ scan.msg.splitlines() }}"
      run_once: true
"""

RETURN = r"""
hosts:
  description: Every host of the play.
  returned: always
  type: dict
  sample:
    spark-a:
      state: drift
      changes:
        kernel_parameters:
          - {resource: "sysctl:net.core.rmem_max", action: update, detail: 212992 -> 16777216, consent: null}
      orphans: []
      silence: null
    spark-b:
      state: silent
      changes: {}
      orphans: []
      silence: {reason: timeout, text: no answer within 60 s, way_out: look whether the host is overloaded or hangs}
drifted:
  description: Hosts that differ from their manifest, have none, or did not see the end of their last run.
  returned: always
  type: list
  elements: str
silent:
  description:
    - Hosts of which nothing is known. The reason is V(unreachable), V(host_key), V(permission), V(no_sudo),
      V(timeout), V(garbled) or V(error).
  returned: always
  type: list
  elements: str
clean:
  description: How many hosts are as they should be.
  returned: always
  type: int
converge:
  description: The hosts of C(drifted.txt).
  returned: always
  type: list
  elements: str
schema_version:
  description: The version of the document, as C(drift/drift.json) has it.
  returned: always
  type: int
created:
  description: When the scan ended, in UTC.
  returned: always
  type: str
  sample: "2026-11-21T01:02:03Z"
seconds:
  description: How long it took.
  returned: always
  type: float
limit:
  description: The path of C(drifted.txt); none if there is nobody to converge, and in check mode.
  returned: always
  type: str
msg:
  description: What differs and who is silent, for a person to read.
  returned: always
  type: str
"""
