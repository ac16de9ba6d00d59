#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: driver_coherence
short_description: Judge whether driver, kernel modules and the next kernel belong together
version_added: "0.1.0"
description:
  - Compares the driver's userland, the loaded module, and the module of every kernel that GRUB may boot next.
  - Asks for the open flavour, for the holds of the role C(driver), for pins that apt can read, and for candidates of
    branch 580 (C(apt-cache policy)).
  - It changes nothing, and an incoherent host is a result (RV(coherent=false)), not an error.
  - The role C(coherence) puts the same program on the host, where a timer runs it every hour.
options: {}
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
- name: Judge the driver
  gb10.fleet.driver_coherence:
  register: gate

- name: Go on only where the next boot has a GPU
  ansible.builtin.assert:
    that: gate.against_a_boot | length == 0
    fail_msg: "{{ gate.against_a_boot | map(attribute='fact') | join('; ') }}"
"""

RETURN = r"""
coherent:
  description: Whether nothing is wrong. A further kernel of GRUB's menu without the driver's module is not.
  returned: always
  type: bool
verdicts:
  description:
    - Named verdicts, worst first, each with C(id), C(severity) (V(error), V(warn), V(info)), C(fact) and C(way_out).
    - The ids are C(coherent), C(userland_newer), C(module_newer), C(next_kernel_without_module),
      C(next_kernel_other_module), C(next_kernel_incomplete), C(proprietary_flavour), C(module_not_loaded),
      C(module_rejected), C(hold_lost), C(invalid_pin), C(mixed_userland), C(candidate_not_580),
      C(candidates_unknown), C(pending_reboot), C(no_driver) and C(fallback_kernel_without_module).
  returned: always
  type: list
  elements: dict
  sample:
    - id: next_kernel_without_module
      severity: error
      fact: "GRUB boots 7.0.0-1025-nvidia next, which has no nvidia module: no GPU after that"
      way_out: install linux-modules-nvidia-580-open-7.0.0-1025-nvidia, or remove that kernel; do not reboot before
against_a_boot:
  description: Those of the verdicts because of which the next boot would fail or have no GPU.
  returned: always
  type: list
  elements: dict
  sample: []
kernel:
  description: The running kernel.
  returned: always
  type: str
  sample: 6.17.0-1014-nvidia
driver:
  description: What the verdicts follow from, as C(driver) of the facts of M(gb10.fleet.spark_facts).
  returned: always
  type: dict
  sample:
    userland: "580.142"
    module_on_disk: "580.142"
    module_loaded: "580.142"
    license: Dual MIT/GPL
    kernels:
      - {release: 6.17.0-1014-nvidia, module: "580.142", license: Dual MIT/GPL, flavour: open, listed: true}
    next_kernel: 6.17.0-1014-nvidia
    next_missing: []
    pins: []
    unheld: []
    secure_boot: false
    rejected: null
stdout_lines:
  description: The same for people.
  returned: always
  type: list
  elements: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gb10.fleet.plugins.module_utils.programs.coherence.main import read_gate


def main() -> None:
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    if os.geteuid() != 0:
        module.fail_json(msg="GRUB's menu and the manifest are for root to read: set become: true")
    try:
        said = read_gate()
    except OSError as error:
        module.fail_json(msg=f"{error}: packages need a Debian or Ubuntu host")
    lines = [f"{verdict['id']}: {verdict['fact']}" for verdict in said["verdicts"]]
    module.exit_json(changed=False, stdout_lines=lines, **said)


if __name__ == "__main__":
    main()
