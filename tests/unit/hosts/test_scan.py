"""One program to many hosts at once: bounds, timeouts, retries. The hosts are shell commands of this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import scan
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.scan import Reply, Target, ask


def target(host: str, shell: str, retries: int = 0, program: bytes = b"") -> Target:
    return Target(host, ("/bin/sh", "-c", shell), program, retries)


def said(
    *targets: Target,
    concurrency: int = 10,
    timeout_s: float = 20,
    progress: Callable[[int, int], None] = lambda done, total: None,
    period_s: float = 10,
) -> list[Reply]:
    return ask(targets, concurrency=concurrency, timeout_s=timeout_s, progress=progress, period_s=period_s)


def test_every_host_gets_its_program_and_replies_in_order() -> None:
    targets = [
        target(f"h{number}", f"cat; echo h{number} >&2; exit {number}", program=f"all of {number}\n".encode())
        for number in range(30)
    ]
    replies = said(*targets, concurrency=7)
    assert replies == [Reply(f"h{number}", number, f"all of {number}\n", f"h{number}\n") for number in range(30)]


def test_a_program_is_written_while_the_host_talks() -> None:
    """Both are more than a pipe holds."""
    program = b"0123456789" * 10**5
    (reply,) = said(target("h", "head -c 300000 /dev/zero | tr '\\0' x; wc -c", program=program))
    assert reply.stdout.strip("x").strip() == "1000000" and reply.status == 0


def test_a_host_need_not_read_its_program() -> None:
    program = b"x" * 10**6
    replies = said(target("deaf", "exec <&-; echo fine", program=program), target("gone", "exit 4", program=program))
    assert [(reply.status, reply.stdout) for reply in replies] == [(0, "fine\n"), (4, "")]


def test_a_host_that_reads_nothing_is_ended_in_time() -> None:
    (reply,) = said(target("h", "exec sleep 77", program=b"x" * 10**6), timeout_s=0.3)
    assert reply.status is None


def asking(shell: str, reply: Callable[[str], bytes | None], program: bytes = b"one\n") -> Target:
    return Target("h", ("/bin/sh", "-c", shell), program, 0, reply)


def test_a_host_that_asks_is_replied_to_over_the_same_connection() -> None:
    heard = []

    def reply(line: str) -> bytes | None:
        heard.append(line)
        return b"y" * 10**6 if line == "more?" else None

    shell = "read one; echo $one; printf mo; sleep 0.1; printf 're?\\nand'; wc -c; exit 3"
    assert said(asking(shell, reply)) == [Reply("h", 3, "one\nmore?\nand1000000\n", "")]
    assert heard == ["one", "more?"], "a line was shown in halves, or after the reply"


def test_a_host_that_asks_for_ever_gets_one_reply() -> None:
    shell = "for i in 1 2 3 4 5; do echo more?; sleep 0.05; done; wc -c"
    assert said(asking(shell, lambda line: b"two\n")) == [Reply("h", 0, "more?\n" * 5 + "8\n", "")]


def test_a_host_that_asks_for_nothing_has_an_open_end_and_is_not_waited_for() -> None:
    (reply,) = said(asking("read one; echo fine", lambda line: None))
    assert reply == Reply("h", 0, "fine\n", "")


def test_a_reply_to_a_host_that_is_gone_is_lost() -> None:
    (reply,) = said(asking("exec <&-; echo more?; exit 4", lambda line: b"y" * 10**6))
    assert reply == Reply("h", 4, "more?\n", "")


def test_no_host_no_reply() -> None:
    assert said() == []


def test_hosts_are_asked_at_the_same_time(tmp_path: Path) -> None:
    """Each end of a pipe waits for the other."""
    ends = f"mkfifo {tmp_path}/pipe 2>/dev/null;"
    replies = said(target("a", f"{ends} echo met >{tmp_path}/pipe"), target("b", f"{ends} cat {tmp_path}/pipe"))
    assert [reply.status for reply in replies] == [0, 0]
    assert replies[1].stdout == "met\n"


@pytest.mark.parametrize("concurrency", [1, 3])
def test_never_more_than_allowed_at_once(tmp_path: Path, concurrency: int) -> None:
    count = f"cd {tmp_path} && mkdir $$ && ls | wc -l && sleep 0.02 && rmdir $$"
    replies = said(*(target(f"h{number}", count) for number in range(12)), concurrency=concurrency)
    assert max(int(reply.stdout) for reply in replies) <= concurrency
    assert len(replies) == 12


def test_a_host_that_hangs_is_ended_and_holds_up_nobody(tmp_path: Path) -> None:
    hangs = target("hangs", f"echo began; echo $$ >{tmp_path}/pid; exec sleep 77")
    replies = said(hangs, target("fine", "echo fine"), timeout_s=0.5)
    assert replies == [Reply("hangs", None, "began\n", ""), Reply("fine", 0, "fine\n", "")]
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_child_that_outlives_the_command_holds_up_nobody() -> None:
    """It keeps the pipe open, so the answer has no end."""
    (reply,) = said(target("h", "echo began; sleep 5 & exit 3"), timeout_s=0.3)
    assert reply == Reply("h", 3, "began\n", "")


def test_what_ssh_leaves_behind_holds_up_nobody() -> None:
    """A control master keeps the stderr of the ssh that started it."""
    (reply,) = said(target("h", "sleep 30 >/dev/null </dev/null & echo said >&2"), timeout_s=10)
    assert reply == Reply("h", 0, "", "said\n")


def test_an_endless_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "ANSWER_LIMIT", 10**6)
    (reply,) = said(target("h", "yes"))
    assert reply.status is not None and reply.status < 0
    assert 10**6 < len(reply.stdout) < 2 * 10**6

    assert "more than 0.953674 MiB to standard output" in reply.stderr


def test_endless_standard_error_is_cut_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lies in a file, so it must not fill the disk either."""
    monkeypatch.setattr(scan, "ERRORS_LIMIT", 10**6)
    loud, other = said(target("loud", "exec yes >&2"), target("other", "echo fine"))
    assert loud.status and "wrote more than 0.953674 MiB to standard error" in loud.stderr
    assert len(loud.stderr) < 1000
    assert other == Reply("other", 0, "fine\n", "")


