#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin serving_plan."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: serving_plan
short_description: Say how to serve a model on these hosts, and what speaks against it
version_added: "0.1.0"
description:
  - Runs on the controller and asks no host. Chooses checkpoint, flags, environment and share of memory for a model of
    C(catalog/models.yml), says what speed to expect, and judges it all against C(catalog/rules.yml).
  - Does not fail when a rule forbids the plan or nothing of the model fits; let the playbook assert RV(refused).
options:
  model:
    description: Hugging Face id of a model, or of one of its checkpoints, which then is the only one that is looked at.
    type: str
    required: true
  memories_bytes:
    description: Memory of each host in bytes, C(memory_bytes) of the fact C(gb10_spark). As many hosts as items.
    type: list
    elements: float
    required: true
  image:
    description: Container image; the default of the role vllm if it is not given.
    type: str
    default: ""
  version:
    description: Version of vLLM in an image that C(catalog/images.yml) does not know.
    type: str
    default: ""
  max_model_len:
    description: Longest context in tokens. 0 is as long as fits.
    type: int
    default: 0
  concurrency:
    description: Requests at once, each with the whole context. 0 is the catalog's number.
    type: int
    default: 0
  only:
    description: A checkpoint's id or a format (V(fp8), V(nvfp4), ...) that alone is looked at.
    type: str
    default: ""
  settings:
    description:
      - Flags of C(vllm serve) and their values that take the place of the plan's; null for a flag without a value.
    type: dict
    default: {}
  accepted:
    description: Reasons why a rule does not hold here, by the rule's id.
    type: dict
    default: {}
  executor:
    description: How several hosts work together.
    type: str
    choices: [mp, ray]
    default: mp
  driver:
    description: Version of the NVIDIA driver of the hosts, such as 580.142.
    type: str
author:
  - gb10-fleet contributors (@gb10-fleet)
extends_documentation_fragment: gb10.fleet.reads
attributes:
  action:
    description: Runs on the controller.
    support: full
  platform:
    description: Target OS of the action.
    support: full
    platforms: posix
"""

EXAMPLES = r"""
- name: Plan a model for all hosts of the cluster
  gb10.fleet.serving_plan:
    model: Qwen/Qwen3-235B-A22B
    memories_bytes: "{{ groups['pair1'] | map('extract', hostvars, ['ansible_facts', 'gb10_spark', 'memory_bytes']) }}"
  register: planned
  delegate_to: localhost

- name: Require that nothing speaks against it
  ansible.builtin.assert:
    that: not planned.refused
    fail_msg: "{{ planned.msg }}"
"""

RETURN = r"""
plan:
  description:
    - C(model), C(checkpoint) (null where nothing of it can be served), C(quantization), C(image), C(version),
      C(hosts), C(args), C(environment), C(utilization), C(max_model_len), C(fit), C(expected) (what is
      published), C(predicted), C(bandwidth_limit) and C(bandwidth_limit_with_drafts) in tokens a second (0 where nobody
      knows how many draft tokens are accepted), C(verdict) in one sentence, C(doubts) about the model's files,
      C(path), C(reasons), C(rejected), C(hosts_needed), C(fired), C(refused), and C(variables) for the role vllm.
  returned: always
  type: dict
refused:
  description: Whether nothing of the model can be served like this, or a rule forbids it that nobody has accepted.
  returned: always
  type: bool
msg:
  description: The plan for a person to read.
  returned: always
  type: str
"""
