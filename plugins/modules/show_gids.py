#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: show_gids
short_description: Show the GID tables of all RDMA devices
version_added: "0.1.0"
description:
  - Reads every port and GID slot of every RDMA device from sysfs in one pass, and the subnets of their interfaces from
    C(/proc/net/route). It runs no command and changes nothing.
  - Says which GID NCCL would choose by itself, at which index each address stands, and what looks suspicious.
  - What the kernel does not say is null (V(absent) in the table), never a guess. In a container with a network
    namespace of its own that is the type and the netdev of slots that belong to other namespaces.
  - A host without RDMA devices is a result (C(present=false)), not an error.
options:
  address_range:
    description:
      - IPv4 network, such as V(192.168.100.0/23), that holds all rails. The GID that NCCL chooses with
        E(NCCL_IB_ADDR_RANGE) set to it is reported as RV(selected) C(in_range).
    type: str
  rails:
    description:
      - The rails as they are declared, an IPv4 address for each network interface. RV(rails) says at which index the
        address of each stands, and whether NCCL comes to the same GID.
    type: dict
    default: {}
  sysfs_root:
    description: Where sysfs is mounted.
    type: path
    default: /sys
extends_documentation_fragment: gb10.fleet.reads
author:
  - gb10-fleet contributors (@gb10-fleet)
"""

EXAMPLES = r"""
- name: Read the GID tables
  gb10.fleet.show_gids:
    address_range: 192.168.100.0/23
    rails:
      enp1s0f0np0: 192.168.100.10
      enP2p1s0f0np0: 192.168.101.10
  register: gids

- name: Require that NCCL finds the rail address by itself
  ansible.builtin.assert:
    that: gids.rails | rejectattr('agrees') | length == 0

- name: Show the table to a person
  ansible.builtin.debug:
    var: gids.stdout_lines
"""

RETURN = r"""
present:
  description: Whether the host has an RDMA device at all.
  returned: always
  type: bool
ports:
  description:
    - One entry for each port of each RDMA device. Absent values are null. C(rate_gbps) is in Gb/s, C(speed_mbps) in
      Mb/s, C(mtu) (of the netdev) and C(ib_mtu) (the RoCE path MTU that fits into it) in bytes, C(pcie_width) in lanes.
    - C(port_name) is the physical port, C(rail) its name and the place of this function among the twins behind it,
      C(twin) the device of the other function. C(member) and C(master) are its netdev and the bond or bridge that has
      taken it, null as a rule.
  returned: always
  type: list
  elements: dict
  sample:
    - device: rocep1s0f0
      port: 1
      netdev: enp1s0f0np0
      port_name: p0
      rail: p0/0
      twin: roceP2p1s0f0
      state: ACTIVE
      rate_gbps: 200.0
      mtu: 9000
      ib_mtu: 4096
      pcie_speed: 32.0 GT/s PCIe
      pcie_max_speed: 32.0 GT/s PCIe
      pcie_width: 4
      pcie_max_width: 4
      fw_ver: 28.45.4028
      addresses: [192.168.100.10]
      subnets: [192.168.100.0/24]
gids:
  description: Used slots in numeric order. C(scope) is V(default) for the EUI-64 GID of the port, V(link) or V(global).
  returned: always
  type: list
  elements: dict
  sample:
    - device: rocep1s0f0
      port: 1
      index: 3
      gid: "0000:0000:0000:0000:0000:ffff:c0a8:640a"
      address: 192.168.100.10
      ipv4: 192.168.100.10
      roce_version: 2
      netdev: enp1s0f0np0
      scope: global
twins:
  description: The functions (rails) behind each physical port, in twin order.
  returned: always
  type: list
  elements: dict
  sample:
    - {port: p0, devices: [rocep1s0f0, roceP2p1s0f0], netdevs: [enp1s0f0np0, enP2p1s0f0np0]}
selected:
  description: For each C(device:port), what NCCL would choose with and without O(address_range).
  returned: always
  type: dict
  sample:
    "rocep1s0f0:1":
      default: {index: 3, address: 192.168.100.10, roce_version: 2, reason: "lowest IPv4 GID, RoCE v2"}
      in_range: null
rails:
  description:
    - For each of O(rails), C(device), C(port) and C(index) of its RoCE v2 GID, C(nccl_index) that NCCL takes on that
      port (in O(address_range), if given), and whether the two agree. Absent values are null.
  returned: always
  type: list
  elements: dict
  sample:
    - netdev: enp1s0f0np0
      address: 192.168.100.10
      device: rocep1s0f0
      port: 1
      index: 3
      nccl_index: 3
      agrees: true
by_address:
  description: For each IPv4 address, device, port and index of its RoCE v1 and v2 GIDs.
  returned: always
  type: dict
  sample:
    192.168.100.10:
      v2: {device: rocep1s0f0, port: 1, index: 3}
remarks:
  description:
    - What a person should know before trusting an index, the warnings (a name that Ansible keeps for its own).
    - Names are V(no_ipv4), V(link_local_picked) (169.254/16), V(roce_v1_picked), V(several_addresses),
      V(other_namespace), V(narrow_pcie), V(slow_pcie), V(shared_subnet) (twins in one subnet) and, of O(rails),
      V(rail_absent), V(port_down), V(address_absent), V(address_elsewhere) and V(other_picked); V(has_master) is a
      port that a bond or bridge has taken.
  returned: always
  type: list
  elements: dict
  sample:
    - name: link_local_picked
      where: rocep1s0f0 port 1 (enp1s0f0np0)
      text: NCCL would pick 169.254.7.8 (index 3), a link-local address
      way_out: set NCCL_IB_ADDR_RANGE to the subnets of the rails
stdout_lines:
  description: The same as tables for people, in the order of the classic tool, then the remarks.
  returned: always
  type: list
  elements: str
"""

import ipaddress
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gb10.fleet.plugins.module_utils.fabric import gid_remarks, gid_report, gids

ROUTES = Path("/proc/net/route")


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "address_range": {"type": "str"},
            "rails": {"type": "dict", "default": {}},
            "sysfs_root": {"type": "path", "default": "/sys"},
        },
        supports_check_mode=True,
    )
    address_range = module.params["address_range"]
    try:
        if address_range:
            ipaddress.IPv4Network(address_range)
    except ValueError as error:
        module.fail_json(
            msg=f"address_range {address_range!r} is not an IPv4 network such as 192.168.100.0/23: {error}"
        )
    try:
        rails = gid_remarks.parse_rails(module.params["rails"])
    except ValueError as error:
        module.fail_json(msg=str(error))
    try:
        routes = ROUTES.read_text(encoding="ascii", errors="replace")
    except OSError:
        routes = ""  # a kernel without it: prefixes are then assumed
    hcas = gids.read_hcas(gids.Sysfs(module.params["sysfs_root"]), routes)
    module.exit_json(changed=False, **gid_report.describe(hcas, address_range, rails))


if __name__ == "__main__":
    main()
