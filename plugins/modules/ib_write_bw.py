#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: ib_write_bw
short_description: Measure RoCE bandwidth, one end of it
version_added: "0.1.0"
description:
  - Runs the ends that this host has in one round of bandwidth tests with perftest's C(ib_write_bw), all at once.
  - The other ends run on other hosts. Run the same task on all hosts of a round (strategy linear), so that both ends
    are alive together. A server waits until its client came, a client tries until its server listens.
  - Whatever happens, no process is left behind, also when the module itself is killed. A measurement that fails is a
    result with a name and a way out. The module fails on wrong arguments, and on such a result where O(fail_on_fault)
    says so.
  - Of each end that worked, perftest's C(ib_write_lat) then measures the latency over the same rail. It is a reading
    beside the bandwidth, and no fault where it has no figure.
  - The text table of perftest is what is read. Its JSON is compared with it where it is valid (from 24.01 on).
options:
  tests:
    description: The ends to run, as M(gb10.fleet.plan) gives them for this host in C(fabric.rounds).
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the test, equal on both ends.
        type: str
        required: true
      end:
        description: Which end this host is.
        type: str
        choices: [server, client]
        required: true
      device:
        description: RDMA device of the rail, for example V(rocep1s0f0).
        type: str
        required: true
      address:
        description: IPv4 address of the rail. The index of its RoCE v2 GID is looked up in sysfs.
        type: str
        required: true
      peer:
        description:
          - IPv4 address of the rail at the other end. A client connects to it; both ends verify it. The own address is
            refused, for a test with itself proves no link.
        type: str
        required: true
      port:
        description: TCP port on which the two ends meet.
        type: int
        required: true
      qps:
        description: Number of queue pairs.
        type: int
        default: 4
      message_bytes:
        description: Size of one message in bytes. Its claim C(large_messages_fail) stands in C(catalog/thresholds.yml).
        type: int
        default: 65536
      duration_s:
        description: Duration of the test in seconds. perftest samples its middle half.
        type: int
        default: 10
      qp_timeout:
        description: A lost packet is missed after 4.096 us times two to the power of this, and sent again seven times.
        type: int
        default: 14
  pairing_timeout_s:
    description: For how many seconds an end waits for the other one.
    type: int
    default: 60
  deadline_s:
    description:
      - After how many seconds every test is ended, whatever it does. A test that has met its peer is ended 60 s after
        its duration at the latest.
    type: int
    default: 180
  fail_on_fault:
    description: Whether a measurement that fails fails the task, too, for example of an ad-hoc call.
    type: bool
    default: false
extends_documentation_fragment: gb10.fleet.reads
attributes:
  check_mode:
    description: Runs nothing and returns the commands that would run.
    support: full
notes:
  - Needs perftest on both hosts, best in the same version, and root (or unlimited memlock). Understands perftest 4.5,
    24.01 and 25.01.
  - One end listens on the TCP port of its tests on all addresses for the time of the test.
author:
  - gb10-fleet contributors (@gb10-fleet)
"""

EXAMPLES = r"""
- name: Measure one round on all of its hosts at once
  gb10.fleet.ib_write_bw:
    tests: "{{ round[inventory_hostname] | default([]) }}"
  register: bandwidth

# Both ends run at the same time, so they are one task of one play for the two hosts.
- name: Measure one rail by hand
  gb10.fleet.ib_write_bw:
    tests:
      - name: first rail
        end: "{{ 'server' if inventory_hostname == 'spark-a' else 'client' }}"
        device: rocep1s0f0
        address: "{{ rail[inventory_hostname] }}"
        peer: "{{ rail['spark-b' if inventory_hostname == 'spark-a' else 'spark-a'] }}"
        port: 18515
  vars:
    rail: {spark-a: 192.168.100.10, spark-b: 192.168.100.11}
  register: measured
"""

RETURN = r"""
version:
  description: The version perftest gives itself, for example 6.20 for package version 24.01.
  returned: always
  type: str
