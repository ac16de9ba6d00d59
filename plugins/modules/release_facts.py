#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: release_facts
short_description: Read what a host says of its NVIDIA release
version_added: "0.1.0"
description:
  - Reads the vendor's recipes on the host, the firmware inventory of its SMBIOS table, what fwupd knows, the firmware
    of the ConnectX-7, and the packages that the recipes name.
  - It changes nothing, and runs no command that updates itself or apt's lists.
  - C(gb10 release) judges the answers of all hosts of a fleet.
options:
  cluster:
    description: The host's cluster, which is returned as it is.
    type: str
    default: ""
extends_documentation_fragment: gb10.fleet.reads
attributes:
  platform:
    description: Target operating systems.
    platforms: debian
    support: full
author:
  - gb10-fleet contributors (@gb10-fleet)
"""

EXAMPLES = r"""
- name: Read what the host says of its release
  gb10.fleet.release_facts:
  register: release

- name: Show its firmware
  ansible.builtin.debug:
    var: release.release.firmware
"""

RETURN = r"""
release:
  description:
    - C(recipes), each with C(file), C(sha256) and C(content); C(broken_recipes), files that are none; C(packages) and
      C(held), of the names that the recipes have; C(pinned_by_us), whether the pins of the role C(driver) are there;
      C(board_vendor); C(firmware), null where SMBIOS cannot be read; C(fwupd), null where it does not answer;
      C(connectx); C(kernel); C(driver), the loaded module; C(command_line); C(disks);
      C(reboot_required).
  returned: always
  type: dict
  sample:
    recipes: []
    packages: {nvidia-driver-580-open: 580.142-0ubuntu0.24.04.1}
    firmware: [{component: EC Firmware, version: 3.3.2}]
    connectx: [{device: mlx5_0, version: 28.45.4028}]
    kernel: 6.17.0-1014-nvidia
cluster:
  description: The cluster, as given.
  returned: always
  type: str
  sample: pair1
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gb10.fleet.plugins.module_utils.facts.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.releases.read import read_release


def main() -> None:
    module = AnsibleModule(  # type: ignore[no-untyped-call]
        argument_spec={
            "cluster": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    if os.geteuid() != 0:
        module.fail_json(msg="the firmware inventory of SMBIOS is for root to read: set become: true")
    found = read_release(HostReader())
    module.exit_json(changed=False, release=found, cluster=module.params["cluster"])


if __name__ == "__main__":
    main()
