#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Front of module_utils/reading/in_use.py."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: in_use
short_description: Say what somebody serves on a host by hand
version_added: "0.1.0"
description:
  - Names the containers of a host that are not ours, the processes that listen at a port, and the models in the
    cache of the user. C(gb10 up) shows them before it changes anything. One call. Changes nothing.
options:
  ports:
    description: TCP ports to look at.
    type: list
    elements: int
    default: []
author:
  - gb10-fleet contributors (@gb10-fleet)
extends_documentation_fragment: gb10.fleet.reads
seealso:
  - module: gb10.fleet.spark_facts
"""

EXAMPLES = r"""
- name: Who serves here already?
  gb10.fleet.in_use:
    ports: [8000]
  become: true
  register: found
"""

RETURN = r"""
containers:
  description: Containers of Docker that run and are not ours, 50 at most.
  returned: always
  type: list
  elements: dict
  sample:
    - name: my-vllm
      image: nvcr.io/nvidia/vllm:26.04-py3
cache:
  description: Of the user who became root by sudo, the cache of the hub's library, and the models that it has.
  returned: always
  type: dict
  sample: {path: /home/you/.cache/huggingface, models: [openai/gpt-oss-120b]}
listeners:
  description: Of each port at which somebody listens, the processes.
  returned: always
  type: list
  elements: dict
  sample:
    - port: 8000
      who: docker-proxy (process 812 of root)
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gb10.fleet.plugins.module_utils.reading import in_use
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import System


def main() -> None:
    """Read, return."""
    spec = {"ports": {"type": "list", "elements": "int", "default": []}}
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    module.exit_json(changed=False, **in_use.read(System(), module.params["ports"], in_use.home_of_the_user()))


if __name__ == "__main__":
    main()
