#!/usr/bin/python
# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: serving_probe
short_description: Prove that a vLLM server serves the right model and talks sense
version_added: "0.1.0"
description:
  - Waits until C(/health) is well, checks that C(/v1/models) has the model, and asks two questions with known answers,
    one of them with a long answer. A server can be healthy and still emit garbage; only the answers show it.
  - A model that still thinks when its tokens are used up is asked again with four times as many, and gets
    four times O(answer_timeout_s).
  - A model without a chat is asked for vectors (neighbours must be nearer than strangers), for an order of documents,
    or for the transcript of a tone, which proves that it answers and not what it hears.
  - The outcome is a named verdict with a way out. The module itself only fails on wrong arguments.
options:
  url:
    description: Where the server listens on this host, without a path.
    type: str
    default: http://127.0.0.1:8000
  model:
    description: Name of the model as the server serves it.
    type: str
    required: true
  api_key:
    description: Key that the server asks for.
    type: str
  timeout_s:
    description: For how many seconds to wait for C(/health). In check mode it is asked once.
    type: int
    default: 60
  answer_timeout_s:
    description: For how many seconds to wait for the list of models and for each answer.
    type: int
    default: 120
  status_file:
    description:
      - Where the unit keeps what it says of itself, on the host. With it the verdict names why a unit is down or what
        it waits for, and there is no waiting for one that fails again and again.
    type: path
  health:
    description: Path that answers 200 when the server is well.
    type: str
    default: /health
  container:
    description:
      - Docker container on this host that the server runs in. Key and questions go to no other process, whoever has the
        port; that is the verdict V(foreign_listener).
    type: str
    required: true
extends_documentation_fragment: gb10.fleet.reads
attributes:
  check_mode:
    description: Can run in check mode; it then does not wait for a server that is not ready.
    support: full
author:
  - gb10-fleet contributors (@gb10-fleet)
"""

EXAMPLES = r"""
- name: Ask the model
  gb10.fleet.serving_probe:
    model: openai/gpt-oss-120b
    container: gb10-vllm
    timeout_s: 1800
  register: serving

- name: It serves
  ansible.builtin.assert:
    that: serving.ok
    fail_msg: "{{ serving.verdict }}: {{ serving.text }}. {{ serving.way_out }}"
"""

RETURN = r"""
ok:
  description: Whether the verdict is V(serving).
  returned: always
  type: bool
verdict:
  description:
    - V(serving), or V(not_listening), V(loading), V(engine_dead), V(unauthorized), V(wrong_model), V(rejected) (the
      server refuses the question), V(still_thinking) (thoughts and no answer) or V(garbage).
    - With O(status_file) also the verdicts of the unit, such as V(memory_short), V(refused_flag) or
      V(waiting_for_peers); docs/troubleshooting.md lists them.
  returned: always
  type: str
text:
  description: What was seen.
  returned: always
  type: str
way_out:
  description: What to do about it.
  returned: always
  type: str
ready_after_s:
  description: Seconds until C(/health) was well, null if it never was.
  returned: always
  type: float
served_models:
  description: The models that the server has.
  returned: always
  type: list
  elements: str
answers:
  description:
    - Each question with its answer (the beginning of it), time in seconds, tokens, what is wrong with it, and what else
      happened (C(note)).
  returned: always
  type: list
  elements: dict
  sample:
    - name: arithmetic
      question: What is 17+25? Answer with the number only.
      answer: "42"
      seconds: 0.412
      completion_tokens: 2
      tokens_per_s: 4.85
      fault: null
      note: null
      verdict: null
tokens_per_s:
  description: Completion tokens per second of wall time in the long answer. An indication, no benchmark.
  returned: always
  type: float
phase:
  description:
    - Where the unit is, from O(status_file). V(starting), V(waiting), V(formation), V(weights), V(graphs), V(ready),
      V(failed) or V(stopped); null without it.
  returned: always
  type: str
phases:
  description: How many seconds each phase took so far.
  returned: always
  type: dict
  sample: {starting: 2.1, waiting: 31.4, formation: 20.9, weights: 312.0, graphs: 48.3}
warm:
  description:
    - The key of the warm cache of this start, and the seconds that the start took that made it (C(cold_s)), null where
      there was no cache of that key. Null where the service wishes none.
  returned: always
  type: dict
  sample: {key: 9c56cc51b374c3ba189210d5b6d4bf57790d351c96c47c02190ecf1e430635ab, cold_s: 92.4}
remark:
  description:
    - What is not as it should be, though it serves, as the unit says it (C(verdict), C(text), C(way_out)); else null.
  returned: always
  type: dict
"""

from dataclasses import asdict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gb10.fleet.plugins.module_utils.serving import listening
from ansible_collections.gb10.fleet.plugins.module_utils.serving import server_probe as serving
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import run_command


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "default": "http://127.0.0.1:8000"},
            "model": {"type": "str", "required": True},
            "api_key": {"type": "str", "no_log": True},
            "timeout_s": {"type": "int", "default": 60},
            "answer_timeout_s": {"type": "int", "default": 120},
            "status_file": {"type": "path"},
            "health": {"type": "str", "default": "/health"},
            "container": {"type": "str", "required": True},
        },
        supports_check_mode=True,
    )
    arguments = module.params
    try:
        owner = listening.of_container(arguments["container"], run_command)
        ask = serving.http_client(serving.parse_url(arguments["url"]), arguments["api_key"], owner)
        if arguments["timeout_s"] < 0 or arguments["answer_timeout_s"] < 1:
            raise ValueError("timeout_s must not be negative and answer_timeout_s must be positive")
    except ValueError as error:
        module.fail_json(msg=str(error))
    proof = serving.probe(
        ask,
        arguments["model"],
        timeout_s=0 if module.check_mode else arguments["timeout_s"],
        answer_timeout_s=arguments["answer_timeout_s"],
        health=arguments["health"],
        unit=arguments["container"],
        status=serving.status_reader(arguments["status_file"]),
    )
    module.exit_json(changed=False, ok=proof.verdict == "serving", **asdict(proof))


if __name__ == "__main__":
    main()
