"""The lock of a host: one writer, readers wait, and the orphan of a killed rollout is told apart and turned away."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.engine import remote
from ansible_collections.gb10.fleet.plugins.module_utils.system import lock
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import run as runs

from tests.support.fake_host import FakeHost

BOOT = "2c5b8e0e-5c1f-4f0e-9a3e-1d1c7b0a6f11"
PERSON = "op@desk 77 2026-11-21T05:00:00Z"


def attempt(number: int, rollout: str = "r7") -> str:
    return f"op@desk {100 + number} 2026-11-21T05:00:00Z rollout {rollout} attempt {number}"


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    fake = FakeHost(tmp_path)
    fake.file(lock.BOOT_ID, f"{BOOT}\n")
    return fake


@contextmanager
def holder(host: FakeHost, run: str, *, exclusive: bool) -> Iterator[Callable[[], None]]:
    """Another process that has the lock until it is told to let go, or the test ends."""
    ready_read, ready_write = os.pipe()
    end_read, end_write = os.pipe()
    child = os.fork()
    if not child:
        os.close(end_write)
        with lock.held(host.system, run, exclusive=exclusive):
            os.write(ready_write, b".")
            os.read(end_read, 1)  # it also returns when the pipe closes
        os._exit(0)
    os.close(end_read)
    assert os.read(ready_read, 1) == b"."
    ended = False

    def let_go() -> None:
        nonlocal ended
        if not ended:
            os.close(end_write)
            os.waitpid(child, 0)
            ended = True

    try:
        yield let_go
    finally:
        let_go()
        os.close(ready_read)
        os.close(ready_write)


def refused(host: FakeHost, run: str, *, exclusive: bool = True) -> str:
    """What a run is told that asks for the lock and does not get it."""
    with pytest.raises(HostError) as error, lock.held(host.system, run, exclusive=exclusive):
        pytest.fail("the lock was given away twice")
    return str(error.value)


def write(host: FakeHost, run: str) -> None:
    with lock.held(host.system, run, exclusive=True):
        pass


@pytest.mark.parametrize(
    ("theirs", "ours", "waits"), [(True, True, True), (True, False, True), (False, True, True), (False, False, False)]
)
def test_writers_are_alone(host: FakeHost, theirs: bool, ours: bool, waits: bool) -> None:
    with holder(host, PERSON, exclusive=theirs):
        if waits:
            words = f"another run is at work on this host: {PERSON}, since 20" if theirs else "is reading"
            assert words in refused(host, "me", exclusive=ours)
            assert lock.PATIENCE_S <= host.clock.time < lock.PATIENCE_S + 1
        else:
            with lock.held(host.system, "me", exclusive=ours):
                pass


def test_the_lock_says_who_has_it_from_where_and_on_which_boot(host: FakeHost) -> None:
    with lock.held(host.system, attempt(2), exclusive=True):
        said = json.loads(host.path(lock.LOCK).read_text())
    assert (said["run"], said["pid"], said["boot"]) == (attempt(2), os.getpid(), BOOT)
    assert said["since"].startswith("20")


def test_the_lock_comes_free(host: FakeHost) -> None:
    with holder(host, PERSON, exclusive=True) as let_go:
        host.clock.at_sleep = let_go
        write(host, "me")
    assert json.loads(host.path(lock.LOCK).read_text())["run"] == "me"


def test_a_writer_of_earlier_is_not_taken_for_who_holds_it_now(host: FakeHost) -> None:
    write(host, "dead")
    with holder(host, "reader", exclusive=False):
        assert "somebody else is reading" in refused(host, "me")


@pytest.mark.parametrize(
    "content",
    [
        *("", "{", "[1]", '"x"', '{"run": "dead", "since": "1970"}', "\0" * 9, "[" * 4096),
        '{"run": "dead", "since": "1970", "pid": 1e999, "boot": ""}',
    ],
)
def test_a_damaged_file_keeps_nobody_out(host: FakeHost, content: str) -> None:
    host.file(lock.LOCK, content)
    write(host, attempt(1))
    assert json.loads(host.path(lock.LOCK).read_text())["run"] == attempt(1)


def test_the_lock_is_not_followed_to_somewhere_else(host: FakeHost) -> None:
    victim = host.file("/etc/victim", "x")
    host.system.private_directory(lock.RUN_DIRECTORY)
    host.path(lock.LOCK).symlink_to(victim)
    assert "lock cannot be opened" in refused(host, "me")
    assert victim.read_text() == "x"


def test_a_full_run_is_said_and_forgets_no_attempt(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was a defect of ours, or a file to remove; and the attempts that the file had counted were gone."""
    write(host, attempt(2))

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        said = refused(host, attempt(3))
    assert "lock cannot be written: No space left on device; free space (`df /run/gb10-fleet`), then run again" in said
    assert json.loads(host.path(lock.LOCK).read_text())["run"] == attempt(2)


