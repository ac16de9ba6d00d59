#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Front of module_utils/reading/services.py."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: services
short_description: List the services of a host, and see whether memory came back after a stop
version_added: "0.1.0"
description:
  - Reads the units that the role vllm has put on the host, their settings, what they say of themselves, and which of
    them stand still because the operator said so (M(gb10.fleet.wish)). One call. Changes nothing.
options:
  stopped:
    description: A service that was just stopped. With it RV(returned) says whether its memory came back.
    type: str
  available_bytes:
    description: RV(memory) had this as C(available) before the stop.
    type: int
  limit_gib:
    description: Memory in use by nobody from which on it counts as not returned; C(hidden_gib) of catalog/health.yml.
    type: float
    default: 8
  within_s:
    description: For how many seconds to wait for it.
    type: float
    default: 0
author:
  - gb10-fleet contributors (@gb10-fleet)
extends_documentation_fragment: gb10.fleet.reads
seealso:
  - module: gb10.fleet.wish
"""

EXAMPLES = r"""
- name: List the services
  gb10.fleet.services:
  become: true
  register: found

- name: Show them
  ansible.builtin.debug:
    var: found.services
"""

RETURN = r"""
services:
  description: Each service by name, with unit, state, phase, model, port, memory and wish.
  returned: always
  type: list
  elements: dict
  sample:
    - name: chat
      unit: gb10-vllm-chat.service
      container: gb10-vllm-chat
      status_file: /run/gb10-vllm-chat/status.json
      state: active
      enabled: true
      since: 1795420800
      phase: ready
      load_s: 312.4
      members: []
      rank: 0
      memory_gib: 40
      model: openai/gpt-oss-20b
      served_name: gpt-oss-20b
      port: 8000
      url: http://127.0.0.1:8000
      wish: null
memory:
  description: In bytes. C(hidden) has no account of the kernel, as what a driver holds for the GPU. Null where unknown.
  returned: always
  type: dict
  sample: {total: 128000000000, available: 90000000000, hidden: 400000000}
returned:
  description:
    - Verdict, text and way out. The verdict is V(memory_returned), V(memory_not_returned) or V(memory_unknown).
  returned: with O(stopped)
  type: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gb10.fleet.plugins.module_utils.reading import services
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError, System

_RUNS = ("active", "activating", "reloading")


def main() -> None:
    """Read, return."""
    module = AnsibleModule(
        argument_spec={
            "stopped": {"type": "str"},
            "available_bytes": {"type": "int"},
            "limit_gib": {"type": "float", "default": 8},
            "within_s": {"type": "float", "default": 0},
        },
        supports_check_mode=True,
    )
    system = System()
    try:
        found = services.read(system)
    except HostError as error:
        module.fail_json(msg=str(error))
    if module.params["stopped"]:
        module.exit_json(changed=False, services=found, **_returned(system, found, module.params))
    memory = services.memory(system)
    module.exit_json(changed=False, services=found, memory=memory and memory._asdict())


def _returned(system: System, found: list[dict[str, Any]], params: dict[str, Any]) -> dict[str, Any]:
    of_it = [each["memory_gib"] or 0 for each in found if each["name"] == params["stopped"]]
    others = [each["memory_gib"] or 0 for each in found if each["name"] != params["stopped"] and each["state"] in _RUNS]
    known = params["available_bytes"]
    before = None if known is None else services.Memory(0, known, 0)
    verdict = services.returned(
        system, before, sum(of_it), sum(others), params["limit_gib"], 0 if not of_it else params["within_s"]
    )
    memory = services.memory(system)
    return {"memory": memory and memory._asdict(), "returned": verdict}


if __name__ == "__main__":
    main()
