#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin undo."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: undo
short_description: Put back what stood on a host before a role
version_added: "0.1.0"
description:
  - Reads the manifest of the host (C(/var/lib/gb10-fleet/manifest.json)) backwards. What a role created is removed,
    what it changed gets its former state, and packages that came along with one of its packages go with it.
  - Refuses, before anything is changed, where a resource no longer stands as it was left, and names what differs.
  - What another role still declares stays.
options:
  roles:
    description: The roles to take back, in any order. The order of work is the reverse of how they were applied.
    type: list
    elements: str
    default: []
  all:
    description: Take back everything. Either this or O(roles), so that an empty list takes back nothing.
    type: bool
    default: false
  rollout:
    description:
      - Only what came with this rollout of C(gb10). A role that stood on the host before it is refused, for the
        manifest does not know how it stood in between.
    type: str
    default: ""
  consents:
    description:
      - Consents by the name of the variable, for resources of your own documents. Those of the collection's roles,
        such as C(docker_allow_restart), are taken from the variables of the host.
    type: dict
    default: {}
author:
  - gb10-fleet contributors (@gb10-fleet)
extends_documentation_fragment: gb10.fleet.engine
attributes:
  diff_mode:
    description:
      - Shows the changes line by line, contents of secrets excepted.
        With C(diff) true on the task and no C(--diff), one line for each resource.
    support: full
seealso:
  - module: gb10.fleet.host_state
  - module: gb10.fleet.drift
"""

EXAMPLES = r"""
- name: Take the fabric back
  gb10.fleet.undo:
    roles: [fabric]
  become: true

- name: Take everything back
  gb10.fleet.undo:
    all: true
  become: true
"""

RETURN = r"""
changes:
  description: What was changed, in the order of work.
  returned: always
  type: list
  elements: dict
  contains:
    role:
      description: The role that had declared the resource.
      type: str
    resource:
      description: Kind and name.
      type: str
      sample: "file:/etc/sysctl.d/90-gb10-fabric.conf"
    action:
      description: What was done.
      type: str
      sample: remove
    detail:
      description: What differed.
      type: str
remains:
  description: What the packages that were removed leave on the host, and what the next start of vllm lacks.
  returned: when the host answered
  type: list
  elements: str
"""
