"""A target without hosts: every playbook ends with an error that names the groups that there are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import target

from tests.support import starter
from tests.support.plays import ROOT, environment

GROUPS = {"all": ["a", "b", "c"], "ungrouped": [], "mine": ["a", "b"], "other": ["c"], "empty": []}
PLAYBOOKS = sorted(path.stem for path in (ROOT / "playbooks").glob("*.yml"))
HERE = f"{{ansible_connection: local, ansible_python_interpreter: {sys.executable}}}"
INVENTORY = f"mine: {{hosts: {{a: {HERE}, b: {HERE}}}}}\nother: {{hosts: {{c: {HERE}}}}}\n"


@pytest.mark.parametrize(
    ("pattern", "limit"),
    [
        ("mine", None), ("mine:other", None), ("m*", None), ("a", None), (["mine", "c"], None), ("all", "c"),
        ("mine", "a,c"), ("~m.*e", "!b"), ("localhost", None),
    ],
)  # fmt: skip
def test_a_target_with_hosts(pattern: str | list[str], limit: str | None) -> None:
    target.check(pattern, GROUPS, limit, DataLoader())


@pytest.mark.parametrize(
    ("pattern", "groups", "limit", "says"),
    [
        ("sparks", GROUPS, None, "the group sparks matches no host; the inventory has the groups mine, other: "),
        ("mien", GROUPS, None, "gb10_hosts=mien matches no host; the inventory has the groups mine, other: "),
        ("empty", GROUPS, None, "gb10_hosts=empty matches no host"),
        ("mine:!mine", GROUPS, None, "gb10_hosts=mine:!mine matches no host"),
        (["x", "y"], GROUPS, None, "gb10_hosts=x,y matches no host"),
        ("mine", GROUPS, "c", "--limit c leaves no host of gb10_hosts=mine"),
        ("sparks", {"all": ["a"], "ungrouped": ["a"]}, None, "the inventory has hosts and no group"),
        ("sparks", {"all": [], "ungrouped": []}, None, "the inventory is empty: check -i"),
        ("sparks", {"all": ["a"], **{f"g{n:02}": ["a"] for n in range(25)}}, None, "g19 and 5 more: -e gb10_hosts="),
    ],
)
@pytest.mark.parametrize("mismatch", ["warning", "error"])
def test_a_target_without_hosts(
    pattern: str, groups: dict[str, list[str]], limit: str | None, says: str, mismatch: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("ansible.constants.HOST_PATTERN_MISMATCH", mismatch)
    with pytest.raises(target.NoTarget) as error:
        target.check(pattern, groups, limit, DataLoader())
    assert says in str(error.value)


# --- real runs


def run(folder: Path, *words: str, config: str = "", program: str = "ansible-playbook") -> tuple[int, str]:
    (folder / "ansible.cfg").write_text(config)
    if program == "ansible-playbook":
        rc, output = starter.run(folder, environment(folder), *words)
        return rc, " ".join(output.split())
    done = subprocess.run(
        [str(Path(sys.executable).parent / program), *words],
        cwd=folder, env=environment(folder), text=True, timeout=120, check=False,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return done.returncode, " ".join(done.stdout.split())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "hosts.yml").write_text(INVENTORY)
    (tmp_path / "broken.yml").write_text(": : {")
    return tmp_path


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_no_group_sparks_is_an_error_of_every_playbook(folder: Path, playbook: str) -> None:
    name = str(ROOT / f"playbooks/{playbook}.yml") if playbook in PLAYBOOKS[::3] else f"gb10.fleet.{playbook}"
    rc, output = run(folder, "-i", "hosts.yml", name)
    assert rc != 0 and "the group sparks matches no host; the inventory has the groups mine, other" in output
    assert output.count("matches no host") == 1, output


@pytest.mark.parametrize("config", ["", "[inventory]\nhost_pattern_mismatch = ignore\nunparsed_is_failed = False\n",
                                    "[inventory]\nhost_pattern_mismatch = error\n"])  # fmt: skip
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-i", "hosts.yml", "-e", "gb10_hosts=mien"], "the groups mine, other"),
        (["-i", "hosts.yml", "-e", "gb10_hosts=mine", "--limit", "c"], "leaves no host of gb10_hosts=mine"),
        (["-i", "broken.yml"], "the inventory is empty"),
        ([], "the inventory is empty"),
    ],
)
def test_whatever_ansible_cfg_says(folder: Path, words: list[str], says: str, config: str) -> None:
    rc, output = run(folder, *words, "gb10.fleet.hosts", config=config)
    assert rc != 0 and says in output, output


def test_ansible_pull_ends_with_it_too(folder: Path) -> None:
    origin = folder / "origin"
    origin.mkdir()
    (origin / "local.yml").write_text("- ansible.builtin.import_playbook: gb10.fleet.hosts\n")
    (origin / "hosts.yml").write_text(INVENTORY.replace("a:", "localhost:"))
    env = {**os.environ, **{f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}}
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([shutil.which("git") or "git", *words], cwd=origin, env=env, check=True)
    words = ["-U", str(origin), "-d", str(folder / "checkout"), "-i", str(origin / "hosts.yml"), "local.yml"]
    rc, output = run(folder, *words, program="ansible-pull")
    assert rc != 0 and "the group sparks matches no host; the inventory has the groups mine, other" in output, output


def test_a_target_that_is_there(folder: Path) -> None:
    rc, output = run(folder, "-i", "hosts.yml", "-e", "gb10_hosts=mine", "--limit", "a,c", "gb10.fleet.hosts")
    assert rc == 0 and "a : ok=1" in output and "localhost" not in output
    (folder / "play.yml").write_text(
        "- ansible.builtin.import_playbook: gb10.fleet.hosts\n  vars: {gb10_hosts: other}\n"
    )
    rc, output = run(folder, "-i", "hosts.yml", "play.yml")
    assert rc == 0 and "c : ok=1" in output


@pytest.mark.parametrize("reading", ["--syntax-check", "--list-tasks", "--list-tags", "--list-hosts"])
def test_who_only_reads_needs_no_inventory(folder: Path, reading: str) -> None:
    assert run(folder, reading, "gb10.fleet.site")[0] == 0


@pytest.mark.parametrize("playbook", ["site", "drift", "undo", "validate", "benchmark", "explain"])
def test_gb10_hosts_in_the_inventory_is_refused(folder: Path, playbook: str) -> None:
    (folder / "group_vars").mkdir()
    (folder / "group_vars" / "all.yml").write_text("gb10_hosts: mine\nansible_become: false\n")
    (folder / "hosts.yml").write_text(INVENTORY.replace("other", "sparks"))
    words = ("-i", "hosts.yml", f"gb10.fleet.{playbook}", "-e", "gb10_undo=all")
    rc, output = run(folder, *words)
    assert rc == 2 and "gb10_hosts is set in the inventory (group all)" in output, output
    assert "say it with the run, -e gb10_hosts=GROUP" in output and "changed=1" not in output
