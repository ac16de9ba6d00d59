"""A fork of tests/support/starter.py is what ansible-playbook is: same words, same configuration, same exit status."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support import starter
from tests.support.plays import environment, put_playbook

PLAY = """
- hosts: sparks
  gather_facts: false
  tasks:
    - ansible.builtin.debug:
        msg:
          - "{{ lookup('ansible.builtin.config', 'DEFAULT_TIMEOUT', 'DEFAULT_LOCAL_TMP', 'ANSIBLE_HOME') }}"
          - "{{ lookup('ansible.builtin.env', 'HOME') }} {{ lookup('ansible.builtin.pipe', 'pwd; cat') }} {{ word }}"
    - ansible.builtin.fail: {msg: it ends}
"""
CONFIGURATION = "[defaults]\ntimeout = {timeout}\nlocal_tmp = {folder}/own\ncallback_result_format = {form}\n"


def test_a_fork_is_the_program(tmp_path: Path) -> None:
    # The second play finds what read its configuration, and a plugin's settings, for the first one.
    for timeout, form in ((21, "json"), (22, "yaml")):
        folder = tmp_path / str(timeout)
        folder.mkdir()
        put_playbook(folder, {"spark-a": {}}, PLAY)
        (folder / "ansible.cfg").write_text(CONFIGURATION.format(timeout=timeout, folder=folder, form=form))
        given = {name: value for name, value in environment(folder).items() if name != "ANSIBLE_LOCAL_TEMP"}
        words = ("-i", "inventory.yml", "play.yml", "-e", f"word=of-{timeout}")
        code, output = starter.run(folder, given, *words)
    real = subprocess.run(
        [str(Path(sys.executable).with_name("ansible-playbook")), *words],
        cwd=folder, env=given, text=True, check=False,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert (code, _of_any_process(output)) == (real.returncode, _of_any_process(real.stdout))
    assert code == 2 and "of-22" in output and '"msg": ' not in output, output


def _of_any_process(output: str) -> str:
    """Without the random part in the name of Ansible's own temporary folder."""
    return re.sub(r"ansible-local-\w+", "ansible-local", output)
