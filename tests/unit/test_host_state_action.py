"""host_state in real ansible-playbook runs, in check mode: what the controller's half takes, refuses and shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.engine import Outcome
from ansible_collections.gb10.fleet.plugins.modules import host_state

ROOT = Path(__file__).parents[2]
HIDDEN = "hunter2"


def play(tmp_path: Path, *args: str, **task: Any) -> str:
    """The output of one task on this machine."""
    tasks = [{"gb10.fleet.host_state": {"role": "demo", **task}}]
    playbook = [{"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}]
    (tmp_path / "play.yml").write_text(json.dumps(playbook))
    (tmp_path / "ansible.cfg").touch()
    environ = {
        "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg"), "ANSIBLE_LOCAL_TEMP": str(tmp_path / "local"),
        "ANSIBLE_REMOTE_TEMP": str(tmp_path / "remote"), "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections"),
        "ANSIBLE_NOCOLOR": "1", "HOME": str(tmp_path),
    }  # fmt: skip
    command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "localhost,", "--check", "play.yml"]
    done = subprocess.run(
        [*command, "-e", f"ansible_python_interpreter={sys.executable}", *args],
        cwd=tmp_path, env={**os.environ, **environ}, text=True, timeout=60, check=False,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return done.stdout


# The last resource is refused by the module, which proves that the consents before it were taken.
REFUSED = [{"package": "docker-ce", "consent": "demo_consent"}, {"package": "--refused"}]


@pytest.mark.parametrize("value", ["false", "no", "True", "1"])
def test_a_consent_may_be_text(tmp_path: Path, value: str) -> None:
    assert "resources[1].package" in play(tmp_path, "-e", f"demo_consent={value}", resources=REFUSED)
    assert "resources[1].package" in play(tmp_path, resources=REFUSED, consents={"demo_consent": value})


@pytest.mark.parametrize("value", ["maybe", ""])
def test_a_consent_that_is_no_boolean_is_refused_by_name(tmp_path: Path, value: str) -> None:
    wanted = f"demo_consent: expected true or false, found '{value}'"
    assert wanted in play(tmp_path, "-e", f"demo_consent={value}", resources=REFUSED)
    assert wanted in play(tmp_path, resources=REFUSED, consents={"demo_consent": value})


@pytest.mark.parametrize("state", [{"content": "{{ hidden }}"}, {"state": "absent"}])
def test_no_output_shows_a_secret(tmp_path: Path, state: dict[str, str]) -> None:
    (tmp_path / "key").write_text(f"old {HIDDEN}")
    (tmp_path / "vars.json").write_text(json.dumps({"hidden": f"{HIDDEN}\n"}))
    resources = [{"file": str(tmp_path / "key"), "secret": True, **state}]
    output = play(tmp_path, "--diff", "-vvv", "-e", "@vars.json", resources=resources)
    assert HIDDEN not in output
    assert f"file:{tmp_path}/key" in output or os.geteuid() != 0


@pytest.mark.parametrize("content", [HIDDEN, [HIDDEN]])
def test_the_module_does_not_repeat_its_arguments(monkeypatch: pytest.MonkeyPatch, content: Any) -> None:
    answers: list[dict[str, Any]] = []

    class Module:
        check_mode = True
        _diff = True

        def __init__(self, **_: Any) -> None:
            resources = [{"file": "/etc/key", "secret": True, "content": content}]
            self.params = {"role": "demo", "resources": resources, "consents": {}}

        def exit_json(self, **answer: Any) -> None:
            answers.append(answer)
            raise SystemExit

        fail_json = exit_json

    monkeypatch.setattr(host_state, "AnsibleModule", Module)
    monkeypatch.setattr(host_state.os, "geteuid", lambda: 0)
    monkeypatch.setattr(host_state, "converge", lambda *_, **__: Outcome([], [], [], {}))
    with pytest.raises(SystemExit):
        host_state.main()
    assert [answer["invocation"] for answer in answers] == [{}]
    assert HIDDEN not in json.dumps(answers)
