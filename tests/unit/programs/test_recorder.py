"""The flight recorder: what a host sends each second, who may send it, and what is kept of it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.programs.recorder import keep, ring, send
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.seal import Seal
from ansible_collections.gb10.fleet.plugins.module_utils.reading import last_words

from tests.support.attacker import tally

SECRET = b"a secret of both hosts, long enough to be one"


def listening(folder: Path, hosts: dict[str, str], secret: bytes = SECRET, most: int = 10**6) -> int:
    listener = socket.create_server(("127.0.0.1", 0))
    keeper = keep.Keeper(folder, hosts, secret, most)
    threading.Thread(target=keeper.serve, args=(listener,), daemon=True).start()
    return int(listener.getsockname()[1])


class Sender:
    """One host that sends to a port of this machine."""

    def __init__(self, port: int, secret: bytes = SECRET, host: str = "spark-a") -> None:
        self.outbox, self.ended = send.Outbox(send.Budget(10**6)), threading.Event()
        peer = send.Peer("spark-b", "127.0.0.1", port)
        arguments = (self.outbox, peer, host, secret, lambda: not self.ended.is_set())
        self.thread = threading.Thread(target=send.deliver, args=arguments, daemon=True)
        self.thread.start()

    def end(self) -> None:
        self.ended.set()
        self.thread.join(20)


def kept(folder: Path, count: int, host: str = "spark-a") -> list[dict[str, Any]]:
    """What is there as soon as there are so many lines, or after a while."""
    until = time.monotonic() + 20
    while len(found := list(ring.lines(folder, host))) < count and time.monotonic() < until:
        time.sleep(0.02)
    return found


def test_what_is_sent_is_kept_and_outlives_the_sender(tmp_path: Path) -> None:
    sender = Sender(listening(tmp_path, {"127.0.0.1": "spark-a"}))
    for number in range(5):
        sender.outbox.put({"at_s": number, "power_w": 80.5})
    assert [line["at_s"] for line in kept(tmp_path, 5)] == [0, 1, 2, 3, 4]
    sender.end()
    assert (tmp_path / "spark-a.jsonl").stat().st_size > 0


def test_what_waits_is_sent_when_the_keeper_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send, "AGAIN_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    sender = Sender(port)
    sender.outbox.put({"at_s": 1})
    time.sleep(0.2)
    listener = socket.create_server(("127.0.0.1", port))
    keeper = keep.Keeper(tmp_path, {"127.0.0.1": "spark-a"}, SECRET, 10**6)
    threading.Thread(target=keeper.serve, args=(listener,), daemon=True).start()
    assert kept(tmp_path, 1) == [{"at_s": 1}]
    sender.end()


@pytest.mark.parametrize(
    ("hosts", "secret", "host"),
    [
        ({"127.0.0.1": "spark-a"}, b"another secret that is as long as the first", "spark-a"),
        ({"127.0.0.1": "spark-a"}, SECRET, "spark-c"),
        ({"127.0.0.1": "spark-a"}, SECRET, "../../etc/x"),
        ({"192.0.2.1": "spark-a"}, SECRET, "spark-a"),
    ],
)
def test_a_stranger_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hosts: dict[str, str], secret: bytes, host: str
) -> None:
    monkeypatch.setattr(send, "AGAIN_S", 0.05)
    folder = tmp_path / "kept"
    sender = Sender(listening(folder, hosts), secret, host)
    sender.outbox.put({"at_s": 1})
    time.sleep(0.5)
    sender.end()
    assert not folder.exists()


def test_a_line_that_was_changed_on_the_way_ends_the_call(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    keeper = keep.Keeper(tmp_path, {}, SECRET, 10**6)
    thread = threading.Thread(target=keeper.listen, args=(theirs, "spark-a"))
    thread.start()
    seal, call = Seal(SECRET, calls=True), send.Call(ours)
    ours.sendall(seal.opening)
    assert seal.meet(call.hear(time.monotonic() + 5) or b"")
    ours.sendall(seal.seal({"host": "spark-a"}) + seal.seal({"at_s": 1}))
    ours.sendall(seal.seal({"at_s": 2}).replace(b'"at_s": 2', b'"at_s": 3') + seal.seal({"at_s": 4}))
    thread.join(20)
    assert not thread.is_alive() and list(ring.lines(tmp_path, "spark-a")) == [{"at_s": 1}]


def test_a_host_that_sends_without_end_is_held_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It wrote 33 MiB a second to the disk of its peer, as one that knows the secret."""
    waited: list[float] = []
    monkeypatch.setattr(keep, "time", SimpleNamespace(monotonic=time.monotonic, sleep=waited.append))
    sender = Sender(listening(tmp_path, {"127.0.0.1": "spark-a"}))
    for number in range(50):
        sender.outbox.put({"at_s": number, "text": "x" * send.LONGEST_TEXT})
    kept(tmp_path, 50)
    sender.end()
    slow = sum(waited) >= 50 * send.LONGEST_TEXT / keep.FASTEST
    tally("a peer with the secret that fills a disk as fast as it can", 1, int(not slow))
    assert slow


