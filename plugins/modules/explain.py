#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: explain
short_description: Say what was decided for a host, and why
version_added: "0.1.0"
author:
  - gb10-fleet contributors (@gb10-fleet)
description:
  - Returns the settings of each role with the place where each was set, the plan of the role, known problems,
    and the resources that follow. Changes nothing.
  - C(gb10 explain HOST [ROLE]) shows it.
options:
  roles:
    description: The roles to explain. All roles of the host if left out.
    type: list
    elements: str
extends_documentation_fragment: gb10.fleet.controller
attributes:
  action:
    description: Runs on the controller. It calls the host only where this run has no facts of it.
    support: full
"""

EXAMPLES = r"""
- name: Why does the driver role want this set
  gb10.fleet.explain:
    roles: [driver]
  register: gb10_explained

- name: Show it
  ansible.builtin.debug:
    var: gb10_explained.roles.driver
"""

RETURN = r"""
uncertain:
  description: Hosts of the cluster whose facts are not of this run. What depends on them may differ in a run of all.
  returned: always
  type: list
  elements: str
roles:
  description: Settings, plan, refusals and resources of each role.
  returned: always
  type: dict
  contains:
    settings:
      description: Each with name, value and origin. A secret is hidden.
      returned: always
      type: list
      elements: dict
    plan:
      description: What was decided, as M(gb10.fleet.plan) returns it. Null where no plan can be made.
      returned: always
      type: dict
    refusals:
      description: Known problems of the role's settings.
      returned: always
      type: list
      elements: str
    resources:
      description: What the role keeps true on the host. Long contents are told by their size.
      returned: always
      type: list
      elements: dict
    wishes:
      description: Units of the role that stand still because the operator said so, and until when.
      returned: always
      type: dict
      sample: {gb10-vllm.service: stopped by you until 07:00 CET}
"""