def test_what_ssh_says_at_last_is_kept_behind_a_long_banner() -> None:
    """Of the first 64 KiB alone the host wrote each word, the last one too."""
    (reply,) = said(target("h", "head -c 70000 /dev/zero | tr '\\0' x >&2; echo Permission denied >&2; exit 255"))
    assert reply.stderr.endswith("xPermission denied\n") and len(reply.stderr) == 2**16


@pytest.mark.parametrize(
    ("fails", "message", "status", "calls"),
    [
        (1, "reset by peer", 0, 2),
        (9, "reset by peer", 255, 3),
        (9, "connect to host h port 22: Connection timed out", 255, 1),
    ],
)
def test_a_broken_connection_is_tried_again(tmp_path: Path, fails: int, message: str, status: int, calls: int) -> None:
    shell = (
        f'echo >>{tmp_path}/calls; [ $(wc -l <{tmp_path}/calls) -gt {fails} ] || {{ echo "{message}" >&2; exit 255; }}'
    )
    (reply,) = said(target("h", shell, retries=2))
    assert reply.status == status
    assert (tmp_path / "calls").read_text().count("\n") == calls


def test_what_the_host_itself_says_is_not_asked_twice(tmp_path: Path) -> None:
    said(target("h", f"echo >>{tmp_path}/calls; exit 1", retries=2))
    assert (tmp_path / "calls").read_text() == "\n"


def test_no_ssh_on_this_machine_is_a_reply_too() -> None:
    (reply,) = said(Target("h", ("/nowhere/ssh",), b""))
    assert reply == Reply("h", scan.NOT_FOUND, "", "/nowhere/ssh: No such file or directory")


def test_a_long_scan_says_how_far_it_is(tmp_path: Path) -> None:
    heard = []

    def progress(done: int, total: int) -> None:
        heard.append((done, total))
        if done == 1:  # the other one has replied
            (tmp_path / "go").touch()

    waits = f"until [ -e {tmp_path}/go ]; do sleep 0.01; done"
    said(target("a", waits), target("b", "true"), progress=progress, period_s=0.02)
    assert heard[-1] == (1, 2)


def test_bytes_that_are_no_text_are_no_failure() -> None:
    (reply,) = said(target("h", r"printf '\377'; printf '\377' >&2"))
    assert (reply.stdout, reply.stderr) == ("\ufffd", "\ufffd")


def test_a_reply_knows_when_its_connection_began_and_ended() -> None:
    before = time.time()
    (reply,) = said(target("h", "sleep 0.2"))
    assert before <= reply.began and reply.began + 0.2 <= reply.ended <= time.time()
