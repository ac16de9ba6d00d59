"""Other logins of the machine that has the inventory."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import from_failure
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import output

from gb10_fleet import home
from gb10_fleet.rollout import locks
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


@needs_root
def test_who_owns_the_folder_leads_no_file_elsewhere(tmp_path: Path) -> None:
    """`evidence` in /tmp may be another login's: between two openings of a name he put a link there."""
    (ours := tmp_path / "ours").write_text("ours")
    with public_folder() as folder:
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


@needs_root
def test_a_process_of_another_login_is_none_that_a_run_has_left() -> None:
    """Root may read the environment of all of them, and anybody may choose his own."""
    environment = {**os.environ, "GB10_ROLLOUT": "r-77/1"}
    with subprocess.Popen(["sleep", "60"], env=environment, user=NOBODY) as theirs:
        try:
            while not (found := Path(f"/proc/{theirs.pid}/cmdline").read_bytes()).startswith(b"sleep"):
                assert found is not None
                time.sleep(0.01)
            won = locks.orphans(["r-77"])
        finally:
            theirs.kill()
    tally("another login of the controller: a process in the name of a run", 1, len(won))
    assert won == []
