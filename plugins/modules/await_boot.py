#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin await_boot."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: await_boot
short_description: Wait until a host has booted anew
version_added: "0.1.0"
description:
  - Asks the host for its boot id, over a new connection each time, until it is another one.
  - Says every minute how it stands.
  - It reboots nothing. The role C(reboot) does, with a timer of the host's own.
options:
  boot_id:
    description: The boot id from before the reboot, as in C(gb10_spark.boot_id).
    type: str
    required: true
  timeout:
    description: How long to wait, in seconds. A host that is not back by then is a failure.
    type: int
    required: true
extends_documentation_fragment: gb10.fleet.reads
author:
  - gb10-fleet contributors (@gb10-fleet)
"""

EXAMPLES = r"""
- name: Wait for the next boot
  gb10.fleet.await_boot:
    boot_id: "{{ ansible_facts['gb10_spark'].boot_id }}"
    timeout: 1800
"""

RETURN = r"""
boot_id:
  description: The boot id that the host answered last; null if it did not answer.
  returned: always
  type: str
  sample: 5b0a0a44-6a51-4b21-9a3c-2f60c3d0a001
elapsed:
  description: How long that took, in seconds.
  returned: always
  type: int
  sample: 74
answered_s:
  description: When it answered, in seconds since 1970 by the controller's clock.
  returned: success
  type: float
  sample: 1795420800.5
"""
