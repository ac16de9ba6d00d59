"""Services of one host load one after the other, also where a cluster's service is among them: real processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.turn import Turn

from tests.support.vllm_unit import LOADED, QUICK, SLOW_S, Host, free_port, in_a_process, wait_until

LOADING, _, SERVES = LOADED.rpartition("INFO:")
SERVES = f"INFO:{SERVES}"
Beside = Callable[..., Host]


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Beside]:
    """Services, and which hosts they are on: those of one host share its folder of turns. None says that it serves."""
    made: list[Host] = []
    children: list[subprocess.Popen[bytes]] = []

    def make(name: str, host: str = "a", rank: int = 0, size: int = 1, port: int = 0) -> Host:
        service = Host(tmp_path / f"{name}-{host}", rank, size, port, service=name)
        turns = tmp_path / f"turns-{host}"
        turns.mkdir(exist_ok=True)
        (service.root / "run/gb10-loading").rmdir()
        (service.root / "run/gb10-loading").symlink_to(turns)
        service.play("log", LOADING)
        made.append(service)
        return service

    def start(service: Host) -> subprocess.Popen[bytes]:
        children.append(in_a_process(service))
        return children[-1]

    make.start = start  # type: ignore[attr-defined]
    yield make
    for child in children:
        child.send_signal(signal.SIGCONT)
        child.terminate()
    for child in children:
        child.wait(SLOW_S)
    for service in made:
        service.docker.with_name("running").unlink(missing_ok=True)


class Health(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/v1/health" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Drips(Health):
    def do_GET(self) -> None:
        with contextlib.suppress(OSError):
            for _ in range(600):
                self.wfile.write(b"H")
                time.sleep(0.05)


@contextlib.contextmanager
def server(port: int, drips: bool = False) -> Iterator[None]:
    with ThreadingHTTPServer(("127.0.0.11", port), Drips if drips else Health) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield
        found.shutdown()


def start(services: Beside, service: Host) -> subprocess.Popen[bytes]:
    child: subprocess.Popen[bytes] = services.start(service)  # type: ignore[attr-defined]
    return child


@pytest.mark.parametrize("how", ["serves", "killed", "stopped", "fails"])
def test_a_service_loads_when_the_one_before_it_serves_or_has_ended(services: Beside, how: str) -> None:
    chat, embed = services("chat"), services("embed")
    first = start(services, chat)
    chat.reaches("graphs")
    start(services, embed)
    embed.waits_for("another_loads", "waits for chat, which loads")
    assert embed.runs() == 0 and "memory gate" not in str(embed.status)
    if how == "serves":
        chat.play("more", SERVES)
    elif how == "fails":
        chat.play("code", "1")
    else:
        first.send_signal(signal.SIGKILL if how == "killed" else signal.SIGTERM)
    embed.reaches("graphs")
    assert embed.runs() == 1
    if how == "serves":
        assert chat.status["phase"] == "ready", "it was left alone"


def test_a_container_whose_log_says_nothing_serves_when_its_health_answers(services: Beside) -> None:
    """Until then it holds its turn."""
    hear, embed = services("hear"), services("embed")
    port = free_port()
    hear.raw |= {"ready_url": f"http://127.0.0.11:{port}/v1/health", "phases": []}
    hear.play("pid", str(os.getpid()))
    start(services, hear)
    wait_until(lambda: hear.runs() == 1)
    start(services, embed)
    embed.waits_for("another_loads", "waits for hear, which loads")
    with server(port):
        hear.reaches("ready")
        embed.reaches("graphs")


def test_a_login_at_the_port_of_a_container_makes_it_neither_ready_nor_hang(services: Beside) -> None:
    """It answers as the container would, or drips for ever. The unit says whose port it is, and ends when told."""
    hear, port = services("hear"), free_port()
    where = {"address": "127.0.0.11", "port": port}
    hear.raw |= {"ready_url": f"http://127.0.0.11:{port}/v1/health", "phases": [], "api": where}
    hear.raw["timing"] = QUICK | {"door": 0.1}
    with server(port):
        child = start(services, hear)
        hear.waits_for("port_busy", "listens at 127.0.0.11")
        assert hear.status["load_s"] is None, "it has never been ready"
        child.terminate()
        assert child.wait(SLOW_S) == 0
    hear.play("pid", str(os.getpid()))
    with server(port, drips=True):
        child = start(services, hear)
        wait_until(lambda: hear.runs() == 2)
        time.sleep(0.5)
        began = time.monotonic()
        child.terminate()
        assert child.wait(SLOW_S) == 0 and time.monotonic() - began < 8


def test_a_service_that_serves_takes_no_turn_of_another(services: Beside) -> None:
    chat, embed = services("chat"), services("embed")
    for service in (chat, embed):
        service.play("log", LOADED)
        start(services, service)
        service.reaches("ready")


def test_one_that_never_says_that_it_serves_holds_the_others_up_for_so_long_only(services: Beside) -> None:
    chat, embed = services("chat"), services("embed")
    chat.raw["load_s"] = 0.5
    start(services, chat)
    chat.reaches("graphs")
    start(services, embed)
    embed.reaches("graphs")
    assert chat.status["phase"] == "graphs"


def pair_of(services: Beside, name: str, port: int) -> list[Host]:
    return [services(name, host, rank, 2, port) for rank, host in enumerate("ab")]


@pytest.mark.parametrize("host", ["a", "b"])
def test_a_service_of_a_cluster_waits_for_one_of_a_host(services: Beside, host: str) -> None:
    own = services("embed", host)
    start(services, own)
    own.reaches("graphs")
    pair = pair_of(services, "chat", free_port())
    for rank in pair:
        start(services, rank)
    pair["ab".index(host)].waits_for("another_loads", "waits for embed, which loads")
    assert [rank.runs() for rank in pair] == [0, 0]
    own.play("more", SERVES)
    for rank in pair:
        rank.reaches("graphs")


def test_two_services_of_a_cluster_never_wait_for_each_other(services: Beside) -> None:
    """Their hosts hear of the start in the worst order: each service is first on another host."""
    chat, code = pair_of(services, "chat", free_port()), pair_of(services, "code", free_port())
    for rank in (chat[0], code[1], code[0], chat[1]):
        start(services, rank)
    loads = wait_until(lambda: next((both for both in (chat, code) if all(rank.runs() for rank in both)), None))
    (other,) = (both for both in (chat, code) if both is not loads)
    other[0].waits_for("another_loads", f"waits for {loads[0].raw['service']}, which loads")
    assert [rank.runs() for rank in other] == [0, 0]
    for rank in loads:
        rank.play("more", SERVES)
    for rank in other:
        rank.reaches("graphs")


def test_who_waits_for_a_host_that_is_away_lets_the_others_load(services: Beside) -> None:
    head, _ = pair_of(services, "chat", free_port())
    start(services, head)
    head.waits_for("waiting_for_peers")
    own = services("embed")
    start(services, own)
    own.reaches("graphs")


def test_where_there_can_be_no_lock_a_service_loads_without(tmp_path: Path) -> None:
    turn = Turn(tmp_path / "missing" / "turn", "chat")
    assert turn.take() and turn.take()
    turn.end()
    one, other = Turn(tmp_path / "turn", "chat"), Turn(tmp_path / "turn", "embed")
    assert one.take() and one.take() and not other.take() and other.holder == "chat"
    one.end()
    assert other.take() and one.holder == "embed"
    other.end()
