#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: serving_load
short_description: Put a load on a vLLM server, and read what the GPU does meanwhile
version_added: "0.1.0"
description:
  - Runs vLLM's own C(vllm bench serve) in the container that serves, with random prompts and nothing to download, and
    reads clock, power, temperature and utilization of the GPU until it is done.
  - Without O(load) it only reads the GPU, until it has seen it busy. Run it in the same task on all hosts of a cluster,
    with O(load) on the first.
  - The API key stays in the container. A load that fails is a result (C(load.error)); the module itself only fails on
    wrong arguments.
options:
  load:
    description: The load to put; none on a host that answers no requests.
    type: dict
    suboptions:
      model:
        description: Hugging Face id or path of the model, whose tokenizer the client needs.
        type: str
        required: true
      served_name:
        description: Name of the model as the server serves it.
        type: str
        required: true
      url:
        description: Where the server listens, without a path.
        type: str
        default: http://127.0.0.1:8000
      requests:
        description: How many requests to send.
        type: int
        required: true
      concurrency:
        description: How many of them at once.
        type: int
        required: true
      input_tokens:
        description: Tokens of each prompt.
        type: int
        required: true
      shared_tokens:
        description: How many of them are the same in all prompts, at their beginning.
        type: int
        default: 0
      output_tokens:
        description: Tokens of each answer.
        type: int
        required: true
      seed:
        description: What the random prompts follow from. With the same seed, the next load finds them all in the cache.
        type: int
        required: true
      timeout_s:
        description: After how many seconds the load is ended.
        type: int
        required: true
      container:
        description: Name of the container that serves.
        type: str
        default: gb10-vllm
      serve_args:
        description: Further arguments of the server, of which those that concern the tokenizer are taken.
        type: list
        elements: str
        default: []
  busy_percent:
    description: From which utilization on the GPU counts as busy.
    type: float
    required: true
  readings:
    description: How many busy readings are enough, on a host without O(load).
    type: int
    required: true
  within_s:
    description: For how many seconds to wait for them.
    type: int
    required: true
extends_documentation_fragment: gb10.fleet.reads
attributes:
  check_mode:
    description: Does nothing in check mode.
    support: none
author:
  - gb10-fleet contributors (@gb10-fleet)
"""

EXAMPLES = r"""
- name: Four requests at once, on the first host of the cluster; all of them read their GPU
  gb10.fleet.serving_load:
    load: "{{ load if inventory_hostname == groups[gb10_cluster][0] else omit }}"
    busy_percent: 80
    readings: 10
    within_s: 120
  vars:
    load:
      model: openai/gpt-oss-120b
      served_name: openai/gpt-oss-120b
      requests: 16
      concurrency: 4
      input_tokens: 512
      output_tokens: 128
      seed: 1
      timeout_s: 900
  register: load
"""

RETURN = r"""
load:
  description:
    - What the load gave, null without one. C(result) is the file of C(vllm bench serve), or C(error) says why there
      is none.
    - "C(prefix_cache): tokens looked up in the prefix cache meanwhile (C(queries)), and found there (C(hits))."
    - "C(drafts): steps with draft tokens meanwhile (C(drafts)), drafted and accepted tokens; null without any."
    - "C(version): vLLM's, as the server says it."
    - "C(others): requests of others that were running before it began."
  returned: always
  type: dict
readings:
  description: What nvidia-smi said every second; null where it did not answer. Its field names, with their units.
  returned: always
  type: list
  elements: dict
  sample:
    - clock_mhz: 2418.0
      power_w: 86.2
      temperature_c: 68.0
      utilization_percent: 96.0
      event_reasons: 0
      driver: 580.142
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gb10.fleet.plugins.module_utils.serving import listening
from ansible_collections.gb10.fleet.plugins.module_utils.serving import load as serving_load
from ansible_collections.gb10.fleet.plugins.module_utils.serving import server_probe as serving
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Clock, run_command

LOAD = {
    "model": {"type": "str", "required": True},
    "served_name": {"type": "str", "required": True},
    "url": {"type": "str", "default": "http://127.0.0.1:8000"},
    "requests": {"type": "int", "required": True},
    "concurrency": {"type": "int", "required": True},
    "input_tokens": {"type": "int", "required": True, "no_log": False},
    "shared_tokens": {"type": "int", "default": 0, "no_log": False},
    "output_tokens": {"type": "int", "required": True, "no_log": False},
    "seed": {"type": "int", "required": True},
    "timeout_s": {"type": "int", "required": True},
    "container": {"type": "str", "default": "gb10-vllm"},
    "serve_args": {"type": "list", "elements": "str", "default": []},
}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "load": {"type": "dict", "options": LOAD},
            "busy_percent": {"type": "float", "required": True},
            "readings": {"type": "int", "required": True},
            "within_s": {"type": "int", "required": True},
        },
        supports_check_mode=False,
    )
    given = module.params["load"]
    try:
        load = serving_load.Load(**given) if given else None
        ask = None
        if load:
            owner = listening.of_container(load.container, run_command)
            ask = serving.http_client(serving.parse_url(load.url), None, owner)
    except ValueError as error:
        module.fail_json(msg=f"load: {error}")
    sampling = serving_load.Sampling(*(module.params[name] for name in ("busy_percent", "readings", "within_s")))
    module.exit_json(changed=False, **serving_load.measure(load, sampling, ask, run_command, Clock()))


if __name__ == "__main__":
    main()
