"""Commands of the engine: real ones."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.serving import host_tools
from ansible_collections.gb10.fleet.plugins.module_utils.system import commands
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Completed, run_command

LARGE = 2**20  # bytes; a pipe holds 2**16
LONG_S = 60.0


def shell(script: str, given: bytes | None = None, timeout_s: float = LONG_S) -> tuple[int | None, bytes, bytes]:
    return commands.run(["sh", "-c", script], dict(os.environ), given, timeout_s)


def gone(pid: int) -> bool:
    until = time.monotonic() + LONG_S
    while time.monotonic() < until:
        state = Path(f"/proc/{pid}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.01)
    return False


def test_it_tells_status_and_both_outputs() -> None:
    assert shell("echo out; echo err >&2; exit 3") == (3, b"out\n", b"err\n")


def test_the_signal_that_ended_it_is_its_status() -> None:
    assert shell("kill -KILL $$") == (-signal.SIGKILL, b"", b"")


def test_the_numbers_are_those_of_this_system() -> None:
    names = ("SIGKILL", "SIGPIPE", "SIGXFSZ")
    assert [getattr(commands, name) for name in names] == [int(signal.Signals[name]) for name in names]


def test_a_child_does_not_ignore_what_python_ignores() -> None:
    assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN
    assert [shell(f"kill -{name} $$")[0] for name in ("PIPE", "XFSZ")] == [-signal.SIGPIPE, -signal.SIGXFSZ]


def test_much_goes_in_and_comes_out_at_once() -> None:
    given = os.urandom(LARGE)
    assert shell(f"head -c {LARGE} /dev/zero >&2; tee /dev/stderr", given) == (0, given, bytes(LARGE) + given)


@pytest.mark.parametrize("stream", ["1", "2"])
def test_who_does_not_stop_talking_is_ended(stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container says what it likes, and a user of the host writes into the journal: it is no matter of our memory."""
    monkeypatch.setattr(commands, "MOST", LARGE)
    endless = ["sh", "-c", f"exec yes >&{stream}"]
    for done in (run_command(endless, None, LONG_S), host_tools.command(endless)):
        code = done.rc if isinstance(done, Completed) else done.returncode
        assert (code, done.stdout, done.stderr) == (125, "", "sh said more than 1 MiB, and was ended")
    enough = ["sh", "-c", f"head -c {LARGE} /dev/zero >&{stream}"]
    assert run_command(enough, None, LONG_S).rc == host_tools.command(enough).returncode == 0


def test_a_command_that_is_watched_gets_what_it_is_given_and_tells_both_outputs() -> None:
    seen = list[float]()
    argv = ["sh", "-c", "cat; echo err >&2; sleep 1.5; exit 3"]
    done = host_tools.command(argv, input="ä" * LARGE, watch=lambda: seen.append(time.monotonic()))
    assert (done.returncode, done.stdout, done.stderr) == (3, "ä" * LARGE, "err\n")
    assert seen
    assert host_tools.command(["no-such-program"]).returncode == 127


def test_who_reads_nothing_may_end() -> None:
    assert shell("exec true", bytes(LARGE)) == (0, b"", b"")


def test_what_is_given_goes_on_when_nothing_comes_any_more(tmp_path: Path) -> None:
    assert shell(f"exec >{tmp_path}/all 2>&1; cat", bytes(LARGE))[0] == 0
    assert (tmp_path / "all").stat().st_size == LARGE


@pytest.mark.parametrize("given", [None, b""])
def test_a_child_that_is_given_nothing_finds_the_end(given: bytes | None) -> None:
    assert shell("cat", given) == (0, b"", b"")


def test_a_child_gets_no_file_of_ours(tmp_path: Path) -> None:
    with (tmp_path / "open").open("w") as file:
        told = shell("ls -l /proc/self/fd", b"")[1].decode()
        os.set_inheritable(file.fileno(), True)
        assert f"{tmp_path}/open" in shell("ls -l /proc/self/fd")[1].decode()
    assert f"{tmp_path}/open" not in told


