#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: trial_boot
short_description: Let a kernel boot once, and come back unless it is proven
version_added: "0.1.0"
description:
  - Sets GRUB's entry for a single boot. Until O(action=promote), every other boot takes the old kernel, and a timer of
    the host's own reboots into it.
  - It reboots nothing itself, except with O(action=back). The role C(trial_boot) does the whole.
options:
  action:
    description:
      - V(arm) prepares the way back and sets the entry. V(promote) keeps the kernel that runs on trial.
      - V(back) starts the host's own way back now. V(settle) ends a trial on the kernel of before.
      - V(status) changes nothing.
    type: str
    choices: [arm, promote, back, settle, status]
    required: true
  kernel:
    description: The release of the kernel to try. For O(action=arm).
    type: str
  deadline:
    description: After so many seconds since its boot a kernel that nobody has proven is given up. For O(action=arm).
    type: int
  watchdog:
    description: A system that hangs for so many seconds is reset. For O(action=arm).
    type: int
  panic:
    description: A kernel that panics reboots after so many seconds. For O(action=arm).
    type: int
  parameters:
    description:
      - What kernels must be started with, each with C(kernel), the start of a release, C(parameter) and C(reason).
      - For O(action=arm).
    type: list
    elements: dict
    default: []
  allow_saved:
    description: Consent to GRUB_DEFAULT=saved, by which the old kernel is the default. For O(action=arm).
    type: bool
    default: false
attributes:
  check_mode:
    description: Says what it would do, and refuses what it would refuse.
    support: full
  diff_mode:
    description: Shows what changes.
    support: none
  platform:
    description: Target operating systems.
    platforms: debian
    support: full
author:
  - gb10-fleet contributors (@gb10-fleet)
"""

EXAMPLES = r"""
- name: Let the new kernel boot once
  gb10.fleet.trial_boot:
    action: arm
    kernel: 6.17.0-1032-nvidia
    deadline: 900
    watchdog: 180
    panic: 60
    allow_saved: true

- name: Keep it
  gb10.fleet.trial_boot:
    action: promote
"""

RETURN = r"""
trial:
  description:
    - C(kernel), C(back), the one of before, and C(running). C(state) is V(none), V(armed), V(promoted) or
      V(reverting). C(outcome) is V(not_proven) or V(came_back) after a return by itself.
    - After O(action=arm) also C(back_has_gpu), whether the old kernel fits the installed driver, and C(watchdog).
    - After O(action=promote) and O(action=settle) also C(default), how GRUB finds its kernel from now on.
  returned: always
  type: dict
  sample:
    kernel: 6.17.0-1032-nvidia
    back: 6.17.0-1014-nvidia
    back_has_gpu: true
"""

from collections.abc import Callable
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gb10.fleet.plugins.module_utils.releases import trial
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError, System

_ENDS: dict[str, Callable[[System], dict[str, Any]]] = {
    "promote": trial.promote,
    "back": trial.go_back,
    "settle": trial.settle,
}


def acted(system: System, asked: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """HostError where it cannot be done."""
    if asked["action"] == "arm":
        wanted = trial.Trial(
            str(asked["kernel"]),
            asked["deadline"],
            asked["watchdog"],
            asked["panic"],
            asked["parameters"],
            asked["allow_saved"],
        )
        if check and (why := trial.refusals(system, wanted)):
            raise HostError("; ".join(why))
        return trial.status(system) if check else trial.arm(system, wanted)
    act = trial.status if check else _ENDS.get(asked["action"], trial.status)
    return act(system)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "action": {"type": "str", "required": True, "choices": ["arm", "promote", "back", "settle", "status"]},
            "kernel": {"type": "str"},
            "deadline": {"type": "int"},
            "watchdog": {"type": "int"},
            "panic": {"type": "int"},
            "parameters": {"type": "list", "elements": "dict", "default": []},
            "allow_saved": {"type": "bool", "default": False},
        },
        required_if=[("action", "arm", ("kernel", "deadline", "watchdog", "panic"))],
        supports_check_mode=True,
    )
    try:
        found = acted(System(), module.params, check=module.check_mode)
    except HostError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=module.params["action"] != "status", trial=found)


if __name__ == "__main__":
    main()
