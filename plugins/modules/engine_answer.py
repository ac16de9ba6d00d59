#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: engine_answer
short_description: Ask the vLLM of an image what a model takes
version_added: "0.1.0"
description:
  - Starts the Python of an image that this host has, without a network, and has vLLM make its own configuration of the
    model, and the model without memory. Nothing is loaded, and no code of the model's own runs.
  - The configuration of the model must be on this host; its weights need not.
  - An answer is kept in C(/var/cache/gb10-engine), by image, files and flags, and given again. Where none came within
    O(limit_s), only more time has it asked again.
options:
  images:
    description: Names of the image, of which the first that this Docker has counts.
    type: list
    elements: str
    required: true
  model:
    description: Id at the hub, or a folder of this host.
    type: str
    required: true
  revision:
    description: Branch, tag or commit.
    type: str
    default: main
  cache:
    description: The role's C(vllm_cache_directory).
    type: path
    default: /var/cache/gb10-vllm
  flags:
    description: Fields of vLLM's C(EngineArgs), such as C(kv_cache_dtype).
    type: dict
    default: {}
  limit_s:
    description: How long it may take.
    type: int
    default: 180
extends_documentation_fragment: gb10.fleet.reads
author:
  - gb10-fleet contributors (@gb10-fleet)
"""

EXAMPLES = r"""
- name: Ask what a model takes
  gb10.fleet.engine_answer:
    images: [vllm/vllm-openai:v0.32.0]
    model: Qwen/Qwen3-8B
  become: true
  register: asked
"""

RETURN = r"""
engine:
  description: >-
    What vLLM said - its version, the architectures, the task, the longest context, bytes of weights by type, and what
    each kind of layer keeps, in bytes of a token or of a request, and the backends that it would compute with. A
    C(refusal) has vLLM's own words.
  returned: success
  type: dict
  sample: {"version": "0.32.0", "context": 131072, "weights": {"bfloat16": 16381470720}, "layers": [
    {"kind": "FullAttentionSpec", "token_bytes": 4096.0, "layers": 36}]}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gb10.fleet.plugins.module_utils.serving.engine_answer import Question
from ansible_collections.gb10.fleet.plugins.module_utils.serving.transfer_errors import FilesError, told


def main() -> None:
    """Ask, return."""
    spec = {
        "images": {"type": "list", "elements": "str", "required": True},
        "model": {"type": "str", "required": True},
        "revision": {"type": "str", "default": "main"},
        "cache": {"type": "path", "default": "/var/cache/gb10-vllm"},
        "flags": {"type": "dict", "default": {}},
        "limit_s": {"type": "int", "default": 180},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    given = module.params
    question = Question(given["images"], given["model"], given["revision"], given["cache"], given["flags"])
    try:
        module.exit_json(changed=False, engine=question.answer(given["limit_s"]))
    except (FilesError, OSError) as error:
        module.fail_json(**told(error))


if __name__ == "__main__":
    main()