tests:
  description:
    - One result for each test, in order, with its arguments, C(state) (V(ok), V(failed), or V(planned) in check mode),
      C(perftest) (the version), C(command), C(attempts), C(listening_after_s), C(output) (its end, if
      the test failed), C(latency_us) (half a round trip of 2 bytes in us, the median; null where it was not measured),
      C(counters) (of the HCA's port those that are not 0, by the driver's name, each read before
      and after the test), and
    - C(figures), where C(gbps) is in Gb/s and C(gbytes_per_s) in GB/s (both decimal), C(mtu) is the RoCE path MTU, and
      the addresses are those of the GIDs that perftest used, or
    - C(fault) with C(name), C(text) and C(way_out). Names are V(missing_package), V(no_rdma), V(no_device), V(no_gid),
      V(mixed_libraries), V(no_access), V(port_down), V(port_busy), V(gid_family), V(gid_unroutable),
      V(mtu_mismatch) (the one fault with figures), V(retry_exceeded) (IBV_WC_RETRY_EXC_ERR), the other statuses of a
      failed transfer by the names of libibverbs (V(wr_flush_err), V(rem_access_err), V(rem_op_err),
      V(rnr_retry_exc_err), V(loc_prot_err), V(fatal_err) and so on) or V(completion_error) where the status is none of
      these, V(memlock), V(resolve), V(refused), V(unreachable), V(no_client), V(not_listening), V(peer_died), V(died),
      V(timeout), V(version_mismatch), V(wrong_path), V(no_report), V(unreadable),
      V(other_test) (a sweep of sizes, or both directions at once) and V(failed).
  returned: always
  type: list
  elements: dict
  sample:
    - name: "spark-a:p0--spark-b:p0/0"
      end: client
      state: ok
      fault: null
      perftest: "6.20"
      figures:
        gbps: 97.51
        gbytes_per_s: 12.189
        qps: 4
        message_bytes: 65536
        iterations: 1859840
        mtu: 4096
        gid_index: 3
        device: rocep1s0f0
        link_type: Ethernet
        local_address: 192.168.100.11
        remote_address: 192.168.100.10
      latency_us: 1.47
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gb10.fleet.plugins.module_utils.fabric import gids, perftest_ends
from ansible_collections.gb10.fleet.plugins.module_utils.system import arguments
from ansible_collections.gb10.fleet.plugins.module_utils.system.children import StuckError

TEST = {
    "name": {"type": "str", "required": True},
    "end": {"type": "str", "choices": ["server", "client"], "required": True},
    "device": {"type": "str", "required": True},
    "address": {"type": "str", "required": True},
    "peer": {"type": "str", "required": True},
    "port": {"type": "int", "required": True},
    "qps": {"type": "int", "default": 4},
    "message_bytes": {"type": "int", "default": 65536},
    "duration_s": {"type": "int", "default": 10},
    "qp_timeout": {"type": "int", "default": 14},
}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "tests": {"type": "list", "elements": "dict", "options": TEST, "required": True},
            "pairing_timeout_s": {"type": "int", "default": arguments.PAIRING_TIMEOUT_S},
            "deadline_s": {"type": "int", "default": arguments.DEADLINE_S},
            "fail_on_fault": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    limits = {name: module.params[name] for name in ("pairing_timeout_s", "deadline_s")}
    try:
        tests = perftest_ends.parse_tests(module.params["tests"], **limits)
    except ValueError as error:
        module.fail_json(msg=str(error))
    hcas = gids.read_hcas(gids.Sysfs())
    if module.check_mode:
        module.exit_json(changed=False, version=None, tests=perftest_ends.planned(tests, hcas))
    executable, latency = module.get_bin_path("ib_write_bw"), module.get_bin_path("ib_write_lat")
    try:
        version, results = perftest_ends.run_ends(tests, hcas, executable=executable, latency=latency, **limits)
    except StuckError as error:
        module.fail_json(msg=str(error))
    faults = perftest_ends.told(results) if module.params["fail_on_fault"] else ""
    if faults:
        module.fail_json(msg=faults, version=version, tests=results)
    module.exit_json(changed=False, version=version, tests=results)


if __name__ == "__main__":
    main()
