"""Page cache and memory protection: what the roles write, and what the guard decides about a made-up /proc/meminfo."""

from __future__ import annotations

import contextlib
import importlib.util
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render import Rendered, render
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View

GUARD = "/usr/local/sbin/gb10-page-cache-guard"
THERE = "/"  # in the place of a unit's word that its container listens
GUARD_UNIT = "/etc/systemd/system/gb10-page-cache-guard@.service"
SUDOERS = "/etc/sudoers.d/gb10-page-cache"
FIGURES = {"MEMFREE_LOW_GIB": 8.0, "WORTH_GIB": 1.0, "INTERVAL_S": 1.0, "PAUSE_S": 10.0, "LIMIT_S": 60.0}


def document(role: str, spark: dict[str, Any] | None = None, **variables: Any) -> Rendered:
    return render(role, View("spark-a", spark or {"packages": {}}, variables))


def resource(made: Rendered, name: str) -> dict[str, Any]:
    (found,) = (entry for entry in made.resources if name in entry.values())
    return found


def meminfo(free_gib: float, cached_gib: float) -> str:
    """As the kernel prints it; shared memory counts as Cached and cannot be dropped."""
    shared = 16 * 2**20
    rows = {
        "MemTotal": 120 * 2**20,
        "MemFree": int(free_gib * 2**20),
        "Cached": int(cached_gib * 2**20) + shared,
        "Active(file)": int(cached_gib * 2**19),
        "Inactive(file)": int(cached_gib * 2**19),
        "Shmem": shared,
    }
    return "".join(f"{name + ':':<16}{kib:>9} kB\n" for name, kib in rows.items()) + "HugePages_Total:       0\n"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    path = tmp_path_factory.mktemp("guard") / "guard.py"
    path.write_text(resource(document("page_cache"), GUARD)["content"])
    specification = importlib.util.spec_from_file_location("gb10_page_cache_guard", path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


class World:
    """A load that reads `gib_per_s` into the page cache, of which a drop wins the part that nobody has mapped."""

    def __init__(self, program: ModuleType, gib_per_s: float = 4.0, mapped: float = 0.0, ready_at: float = 1e9) -> None:
        self.now, self.free, self.cached = 0.0, 20.0, 0.0
        self.gib_per_s, self.mapped, self.ready_at = gib_per_s, mapped, ready_at
        self.dropped_at: list[float] = []
        self.lowest = self.free
        self.guard = program.Guard(
            FIGURES, lambda: meminfo(self.free, self.cached), lambda: self.now >= self.ready_at, self.drop,
            clock=lambda: self.now, sleep=self.sleep,
        )  # fmt: skip

    def sleep(self, seconds: float) -> None:
        read = min(self.gib_per_s * seconds, self.free)
        self.now, self.free, self.cached = self.now + seconds, self.free - read, self.cached + read
        self.lowest = min(self.lowest, self.free)

    def drop(self) -> None:
        won = max(0.0, self.cached - self.mapped)
        self.free, self.cached = self.free + won, self.cached - won
        self.dropped_at.append(self.now)


def test_the_guard_drops_while_a_model_loads_and_stops_when_it_answers(program: ModuleType) -> None:
    world = World(program, ready_at=30.0)
    assert world.guard.run() == "ready"
    assert world.now == 30.0
    assert world.dropped_at == [4.0, 8.0, 12.0, 16.0, 20.0, 24.0, 28.0], "each time MemFree went below 8 GiB"
    assert world.lowest == 4.0
    assert (world.guard.drops, world.guard.won) == (7, pytest.approx(7 * 16.0))


def test_the_guard_ends_at_its_limit(program: ModuleType) -> None:
    world = World(program)
    assert world.guard.run() == "limit"
    assert world.now == 60.0


def test_a_model_that_is_ready_is_left_in_peace(program: ModuleType) -> None:
    world = World(program, ready_at=0.0)
    world.free, world.cached = 1.0, 50.0
    assert world.guard.run() == "ready"
    assert world.dropped_at == []


@pytest.mark.parametrize(
    ("free", "cached", "due"), [(8.0, 50.0, False), (7.9, 50.0, True), (7.9, 1.0, True), (7.9, 0.9, False)]
)
def test_a_drop_is_due_when_memory_is_short_and_there_is_something_to_win(
    program: ModuleType, free: float, cached: float, due: bool
) -> None:
    world = World(program)
    assert program.memory(meminfo(free, cached)) == (pytest.approx(free, abs=1e-5), pytest.approx(cached, abs=1e-5))
    assert world.guard.is_due(*program.memory(meminfo(free, cached))) == due


def test_a_drop_that_wins_nothing_is_not_tried_each_second(program: ModuleType) -> None:
    world = World(program, mapped=1000.0)
    assert world.guard.run() == "limit"
    assert world.dropped_at == [4.0, 14.0, 24.0, 34.0, 44.0, 54.0]


@pytest.fixture
def server() -> Iterator[Callable[[int], str]]:
    """A server on loopback that answers every request with the given status."""
    started: list[HTTPServer] = []

    def start(status: int) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        started.append(HTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=started[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{started[-1].server_port}/health"

    yield start
    for each in started:
        each.shutdown()
        each.server_close()


def test_ready_is_an_answer_with_200(
    program: ModuleType, server: Callable[[int], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert program.is_ready(server(200), THERE)
    assert not program.is_ready(server(503), THERE)
    for nobody in ("http://127.0.0.1:1/health", "", "no url"):
        assert not program.is_ready(nobody, THERE)


def test_what_a_login_answers_at_the_port_ends_no_guard(program: ModuleType, server: Callable[[int], str]) -> None:
    """The unit says in a file of root's whether its container listens there."""
    for word in ("", "/run/gb10-no-service/serving"):
        assert not program.is_ready(server(200), word)


def test_a_redirect_is_no_answer_and_is_not_followed(program: ModuleType, server: Callable[[int], str]) -> None:
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(302)
            self.send_header("Location", server(200))
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    with HTTPServer(("127.0.0.1", 0), Handler) as stranger:
        threading.Thread(target=stranger.serve_forever, daemon=True).start()
        assert not program.is_ready(f"http://127.0.0.1:{stranger.server_port}/health", THERE)
        stranger.shutdown()
    assert asked == ["/health"]


def test_a_dripped_answer_does_not_hold_up_the_guard(program: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, and the whole of it never would."""
    monkeypatch.setattr(program, "ANSWER_S", 0.3)
    whole, gone = b"HTTP/1.1 200 OK", threading.Event()

    def drip() -> None:
        client, _ = stranger.accept()
        with client, contextlib.suppress(OSError):
            for number in range(len(whole) * 20):
                client.sendall(whole[number // 20 : number // 20 + 1] if number % 20 == 0 else b"")
                gone.wait(0.01)
            client.sendall(b"\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as stranger:
        dripping = threading.Thread(target=drip, daemon=True)
        dripping.start()
        assert not program.is_ready(f"http://127.0.0.1:{stranger.getsockname()[1]}/health", THERE)
        dripping.join()


def test_the_program_takes_its_figures_from_the_unit(server: Callable[[int], str], tmp_path: Path) -> None:
    made = document("page_cache")
    unit = resource(made, GUARD_UNIT)["content"]
    words = [word for line in unit.splitlines() if line.startswith("Environment=") for word in line[12:].split()]
    figures = dict(word.split("=") for word in words)
    known = catalog.load("memory")["guard"]
    assert figures == {
        "MEMFREE_LOW_GIB": "8", "WORTH_GIB": "1", "INTERVAL_S": "1", "PAUSE_S": "10",
        "LIMIT_S": str(known["limit"]["value"]), "DROP_S": str(known["drop"]["value"]),
    }  # fmt: skip
    script = tmp_path / "guard"
    script.write_text(resource(made, GUARD)["content"])
    environment = {**figures, "READY_URL": server(200), "SERVING": THERE}
    done = subprocess.run(
        [sys.executable, "-I", str(script)], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "ready after 0 s; 0 drops gave back 0.0 GiB" in done.stdout


def test_a_rank_without_an_api_is_ready_when_its_unit_says_so(program: ModuleType, tmp_path: Path) -> None:
    status = tmp_path / "status.json"
    for text in ("", "{", "[]", '{"phase": "weights"}'):
        status.write_text(text)
        assert not program.is_served(str(status))
    status.write_text('{"phase": "ready"}')
    assert program.is_served(str(status)) and not program.is_served("")


def test_a_drop_that_hangs_is_given_up(
    program: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hanging = tmp_path / "drop"
    hanging.write_text("#!/bin/sh\nexec sleep 60\n")
    hanging.chmod(0o700)
    monkeypatch.setattr(program, "DROP", str(hanging))
    program.drop(0.05)
    assert "took longer" in capsys.readouterr().out
    unit = resource(document("page_cache"), "/etc/systemd/system/gb10-drop-caches.service")["content"]
    assert f"TimeoutStartSec={catalog.load('memory')['guard']['drop']['value']}\n" in unit


def test_operators_get_one_command_and_nothing_else() -> None:
    made = document("page_cache", page_cache_operators=["spark", "%operators"])
    sudoers = resource(made, SUDOERS)
    assert (sudoers["mode"], sudoers["validate"]) == ("0440", ["visudo", "-cf", "%s"])
    rules = [line for line in sudoers["content"].splitlines() if not line.startswith("#")]
    command = "ALL=(root) NOPASSWD: /usr/bin/systemctl start gb10-drop-caches.service"
    assert rules == [f"spark {command}", f"%operators {command}"]
    assert resource(document("page_cache"), SUDOERS)["state"] == "absent"


@pytest.mark.parametrize(
    "name", ["ALL", "spark ALL=(ALL) NOPASSWD: ALL", "a\nb", "%", "#0", "a,b", "!spark", "spark\n"]
)
def test_an_operator_that_sudo_would_read_otherwise_is_refused(name: str) -> None:
    (found,) = document("page_cache", page_cache_operators=["spark", name]).refusals
    assert "Name accounts" in found


def test_protection_of_a_unit_never_exceeds_that_of_its_slice() -> None:
    """memory.min of a cgroup counts only as far as its parents have it."""
    contents = {
        entry["file"].split("/")[4]: dict(
            line.split("=") for line in entry["content"].splitlines() if "=" in line and not line.startswith("#")
        )
        for entry in document("memory_protection").resources
    }
    sizes = {name: int(rows["MemoryMin"].removesuffix("M")) for name, rows in contents.items()}
    assert set(sizes) == {"system.slice.d", "ssh.service.d", "user.slice.d"}
    assert 0 < sizes["ssh.service.d"] <= sizes["system.slice.d"]
    assert -1000 < int(contents["ssh.service.d"]["OOMScoreAdjust"]) < 0


@pytest.mark.parametrize(
    ("installed", "consent", "stopped"),
    [
        ([], True, []),
        (["systemd-oomd", "earlyoom"], False, []),
        (["systemd-oomd"], True, ["systemd-oomd.service", "systemd-oomd.socket"]),
        (["earlyoom"], True, ["earlyoom.service"]),
    ],
)
def test_oom_daemons_are_stopped_with_consent_only(installed: list[str], consent: bool, stopped: list[str]) -> None:
    spark = {"packages": dict.fromkeys(installed, "1")}
    made = document("memory_protection", spark, memory_protection_allow_stop=consent)
    units = [entry for entry in made.resources if "unit" in entry]
    assert [entry["unit"] for entry in units] == stopped
    assert all(entry["enabled"] is False and entry["state"] == "stopped" for entry in units)


def test_the_daemons_of_the_facts_are_those_of_the_catalog() -> None:
    from ansible_collections.gb10.fleet.plugins.module_utils.reading.machine import VERIFIED_SYSCTLS
    from ansible_collections.gb10.fleet.plugins.module_utils.reading.software import OOM_DAEMONS

    assert set(OOM_DAEMONS) == {entry["value"] for entry in catalog.load("memory")["oom_daemons"]}
    assert set(VERIFIED_SYSCTLS) == set(catalog.load("kernel_parameters")["verified"])


def test_what_is_verified_is_not_set_as_well() -> None:
    known = catalog.load("kernel_parameters")
    names = [set(known[section]) for section in ("set", "verified", "not_set")]
    assert not names[0] & names[1] and not names[1] & names[2] and not names[0] & names[2]
