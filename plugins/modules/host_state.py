#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: host_state
short_description: Bring one host to the state that a document describes
version_added: "0.1.0"
description:
  - Reads the whole state that the document talks about in a few batches, plans, applies only what differs, in the order
    of the document, and reads again - what still differs then is a failure.
  - Check mode runs the same code up to the plan, so what it reports is what a real run does.
  - Files are replaced as a whole or not at all, and C(systemctl daemon-reload), C(apt-get update) and restarts happen
    where they are due, so that a role needs no handlers.
  - A restart, an exchange of a package or a network change that needs the operator's consent and does not have it is
    reported in RV(pending) and as a warning; it is remembered until it has happened.
options:
  resources:
    description:
      - The resources, each a dictionary with exactly one key that names its kind, and the attributes of that kind.
        An attribute that is null counts as not given.
      - 'C(file): an absolute path. C(content), or C(template) (a template of the role), or C(merge_json) (a dictionary
        to merge into the JSON object in the file, lists as a union) and C(default_json) (top-level keys to set where
        the object has none of that name); C(state) C(present), C(absent) or C(directory); C(owner), C(group), C(mode)
        (a quoted octal; of a directory that exists only what is stated is compared); C(validate) (the arguments of a
        command, with C(%s) for the name of the new file); C(secret), to show nothing of the content anywhere. A link
        in the place of a file or directory is refused.'
      - 'C(package): a name. C(version) (exact); C(state) C(present) or C(absent); C(consent), the variable that allows
        to exchange or remove an installed version.'
      - 'C(hold): a package, or a name for a set with C(match) and C(except), regular expressions over the installed
        packages; C(state) C(held) or C(free).'
      - 'C(unit): the full name of a systemd unit. C(enabled); C(state) C(started) or C(stopped); C(restart_on), a list
        of paths and C(package:NAME) of the document; C(consent), the variable that allows a restart.'
      - 'C(sysctl): a name. C(value); set live and in C(/etc/sysctl.d/90-gb10-ROLE.conf).'
      - 'C(kernel_module): a name; loaded now and by C(/etc/modules-load.d/gb10-ROLE.conf).'
      - 'C(nm_profile): the name of a NetworkManager profile. C(uuid), C(interface), C(addresses) (IPv4 with prefix),
        C(mtu) (bytes), C(consent), the variable without which nothing of NetworkManager is touched;
        C(replace_foreign) to take the interface from a profile of somebody else.'
    type: list
    elements: dict
    required: true
  role:
    description:
      - The role that the document belongs to; part of the names of the files for sysctls and kernel modules.
      - The default is the role that is running.
    type: str
  consents:
    description:
      - What the operator allows, by the name of the variable.
      - The default is the value of each variable that a C(consent) names, and false where it is not set.
    type: dict
    default: {}
attributes:
  check_mode:
    support: full
    description: Predicts exactly the changes of a real run.
  diff_mode:
    support: full
    description: Shows the difference of every file that is not secret, and a line for every other change.
  platform:
    support: full
    platforms: debian
    description: Hosts with systemd and apt; NetworkManager only for nm_profile.
requirements:
  - root on the host
author:
  - gb10-fleet contributors (@gb10-fleet)
"""

EXAMPLES = r"""
- name: Docker writes its logs where they are rotated
  gb10.fleet.host_state:
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

- name: The driver stays where it is
  gb10.fleet.host_state:
    resources:
      - hold: driver-set
        match: ["^(lib)?nvidia-.*580"]
        except: ["^(lib)?nvidia-container"]
  become: true

- name: Rails answer ARP only for their own addresses
  gb10.fleet.host_state:
    role: fabric
    resources:
      - kernel_module: rdma_cm
      - sysctl: net.ipv4.conf.all.arp_ignore
        value: "1"
  become: true
"""

RETURN = r"""
changes:
  description: What was changed, or in check mode would be, in order.
  returned: always
  type: list
  elements: dict
  contains:
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
  returned: always
  type: list
  elements: dict
  contains:
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
facts:
  description: The versions of the packages and the states of the units that the document names, after the run.
  returned: success
  type: dict
  sample: {packages: {docker-ce: "5:29.1.0-1"}, units: {docker.service: active}}
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gb10.fleet.plugins.module_utils.engine import (
    ApplyError,
    converge,
    parse_document,
)
from ansible_collections.gb10.fleet.plugins.module_utils.resources.common import DocumentError
from ansible_collections.gb10.fleet.plugins.module_utils.system import HostError, System

# AnsibleModule would repeat the whole document, secrets and all, in every answer.
_NO_ECHO: dict[str, Any] = {"invocation": {}}


def main() -> None:
    module = AnsibleModule(  # type: ignore[no-untyped-call]
        argument_spec={
            "resources": {"type": "list", "elements": "dict", "required": True},
            "role": {"type": "str"},
            "consents": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    try:
        document = parse_document(module.params["role"], module.params["resources"], module.params["consents"])
        if os.geteuid() != 0:
            raise HostError("the state of a host is for root to change; set become: true")
        outcome = converge(document, System(), check_mode=module.check_mode)
    except ApplyError as error:
        changed = bool(error.changes)
        module.fail_json(msg=str(error), changed=changed, changes=error.changes, pending=[], **_NO_ECHO)
    except (DocumentError, HostError) as error:
        module.fail_json(msg=str(error), changes=[], pending=[], **_NO_ECHO)
    for pending in outcome.pending:
        module.warn(f"{pending['resource']}: {pending['action']} waits for your consent, {pending['consent']}: true")
    module.exit_json(
        changed=bool(outcome.changes),
        changes=outcome.changes,
        pending=outcome.pending,
        facts=outcome.facts,
        **({"diff": outcome.diff} if module._diff else {}),
        **_NO_ECHO,
    )


if __name__ == "__main__":
    main()
