"""Whose process listens where the gateway sends requests: real sockets, and control groups as /proc tells them."""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit import door as vllm_door
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.config import Api
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.door import Door
from ansible_collections.gb10.fleet.plugins.module_utils.reading import sockets

from tests.support.attacker import tally

ME = pwd.getpwuid(os.getuid()).pw_name
OURS = "0::/system.slice/docker-1.scope\n"
LISTENS = """
import socket, sys
address, port = sys.argv[1], int(sys.argv[2])
made = socket.create_server((address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
print(made.getsockname()[1], flush=True)
sys.stdin.read()
"""


@contextmanager
def listener(address: str, port: int = 0) -> Iterator[tuple[int, int]]:
    """Process and port of a server."""
    argv = [sys.executable, "-c", LISTENS, address, str(port)]
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin and child.stdout
    with closing(child.stdin), closing(child.stdout):
        yield child.pid, int(child.stdout.readline())
        child.kill()
        child.wait()


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """/proc with the processes that a test puts into it."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/net").symlink_to("/proc/net")
    return tmp_path / "proc"


def test_a_hundred_thousand_sockets_hold_up_no_look(tmp_path: Path) -> None:
    """A user opens them, also at our port and on addresses of his own: 127.0.0.0/8 is everybody's."""
    (tmp_path / "net").mkdir()
    row = "{:6d}: {:02X}{:02X}007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000 65534 0 {} 1 0 100 0"
    rows = [row.format(number, number % 251, 1 + number // 251, number + 9) for number in range(100_000)]
    rows[70_000] = (
        "70000: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4242 1 0 100 0 0 10 0"
    )
    (tmp_path / "net/tcp").write_text("\n".join(["  sl  local_address rem_address", *rows, ""]))
    began = time.process_time()
    found = list(sockets.sockets([sockets.End("127.0.0.1", 8000)], state=sockets.LISTEN, proc=tmp_path))
    assert [each.mark for each in found] == [(4242, 0)]
    assert time.process_time() - began < 0.7, "it took 2.7 s to read them all"


def put(proc: Path, process: int, group: str) -> None:
    folder = proc / str(process)
    folder.mkdir()
    (folder / "fd").symlink_to(f"/proc/{process}/fd")
    (folder / "cgroup").write_text(group)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_it_opens_for_the_container_that_listens_and_once(tmp_path: Path, proc: Path, address: str) -> None:
    with listener(address) as (process, port):
        put(proc, process, OURS)
        put(proc, 1_000_000_001, OURS)  # the container's first process, which has no socket
        door = Door(tmp_path, Api(address, port), proc)
        assert door.opens(1_000_000_001) and (tmp_path / "serving").stat().st_mode & 0o777 == 0o644
        assert not door.opens(1_000_000_001) and door.is_open
        door.close()
        assert not door.is_open and not (tmp_path / "serving").exists()
        door.close()


@pytest.mark.parametrize("group", ["0::/system.slice/docker-2.scope\n", "0::/user.slice/docker-1.scope\n", "0::/\n"])
@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])  # noqa: S104
def test_it_stays_shut_where_somebody_else_listens(tmp_path: Path, proc: Path, address: str, group: str) -> None:
    with listener(address) as (process, port):
        put(proc, process, group)
        put(proc, 1_000_000_001, OURS)
        assert not Door(tmp_path, Api("127.0.0.1", port), proc).opens(1_000_000_001)
    assert not (tmp_path / "serving").exists()


def test_it_stays_shut_where_somebody_shares_the_port(tmp_path: Path, proc: Path) -> None:
    """Two sockets of one user may have a port together (SO_REUSEPORT), and the kernel deals out the connections."""
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        one.bind(("127.0.0.1", 0))
        other.bind(one.getsockname())
        one.listen()
        door = Door(tmp_path, Api(*one.getsockname()), proc)
        put(proc, os.getpid(), OURS)
        assert door.opens(os.getpid())
        door.close()
        other.listen()
        hidden = proc / f"{os.getpid()}/fd"
        hidden.unlink()
        hidden.mkdir()
        (hidden / "socket:").symlink_to("/proc/self/fd")
        (hidden / "3").symlink_to(f"socket:/{one.fileno()}")
        assert len(sockets.sockets_of([os.getpid()], proc)) == 1 and not door.opens(os.getpid())


@pytest.mark.parametrize("his", [False, True])
def test_a_number_that_came_around_again_opens_nothing(tmp_path: Path, proc: Path, his: bool) -> None:
    """A login makes sockets until one that listens has the number of one of the container's: 2**32 at most."""
    with listener("127.0.0.1") as (process, port):
        put(proc, process, OURS)
        (mark,) = {each.mark for each in sockets.sockets([sockets.End("127.0.0.1", port)], state=sockets.LISTEN)}
        assert mark and mark.user == os.getuid()
        (proc / "net").unlink()
        (proc / "net").mkdir()
        row = f"0: 0100007F:{port:04X} 00000000:0000 0A 0:0 0:0 0 {mark.user + his} 0 {mark.inode} 1 0 100 0 0 10 0\n"
        (proc / "net/tcp").write_text(row)
        opened = Door(tmp_path, Api("127.0.0.1", port), proc).opens(process)
    if his:
        tally("a socket with the number of one of the container's", 1, int(opened))
    assert opened is not his


