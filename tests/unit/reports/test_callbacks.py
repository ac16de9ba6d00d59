"""Standard output is the callback's: results under json, oneline, minimal and junit, and nothing of ours beside."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.plays import ROOT, Plays, environment, put_playbook

# A look, a change and a proof: whatever of ours might speak beside the results.
PLAY = "- ansible.builtin.import_playbook: gb10.fleet.site\n"
HOSTS = {"spark-a": {"ansible_host": "kind-ok"}}
OURS: dict[str, Any] = {"gb10_roles": ["page_cache", "firewall"], "ansible_become": False}
MADE = {"role": "page_cache", "resource": "file:/x", "action": "create", "detail": "absent"}
# With the host_state's own lines, which Ansible prints as a diff.
CHANGE = "spark-a  page_cache  file:/x  create: absent"
RESULT = re.compile(r"spark-a \| (SUCCESS|CHANGED|SKIPPED)")
TASK = "Apply the state of host and fabric (the first time minutes, while apt downloads)"


@pytest.fixture
def plays(tmp_path: Path) -> Plays:
    made = Plays(tmp_path)
    made.host("ok", changes=[MADE])
    return made


def stdout(plays: Plays, **callbacks: str) -> str:
    """What the run wrote there."""
    served = {"vllm_model": "m", "vllm_image": f"i@sha256:{'0' * 64}"}
    put_playbook(plays.tmp_path, HOSTS, PLAY, **served, **OURS)
    done = subprocess.run(
        [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "inventory.yml", "play.yml"],
        cwd=plays.tmp_path, env={**environment(plays.tmp_path, plays.tmp_path / "collections"), **callbacks},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (plays.tmp_path / "evidence/latest/index.html").exists()
    return done.stdout


def test_json_is_one_document(plays: Plays) -> None:
    """With the checkout's own configuration, too."""
    ours = str(ROOT / "ansible.cfg")
    said = json.loads(stdout(plays, ANSIBLE_STDOUT_CALLBACK="ansible.posix.json", ANSIBLE_CONFIG=ours))
    tasks = {task["task"]["name"]: task["hosts"] for play in said["plays"] for task in play["tasks"]}
    assert tasks[TASK]["spark-a"]["changes"] == [MADE] and said["stats"]["spark-a"]["failures"] == 0


def test_oneline_is_a_line_for_each_result_and_junit_beside_it_a_file_of_cases(plays: Plays) -> None:
    folder = plays.tmp_path / "junit"
    enabled = {"ANSIBLE_CALLBACKS_ENABLED": "ansible.builtin.junit", "JUNIT_OUTPUT_DIR": str(folder)}
    lines = stdout(plays, ANSIBLE_STDOUT_CALLBACK="ansible.builtin.oneline", **enabled).splitlines()
    assert len(lines) > 5 and any(" | CHANGED" in line for line in lines)
    assert [line for line in lines if line and not RESULT.match(line)] == []
    (file,) = folder.glob("*.xml")
    names = [str(case.get("name")) for case in ElementTree.parse(file).iter("testcase")]  # noqa: S314
    assert any(TASK in name for name in names), names


def test_minimal_is_results_and_the_names_of_changes(plays: Plays) -> None:
    text = stdout(plays, ANSIBLE_STDOUT_CALLBACK="ansible.builtin.minimal")
    assert set(_beside_results(text)) == {CHANGE}


def _beside_results(text: str) -> Iterator[str]:
    """Lines that are no result: `HOST | STATUS => {...}`, whose object may have many lines."""
    while text := text.lstrip("\n"):
        line, _, rest = text.partition("\n")
        if " | " in line and line.endswith("=> {"):
            begin = text.index("{")
            _found, end = json.JSONDecoder().raw_decode(text, begin)
            text = text[end:]
            continue
        if not RESULT.match(line):
            yield line.rstrip()
        text = rest
