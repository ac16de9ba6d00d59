"""The digest of the engine, and what a host does not import."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.system import system
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import sha256

COLLECTIONS = Path(system.__file__).parents[6]  # of the checkout, or where it is installed


def test_the_digest_is_the_usual_one() -> None:
    assert sha256(b"abc") == hashlib.sha256(b"abc").hexdigest()


def test_the_hash_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that is missing costs a search of Python's whole path."""
    sha256(b"abc")
    sought: list[str] = []

    class Listening:
        def find_spec(self, name: str, *_: Any) -> None:
            sought.append(name)

    monkeypatch.setattr(sys, "meta_path", [Listening(), *sys.meta_path])
    sha256(b"abc")
    assert sought == []


def test_the_kernel_tells_what_it_runs() -> None:
    """It has no megabytes for one answer: a read that offers room for so many fails."""
    assert system.System().text("/proc/sys/kernel/osrelease") == f"{os.uname().release}\n"


def test_what_is_no_text_holds_up_no_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "LARGEST_FILE", 4)
    host = system.System(tmp_path)
    (tmp_path / "text").write_text("four", encoding="utf-8")
    (tmp_path / "long").write_text("fives", encoding="utf-8")
    (tmp_path / "endless").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    assert [host.text(f"/{name}") for name in ("text", "long", "endless", "absent", "")] == ["four", *[None] * 4]
    flags: list[int] = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, how: flags.append(how) or real(path, how | os.O_NONBLOCK))
    assert host.text("/pipe") == "" and flags[0] & os.O_NONBLOCK, "a pipe without a writer would be waited for"


def test_a_call_and_a_look_import_nothing_that_takes_long() -> None:
    """To import subprocess takes an eighth of what a look at a host costs."""
    room = "ansible_collections.gb10.fleet.plugins.module_utils"
    code = f"import sys; sys.path.insert(0, {str(COLLECTIONS)!r}); from {room}.bootstrap import install, texts; " \
           f"from {room}.reading import glance; glance.look(glance.HostReader()); print(*sys.modules)"  # fmt: skip
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert f"{room}.system.commands" in done.stdout.split()
    assert {"ctypes", "hashlib", "subprocess", "signal"}.isdisjoint(done.stdout.split())
