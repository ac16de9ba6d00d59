#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: release_update
short_description: Bring the parts of an NVIDIA release that are no host set
version_added: "0.1.0"
description:
  - Upgrades all packages but driver and kernel, and stages firmware by fwupd. A reboot applies the firmware.
  - It refuses where apt would exchange the driver or a kernel, or remove anything.
  - The role C(release_update) asks for consent, and decides which firmware.
options:
  packages:
    description: Bring the rest of the packages, after C(apt-get update).
    type: bool
    default: false
  guids:
    description: Stage the firmware of these devices, as fwupd offers it.
    type: list
    elements: str
    default: []
  release:
    description:
      - The release of NVIDIA's that the host is updated to. What the host was before is kept until another one is
        named; without a name until the next boot.
      - With O(leave) the one that is taken back. Where nothing was kept for it, the module fails.
    type: str
    default: ""
  leave:
    description:
      - The release of a kernel. Where it runs, GRUB boots the kernel of before the last update once, so that the set
        can move back. The module does not reboot.
      - Packages and firmware stay then, whatever the other options say.
    type: str
attributes:
  check_mode:
    description: Says what it would do, with the apt lists that are there.
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
- name: Bring the rest of the packages
  gb10.fleet.release_update:
    packages: true
    release: OTA2607
"""

RETURN = r"""
installs:
  description: The packages that came.
  returned: always
  type: list
  elements: str
  sample: [docker-ce]
staged:
  description: Whether firmware waits for the next boot.
  returned: always
  type: bool
  sample: false
boots:
  description: The kernel of the next boot, with O(leave); null where none is needed.
  returned: with O(leave)
  type: str
  sample: 6.17.0-1014-nvidia
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gb10.fleet.plugins.module_utils.releases import read, update
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError, System


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "packages": {"type": "bool", "default": False},
            "guids": {"type": "list", "elements": "str", "default": []},
            "release": {"type": "str", "default": ""},
            "leave": {"type": "str"},
        },
        supports_check_mode=True,
    )
    system, check = System(), module.check_mode
    installs: list[str] = []
    try:
        if module.params["leave"]:
            leave, release = module.params["leave"], module.params["release"]
            boots = update.boot_before(system, leave, release, check=check)
            module.exit_json(changed=boots is not None, installs=[], staged=False, boots=boots)
        if not check:
            update.keep(system, read.read_release(HostReader(system)), module.params["release"])
            system.forget()
        if module.params["packages"]:
            installs = update.packages(system, check=check)["installs"]
        staged = update.firmware(system, module.params["guids"], check=check)
    except HostError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=bool(installs or staged), installs=installs, staged=staged)


if __name__ == "__main__":
    main()
