#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin evidence."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: evidence
short_description: Judge what was measured and write it down as JSON and as a page
version_added: "0.1.0"
description:
  - Runs on the controller. Puts the measurements of all hosts together, judges every pairing against
    C(catalog/thresholds.yml), and writes C(evidence.json) and C(index.html) into a new directory named by the UTC time.
    The link C(latest) beside it points to the newest one.
  - Does not fail when something is wrong; let the playbook assert RV(verdict).
options:
  path:
    description: Directory that collects the evidence; relative to the current directory.
    type: path
    default: evidence
  hosts:
    description:
      - What the proof registered for each host, by inventory name. Only C(facts) is required.
      - "C(cluster) and C(topology): gb10_cluster and fabric_topology of the host."
      - "C(serves): whether the host is to serve a model (C(vllm) is in gb10_roles); true if it is not given."
      - "C(thresholds): fabric_thresholds of the host."
      - "C(facts): C(ansible_facts.gb10_spark)."
      - "C(findings): C(findings) of M(gb10.fleet.doctor)."
      - "C(profiles): C(hosts[name].profiles) of the fabric plan."
      - "C(gids): the result of M(gb10.fleet.show_gids)."
      - "C(heard): C(heard) of the result of M(gb10.fleet.rail_neighbours); without it, the host did not listen."
      - "C(pings): C(pings) of the result of M(gb10.fleet.rail_survey)."
      - "C(bandwidth): C(tests) of the results of M(gb10.fleet.ib_write_bw), of all rounds in one list."
      - "C(serving): the result of M(gb10.fleet.serving_probe), on the host that was asked."
      - "C(release): the section V(release) of M(gb10.fleet.spark_facts); judged with those of the other hosts."
    type: dict
    required: true
  meta:
    description: More to note down, such as the inventory's name; texts by name. Versions are added.
    type: dict
    default: {}
author:
  - gb10-fleet contributors (@gb10-fleet)
extends_documentation_fragment: gb10.fleet.controller
attributes:
  check_mode:
    description: Judges, but writes nothing.
    support: full
notes:
  - Use it with C(run_once=true) and C(delegate_to=localhost).
"""

EXAMPLES = r"""
- name: Write the evidence
  gb10.fleet.evidence:
    hosts: "{{ dict(ansible_play_hosts_all | zip(ansible_play_hosts_all | map('extract', hostvars, 'gb10_proof'))) }}"
    meta:
      inventory: "{{ inventory_file | default('') | basename }}"
  run_once: true
  delegate_to: localhost
  become: false
  register: gb10_evidence

- name: Require a healthy fleet
  ansible.builtin.assert:
    that: gb10_evidence.verdict == 'healthy'
    fail_msg: "{{ gb10_evidence.msg }}"
  run_once: true
"""

RETURN = r"""
verdict:
  description: V(healthy), V(unhealthy), or V(incomplete) when something was not measured.
  returned: always
  type: str
  sample: healthy
reasons:
  description: Why the verdict is not healthy, each with the way out.
  returned: always
  type: list
  elements: str
directory:
  description: The new directory; none in check mode.
  returned: always
  type: str
  sample: /srv/gb10/evidence/2026-11-21T013000Z
json:
  description: Path of the JSON document; none in check mode.
  returned: always
  type: str
page:
  description: Path of the page; none in check mode.
  returned: always
  type: str
msg:
  description: The verdict and its reasons, for a person to read.
  returned: always
  type: str
"""
