"""A fork of tests/support/starter.py is what ansible-playbook is: same words, same configuration, same exit status."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import starter
from tests.support.plays import ROOT, environment, put_playbook

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


OURS = """
- hosts: sparks
  gather_facts: false
  tasks:
    - ansible.builtin.debug: {msg: "this run? {{ 'another' is gb10.fleet.this_run }}"}
"""
WORDS = ("-i", "inventory.yml", "play.yml")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """One of our own, from which the next server is started."""
    copy = tmp_path / "checkout"
    for name in ("collections", "plugins", "tests/support"):
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("catalog", "roles", "galaxy.yml"):
        (copy / name).symlink_to(ROOT / name)
    starter.end()
    monkeypatch.setattr(starter, "_SERVER", copy / "tests/support/play_server.py")
    yield copy
    starter.end()


def played(folder: Path, checkout: Path, **more: str) -> tuple[int, str]:
    folder.mkdir(exist_ok=True)
    put_playbook(folder, {"spark-a": {}}, OURS)
    code, output = starter.run(folder, environment(folder, checkout / "collections") | more, *WORDS)
    return code, " ".join(output.split())


def test_a_play_says_itself_what_cannot_be_imported(tmp_path: Path, checkout: Path) -> None:
    code, output = played(tmp_path / "a", checkout, GB10_ROLLOUT="nonsense")
    assert code == 2 and "'nonsense': expected ID/NUMBER" in output
    assert played(tmp_path / "b", checkout, GB10_ROLLOUT="x/1")[0] == played(tmp_path / "c", checkout)[0] == 0
    # Edited while the server runs, and then a server that never had it.
    run = checkout / "plugins/plugin_utils/ground/run.py"
    run.write_text("this is no Python\n")
    for _ in range(2):
        code, output = played(tmp_path / "d", checkout)
        assert code == 2 and "invalid syntax" in output
        starter.end()


def test_a_collection_beside_the_playbook_is_the_one_of_this_play(tmp_path: Path) -> None:
    fleet = tmp_path / "a/collections/ansible_collections/gb10/fleet"
    shutil.copytree(ROOT / "plugins", fleet / "plugins", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("meta", "galaxy.yml"):
        (fleet / name).symlink_to(ROOT / name)
    (fleet / "plugins/plugin_utils/ground/run.py").write_text("RUN = 'another'\n")
    for folder, is_it in (("a", True), ("b", False)):
        code, output = played(tmp_path / folder, ROOT)
        assert code == 0 and f"this run? {is_it}" in output


def test_after_a_dead_server_comes_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert played(tmp_path / "a", ROOT)[0] == 0
    (server,) = starter._servers
    server.kill()  # between two plays
    server.wait()
    with monkeypatch.context() as patch:
        patch.setattr(starter, "_SERVER", tmp_path / "server.py")
        (tmp_path / "server.py").write_text("import sys; sys.stdin.readline(); sys.exit(7)")  # in a play
        with pytest.raises(ChildProcessError, match="has ended with 7"):
            played(tmp_path / "a", ROOT)
    assert played(tmp_path / "a", ROOT)[0] == 0
