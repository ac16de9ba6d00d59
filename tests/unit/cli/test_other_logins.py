"""Other logins of the machine that has the inventory."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from ansible_collections.gb10.fleet.plugins.module_utils.images import docker
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import from_failure
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import output
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import evidence_files

from gb10_fleet import home, image, options
from gb10_fleet.playbook import Order, Outcome, run
from gb10_fleet.rollout import locks, recipes
from gb10_fleet.rollout.journal import place
from gb10_fleet.up import written
from tests.support.attacker import NOBODY, TRIES, attacking, needs_root, public_folder, tally


def test_a_setting_that_any_login_may_have_written_names_no_inventory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An inventory may be a program. In /tmp `gb10 ps` ran that of another login; Ansible does not look there."""
    for name in ("ANSIBLE_INVENTORY", "ANSIBLE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    (tmp_path / "ansible.cfg").write_text("[defaults]\ninventory = theirs\n")
    monkeypatch.chdir(tmp_path)
    assert home.default() == ["theirs"]
    tmp_path.chmod(0o1777)
    won = home.default()
    tally("another login of the controller: an inventory of its own", 1, len(won))
    assert won == []
    monkeypatch.setenv("ANSIBLE_CONFIG", "ansible.cfg")
    assert home.default() == ["theirs"], "its owner has named it"


def test_no_way_out_leads_to_a_folder_that_any_login_may_make() -> None:
    """ssh does not ask whose control socket it is, and hands over what Ansible sends, with the password of sudo."""
    found = from_failure("spark-a", 'unix_listener: path "/home/x" too long for Unix domain socket')
    assert found is not None and "control_path_dir" in found.way_out and "/tmp" not in found.way_out


def test_the_inventory_of_gb10_up_is_its_owners_alone(tmp_path: Path) -> None:
    """An inventory is a program. With a umask of 002 a group that people share could write it, with 000 anybody."""
    before = os.umask(0)
    try:
        written.write(written.Fleet([]), tmp_path / "gb10-fleet/inventory", {})
    finally:
        os.umask(before)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("gb10-fleet", "gb10-fleet/inventory")]
    tally("another login of the controller: the inventory of gb10 up", 2, sum(mode != 0o700 for mode in modes))
    assert modes == [0o700, 0o700]


@needs_root
def test_who_owns_the_folder_leads_no_file_elsewhere(tmp_path: Path) -> None:
    """`evidence` in /tmp may be another login's: between two openings of a name he put a link there."""
    (ours := tmp_path / "ours").write_text("ours")
    with public_folder() as public:
        (folder := public / "theirs").mkdir()
        os.chown(folder, NOBODY, NOBODY)
        new = folder / f".drift.json-{os.getpid()}"

        def move() -> None:
            if new.exists() and not new.is_symlink():
                new.unlink()
                new.symlink_to(ours)

        with attacking(move):
            for _ in range(TRIES):
                with contextlib.suppress(OSError):
                    output.write(folder / "drift.json", "theirs")
    won = int(ours.read_text() != "ours")
    tally("another login of the controller: a link in its own folder", TRIES, won)
    assert not won


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, as /tmp is."""
    (folder := tmp_path / "shared").mkdir()
    folder.chmod(0o1777)
    monkeypatch.chdir(folder)
    yield folder


def _theirs(path: Path) -> Path:
    """Give it to another login, with all that is in it."""
    for each in (path, *path.rglob("*")):
        os.chown(each, NOBODY, NOBODY, follow_symlinks=False)
    return path


@needs_root
def test_nothing_is_kept_in_a_folder_that_another_login_has_made_for_us(shared: Path, tmp_path: Path) -> None:
    """`gb10 rollout -i a,b` removed what a link `.jobs` in it led to, and took the plays of a wave from there."""
    (shared / ".gb10").mkdir()
    (shared / "hosts.yml").touch()
    assert place(["a,b"]) == place(["hosts.yml"]) == shared / ".gb10"
    _theirs(shared / ".gb10")
    for inventories in (["a,b"], ["hosts.yml"]):
        with pytest.raises(typer.BadParameter, match="another login's"):
            place(inventories)
    (shared / ".gb10").rmdir()
    (shared / ".gb10").symlink_to(tmp_path)
    _theirs(shared / ".gb10")
    with pytest.raises(typer.BadParameter, match="another login's"):
        place(["a,b"])
    tally("another login of the controller: a folder in our place", 3, 0)


@needs_root
def test_no_proof_goes_into_a_folder_that_another_login_has_made_for_us(shared: Path, tmp_path: Path) -> None:
    """He put a link in the place of the folder that was being made: files were written there, and it had mode 0755."""
    _theirs(_made(shared / "evidence"))
    with pytest.raises(OSError, match="another login's"):
        output.write(shared / "evidence/drift.json", "ours")
    with pytest.raises(ValueError, match="another login's"):
        evidence_files.refuse(shared / "evidence/latest")
    (private := tmp_path / "private").mkdir(0o700)
    document = {"created": "2026-11-30T00:00:00Z", "verdict": "good", "reasons": [], "hosts": {}}
    with pytest.raises(OSError, match="another login's"):
        evidence_files.write(document, shared / "evidence")
    assert private.stat().st_mode & 0o777 == 0o700
    evidence_files.refuse(shared / "ours")
    tally("another login of the controller: a folder in our place", 3, 0)


def _made(path: Path) -> Path:
    path.mkdir()
    return path


@needs_root
def test_no_name_of_a_command_is_a_file_of_another_login(shared: Path) -> None:
    """`gb10 rollout site` and `-i a,b` in /tmp: a file of that name went before."""
    for name in ("site", "a,b"):
        (shared / name).touch()
    assert recipes.forward("site", []).steps[-1].plays == [{"import_playbook": str(shared / "site")}]
    assert options.there(["a,b"]) == ["a,b"]
    _theirs(shared / "site")
    _theirs(shared / "a,b")
    won = str(shared) in str(recipes.forward("site", []).steps)
    tally("another login of the controller: a file in the place of a name", 1, int(won))
    assert not won
    with pytest.raises(typer.BadParameter, match="another login's"):
        options.there(["a,b"])


@needs_root
def test_no_proof_and_no_image_is_a_file_of_another_login(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`gb10 image inspect nvcr.io/x` in /tmp read his archive, and `gb10 evidence` and `report` showed his files."""
    monkeypatch.setattr(docker, "read", lambda name: {"said": f"Docker: {name}"})
    monkeypatch.setattr(docker, "of_path", lambda path: {"said": str(path)})
    names = [Path("evidence/latest/evidence.json"), Path("evidence/drift/drift.json")]
    for name in (*names, Path("nvcr.io/x")):
        name.parent.mkdir(parents=True, exist_ok=True)
        name.write_text('{"a": 1}')

    def taken() -> list[bool]:
        own = image._of_here("nvcr.io/x")["said"] == "nvcr.io/x"
        return [own, *(bool(home.document_here(name)) for name in names)]

    assert taken() == [True, True, True]
    _theirs(shared / "nvcr.io")
    _theirs(shared / "evidence")
    won = taken()
    tally("another login of the controller: a file in the place of a name", 3, sum(won))
    assert won == [False, False, False]
    assert image._of_here("./nvcr.io/x")["said"] == "nvcr.io/x", "a person has named the file"


