#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin notify."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: notify
short_description: Tell people of an event
version_added: "0.1.0"
author:
  - gb10-fleet contributors (@gb10-fleet)
description:
  - Hands an event to the command or URL in the variable C(gb10_notify), as JSON on the standard input of the command
    or in the body of a POST. Fails if the command fails, the URL answers with an error, or neither ends within 20 s.
  - The playbooks C(validate) and C(drift) and the command C(gb10 rollout) do this by themselves, and there a hook that
    fails is a warning. The playbook C(gb10.fleet.notify) is this task without an event, to try a hook.
options:
  event:
    description: What to tell. Without it, a test is sent, and C(gb10_notify) must be set.
    type: dict
attributes:
  action:
    description: Runs on the controller.
    support: full
  check_mode:
    description: Tells nobody.
    support: full
  diff_mode:
    description: There is nothing to compare.
    support: none
"""

EXAMPLES = r"""
- name: Try the hook
  gb10.fleet.notify:
  run_once: true
"""

RETURN = r"""
msg:
  description: V(told), or why nobody was told.
  returned: always
  type: str
"""