def test_a_call_that_has_ended_adds_nothing_beside_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many calls, each with one line, were held up side by side."""
    held, waits = threading.Event(), [*[True] * 9, False]

    def sleep(_seconds: float) -> None:
        if waits.pop(0):
            held.wait(20)

    monkeypatch.setattr(keep, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
    port, calls = listening(tmp_path, {"127.0.0.1": "spark-a"}), []
    for number in range(10):
        calls.append(socket.create_connection(("127.0.0.1", port)))
        seal, call = Seal(SECRET, calls=True), send.Call(calls[-1])
        calls[-1].sendall(seal.opening)
        assert seal.meet(call.hear(time.monotonic() + 5) or b"")
        assert seal.open(call.hear(time.monotonic() + 5) or b"")
        left = len(waits)
        calls[-1].sendall(seal.seal({"host": "spark-a"}) + seal.seal({"at_s": number}))
        until = time.monotonic() + 20
        while len(waits) == left and time.monotonic() < until:
            threading.Event().wait(0.01)
    assert kept(tmp_path, 1) == [{"at_s": 9}]
    held.set()
    threading.Event().wait(0.3)
    for each in calls:
        each.close()
    assert [line["at_s"] for line in ring.lines(tmp_path, "spark-a")] == [9]


class Impostor:
    """Listens where the keeper should, knows the protocol and not the secret, and says `words` after the opening."""

    def __init__(self, words: bytes, drips: bool = False) -> None:
        self.words, self.drips, self.heard = words, drips, b""
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                with connection, contextlib.suppress(OSError):
                    self._take(connection)

    def _take(self, connection: socket.socket) -> None:
        said = Seal(b"", calls=False).opening + self.words
        for byte in said if self.drips else (said,):
            connection.sendall(bytes([byte]) if isinstance(byte, int) else byte)
            time.sleep(0.05 if self.drips else 0)
        connection.settimeout(0.3)
        while chunk := connection.recv(4096):
            self.heard += chunk

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def _sealed(secret: bytes, message: dict[str, Any]) -> bytes:
    seal = Seal(secret, calls=False)
    seal.meet(Seal(secret, calls=True).opening.rstrip())
    return seal.seal(message)


IMPOSTORS = (
    b"", b"{}\n", b'{"keeps": "spark-a"}\n', b"f" * 64 + b' {"keeps": "spark-a"}\n',
    _sealed(SECRET[::-1], {"keeps": "spark-a"}), _sealed(SECRET, {"keeps": "spark-a"}), b"x" * 10_000,
)  # fmt: skip


@pytest.mark.parametrize("words", IMPOSTORS, ids=range(len(IMPOSTORS)))
def test_who_has_no_secret_gets_no_word_and_no_line_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: bytes
) -> None:
    monkeypatch.setattr(send, "AGAIN_S", 0.02)
    impostor = Impostor(words)
    sender = Sender(impostor.port)
    for number in range(3):
        sender.outbox.put({"at_s": number, "text": "NVRM: Xid"})
    time.sleep(0.3)
    impostor.close()
    lost = sender.outbox.first(0) != {"at_s": 0, "text": "NVRM: Xid"}
    tally("a keeper without the secret: last words that it is given", 1, int(lost or b"Xid" in impostor.heard))
    assert impostor.heard.count(b"\n") <= impostor.heard.count(b"gb10-vllm") and b"Xid" not in impostor.heard
    assert not lost
    sender.end()


def test_who_drips_its_opening_holds_the_sender_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send, "PATIENCE_S", 0.3)
    impostor, began = Impostor(b"", drips=True), time.monotonic()
    with socket.create_connection(("127.0.0.1", impostor.port)) as connection, pytest.raises((OSError, ValueError)):
        send._deliver(send.Outbox(send.Budget(10**6)), connection, "spark-a", SECRET, lambda: True)
    assert time.monotonic() - began < 1.5
    impostor.close()


def test_a_line_counts_as_sent_when_the_keeper_has_said_that_it_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keeper dies behind the call: what it has not kept is sent to the next one, and what it has is there once."""
    monkeypatch.setattr(send, "AGAIN_S", 0.02)
    monkeypatch.setattr(send, "PATIENCE_S", 0.3)
    add, trouble = ring.Ring.add, {1: "the disk is full", 2: "its answer is lost"}

    def fails(record: ring.Ring, line: dict[str, Any]) -> None:
        what = trouble.pop(line["at_s"], "")
        if what != "the disk is full":
            add(record, line)
        if what:
            raise OSError(what)

    monkeypatch.setattr(ring.Ring, "add", fails)
    sender = Sender(listening(tmp_path, {"127.0.0.1": "spark-a"}))
    for number in range(5):
        sender.outbox.put({"at_s": number})
    assert [line["at_s"] for line in kept(tmp_path, 5)] == [0, 1, 2, 3, 4]
    until = time.monotonic() + 5
    while sender.outbox.first(0) and time.monotonic() < until:
        time.sleep(0.02)
    assert sender.outbox.first(0) is None
    sender.end()


