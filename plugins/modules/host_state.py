#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin host_state."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: host_state
short_description: Bring one host to the state that documents describe
version_added: "0.1.0"
description:
  - Renders the documents of roles (C(roles/<role>/desired.yml) of this collection) or takes a list of resources, and
    sends them to the host in one call, as a program on the standard input of an isolated Python (C(python3 -I -S)).
  - There, one engine reads the whole state that they talk about in a few batches, plans, applies only what differs, and
    reads again - what still differs then is a failure.
  - Check mode runs the same code up to the plan, so what it reports is what a real run does.
  - Files are replaced as a whole or not at all, and C(systemctl daemon-reload), C(apt-get update) and restarts happen
    where they are due, so that a role needs no handlers.
  - A restart, an exchange of a package or a network change that needs the operator's consent and does not have it is
    reported in RV(pending) and as a warning; it is remembered until it has happened.
  - What is set is written down on the host with what stood there before (C(/var/lib/gb10-fleet/manifest.json)), for
    M(gb10.fleet.drift) and M(gb10.fleet.undo). A secret is kept as a digest.
  - The documents of roles are rendered from the facts of this run, or else from what the host said last time. Where
    those no longer hold, the engine touches nothing and says so, and a second call follows.
options:
  roles:
    description:
      - The roles of this collection whose documents the host gets, all in one call.
      - A role that refuses its host fails the task before anything is changed, with all refusals.
      - Exactly one of O(roles) and O(resources) is needed.
    type: list
    elements: str
  resources:
    description:
      - A list of the resources, each a dictionary with exactly one key that names its kind, and the attributes of that
        kind. An attribute that is null counts as not given.
      - No more is said of its type here, because an error of Ansible would show the value, which may be a secret.
      - 'C(file): an absolute path. C(content), or C(template) (a template of the role), or C(merge_json) (a dictionary
        to merge into the JSON object in the file, lists as a union) and C(default_json) (top-level keys to set where
        the object has none of that name, and none of the list C(default_unless)); C(state) C(present), C(absent),
        C(directory) or C(expected); C(owner), C(group), C(mode) (a quoted octal; of a directory or a JSON object that
        exists only what is stated is compared); C(validate) (the arguments of a command, with C(%s) for the name of the
        new file); C(secret), to show nothing of the content anywhere; C(with_files), true for a directory whose plain
        files belong to the role and go with it; C(with_all), for one where everything does. A link in the place of a
        file or directory is refused. C(expected) writes nothing: the file has to be there when everything above it is
        done, and C(otherwise) says what is wrong if it is not; C(contains) is text that an up-to-date one holds,
        C(written_by) the service that is restarted where it is missing or out of date, C(beforehand) that nothing above
        it brings it, so that it is refused before anything is changed.
        C(fingerprint), the 40 digits of an OpenPGP key, refuses a content that is not this key alone.'
      - 'C(package): a name. C(version) (exact); C(state) C(present) or C(absent); C(consent), the variable that allows
        to exchange or remove an installed version.'
      - 'C(hold): a package, or a name for a set with C(match) and C(except), regular expressions over the installed
        packages; C(free), those of them that must not be held; C(state) C(held) or C(free).'
      - 'C(unit): the full name of a systemd unit. C(enabled); C(state) C(started) or C(stopped); C(restart_on), a list
        of paths and C(package:NAME) of the document; C(reload_on), such a list of what the unit reads again at a
        reload, while it goes on with its work; C(at_next_start), paths of the document, or C(PATH#KEY) of an object in
        JSON, whose change restarts no unit that is up; C(consent), the variable that allows a restart; C(wait), false
        for a unit that is up only when other hosts are, so that only its start is awaited; C(resting), true for a unit
        in whose place another one runs at first, so that it stands still by a wish (M(gb10.fleet.wish)) until somebody
        starts it, or a run has it without C(resting), which is false for the one that runs at first; C(woken_by), a
        socket whose first request starts the unit, in place of C(state) - a wish closes the
        socket, too; C(probe), the arguments of a command that succeeds while what the running unit has set up still
        stands - where it fails, the unit is restarted.'
      - 'C(sysctl): a name. C(value); set live and in C(/etc/sysctl.d/90-gb10-ROLE.conf).'
      - 'C(kernel_module): a name; loaded now and by C(/etc/modules-load.d/gb10-ROLE.conf). C(state) C(present) or
        C(absent).'
      - 'C(account_group): a name. C(gid), which is never changed, C(state) C(present) or C(absent).'
      - 'C(account): the name of a user. C(uid), which is never changed; C(group), its own group; C(groups), all others,
        where null leaves them; C(shell); C(home), of a new one. C(state) C(present) or C(absent), which keeps the
        home.'
      - 'C(account_key): an account and a public SSH key, as C(alice ssh-ed25519 AAAA...). C(state) C(present) or
        C(absent).'
      - 'C(nm_profile): the name of a NetworkManager profile. C(uuid), C(interface), C(addresses) (IPv4 with prefix),
        C(mtu) (bytes), C(state) C(present) or C(absent), C(consent), the variable without which nothing of
        NetworkManager is touched; C(replace_foreign) to take the interface from a profile of somebody else; C(peers),
        addresses that must answer over it before a change is kept. A change is confirmed over a new connection, else it
        is taken back.'
    type: raw
  role:
    description:
      - The role that O(resources) belong to; part of the names of the files for sysctls and kernel modules.
      - A role has one document. What an earlier task declared for the same O(role) and this one does not is an orphan,
        so two tasks need two names.
      - The default is the role that is running.
    type: str
  consents:
    description:
      - What the operator allows, by the name of the variable.
      - The default is the value of each variable that a C(consent) names, and false where it is not set.
    type: dict
    default: {}
attributes:
  action:
    description: Runs partly on the controller.
    support: full
  check_mode:
    support: full
    description: Predicts exactly the changes of a real run.
  diff_mode:
    support: full
    description:
      - Shows the difference of every file that is not secret, and a line for every other change.
        With C(diff) true on the task and no C(--diff), one line for each resource, as the roles of the collection do.
  facts:
    support: full
    description: Sets C(gb10_spark) (and C(gb10_run)) as the host is after the run.
  platform:
    support: full
    description: Hosts with systemd and apt; NetworkManager only for nm_profile.
    platforms: debian
requirements:
  - root on the host
  - a connection that hands standard input on, as ssh and local do
notes:
  - The variable C(gb10_orphans) says what becomes of a resource that its role declares no longer, V(show) (a warning)
    or V(remove) (back to what stood there before).
seealso:
  - module: gb10.fleet.doctor
author:
  - gb10-fleet contributors (@gb10-fleet)
"""

EXAMPLES = r"""
- name: Docker and the container toolkit as the collection wants them
  gb10.fleet.host_state:
    roles: [docker, container_toolkit]
  become: true

- name: Docker writes its logs where they are rotated
  gb10.fleet.host_state:
    role: our_docker
    resources:
      - file: /etc/docker/daemon.json
        merge_json: {log-driver: local}
        validate: [dockerd, --validate, --config-file, "%s"]
      - unit: docker.service
        enabled: true
        state: started
        restart_on: [/etc/docker/daemon.json]
        consent: docker_allow_restart
  become: true

- name: Rails answer ARP only for their own addresses
  gb10.fleet.host_state:
    role: our_arp
    resources:
      - kernel_module: rdma_cm
      - sysctl: net.ipv4.conf.all.arp_ignore
        value: "1"
  become: true
"""

RETURN = r"""
changes:
  description: What was changed, or in check mode would be, in order.
  returned: when the host was called
  type: list
  elements: dict
  contains:
    role:
      description: The role that declares it.
      type: str
      sample: docker
    resource:
      description: Kind and name.
      type: str
      sample: file:/etc/docker/daemon.json
    action:
      description: What was done.
      type: str
      sample: update
    detail:
      description: What differed.
      type: str
      sample: mode 0600 -> 0644
pending:
  description: What waits for the operator's consent.
  returned: when the host was called
  type: list
  elements: dict
  contains:
    role:
      description: The role that declares it.
      type: str
      sample: docker
    resource:
      description: Kind and name.
      type: str
      sample: unit:docker.service
    action:
      description: What would be done.
      type: str
      sample: restart
    consent:
      description: The variable that allows it.
      type: str
      sample: docker_allow_restart
orphans:
  description: What one of the roles declared in an earlier run, and declares no longer.
  returned: when the host was called
  type: list
  elements: dict
  contains:
    role:
      description: The role that declared it.
      type: str
      sample: driver
    resource:
      description: Kind and name.
      type: str
      sample: file:/etc/apt/apt.conf.d/52gb10-driver
refusals:
  description: Why the documents are refused, one text for each reason, with host, fact and fix.
  returned: when a role refuses the host
  type: list
  elements: str
waits_for:
  description: Members of the cluster that failed earlier in this run, where nothing but their facts is missing.
  returned: when a role refuses the host
  type: list
  elements: str
  sample: [spark-b]
lacks:
  description:
    - Variables that an operator has to set before all of it can be done, such as consents.
    - What the host says names only those that its documents ask for.
  returned: when it lacks one
  type: list
  elements: str
  sample: [docker_allow_restart]
remote_calls:
  description: How often the host was called.
  returned: when the host was called
  type: int
  sample: 1
subprocesses:
  description: How many commands the engine started on the host, in the last call.
  returned: when the host was called
  type: int
  sample: 4
ansible_facts:
  description: The facts of the host after the run, as M(gb10.fleet.spark_facts) returns them.
  returned: when the host was called
  type: dict
  contains:
    gb10_run:
      description: The run that said so, for P(gb10.fleet.this_run#test); a fact cache may keep facts for later ones.
      type: str
      returned: always
    gb10_spark:
      description: All facts; docs/architecture/facts.md lists the keys.
      type: dict
      returned: always
"""
