#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin power_plug."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: power_plug
short_description: Read or switch the plug of a host
version_added: "0.1.0"
description:
  - The controller asks the plug that C(gb10_power_plug) of the host names, and switches it. The host itself is asked
    for nothing but whether it still answers.
  - It is a step of C(gb10 power), which halts a host before, and has all of it back after. Alone it cuts the power of a
    host that runs.
options:
  verb:
    description:
      - C(read) changes nothing.
      - C(halted) waits until the host gives no answer and its plug says that it takes no power, or, without a meter,
        until it gave none for long. A host that does not get there is a failure.
      - C(cut) switches the plug off, C(restore) switches it on.
    type: str
    choices: [read, halted, cut, restore]
    required: true
  sharing:
    description: How many hosts get their power through this plug; with C(halted), the power of all of them.
    type: int
    default: 1
attributes:
  check_mode:
    description: Says what would change, and switches nothing.
    support: full
extends_documentation_fragment: gb10.fleet.controller
author:
  - gb10-fleet contributors (@gb10-fleet)
"""

EXAMPLES = r"""
- name: What do they take?
  gb10.fleet.power_plug:
    verb: read
"""

RETURN = r"""
"on":
  description: Whether the plug is on now.
  returned: success
  type: bool
  sample: true
watts:
  description: The power that goes through it; null where it has no meter.
  returned: success
  type: float
  sample: 48.2
"""
