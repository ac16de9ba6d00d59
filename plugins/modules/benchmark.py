#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin benchmark."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: benchmark
short_description: Judge a load test of served models, and write it down as JSON
version_added: "0.1.0"
description:
  - Runs on the controller. Compares the speed of each step with what C(catalog/models.yml) expects of model, format,
    hosts and requests at once, and what each GPU said under load with C(catalog/thresholds.yml).
  - Writes C(benchmark.json) into a new directory named by the UTC time. The link C(latest) beside it points to the
    newest one.
  - Does not fail when something is wrong; let the playbook assert RV(good).
options:
  path:
    description: Directory that collects the results; relative to the current directory.
    type: path
    default: evidence/benchmark
  hosts:
    description:
      - What was measured, by inventory name.
      - "C(cluster): name of the host's cluster."
      - "C(steps): the results of M(gb10.fleet.serving_load) in order, each with its C(concurrency)."
      - "C(conditions), on the first host of a cluster: C(model), C(args), and what else is to be noted down."
    type: dict
    required: true
  request:
    description: What the requests were like; noted down.
    type: dict
    required: true
author:
  - gb10-fleet contributors (@gb10-fleet)
extends_documentation_fragment: gb10.fleet.controller
attributes:
  check_mode:
    description: Judges, but writes nothing.
    support: full
notes:
  - Use it with C(run_once=true) and C(delegate_to=localhost).
"""

EXAMPLES = r"""
- name: Judge the load test
  gb10.fleet.benchmark:
    hosts: "{{ dict(ansible_play_hosts | zip(ansible_play_hosts | map('extract', hostvars, 'measured'))) }}"
    request: {prompts: 4, input_tokens: 512, shared_tokens: 256, output_tokens: 128}
  run_once: true
  delegate_to: localhost
  become: false
  register: judged

- name: Require the speed that is expected
  ansible.builtin.assert:
    that: judged.good
    fail_msg: "{{ judged.msg }}"
  run_once: true
"""

RETURN = r"""
verdict:
  description:
    - The worst of all steps. V(as_expected), V(no_expectation), V(slower_than_before), V(odd_one_out), V(slow),
      V(third_of_expected), V(throttled), V(power_fault) or V(failed).
  returned: always
  type: str
  sample: as_expected
good:
  description: Whether the verdict is V(as_expected) or V(no_expectation).
  returned: always
  type: bool
json:
  description: Path of the JSON document; none in check mode.
  returned: always
  type: str
table:
  description: A line for each step under a headline, for a person to read.
  returned: always
  type: list
  elements: str
msg:
  description: What is not as expected, with the way out, for a person to read.
  returned: always
  type: str
"""