def test_the_record_is_bounded_and_the_newest_is_there(tmp_path: Path) -> None:
    record = ring.Ring(tmp_path, "a", 10_000)
    for number in range(2000):
        record.add({"at_s": number, "text": "x" * 50})
    assert (tmp_path / "a.jsonl").stat().st_size == 10_000
    found = [line["at_s"] for line in ring.lines(tmp_path, "a")]
    assert found[-1] == 1999 and found == list(range(found[0], 2000))


def test_a_line_that_is_cut_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"at_s": 1}\n[]\n{"at_s": "x"}\n{"at_s": 2, "te')
    assert list(ring.lines(tmp_path, "a")) == [{"at_s": 1}]
    assert list(ring.lines(tmp_path, "nobody")) == []


def test_a_full_disk_takes_the_line_that_it_cuts_and_not_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, write = ring.Ring(tmp_path, "a", 10_000), os.pwrite
    record.add({"at_s": 1})
    with monkeypatch.context() as full, pytest.raises(OSError, match="No space left"):
        full.setattr(os, "pwrite", lambda file, data, at: write(file, data[:5], at))
        record.add({"at_s": 2})
    ring.Ring(tmp_path, "a", 10_000).add({"at_s": 3})
    assert [line["at_s"] for line in ring.lines(tmp_path, "a")] == [1, 3]


def test_no_line_needs_room_when_it_comes(tmp_path: Path) -> None:
    """A login uses up the inodes of the disk, or a container its blocks: then nothing more can be made there."""
    record = ring.Ring(tmp_path, "a", 100_000)
    record.add({"at_s": 0})
    (file,) = tmp_path.iterdir()
    before = file.stat()
    for number in range(1, 5000):
        record.add({"at_s": number, "text": "x" * 50})
    after = file.stat()
    assert (after.st_ino, after.st_size, after.st_blocks) == (before.st_ino, before.st_size, before.st_blocks)
    assert [*tmp_path.iterdir()] == [file] and after.st_blocks * 512 >= after.st_size == 100_000


def test_a_keeper_that_is_started_again_goes_on_behind_the_newest_line(tmp_path: Path) -> None:
    """Also behind what an earlier version left, which had two files and no room of its own."""
    (tmp_path / "a.old.jsonl").write_text('{"at_s": -2}\n')
    (tmp_path / "a.jsonl").write_text('{"at_s": -1}\n')
    for number in range(300):
        ring.Ring(tmp_path, "a", 4000).add({"at_s": number, "text": "x" * number})
        found = [line["at_s"] for line in ring.lines(tmp_path, "a")]
        assert found == list(range(found[0], number + 1)), "in order, and without a gap"
    assert found[0] > 0 and not (tmp_path / "a.old.jsonl").exists()


def test_what_cannot_be_kept_is_said_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "spark-a.jsonl").mkdir()
    keeper, (ours, theirs) = keep.Keeper(tmp_path, {}, SECRET, 10**6), socket.socketpair()
    keeper._prove(theirs, "spark-a")
    for _ in range(3):
        with pytest.raises(OSError, match="directory"):
            keeper._keep(theirs, "spark-a", {"at_s": 1})
    assert capfd.readouterr().out == "gb10-recorder: what spark-a sends cannot be kept: Is a directory\n"
    (tmp_path / "spark-a.jsonl").rmdir()
    assert keeper._keep(theirs, "spark-a", {"at_s": 2}) and not keeper._keep(ours, "spark-a", {"at_s": 3})
    assert list(ring.lines(tmp_path, "spark-a")) == [{"at_s": 2}]


