#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: warm_cache
short_description: Make what vLLM compiles once, and bring it to the hosts that serve the same
version_added: "0.1.0"
description:
  - One step on the way of the warm cache of a service with C(vllm_warm_cache_gib). It is keyed by image, model, driver
    and flags; a host takes only a cache of its own key.
  - The first host starts vLLM without a cache, in a container without a network, asks it a question with a known answer
    and stops it. What was compiled is kept. The other hosts get it from there, over the fabric, by rsync.
  - Without the memory for such a start it makes nothing, and says so.
options:
  step:
    description:
      - V(read) says what the host has, and changes nothing.
      - V(make) makes the cache, on the host that is to; others read.
      - V(offer) lets the hosts that lack it read it.
      - V(take) gets it from there.
      - V(withdraw) ends the offer.
    type: str
    choices: [read, make, offer, take, withdraw]
    required: true
  service:
    description: Name of the service. V(vllm) is the one of C(vllm_model).
    type: str
    default: vllm
  given:
    description: What O(step=read) returned for each host that serves the same; after O(step=make) what that returned.
    type: dict
    default: {}
  said:
    description: Made by the action; leave it out.
    type: dict
    default: {}
  request:
    description: Made by the action; leave it out.
    type: dict
    default: {}
  secret:
    description: Made by the action; leave it out.
    type: str
extends_documentation_fragment: gb10.fleet.steps
attributes:
  check_mode:
    description: Says what would be made or taken; nothing is.
    support: full
author:
  - gb10-fleet contributors (@gb10-fleet)
"""

EXAMPLES = r"""
- name: Look whether there is a warm cache
  gb10.fleet.warm_cache:
    step: read
  register: there
"""

RETURN = r"""
key:
  description: Of image, model, driver and flags as they are on this host; empty where one of them is not known.
  returned: with O(step=read), O(step=make) and O(step=take)
  type: str
why:
  description: Why there is no cache; empty where there is one, or where it is yet to be made.
  returned: with O(step=read), O(step=make) and O(step=take)
  type: str
cache:
  description:
    - SHA-256 and bytes of the archive of this key, the seconds of the cold start that made it, and when that was; null
      where there is none.
  returned: with O(step=read), O(step=make) and O(step=take)
  type: dict
  sample:
    sha256: 9c56cc51b374c3ba189210d5b6d4bf57790d351c96c47c02190ecf1e430635ab
    size: 48234496
    cold_s: 92.4
    at: "2026-11-23T15:00:00Z"
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gb10.fleet.plugins.module_utils.serving import file_steps, host_tools, warm_cache
from ansible_collections.gb10.fleet.plugins.module_utils.serving.transfer_errors import FilesError, told

STEPS = ["read", "make", "offer", "take", "withdraw"]


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "step": {"type": "str", "required": True, "choices": STEPS},
            "service": {"type": "str", "default": "vllm"},
            "given": {"type": "dict", "default": {}},
            "said": {"type": "dict", "default": {}},
            "request": {"type": "dict", "default": {}},
            "secret": {"type": "str", "no_log": True},
        },
        supports_check_mode=True,
    )
    step, said, request = module.params["step"], module.params["said"], module.params["request"]
    try:
        if module.check_mode or step == "read":
            module.exit_json(changed=False, **warm_cache.WarmCache(said, lambda *__: None).read())
        with file_steps.alone() as progress:
            teller = host_tools.Teller(progress)
            cache = warm_cache.WarmCache(said, teller)
            result = warm_cache.carry_out(cache, step, request, module.params["secret"] or "")
    except (FilesError, ValueError, OSError) as error:
        module.fail_json(**told(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
