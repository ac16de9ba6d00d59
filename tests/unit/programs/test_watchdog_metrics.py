"""What a real vLLM counts, by the watchdog's reader; and which services a host has."""

from __future__ import annotations

import contextlib
import http.server
import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.reading import counters as metrics
from ansible_collections.gb10.fleet.plugins.module_utils.reading.engine_metrics import VLLM, Naming

OTHER = b"other_running 3\nother_made_total 7\n"
REAL = Path(__file__).parents[2] / "fixtures/health/vllm-0.32.0-metrics.txt"


def test_a_real_vllm() -> None:
    assert metrics.parse(REAL.read_text()) == {
        "running": 0.0, "generated_tokens": 19.0, "waiting": 0.0, "prompt_tokens": 61.0,
        "ttft_s_sum": 0.14341044425964355, "ttft_count": 5.0, "step_s_sum": 0.032355533999975705, "step_count": 14.0,
    }  # fmt: skip


def test_engines_are_summed() -> None:
    text = "".join(
        f'vllm:num_requests_running{{engine="{number}"}} {number}\n'
        f'vllm:generation_tokens_total{{engine="{number}"}} 10\n'
        for number in (1, 2)
    )
    found = metrics.parse(text)
    assert (found["running"], found["generated_tokens"], found["ttft_count"]) == (3.0, 20.0, None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x" * 10_000_000,
        "vllm:num_requests_running 1\n",
        "vllm:num_requests_running NaN\nvllm:generation_tokens_total 1\n",
        "vllm:num_requests_running 1\nvllm:generation_tokens_total -5\n",
        "vllm:num_requests_running 1\nvllm:generation_tokens_total 1e999\n",
        "vllm:num_requests_running 1\nvllm:generation_tokens_total 1-e-e\n",
    ],
)
def test_garbage_is_no_number(text: str) -> None:
    with pytest.raises(ValueError, match="of no engine that is known"):
        metrics.parse(text)


def put(root: Path, name: str, settings: Any) -> None:
    folder = root / "etc/gb10-fleet"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(settings if isinstance(settings, str) else json.dumps(settings))


def test_services_by_their_settings(tmp_path: Path) -> None:
    assert metrics.services(tmp_path) == []
    members = {"members": [{"name": "a", "address": "1"}, {"name": "b", "address": "2"}]}
    put(tmp_path, "vllm.json", {"argv": ["docker", "--port", "8000", "--host", "0.0.0.0"], "join": members})  # noqa: S104
    put(tmp_path, "vllm-chat.json", {"argv": ["docker", "--port", "8001"], "join": None, "env_file": "/x"})
    put(tmp_path, "vllm-rank.json", {"argv": ["docker", "--port", "8002", "--headless"], "join": members})
    put(tmp_path, "vllm-broken.json", "{")
    put(tmp_path, "vllm-odd.json", [])
    put(tmp_path, "vllm-other.json", {"argv": [], "metrics": {"nonsense": 1}})
    put(tmp_path, "vllm-deep.json", "[" * 100_000)
    put(tmp_path, "other.json", {"argv": []})
    found = {one.name: one for one in metrics.services(tmp_path)}
    assert sorted(found) == ["chat", "rank", "vllm"]
    vllm, chat = (tuple(vars(found[name]).values()) for name in ("vllm", "chat"))
    assert vllm == ("vllm", "gb10-vllm.service", "/run/gb10-vllm/status.json", "127.0.0.1", 8000, 2, VLLM, None)
    assert chat[1:] == ("gb10-vllm-chat.service", "/run/gb10-vllm-chat/status.json", "127.0.0.1", 8001, 1, VLLM, "/x")
    assert found["rank"].port is None


class _Server(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = OTHER if self.path == "/own/metrics" else REAL.read_bytes()
        self.send_response(200 if self.path in ("/metrics", "/own/metrics") else 404)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def test_a_server_is_asked_while_its_unit_vouches_for_it(tmp_path: Path) -> None:
    server = http.server.HTTPServer(("127.0.0.1", 0), _Server)
    threading.Thread(target=server.handle_request, daemon=True).start()
    service = metrics.Service("vllm", "u", str(tmp_path / "status.json"), "127.0.0.1", server.server_port, 1)
    with pytest.raises(OSError, match="no process of the service"):
        metrics.ask(service, 10)
    threading.Thread(target=server.handle_request, daemon=True).start()
    (tmp_path / "serving").touch()
    assert metrics.ask(service, 10)["generated_tokens"] == 19.0
    server.server_close()
    with pytest.raises(OSError, match="refused"):
        metrics.ask(service, 10)
    with pytest.raises(ValueError, match="no API"):
        metrics.ask(metrics.Service("vllm", "u", "s", "127.0.0.1", None, 1), 10)


def test_another_server_is_asked_where_its_settings_say_and_by_its_own_names(tmp_path: Path) -> None:
    server = http.server.HTTPServer(("127.0.0.1", 0), _Server)
    names = {"running": "num_requests_running", "made_total": "generation_tokens_total"}
    own = Naming(path="/own/metrics", prefix="other_", names=names)
    service = metrics.Service("vllm", "u", str(tmp_path / "status.json"), "127.0.0.1", server.server_port, 1, own)
    threading.Thread(target=server.handle_request, daemon=True).start()
    (tmp_path / "serving").touch()
    found = metrics.ask(service, 10)
    server.server_close()
    assert (found["running"], found["generated_tokens"], found["waiting"]) == (3.0, 7.0, None)


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_a_server_that_drips_has_one_deadline(tmp_path: Path, head: bytes) -> None:
    """Each of its bytes comes in time."""
    (tmp_path / "serving").touch()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(head)
                for _ in range(60):
                    connection.sendall(b"a")
                    time.sleep(0.05)

        thread = threading.Thread(target=drip)
        thread.start()
        service = metrics.Service("vllm", "u", str(tmp_path / "status.json"), "127.0.0.1", listener.getsockname()[1], 1)
        with pytest.raises(OSError, match="timed out"):
            metrics.ask(service, 0.3)
        thread.join()


@pytest.mark.parametrize("text", ["0", "65536", "99999999", "\u0663", "\u00b2", "-1", "80 ", "80\n", "", "9" * 5000])
def test_what_is_no_port_is_none(tmp_path: Path, text: str) -> None:
    assert metrics.port_of(text) is None and metrics.port_of("65535") == 65535
    put(tmp_path, "vllm.json", {"argv": ["docker", "--port", text]})
    assert metrics.services(tmp_path)[0].port is None