def test_another_address_is_another_matter(tmp_path: Path, proc: Path) -> None:
    with listener("127.0.0.1") as (process, port), listener("127.0.0.2", port):
        put(proc, process, OURS)
        assert Door(tmp_path, Api("127.0.0.1", port), proc).opens(process)


def test_nobody_listens_yet_or_there_is_no_api_or_no_container(tmp_path: Path, proc: Path) -> None:
    with listener("127.0.0.1") as (process, port):
        put(proc, process, OURS)
        assert not Door(tmp_path, None, proc).opens(process)
        assert not Door(tmp_path, Api("127.0.0.1", port), proc).opens(0)
    assert not Door(tmp_path, Api("127.0.0.1", port), proc).opens(process)


def test_a_folder_that_cannot_be_written_opens_nothing(tmp_path: Path, proc: Path) -> None:
    with listener("127.0.0.1") as (process, port):
        put(proc, process, OURS)
        assert not Door(tmp_path / "missing", Api("127.0.0.1", port), proc).opens(process)


def test_a_server_that_stops_to_listen_and_lives_on_has_its_door_closed(tmp_path: Path, proc: Path) -> None:
    with listener("127.0.0.1") as (process, port):
        put(proc, process, OURS)
        door = Door(tmp_path, Api("127.0.0.1", port), proc)
        assert door.opens(process) and not door.opens(process) and door.is_open
    with listener("127.0.0.1", port):
        assert not door.opens(process) and not door.is_open and not (tmp_path / "serving").exists()


def test_who_listens_everywhere_gets_nothing_of_the_very_address(tmp_path: Path, proc: Path) -> None:
    """Such as NGINX with `listen [::]:8000`, for IPv6 alone."""
    with socket.socket(socket.AF_INET6) as other, listener("127.0.0.1") as (process, port):
        other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        other.bind(("::", port))
        other.listen()
        put(proc, process, OURS)
        assert Door(tmp_path, Api("127.0.0.1", port), proc).opens(process)


def test_it_says_why_it_stays_shut(tmp_path: Path, proc: Path) -> None:
    with listener("127.0.0.1") as (process, port):
        put(proc, process, "0::/user.slice/docker-1.scope\n")
        put(proc, 1_000_000_001, OURS)
        door = Door(tmp_path, Api("127.0.0.1", port), proc)
        (proc / str(process) / "status").write_text(f"Name:\ta\x1bthief\nUid:\t{os.getuid()}\t0\t0\t0\n")
        words = fault(door, 1_000_000_001)
        who = f"a?thief (process {process} of {ME})"
        assert words == f"port_busy: {who} listens at 127.0.0.1:{port}, and the container does not"
        (proc / str(process) / "status").write_text("Name:\tb\nUid:\t4000000001\t0\t0\t0\n")
        assert "port_busy: b (process " in (words := fault(door, 1_000_000_001)) and "of user 4000000001)" in words
        (proc / str(process) / "status").unlink()
        assert "port_busy: another process listens" in fault(door, 1_000_000_001)
    assert fault(door, 1_000_000_001).startswith(f"not_listening: nothing listens at 127.0.0.1:{port}")


def test_it_says_who_shares_its_port(tmp_path: Path, proc: Path) -> None:
    with listener("0.0.0.0") as (process, port), socket.socket(socket.AF_INET6) as other:  # noqa: S104
        other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        other.bind(("::", port))
        other.listen()
        put(proc, process, OURS)
        put(proc, os.getpid(), "0::/user.slice/b.scope\n")
        (proc / f"{os.getpid()}/status").symlink_to(f"/proc/{os.getpid()}/status")
        door = Door(tmp_path, Api("127.0.0.1", port), proc)
        assert not door.opens(process)
        assert f" (process {os.getpid()} of {ME})" in fault(door, process)
        assert fault(door, process).endswith(f"listens at 127.0.0.1:{port}, as well as the container")


def test_an_open_door_and_one_that_is_not_needed_have_no_fault(tmp_path: Path, proc: Path) -> None:
    with listener("127.0.0.1") as (process, port):
        put(proc, process, OURS)
        door = Door(tmp_path, Api("127.0.0.1", port), proc)
        assert fault(door, process) == "" and door.opens(process) and fault(door, process) == ""
        assert Door(tmp_path, None, proc).fault(process) is None


def fault(door: Door, process: int) -> str:
    return str(door.fault(process) or "")


def test_who_goes_while_it_is_asked_whose_it_is_has_no_fault(
    tmp_path: Path, proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next look says that nobody listens: one cause is told once."""
    server = socket.create_server(("127.0.0.1", 0))
    door = Door(tmp_path, Api("127.0.0.1", server.getsockname()[1]), proc)
    assert "port_busy: another process listens" in fault(door, 1_000_000_001)
    monkeypatch.setattr(vllm_door, "owners", lambda inodes, proc: server.close() or iter(()))
    assert fault(door, 1_000_000_001) == ""
    assert fault(door, 1_000_000_001).startswith("not_listening: ")
