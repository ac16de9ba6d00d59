#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin wish."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: wish
short_description: Have a service of a host stand still, for an evening or until it is started again
version_added: "0.1.0"
description:
  - Stops a unit that a role has put on the host, disables it, so that it stays stopped over a boot, and writes the wish
    into the host's manifest (C(/var/lib/gb10-fleet/manifest.json)). Later runs leave it stopped, and drift shows it
    without counting it as drift.
  - With O(end), a timer of systemd's on the host starts the unit again and removes itself. A host that is off at that
    time starts it at its next boot. A wish whose time is over does not count.
  - The state V(started) ends the wish with its timer, and starts the unit without waiting for it.
  - An undo of the role takes wish and timer away.
options:
  unit:
    description: The unit, as the role declares it.
    type: str
    required: true
  state:
    description: What it shall be.
    type: str
    choices: [stopped, started]
    required: true
  end:
    description:
      - When it starts again, by the clock of the host. A time of the day (V(07:00), the next one), a span (V(+2h),
        V(+1h30m), V(+1d)) or an ISO date with a time. Empty for no end.
    type: str
    default: ""
author:
  - gb10-fleet contributors (@gb10-fleet)
extends_documentation_fragment: gb10.fleet.engine
attributes:
  diff_mode:
    description: Shows the changes line by line.
    support: full
seealso:
  - module: gb10.fleet.spark_facts
  - module: gb10.fleet.drift
"""

EXAMPLES = r"""
- name: Have the memory for something else until tomorrow morning
  gb10.fleet.wish:
    unit: gb10-vllm.service
    state: stopped
    end: "07:00"
  become: true

- name: Start it now
  gb10.fleet.wish:
    unit: gb10-vllm.service
    state: started
  become: true
"""

RETURN = r"""
changes:
  description: What was changed, in the order of work.
  returned: always
  type: list
  elements: dict
wish:
  description: The wish, with its end in UTC and as the clock of the host shows it. Null where none is in force.
  returned: when the host answered
  type: dict
  sample:
    unit: gb10-vllm.service
    who: ada@laptop
    since: "2026-11-23T20:00:00Z"
    until: "2026-11-24T06:00:00Z"
    shown: 07:00 CET
"""
