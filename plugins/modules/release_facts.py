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
  plan:
    description:
      - Ask apt what it would do on the way to a release, and return that too. Everything is simulated with the lists
        that the host has.
      - C(to), the name of a release, or V(newest) of the host's own recipes; C(branch) of the driver; C(releases), the
        host set of each release by name; C(sets), the host sets by name.
      - C(gb10 release plan) fills it from its catalog.
    type: dict
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
before:
  description: The same before the last M(gb10.fleet.release_update), without recipes; null where there was none.
  returned: always
  type: dict
cluster:
  description: The cluster, as given.
  returned: always
  type: str
  sample: pair1
rehearsal:
  description:
    - C(release) and C(set), what was asked; C(set_move) and C(rest), each with C(installs), C(removes), C(error),
      C(download_bytes) and C(disk_bytes) as apt simulates them; C(offers_back), whether a source still has the
      driver that is installed; C(lists_age_s).
  returned: when O(plan) is given
  type: dict
  sample:
    release: OTA2607
    set: ubuntu24.04-580.159.03-6.17.0-1022
    rest: {installs: {docker-ce: "5:29.6.2"}, removes: [], error: "", download_bytes: 91, disk_bytes: 4096}
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gb10.fleet.plugins.module_utils.releases.read import read_release
from ansible_collections.gb10.fleet.plugins.module_utils.releases.rehearse import rehearse
from ansible_collections.gb10.fleet.plugins.module_utils.releases.update import kept
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "cluster": {"type": "str", "default": ""},
            "plan": {"type": "dict"},
        },
        supports_check_mode=True,
    )
    if os.geteuid() != 0:
        module.fail_json(msg="the firmware inventory of SMBIOS is for root to read: set become: true")
    host = HostReader()
    found = read_release(host)
    asked = module.params["plan"]
    more = {"rehearsal": rehearse(host, found["recipes"], asked)} if asked else {}
    module.exit_json(changed=False, release=found, before=kept(host.system), cluster=module.params["cluster"], **more)


if __name__ == "__main__":
    main()