def test_a_flood_of_the_kernel_is_dropped_and_counted_and_samples_pass() -> None:
    now = [0.0]
    outbox = send.Outbox(send.Budget(1000, lambda: now[0]))
    for number in range(500):
        outbox.put({"at_s": number, "text": "x" * 300})
    outbox.put({"at_s": 500.0, "power_w": 1.0})
    found = []
    while (line := outbox.first(0)) is not None:
        outbox.sent(line)
        found.append(line)
    assert found[-1]["at_s"] == 500 and found[-1]["dropped"] > 480
    assert sum(len(json.dumps(line)) for line in found) < 4500
    now[0] = 10
    outbox.put({"at_s": 501, "text": "x"})
    assert outbox.first(0), "a flood that is over"


def test_what_waits_for_a_keeper_that_is_away_keeps_a_fault(tmp_path: Path) -> None:
    """And so does what is shown of the last seconds, for a login makes more lines than either has room for."""
    outbox, shown = send.Outbox(send.Budget(10**9)), ring.Ring(tmp_path, "a", 10**6)
    fault = {"at_s": 1.0, "text": "NVRM: Xid (PCI:000f:01:00): 79, GPU has fallen off the bus"}
    outbox.put(fault)
    for number in range(send.MOST_WAITING + 10):
        outbox.put({"at_s": 2 + number / 1000, "text": "Memory cgroup out of memory: Killed process 4242 (x)"})
        outbox.put({"at_s": 2 + number / 1000, "text": "Tasks state (memory values in pages):"})
    while (line := outbox.first(0)) is not None:
        outbox.sent(line)
        shown.add(line)
    kept = [*ring.lines(tmp_path, "a")]
    told = last_words.last_seconds(kept, [(0.0, 10.0)], 8.0)
    won = int(fault not in kept) + int(told[0]["at_s"] != 1)
    tally("a login that hides a fault from the last words of a host", 2, won)
    assert kept[0] == fault and told[0] == {"at_s": 1.0, "text": f"kernel: {fault['text']}"}
    assert len(told) == 1 + 2 * last_words.MOST_LINES


def test_a_flood_that_a_login_makes_hides_no_fault() -> None:
    """Its processes are killed at a limit of its own, and fault on the GPU, as often as it likes; and the GPU goes."""
    now = [0.0]
    outbox = send.Outbox(send.Budget(8000, lambda: now[0]))
    killed = "Memory cgroup out of memory: Killed process 4242 (x) total-vm:65536kB, anon-rss:4096kB, UID:1001"
    told = []
    for number in range(4000):
        now[0] += 0.005
        outbox.put({"at_s": now[0], "text": killed})
        outbox.put({"at_s": now[0], "text": "memory: usage 4096kB, limit 4096kB, failcnt 99" * 4})
        outbox.put({"at_s": now[0], "text": "NVRM: Xid (PCI:000f:01:00): 31, pid=9, name=x, MMU Fault"})
        if number % 200 == 199:
            outbox.put({"at_s": now[0], "text": "NVRM: Xid (PCI:000f:01:00): 79, GPU has fallen off the bus"})
        while (line := outbox.first(0)) is not None:
            outbox.sent(line)
            told.append(line)
    assert sum(" 79, " in line["text"] for line in told) == 20
    assert sum(len(json.dumps(line)) for line in told) < 8000 * (now[0] + 4) * (1 + 3 / send.SHARES)


def test_what_cannot_be_sent_waits_up_to_a_bound() -> None:
    outbox = send.Outbox(send.Budget(10**9))
    for number in range(send.MOST_WAITING + 10):
        outbox.put({"at_s": number})
    assert (outbox.first(0) or {})["at_s"] == 10