@needs_root
@pytest.mark.parametrize("name", ["group_vars", "host_vars", home.KNOWN_HOSTS])
def test_nothing_beside_an_inventory_is_of_another_login(shared: Path, name: str) -> None:
    """Ansible reads `group_vars` there, and a value may be a template that runs a program."""
    (shared / "hosts.yml").touch()
    (shared / name).touch()
    assert options.there(["hosts.yml"]) == ["hosts.yml"]
    _theirs(shared / name)
    for inventory in ("hosts.yml", "."):
        with pytest.raises(typer.BadParameter, match="another login's"):
            options.there([inventory])
    tally("another login of the controller: a file in the place of a name", 2, 0)


@needs_root
def test_ansible_runs_no_plugin_of_a_folder_that_any_login_may_write_to(shared: Path, tmp_path: Path) -> None:
    """The path of one kind of plugins is a name in the current folder, and it comes before any play."""
    play = "- hosts: all\n  gather_facts: false\n  tasks: [{ansible.builtin.debug: {}}]\n"
    (playbook := tmp_path / "play.yml").write_text(play)
    plugin = _made(shared / "shell_plugins") / "sh.py"
    plugin.write_text(f"open({str(tmp_path / 'mark')!r}, 'w')\n")
    outcome, report = run(Order(str(playbook), ["a,"]), quiet=True)
    won = int((tmp_path / "mark").exists())
    tally("another login of the controller: a plugin of Ansible", 1, won)
    assert (outcome, report.errors, won) == (Outcome.done, [], 0)
    shared.chmod(0o755)
    run(Order(str(playbook), ["a,"]), quiet=True)
    assert (tmp_path / "mark").exists(), "a folder of your own is yours, and Ansible has not changed"


@needs_root
@pytest.mark.parametrize("mode", [0o755, 0o4755], ids=["his own", "with the setuid bit"])
def test_a_process_of_another_login_is_none_that_a_run_has_left(mode: int) -> None:
    """Root may read the environment of all of them, and anybody may choose his own; with that bit it is root's."""
    environment = {**os.environ, "GB10_ROLLOUT": "r-77/1"}
    with public_folder() as folder:
        shutil.copy("/bin/sleep", program := folder / "sleep")
        program.chmod(mode)
        with subprocess.Popen([program, "60"], env=environment, user=NOBODY) as theirs:
            try:
                while b"sleep\0" not in Path(f"/proc/{theirs.pid}/cmdline").read_bytes():
                    time.sleep(0.01)
                won = locks.orphans(["r-77"])
            finally:
                theirs.kill()
    tally("another login of the controller: a process in the name of a run", 1, len(won))
    assert won == []
