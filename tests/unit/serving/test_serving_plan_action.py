"""The module and the filter serving_plan in a real ansible-playbook run."""

from __future__ import annotations

from pathlib import Path

from tests.support.plays import Plays

PLAY = """
- hosts: sparks
  gather_facts: false
  become: false
  tasks:
    - gb10.fleet.serving_plan:
        model: Qwen/Qwen3-235B-A22B
        memories_bytes: [130600000000, 130600000000]
        settings: {enable-expert-parallel: null}
      register: pair
    - gb10.fleet.serving_plan:
        model: Qwen/Qwen3-235B-A22B
        memories_bytes: [130600000000]
      register: single
    - ansible.builtin.assert:
        that:
          - not pair.refused
          - not pair.changed
          - pair.plan.checkpoint == 'Qwen/Qwen3-235B-A22B-GPTQ-Int4'
          - "'--enable-expert-parallel' in pair.plan.args"
          - single.refused
          - "'no checkpoint' in single.msg"
          - ('openai/gpt-oss-120b' | gb10.fleet.serving_plan([130600000000])).checkpoint == 'openai/gpt-oss-120b'
    - gb10.fleet.serving_plan:
        model: nobody/nothing
        memories_bytes: [130600000000]
"""


def test_in_a_playbook(tmp_path: Path) -> None:
    rc, output = Plays(tmp_path).play({"spark-a": {"ansible_host": "kind-ok"}}, PLAY, "--check")
    assert rc == 2 and "nobody/nothing is not in catalog/models.yml" in output, output
    assert "Assertion failed" not in output and "ok=3" in output, output
