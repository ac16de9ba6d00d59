"""Whole runs by a user whose SSH, sudo and su want passwords: each comes from where Ansible takes one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support import benchmark_play as benchmark
from tests.support import plays as support
from tests.support.benchmark_play import plays as measured
from tests.support.benchmark_play import port
from tests.support.doors import OF_ROOT, OF_SSH, OF_SUDO, SSH_DOOR, opened, put_ways_to_root
from tests.support.plays import Plays, recap

__all__ = ["measured", "port"]  # fixtures
SITE = "- ansible.builtin.import_playbook: gb10.fleet.site\n"
VALIDATE = "- ansible.builtin.import_playbook: gb10.fleet.validate\n"
A = {"spark-a": {"ansible_host": "kind-ok"}}
OURS: dict[str, Any] = {"gb10_roles": ["page_cache", "firewall"], "ansible_user": "nvidia"}
WRITTEN = {"role": "page_cache", "resource": "file:/x", "action": "create", "detail": "absent"}
# A way to root, and the variables with which Ansible takes it.
WAYS: dict[str, dict[str, Any]] = {
    "sudo": {"ansible_become_password": OF_SUDO},
    "su": {"ansible_become_method": "su", "ansible_become_password": OF_ROOT},
}


def locked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Doors on the hosts of a test, and the words of the command line for the first of them."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    put_ways_to_root(programs)
    shebang, _, rest = support.SSH.partition("\n")
    support.put_ssh(folder, f"{shebang}\n{SSH_DOOR}{rest}")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("ANSIBLE_SSH_TRANSFER_METHOD", "piped")  # sftp is a program of its own, and no host has it
    (folder / "of-ssh").write_text(f"{OF_SSH}\n")
    return ("--connection-password-file", "of-ssh")


def through(folder: Path) -> set[str]:
    return opened(folder) | opened(folder / "bin")


@pytest.mark.parametrize(("playbook", "way"), [(SITE, "su"), (VALIDATE, "sudo")], ids=["site", "validate"])
def test_site_and_validate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, playbook: str, way: str) -> None:
    plays = Plays(tmp_path)
    words = locked(tmp_path, monkeypatch)
    plays.host("ok", changes=[WRITTEN])
    rc, output = plays.play(A, playbook, *words, **OURS, **WAYS[way])
    assert rc == 0 and recap(output) == {"spark-a": "changed" if playbook == SITE else "ok"}, output
    assert through(tmp_path) == {"ssh", way}
    assert (tmp_path / "evidence/latest/index.html").exists()
    assert not [secret for secret in (OF_SSH, OF_SUDO, OF_ROOT) if secret in output]


def test_benchmark(measured: Plays, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its load runs as a job of Ansible's, which is polled by a connection and a sudo of its own."""
    words = locked(measured.tmp_path, monkeypatch)
    # The home of root is this machine's own.
    jobs = {"ansible_async_dir": str(measured.tmp_path / "jobs")}
    own = {"ansible_become": True, "ansible_user": "nvidia", "benchmark_concurrency": [1], **WAYS["sudo"], **jobs}
    rc, output = benchmark.run(measured, port, *words, **own)
    assert rc == 0, output
    assert benchmark.document(measured)["verdict"] == "no_expectation"
    assert through(measured.tmp_path) == {"ssh", "sudo"}
