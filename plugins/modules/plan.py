#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: plan
short_description: Plan roles for a host, and refuse what would not work
version_added: "0.1.0"
author:
  - gb10-fleet contributors (@gb10-fleet)
description:
  - Decides for each role what the host is to get, from its settings, the facts of its cluster and the catalog.
    Changes nothing.
  - The hosts of a cluster need facts of this run, from M(gb10.fleet.spark_facts) or M(gb10.fleet.doctor). Facts of the
    host itself are read where they are missing.
  - Register it as C(gb10_plan); the roles of this collection read it under that name.
options:
  roles:
    description: The roles to plan. Besides those that a host gets, C(benchmark) and C(reboot) may be named.
    type: list
    elements: str
    required: true
  refuse:
    description: Fail the host where a role would not work. A plan that cannot be made fails it in any case.
    type: bool
    default: true
extends_documentation_fragment: gb10.fleet.controller
attributes:
  action:
    description: Runs on the controller. It calls the host only where this run has no facts of it.
    support: full
"""

EXAMPLES = r"""
- name: Plan the rails of the cluster
  gb10.fleet.plan:
    roles: [fabric]
  register: gb10_plan

- name: Show what was decided
  ansible.builtin.debug:
    var: gb10_plan.fabric
"""

RETURN = r"""
refusals:
  description: What would not work, a text for each, with the host, the fact and the fix.
  returned: always
  type: list
  elements: str
waits_for:
  description: Members of the cluster that failed earlier in this run, where nothing but their facts is missing.
  returned: always
  type: list
  elements: str
  sample: [spark-b]
lacks:
  description:
    - Variables that an operator has to set before all of it can be done, such as consents.
    - What the host says names only those that its documents ask for.
  returned: when it lacks one
  type: list
  elements: str
  sample: [docker_allow_restart]
fabric:
  description:
    - The plan of each role, under its name. C(plugins/plugin_utils/plans/) says what is in it; every plan has
      C(refusals) and C(findings), and holds no secret.
  returned: for each role of O(roles)
  type: dict
"""