def test_a_sample(tmp_path: Path) -> None:
    (tmp_path / "proc/pressure").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable: 5 kB\nCmaTotal: 0 kB\nCmaFree: 7 kB\n")
    (tmp_path / "proc/pressure/memory").write_text("some avg10=1.50 avg60=0.00 avg300=0.00 total=1\n")
    assert send.sample(tmp_path, "2418, 86.20, 68, 96, 0x0000000000000000", 12.345) == {
        "at_s": 12.35, "clock_mhz": 2418, "power_w": 86.2, "temperature_c": 68, "utilization_percent": 96,
        "reasons": "0x0000000000000000", "available_kib": 5, "cma_total_kib": 0, "cma_free_kib": 7,
        "pressure_percent": 1.5,
    }  # fmt: skip
    assert send.sample(tmp_path / "none", "[N/A], [N/A], 68, [N/A], [N/A]", 1) == {
        "at_s": 1, "temperature_c": 68, "reasons": "[N/A]",
    }  # fmt: skip
    for garbage in ("", "No devices were found", "\0" * 1000, "x," * 100):
        assert send.sample(tmp_path / "none", garbage, 1) == {"at_s": 1}


def test_a_line_of_the_kernel() -> None:
    text = "1795420800.123456 spark-a kernel: NVRM: Xid (PCI:000f:01:00): 79, GPU has fallen off the bus"
    assert send.kernel_line(text) == {
        "at_s": 1795420800.123, "text": "NVRM: Xid (PCI:000f:01:00): 79, GPU has fallen off the bus",
    }  # fmt: skip
    assert len((send.kernel_line(f"1.5 a kernel: {'x' * 9999}") or {})["text"]) == send.LONGEST_TEXT
    assert send.kernel_line("-- Journal begins") is None


def test_callers_without_proof_cannot_keep_the_right_one_out(tmp_path: Path) -> None:
    port = listening(tmp_path, {"127.0.0.1": "spark-a"})
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(3 * keep.MOST_CALLERS)]
    sender = Sender(port)
    sender.outbox.put({"at_s": 1})
    assert kept(tmp_path, 1) == [{"at_s": 1}]
    later = []
    for _ in range(3 * keep.MOST_CALLERS):  # each has its seat, until the next ones come
        later.append(socket.create_connection(("127.0.0.1", port)))
        assert (send.Call(later[-1]).hear(time.monotonic() + 5) or b"").startswith(b"gb10-vllm")
    sender.outbox.put({"at_s": 2})
    assert len(kept(tmp_path, 2)) == 2, "who is proven keeps its seat"
    sender.end()
    for each in (*idle, *later):
        each.close()


def test_who_drips_has_one_deadline_for_its_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keep, "PATIENCE_S", 0.3)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        thread = threading.Thread(target=keep.Keeper(tmp_path, {}, SECRET, 10**6)._take, args=(theirs, "spark-a"))
        thread.start()
        with contextlib.suppress(OSError):  # it hangs up
            for _ in range(100):
                ours.sendall(b"g")
                thread.join(0.05)
        assert not thread.is_alive()


@pytest.mark.parametrize("char", ["\U0001f600", "\x01", "\u2028", '"'])
def test_no_line_of_the_kernel_is_longer_than_the_keeper_takes(tmp_path: Path, char: str) -> None:
    line = send.kernel_line(f"1795420800.500000 a kernel: {char * 9999}") or {}
    seal, other = Seal(SECRET, calls=True), Seal(SECRET, calls=False)
    seal.meet(other.opening.rstrip())
    assert len(seal.seal({**line, "dropped": 10**9})) < send.LONGEST_LINE and len(line["text"]) > 100


def test_the_record_follows_no_link(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("mine\n")
    (tmp_path / "a.jsonl").symlink_to(other)
    with pytest.raises(OSError, match="symbolic"):
        ring.Ring(tmp_path, "a", 10_000).add({"at_s": 1})
    assert other.read_text() == "mine\n"
    os.mkfifo(tmp_path / "b.jsonl")
    with pytest.raises(OSError, match="Illegal seek"):
        ring.Ring(tmp_path, "b", 10_000).add({"at_s": 1})


def test_a_peer_that_lost_its_power_is_given_up_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says no goodbye: the kernel alone would send the same lines again for minutes."""
    opened: list[socket.socket] = []
    connect = socket.create_connection
    monkeypatch.setattr(socket, "create_connection", lambda *args: opened.append(connect(*args)) or opened[-1])
    sender = Sender(listening(tmp_path, {"127.0.0.1": "spark-a"}))
    sender.outbox.put({"at_s": 1})
    kept(tmp_path, 1)
    assert opened[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == send.UNHEARD_S * 1000
    sender.end()
