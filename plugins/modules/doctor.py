#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin doctor."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: doctor
short_description: Say what would block a host, before anything is changed
version_added: "0.1.0"
description:
  - Looks at the host in one call that changes nothing, and judges its facts, the inventory's variables and the cluster.
  - The same call plans the documents of all roles of the host (the variable C(gb10_roles)) - what would change is in
    C(ansible_facts.gb10_probe), and what a role refuses is a finding with the id C(<role>_refused). What follows from
    the facts of the other hosts of a cluster is refused by M(gb10.fleet.host_state), which knows them.
  - Fails the host when a finding of severity error is not accepted. A host that gives no answer is unreachable, as it
    is to Ansible; with C(any_errors_fatal) either stops the whole run.
  - The variable C(gb10_accept) (a mapping of finding id to written reason) accepts findings.
    C(unreachable), C(host_key), C(permission), C(unreadable), C(no_sudo), C(bad_variable), C(no_driver),
    C(driver_branch), C(no_rdma), C(no_rail), C(cluster_members), C(state_refused) and what a role
    refuses cannot be accepted.
  - The variable C(gb10_minimum_free_gib) (a mapping of path to GiB) replaces the minimum free disk of the catalog.
options:
  refuse:
    description:
      - Whether an error that is not accepted fails the host. A refusal returns only RV(findings) that block.
      - V(false) only reports, as a proof wants it that has to be written for a sick host too.
    type: bool
    default: true
  judged:
    description:
      - The result of M(gb10.fleet.probe) for this host. It becomes the result, and the host is not asked. Of a refusal,
        V(findings) are in the result of the probe only.
    type: raw
author:
  - gb10-fleet contributors (@gb10-fleet)
extends_documentation_fragment: gb10.fleet.controller
attributes:
  action:
    description: Runs partly on the controller.
    support: full
  facts:
    description: Sets C(gb10_spark), C(gb10_run) and C(gb10_probe), unless the host is refused.
    support: full
  platform:
    description: Target OS of the action.
    support: full
    platforms: linux
notes:
  - Use it with C(become=true) and C(any_errors_fatal=true).
seealso:
  - module: gb10.fleet.probe
  - module: gb10.fleet.spark_facts
  - module: gb10.fleet.host_state
"""

EXAMPLES = r"""
- name: Refuse before the first change
  hosts: sparks
  gather_facts: false
  become: true
  any_errors_fatal: true
  tasks:
    - name: Say what each host is and what would block
      gb10.fleet.doctor:
      register: gb10_doctor
"""

RETURN = r"""
findings:
  description: What there is to say about the host; empty for a host without remarks.
  returned: always, but for a refusal by the option judged
  type: list
  elements: dict
  contains:
    id:
      description: Stable name of the kind of finding.
      type: str
      returned: always
      sample: no_carrier
    severity:
      description: V(error), V(warn) or V(info).
      type: str
      returned: always
      sample: error
    host:
      description: The host in question.
      type: str
      returned: always
      sample: spark-a
    fact:
      description: What was found.
      type: str
      returned: always
      sample: no carrier on port p0 (enp1s0f0np0, enP2p1s0f0np0)
    way_out:
      description: What to do about it.
      type: str
      returned: always
      sample: "check the cable between spark-a p0 and spark-b p0: seated on both ends, the other end powered on"
    accepted:
      description: The operator's reason, V(none) when it is not accepted.
      type: str
      returned: always
      sample: null
lacks:
  description:
    - Variables that an operator has to set before all of it can be done, such as consents.
    - What the host says names only those that its documents ask for.
  returned: when it lacks one
  type: list
  elements: str
  sample: [docker_allow_restart]
msg:
  description: The refusal with one line per blocking finding, or a one-line summary.
  returned: always
  type: str
  sample: "spark-a: nothing blocks (1 warnings, 0 accepted)"
ansible_facts:
  description: Facts to add to the host.
  returned: when the host could be read and is not refused
  type: dict
  contains:
    gb10_run:
      description: The run that read them, for P(gb10.fleet.this_run#test); a fact cache may keep facts for later ones.
      type: str
      returned: always
    gb10_spark:
      description: All facts, as M(gb10.fleet.spark_facts) returns them; docs/architecture/facts.md lists the keys.
      type: dict
      returned: always
    gb10_probe:
      description: What the documents of the roles would change.
      type: dict
      returned: always
      contains:
        run:
          description: The run that looked, as P(gb10.fleet.this_run#test) knows it.
          type: str
          returned: always
        unchanged:
          description: Whether there is nothing to do, and the documents were made from facts that hold.
          type: bool
          returned: always
        loading:
          description: Whether the model of the host still loads.
          type: bool
          returned: always
        changes:
          description: What would be changed, as M(gb10.fleet.host_state) returns it.
          type: list
          elements: dict
          returned: always
        pending:
          description: What waits for consent, as M(gb10.fleet.host_state) returns it.
          type: list
          elements: dict
          returned: always
        orphans:
          description: What roles declare no longer, as M(gb10.fleet.host_state) returns it.
          type: list
          elements: dict
          returned: always
"""