# ------------------------------------------------------------------------------------------------- orphans of a rollout


@pytest.mark.parametrize(
    ("last", "we", "allowed"),
    [
        (attempt(2), attempt(1), False),
        (attempt(10), attempt(9), False),  # numbers, not words
        (attempt(1), attempt(2), True),
        (attempt(2), attempt(2), True),
        (attempt(2), attempt(1, "r8"), True),
        (attempt(2), PERSON, True),
        (PERSON, attempt(1), True),
        (PERSON, PERSON, True),
    ],
)
def test_an_earlier_attempt_does_not_write_after_a_later_one(host: FakeHost, last: str, we: str, allowed: bool) -> None:
    write(host, last)
    if allowed:
        write(host, we)
        return
    said = refused(host, we)
    assert "this ansible-playbook was left behind by a killed command" in said and we in said and last in said
    assert json.loads(host.path(lock.LOCK).read_text())["run"] == last, "an orphan leaves no name"
    with lock.held(host.system, we, exclusive=False):
        pass  # to look is nobody's harm


def test_what_was_said_before_a_reboot_fences_nobody(host: FakeHost) -> None:
    write(host, attempt(2))
    host.file(lock.BOOT_ID, "another boot\n")
    write(host, attempt(1))


@pytest.mark.parametrize("exclusive", [True, False])
@pytest.mark.parametrize(("left", "we"), [(attempt(1), attempt(2)), (PERSON, PERSON.replace("77", "78"))])
def test_the_next_run_waits_for_what_a_killed_one_has_left_at_work(
    host: FakeHost, left: str, we: str, exclusive: bool
) -> None:
    with holder(host, left, exclusive=True) as let_go:

        def later() -> None:
            if host.clock.time > 10 * lock.PATIENCE_S:
                let_go()

        host.clock.at_sleep = later
        with lock.held(host.system, we, exclusive=exclusive):
            assert lock.PATIENCE_S < host.clock.time < lock.ORPHAN_PATIENCE_S


def test_it_does_not_wait_for_ever_and_names_the_orphan(host: FakeHost) -> None:
    with holder(host, attempt(1), exclusive=True):
        assert attempt(1) in refused(host, attempt(2))
        assert host.clock.time >= lock.ORPHAN_PATIENCE_S


@pytest.mark.parametrize("at_work", [attempt(1), PERSON.replace("desk", "laptop")])
def test_nobody_waits_longer_for_others(host: FakeHost, at_work: str) -> None:
    with holder(host, at_work, exclusive=True):
        refused(host, PERSON)
        refused(host, attempt(1, "r8"))
        assert host.clock.time < 3 * lock.PATIENCE_S


# ------------------------------------------------------------------------------------------------- the name of a run


def test_the_command_names_the_rollout_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(runs.ROLLOUT, raising=False)
    assert re.search(lock.ATTEMPT, runs.name()) is None
    monkeypatch.setenv(runs.ROLLOUT, "20261121T101112Z-3f2a/12")
    name = runs.name()
    assert name.endswith(" rollout 20261121T101112Z-3f2a attempt 12")
    remote.parse_request({"verb": "drift", "check": True, "project": "0.1.0", "run": name})  # as the engine takes it


@pytest.mark.parametrize("value", ["", "r7", "r7/", "/1", "r7/0", "r7/x", "r 7/1", "r7/1\n", f"{'r' * 65}/1", "a/b/1"])
def test_a_rollout_that_the_lock_would_not_understand_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(runs.ROLLOUT, value)
    with pytest.raises(ValueError, match=f"{runs.ROLLOUT}=.* expected ID/NUMBER"):
        runs.name()