def test_nothing_of_ours_stays_open() -> None:
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names are wanted
    shell("cat", b"x")
    shell("sleep 60", timeout_s=0.05)
    with pytest.raises(commands.NotStarted):
        commands.run(["no-such-program"], {}, b"x", LONG_S)
    assert set(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208


def test_when_time_is_over_its_children_go_too(tmp_path: Path) -> None:
    told = shell(f"sleep 60 & echo $! >{tmp_path}/child; echo $$ >{tmp_path}/self; wait", timeout_s=3)
    assert told == (None, b"", b"")
    assert all(gone(int((tmp_path / name).read_text())) for name in ("child", "self"))


def test_a_child_that_closes_its_outputs_is_waited_for() -> None:
    assert shell("exec >&- 2>&-; sleep 0.1; exit 5")[0] == 5
    assert shell("exec >&- 2>&-; sleep 60", timeout_s=0.1)[0] is None


def test_one_that_went_to_a_session_of_its_own_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shutil.which("setsid")
    monkeypatch.setattr(commands, "KILL_S", 0.5)
    began = time.monotonic()
    assert shell("setsid sleep 20 & exec sleep 60", timeout_s=0.2)[0] is None
    assert time.monotonic() - began < 15


def test_nobody_of_its_group_is_left_to_hold_a_lock(tmp_path: Path) -> None:
    script = f"flock {tmp_path}/lock sh -c 'echo >{tmp_path}/held; exec sleep 60' & exec sleep 60"
    assert shell(script, timeout_s=3)[0] is None
    assert (tmp_path / "held").exists()
    assert shell(f"flock --nonblock {tmp_path}/lock true")[0] == 0


def test_a_python_of_an_older_libc_runs_commands_too(monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.posix_spawnp

    def old(*words: Any, setsid: bool = False, **options: Any) -> int:
        if setsid:
            raise NotImplementedError("setsid unavailable on this platform")
        return real(*words, **options)

    monkeypatch.setattr(os, "posix_spawnp", old)
    assert shell("cat", b"words") == (0, b"words", b"")
    assert shell("sleep 60 & sleep 60", timeout_s=0.2)[0] is None


def test_where_the_status_of_children_is_thrown_away_what_they_say_is_not() -> None:
    code = f"import signal; from {commands.__name__} import run; signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
    code += "print(run(['echo', 'hi'], {}, None, 60), run(['sleep', '60'], {}, None, 0.1))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path))}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "(0, b'hi\\n', b'') (None, b'', b'')\n"


def test_an_error_of_somebody_else_is_neither_an_end_of_time_nor_a_missing_program(tmp_path: Path) -> None:
    def raises(*_: Any) -> None:
        raise TimeoutError("the whole task")

    before = signal.signal(signal.SIGALRM, raises)
    try:
        signal.setitimer(signal.ITIMER_REAL, 1)
        with pytest.raises(TimeoutError, match="the whole task"):
            shell(f"echo $$ >{tmp_path}/self; exec sleep 2")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    os.waitpid(int((tmp_path / "self").read_text()), 0)  # no later test may find it


def test_one_that_outlives_its_kill_is_reaped_by_a_later_run(monkeypatch: pytest.MonkeyPatch) -> None:
    real, stuck = os.killpg, []
    monkeypatch.setattr(commands, "KILL_S", 0.1)
    monkeypatch.setattr(os, "killpg", lambda pid, _number: stuck.append(pid))
    assert shell("exec sleep 60", timeout_s=0.1)[0] is None
    real(stuck[0], signal.SIGKILL)
    assert gone(stuck[0])
    shell("true")
    assert not Path(f"/proc/{stuck[0]}").exists()


class TestRunCommand:
    def test_a_missing_program_is_told(self) -> None:
        done = run_command(["no-such-program", "--now"], None, LONG_S)
        assert (done.rc, done.stderr) == (127, "no-such-program: No such file or directory")

    def test_a_file_that_is_no_program_is_told(self, tmp_path: Path) -> None:
        (tmp_path / "text").write_text("words\n")
        done = run_command([str(tmp_path / "text")], None, LONG_S)
        assert (done.rc, done.stderr) == (127, f"{tmp_path}/text: Permission denied")

    def test_time_that_is_over_is_told(self) -> None:
        done = run_command(["sleep", "60"], None, 0.05)
        assert (done.rc, done.stderr) == (124, "sleep did not end within 0.05 s")

    def test_what_is_no_text_is_read_all_the_same(self) -> None:
        done = run_command(["printf", r"a\r\nb\rc\377\n"], None, LONG_S)
        assert done.stdout == "a\nb\nc\N{REPLACEMENT CHARACTER}\n"

    def test_words_go_in_as_they_are(self) -> None:
        assert run_command(["cat"], "grün\r\n", LONG_S).stdout == "grün\n"
        assert run_command(["cat"], "lone \ud800", LONG_S).stdout == "lone ?"

    def test_the_language_is_that_of_the_texts_that_are_read(self) -> None:
        told = run_command(["env"], None, LONG_S).stdout.splitlines()
        assert {"LC_ALL=C", "LANGUAGE=", "DEBIAN_FRONTEND=noninteractive", "NEEDRESTART_MODE=l"} <= set(told)
