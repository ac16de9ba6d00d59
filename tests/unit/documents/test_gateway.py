"""The gateway: what the role writes and refuses, and a real NGINX with it, and a server that notes what it hears."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.engine.engine import parse_documents
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render import Rendered, render
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View

from gb10_fleet import authority
from tests.support import smuggling
from tests.support.attacker import tally
from tests.support.ports import free_port

NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
needs_nginx = pytest.mark.skipif(NGINX is None, reason="THE GATEWAY IS NOT TESTED: there is no nginx on this machine")

KEY = "Sesame/0123456789.abcdef+ABCDEF~_-="
OTHER_KEY = "9" * 40
KEY_OF_VLLM = "the-key-of-vLLM-itself"
GATEWAY = {"gateway_address": "127.0.0.1", "gateway_plain_http": True, "gateway_keys": {"laptop": KEY, "ci": OTHER_KEY}}
CERTIFICATE = {
    "gateway_address": "192.0.2.11",
    "gateway_keys": {"laptop": KEY},
    "gateway_certificate": "/etc/ssl/gateway.pem",
    "gateway_certificate_key": "/etc/ssl/private/gateway.pem",
}
CONFIG = "/etc/gb10-fleet/gateway.conf"
KEYS = "/etc/gb10-fleet/gateway-keys.conf"
PEM = "/etc/gb10-fleet/gateway.pem"
UNIT = "/etc/systemd/system/gb10-gateway.service"
ROUTER = (
    "/etc/gb10-fleet/router.cfg",
    "/etc/gb10-fleet/router-keys.map",
    "/etc/systemd/system/gb10-router.service",
    "/usr/local/sbin/gb10-router",
)
DROP_IN = "/etc/systemd/system/nginx.service.d/50-gb10-gateway.conf"
BARE: dict[str, Any] = {"packages": {}, "installed_by_us": []}


def document(
    spark: Mapping[str, Any] = BARE, host: str = "spark-a", members: tuple[str, ...] = (), **variables: Any
) -> Rendered:
    return render("gateway", View(host, spark, variables, members))


def named(made: Rendered) -> dict[str, dict[str, Any]]:
    """The resources by name."""
    assert not made.refusals
    return {next(iter(entry.values())): entry for entry in made.resources}


# -- what it writes and refuses


def test_no_address_is_no_gateway_and_takes_an_earlier_one_away() -> None:
    found = named(document())
    assert found["gb10-gateway.service"] == {"unit": "gb10-gateway.service", "enabled": False, "state": "stopped"}
    assert {name for name, entry in found.items() if entry["state"] == "absent"} == {CONFIG, KEYS, PEM, UNIT, *ROUTER}


def test_what_goes_is_stopped_before_a_file_of_it_is_taken_away() -> None:
    kinds = [next(iter(entry)) for entry in document().resources]
    assert kinds == ["unit"] * 2 + ["file"] * 8
    secrets = {entry["file"] for entry in document().resources if entry.get("secret")}
    assert secrets == {KEYS, PEM, "/etc/gb10-fleet/router-keys.map"}


def test_all_that_a_gateway_and_its_router_write_goes_with_them() -> None:
    """But what others may have, too: packages, their drop-ins, the folder, and what is to stand there beforehand."""
    services = {name: {"model": name, "port": port, "memory_gib": 8} for name, port in (("one", 8000), ("two", 8001))}
    known = {**BARE, "memory_bytes": 128 << 30}
    there = named(document(known, **BY_TEXT, vllm_services=services))
    written = {name for name, entry in there.items() if ("content" in entry or "unit" in entry) and ".d/" not in name}
    assert written == set(named(document()))


def test_only_the_head_of_a_cluster_has_one() -> None:
    pair = ("spark-a", "spark-b")
    assert named(document(members=pair, **GATEWAY))["gb10-gateway.service"]["state"] == "started"
    assert named(document(host="spark-b", members=pair, **GATEWAY))["gb10-gateway.service"]["state"] == "stopped"


def test_keys_are_a_secret_of_root() -> None:
    found = named(document(**GATEWAY, vllm_api_key=KEY_OF_VLLM))
    assert found[KEYS]["secret"] is True
    for entry in found.values():
        if entry is not found[KEYS]:
            assert not any(key in str(entry) for key in (KEY, OTHER_KEY, KEY_OF_VLLM)), entry
    assert parse_documents([("gateway", list(found.values()))], {}).claims


@pytest.mark.parametrize(
    ("spark", "ours"),
    [
        (BARE, True),
        ({"packages": {"nginx": "1.24.0-2ubuntu7"}, "installed_by_us": ["nginx"]}, True),
        ({"packages": {"nginx": "1.24.0-2ubuntu7"}, "installed_by_us": []}, False),
    ],
)
def test_only_a_web_server_that_we_bring_is_kept_from_starting(spark: dict[str, Any], ours: bool) -> None:
    names = list(named(document(spark, **GATEWAY)))
    assert (DROP_IN in names) is ours
    if ours:
        assert names.index(DROP_IN) < names.index("nginx"), "the package starts its service at once"
    assert "nginx.service" not in names


def test_a_certificate_has_to_be_there_before_anything_is_touched() -> None:
    names = list(named(document(**CERTIFICATE)))
    assert names[:2] == [CERTIFICATE["gateway_certificate"], CERTIFICATE["gateway_certificate_key"]]
    expected = named(document(**CERTIFICATE))[names[0]]
    assert (expected["state"], expected["beforehand"]) == ("expected", True)


TEXT = "-----BEGIN CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\n"
BY_TEXT = {**CERTIFICATE, "gateway_certificate": "", "gateway_certificate_key": "", "gateway_certificate_text": TEXT}


def test_a_certificate_in_the_inventory_is_kept_where_only_root_reads_it() -> None:
    made = document(**BY_TEXT)
    found = named(made)
    assert found[PEM]["content"] == TEXT and found[PEM]["secret"] is True
    assert found[CONFIG]["content"].count(f'"{PEM}"') == 2 and "expected" not in str(made.resources)
    assert PEM in found["gb10-gateway.service"]["reload_on"]
    assert not any("PRIVATE" in str(entry) for name, entry in found.items() if name != PEM)
    wrong = {**BY_TEXT, "gateway_certificate_text": "-----BEGIN CERTIFICATE-----"}
    assert "is not a certificate with its key" in document(**wrong).refusals[0]
    assert (
        "a file of a certificate is named, too" in document(**{**BY_TEXT, "gateway_certificate": "/etc/a"}).refusals[0]
    )


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"gateway_address": "lan"}, "no IP address"),
        ({"gateway_address": "192.0.2.11;"}, "no IP address"),
        ({"gateway_address": "192.0.2.11\n"}, "no IP address"),
        ({"gateway_port": 0}, "no TCP port"),
        ({"gateway_port": 65536}, "no TCP port"),
        ({"gateway_port": 8000}, "that a service or Ray uses (8000, "),
        ({"gateway_port": 9000, "vllm_port": 9000}, "that a service or Ray uses (9000, "),
        *(({"gateway_port": port}, "that a service or Ray uses") for port in (29501, 29502, 29511, 6379, 6380)),
        ({"gateway_certificate": ""}, "gateway_certificate_key is not"),
        ({"gateway_certificate_key": ""}, "gateway_certificate_key is not"),
        ({"gateway_plain_http": True}, "take one of them away"),
        ({"gateway_certificate": "gateway.pem"}, "no absolute path"),
        ({"gateway_certificate": '/etc/a"; include /x; "'}, "no absolute path"),
        ({"gateway_certificate_key": "/etc/a$b"}, "no absolute path"),
        ({"gateway_keys": {}}, "gateway_keys is empty"),
        ({"gateway_keys": {"laptop": "sesame"}}, "the key of laptop is shorter than 32"),
        ({"gateway_keys": {"laptop": ""}}, "the key of laptop"),
        ({"gateway_keys": {"laptop": "a" * 513}}, "or longer than 512"),
        ({"gateway_keys": {"laptop": "open sesame " * 5}}, "the key of laptop"),
        ({"gateway_keys": {"laptop": "a" * 40 + "\n"}}, "the key of laptop"),
        ({"gateway_keys": {"laptop": "é" * 40}}, "the key of laptop"),
        ({"gateway_keys": {"laptop": '"' * 40}}, "the key of laptop"),
        ({"gateway_keys": {'a"': KEY}}, "A name is"),
        ({"gateway_keys": {"": KEY}}, "A name is"),
        ({"gateway_keys": {"a b": KEY}}, "A name is"),
        ({"gateway_keys": {"a": KEY, "b": KEY}}, "the same key twice"),
        ({"gateway_paths": ["/v1/models"]}, "Each is a method and a path"),
        ({"gateway_paths": ["GET /v1/models/"]}, "Each is a method and a path"),
        ({"gateway_paths": ["GET /v1//models"]}, "Each is a method and a path"),
        ({"gateway_paths": ["GET /v1/{x}"]}, "Each is a method and a path"),
        ({"gateway_paths": ["GET /"]}, "Each is a method and a path"),
        ({"gateway_paths": ["POST /v1/score", "POST /pause"]}, "/pause, which stops the model"),
        ({"gateway_paths": ["POST /collective_rpc"]}, "calls into the engine"),
        ({"gateway_paths": ["POST /v1/load_lora_adapter"]}, "loads files"),
        ({"gateway_paths": ["POST /invocations"]}, "every other endpoint"),
        ({"vllm_host": "0.0.0.0"}, "past the gateway"),  # noqa: S104
        ({"vllm_host": "192.0.2.11"}, "past the gateway"),
        ({"vllm_api_key": "a$b"}, "vllm_api_key has other characters"),
        ({"vllm_api_key": 'a"; b'}, "vllm_api_key has other characters"),
    ],
)
def test_refusals(given: dict[str, Any], says: str) -> None:
    said = " ".join(document(**CERTIFICATE | given).refusals)
    assert says in said
    for key in (*given.get("gateway_keys", {}).values(), given.get("vllm_api_key", "")):
        assert not key or key not in said, "a key is shown"
    assert not document(**CERTIFICATE | given | {"gateway_address": ""}).refusals


def test_sound_inputs_are_not_refused() -> None:
    assert not document(**GATEWAY).refusals
    assert not document(**CERTIFICATE | {"gateway_address": "2001:db8::11"}).refusals
    assert not document(
        **CERTIFICATE | {"gateway_paths": ["POST /v1/score", "GET /metrics", "POST /tokenize"]}
    ).refusals


def test_the_allow_list_is_the_catalogs() -> None:
    said = [entry["value"] for entry in catalog.load("gateway")["endpoints"]]
    assert catalog.read(Path(__file__).parents[3] / "roles/gateway/defaults/main.yml")["gateway_paths"] == said


def test_the_gateway_goes_where_vllm_is() -> None:
    config = named(document(**GATEWAY, vllm_host="::1", vllm_port=9001))[CONFIG]["content"]
    assert "set $path /v1/models;" in config and "proxy_pass http://[::1]:9001$path;" in config
    config = named(document(**GATEWAY, vllm_host="localhost"))[CONFIG]["content"]
    assert "set $path /v1/models;" in config and "proxy_pass http://127.0.0.1:8000$path;" in config, (
        "to NGINX localhost is ::1 as well, to vLLM it is not"
    )
    config = named(document(**GATEWAY | {"gateway_address": "2001:db8::11"}))[CONFIG]["content"]
    assert "listen [2001:db8::11]:8443 backlog=4096;" in config


# -- a real NGINX


@dataclass
class Upstream:
    """Takes the place of vLLM: notes the head and body of each request, and answers as told."""

    port: int
    heard: list[tuple[str, bytes]] = field(default_factory=list)
    go_on: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    health: str = "200 OK"
    orders: bytes = b""  # further headers of an answer

    def serve(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self.answer, args=(client,), daemon=True).start()

    def answer(self, client: socket.socket) -> None:
        with client, client.makefile("rb") as lines:
            head = b""
            while (line := lines.readline()) not in (b"\r\n", b""):
                head += line
            if not head:
                return
            length = next(
                (int(row[15:]) for row in head.lower().split(b"\r\n") if row.startswith(b"content-length:")), 0
            )
            self.heard.append((head.decode(), lines.read(length)))
            if head.startswith(b"GET /health "):
                client.sendall(f"HTTP/1.1 {self.health}\r\nContent-Length: 9\r\n\r\n{self.health:.9}".encode())
                return
            if b"text/event-stream" in head:
                client.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
                for chunk in (b"6\r\nsecond\r\n", b"5\r\nthird\r\n0\r\n\r\n"):
                    assert self.go_on.acquire(timeout=30)
                    client.sendall(chunk)
                return
            client.sendall(b"HTTP/1.1 200 OK\r\n%bserver: uvicorn\r\nContent-Length: 2\r\n\r\n{}" % self.orders)


class Log:
    """Takes the place of the journal's /dev/log. It is read all the time, for what does not fit into it is lost."""

    def __init__(self, path: Path) -> None:
        self.said = ""
        self._more = threading.Condition()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while part := self._socket.recv(65536):
            with self._more:
                self.said += part.decode() + "\n"
                self._more.notify_all()

    def await_line(self, wanted: str) -> None:
        """It comes after the answer."""
        with self._more:
            assert self._more.wait_for(lambda: wanted in self.said, 30), f"{wanted} is not in:\n{self.said}"


@dataclass
class Gateway:
    folder: Path
    port: int
    upstream: Upstream
    log: Log

    def send(self, raw: bytes, source: str = "127.0.0.1") -> bytes:
        """The whole of what comes back until the connection ends."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30, source_address=(source, 0)) as client:
            client.sendall(raw)
            said = b""
            while part := client.recv(65536):
                said += part
        return said


def request(
    line: str, *headers: str, key: str | None = KEY, host: str = "gateway", body: bytes = b"", version: str = "HTTP/1.1"
) -> bytes:
    rows = [f"{line} {version}", *([f"Host: {host}"] if host else []), "Connection: close", *headers]
    rows += [f"Authorization: Bearer {key}"] if key else []
    rows += [f"Content-Length: {len(body)}"] if body else []
    return "\r\n".join([*rows, "", ""]).encode("latin-1") + body


def status(said: bytes) -> int:
    return int(said.split(b" ", 2)[1])


def body_of(said: bytes) -> Any:
    return json.loads(said.partition(b"\r\n\r\n")[2])


def written(folder: Path, port: int, vllm_port: int, **variables: Any) -> Path:
    """The configuration as the role writes it, with the paths of this test."""
    given = {**GATEWAY, "gateway_port": port, "vllm_port": vllm_port, "vllm_api_key": KEY_OF_VLLM, **variables}
    found = named(document(**given))
    (folder / "keys.conf").write_text(found[KEYS]["content"])
    text: str = found[CONFIG]["content"]
    for old, new in (
        (KEYS, str(folder / "keys.conf")),
        ("unix:/dev/log", f"unix:{folder}/log"),
        ("user www-data;\n", "user root;\n" if os.geteuid() == 0 else ""),  # or it could not enter pytest's folder
        ("/var/lib/gb10-fleet/", f"{folder}/"),
        ("/run/gb10-vllm/", f"{folder}/"),
    ):
        assert old in text
        text = text.replace(old, new)
    (folder / "gateway.conf").write_text(text)
    (folder / "serving").touch()
    return folder / "gateway.conf"


def command(config: Path, *more: str) -> list[str]:
    assert NGINX is not None
    pid = f"pid {config.parent}/pid;"
    return [NGINX, "-e", "stderr", "-c", str(config), "-g", pid if "-t" in more else f"daemon off; {pid}", *more]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("g")
    listener = socket.create_server(("127.0.0.1", 0))
    upstream = Upstream(listener.getsockname()[1])
    threading.Thread(target=upstream.serve, args=(listener,), daemon=True).start()
    log = Log(folder / "log")
    port = free_port()
    with (folder / "stderr").open("wb") as stderr:
        running = subprocess.Popen(command(written(folder, port, upstream.port)), stderr=stderr)
    try:
        await_port(port, running, folder / "stderr")
        yield Gateway(folder, port, upstream, log)
    finally:
        running.terminate()
        running.wait(30)
        listener.close()
    logs = log.said + (folder / "stderr").read_text()
    assert not any(key in logs for key in (KEY, OTHER_KEY, KEY_OF_VLLM)), "a key in a log"


def await_port(port: int, running: subprocess.Popen[bytes], stderr: Path) -> None:
    while True:
        assert running.poll() is None, stderr.read_text()
        try:
            socket.create_connection(("127.0.0.1", port), timeout=30).close()
        except ConnectionRefusedError:
            continue
        return


@pytest.fixture
def heard(gateway: Gateway) -> list[tuple[str, bytes]]:
    """What reaches vLLM in one test."""
    gateway.upstream.heard.clear()
    gateway.upstream.health, gateway.upstream.orders = "200 OK", b""
    return gateway.upstream.heard


@needs_nginx
@pytest.mark.parametrize("endpoint", [entry["value"] for entry in catalog.load("gateway")["endpoints"]])
@pytest.mark.parametrize("key", [KEY, OTHER_KEY])
def test_what_is_allowed_arrives(gateway: Gateway, heard: list[Any], endpoint: str, key: str) -> None:
    body = b'{"model": "x"}' if endpoint.startswith("POST") else b""
    said = gateway.send(
        request(
            endpoint, "Content-Type: application/json", "X-Forwarded-For: 127.0.0.1", "X-Forwarded-Proto: https",
            "Forwarded: for=127.0.0.1", "Cookie: a=b", "X-Request-Id: 7", "Connection: X-Secret", "X-Secret: 1",
            key=key, body=body, host="127.0.0.1:22",
        )
    )  # fmt: skip
    assert status(said) == 200
    ((head, arrived),) = heard
    assert arrived == body
    rows = head.lower().splitlines()
    assert head.startswith(f"{endpoint} HTTP/1.1\r\n")
    assert f"host: 127.0.0.1:{gateway.upstream.port}" in rows
    assert f"Authorization: Bearer {KEY_OF_VLLM}" in head.splitlines()
    assert {row.partition(":")[0] for row in rows[1:]} <= {
        "host", "connection", "authorization", "content-type", "content-length", "accept",
    }  # fmt: skip
    name = "laptop" if key == KEY else "ci"
    gateway.log.await_line(f'"{name}" "{endpoint}" 200')


# reliability of serving: what vLLM answers without a key, and more of what it has
OTHERS = [
    "POST /invocations", "POST /pooling", "POST /classify", "POST /score", "POST /rerank", "POST /generative_scoring",
    "POST /pause", "POST /resume", "POST /update_weights", "POST /scale_elastic_ep", "POST /is_scaling_elastic_ep",
    "POST /tokenize", "POST /detokenize", "GET /load", "POST /collective_rpc", "GET /server_info", "POST /sleep",
    "POST /wake_up", "GET /is_sleeping", "POST /reset_prefix_cache", "GET /metrics", "GET /version", "GET /ping",
    "GET /docs", "GET /openapi.json", "GET /redoc", "POST /start_profile", "POST /abort_requests",
    "GET /tokenizer_info", "POST /v1/load_lora_adapter", "POST /v1/unload_lora_adapter", "POST /v1/score",
    "POST /v1/rerank", "POST /v2/rerank", "POST /v1/audio/transcriptions", "POST /v1/messages",
    "POST /inference/v1/generate", "GET /v1/realtime", "GET /v1/responses/resp_1", "POST /v1/responses/resp_1/cancel",
    "POST /v1/chat/completions/render", "GET /", "GET /v1",
]  # fmt: skip

TRICKS = {
    "dot encoded": "POST /v1/%2e%2e/pause",
    "dots": "POST /v1/../pause",
    "dots behind an allowed path": "POST /v1/completions/../../pause",
    "slash encoded": "POST /v1/models%2f..%2f..%2fpause",
    "letter encoded": "GET /v1/%6dodels",
    "encoded twice": "GET /v1/%256dodels",
    "two slashes": "GET //v1/models",
    "two slashes within": "GET /v1//models",
    "slash at the end": "GET /v1/models/",
    "dot segment": "GET /v1/./models",
    "semicolon": "GET /v1/models;/../../pause",
    "parameter": "GET /v1/models;x=1",
    "capitals": "GET /V1/Models",
    "backslash": "GET /v1\\models",
    "NUL": "GET /v1/models%00",
    "newline encoded": "GET /v1/models%0a",
    "something behind": "GET /v1/modelsx",
    "something below": "GET /v1/models/x",
    "fragment": "GET /v1/models#x",
    "question mark encoded": "GET /v1/models%3f",
    "path of an absolute URI": "POST http://127.0.0.1:8000/pause",
    "crooked path of an absolute URI": "POST http://127.0.0.1:8000/v1/../pause",
    "asterisk": "OPTIONS *",
    "dots above the root": "POST /../pause",
    "UTF-8 dots": "POST /v1/\xc0\xae\xc0\xae/pause",
    "full-width": "GET /v1/\xef\xbd\x8dodels",
}


@needs_nginx
@pytest.mark.parametrize("line", [*OTHERS, *TRICKS.values()])
def test_nothing_else_arrives(gateway: Gateway, heard: list[Any], line: str) -> None:
    assert status(gateway.send(request(line))) in (400, 404)
    assert status(gateway.send(request(line, key=None))) in (400, 401)
    assert status(gateway.send(request(f"{line}?v1/models", version="HTTP/1.0"))) in (400, 404)
    assert not heard


@needs_nginx
@pytest.mark.parametrize("method", ["PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "GET", "PROPFIND", "get", "X-GET"])
def test_other_methods_do_not_arrive(gateway: Gateway, heard: list[Any], method: str) -> None:
    said = gateway.send(request(f"{method} /v1/chat/completions"))
    assert status(said) in (400, 405)
    assert status(said) == 400 or b"\r\nAllow: POST\r\n" in said
    assert not heard


@needs_nginx
@pytest.mark.parametrize(
    "line", ["CONNECT 127.0.0.1:8000", "TRACE /v1/models", "POST /health", "HEAD /health", "POST /v1/models"]
)
def test_methods_that_mean_something_else(gateway: Gateway, heard: list[Any], line: str) -> None:
    assert status(gateway.send(request(line))) in (400, 405)
    assert not heard


@needs_nginx
@pytest.mark.parametrize(
    "headers",
    [
        (),
        ("Authorization: Bearer",),
        ("Authorization: Bearer ",),
        (f"Authorization: {KEY}",),
        (f"Authorization: Basic {KEY}",),
        (f"Authorization: Bearer {KEY}x",),
        (f"Authorization: Bearer {KEY[:-1]}",),
        (f"Authorization: Bearer x{KEY}",),
        (f"Authorization: Bearer {KEY.lower()}",),
        (f"Authorization: Bearer {KEY.upper()}",),
        (f"Authorization: Bearer {KEY.replace('.', 'x')}",),
        (f"Authorization: Bearer  {KEY}",),
        (f"Authorization: Bearer {KEY} {KEY}",),
        (f"Authorization: Bearer {KEY}, Bearer {KEY}",),
        (f"Authorization: Bearer wrong, Bearer {KEY}",),
        (f"Authorization: Bearer {KEY_OF_VLLM}",),
        (f"Authorization : Bearer {KEY}",),
        ("Authorization: Bearer wrong", f"Authorization: Bearer {KEY}"),
        (f"Authorization: Bearer {KEY}", "Authorization: Bearer wrong"),
        (f"X-Api-Key: {KEY}",),
        (f"Proxy-Authorization: Bearer {KEY}",),
        (f"Cookie: Authorization=Bearer {KEY}",),
        ("Authorization: Bearer laptop",),
        ("Authorization: Bearer .*",),
    ],
)
def test_no_key_no_answer(gateway: Gateway, heard: list[Any], headers: tuple[str, ...]) -> None:
    for line in (
        "GET /v1/models",
        f"GET /v1/models?key={KEY}",
        f"GET /v1/models?Authorization=Bearer%20{KEY}",
        "GET /nothing",
    ):
        said = gateway.send(request(line, *headers, key=None))
        assert status(said) in (400, 401)
        if status(said) == 401:
            assert b"\r\nWWW-Authenticate: Bearer\r\n" in said and body_of(said)["error"]["code"] == 401
    assert not heard


@needs_nginx
def test_the_name_of_the_scheme_has_no_case_and_a_key_has(gateway: Gateway, heard: list[Any]) -> None:
    for scheme in ("Bearer", "bearer", "BEARER"):
        assert status(gateway.send(request("GET /v1/models", f"Authorization: {scheme} {KEY}", key=None))) == 200
    assert len(heard) == 3


@needs_nginx
def test_a_key_is_nowhere_in_the_log_and_its_owner_is(gateway: Gateway, heard: list[Any]) -> None:
    gateway.send(request(f"GET /v1/models?key={KEY}", f"User-Agent: {KEY}", f"Referer: http://x/{KEY}"))
    gateway.send(request(f"GET /{KEY}", f"X-{KEY}: 1"))
    gateway.send(request(f"{KEY} /v1/models"))
    gateway.send(request(f"GET /v1/models?key={OTHER_KEY}", key=None))
    for line in ('"laptop" "GET /v1/models" 200', '"laptop" "-" 404', '"" "" 400', '"" "-" 401'):
        gateway.log.await_line(line)
    (passed,) = heard
    assert KEY not in passed[0], "and vLLM does not get it"


@needs_nginx
@pytest.mark.parametrize(
    "host", ["127.0.0.1:8000", "localhost", "evil.example/v1/models?", "evil.example@x", "a b", "../..", "[::1]", ""]
)
def test_no_host_header_gets_past_the_key(gateway: Gateway, heard: list[Any], host: str) -> None:
    """CVE-2026-48746."""
    assert status(gateway.send(request("GET /v1/models", key=None, host=host))) in (400, 401)
    assert status(gateway.send(request("POST /pause", host=host))) in (400, 404)
    assert not heard
    if status(gateway.send(request("GET /v1/models", host=host))) == 200:
        assert f"\r\nHost: 127.0.0.1:{gateway.upstream.port}\r\n" in heard[0][0]


ATTACKS = smuggling.attacks(request("POST /v1/embeddings", key=None))


@needs_nginx
@pytest.mark.parametrize(("headers", "body"), ATTACKS.values(), ids=ATTACKS)
def test_nothing_is_smuggled(gateway: Gateway, heard: list[Any], headers: tuple[str, ...], body: bytes) -> None:
    """With a key and a connection that stays open, which is where it would work; another request comes behind."""
    raw = request("POST /v1/chat/completions", *headers).replace(b"Connection: close\r\n", b"")
    gateway.send(raw + body + request("GET /v1/models"))
    arrived = [head.split(" HTTP/", 1)[0] for head, _ in heard]
    tally("request smuggling through the gateway", 1, "POST /v1/embeddings" in arrived)
    assert arrived in ([], ["POST /v1/chat/completions"], ["POST /v1/chat/completions", "GET /v1/models"])
    assert status(gateway.send(request("GET /v1/models"))) == 200


@needs_nginx
def test_an_absolute_uri_is_its_path(gateway: Gateway, heard: list[Any]) -> None:
    assert status(gateway.send(request("GET http://evil.example/v1/models?x=1"))) == 200
    assert heard[0][0].startswith("GET /v1/models HTTP/1.1\r\n") and "evil" not in heard[0][0]


@needs_nginx
def test_anyone_may_ask_whether_it_is_well(gateway: Gateway, heard: list[Any]) -> None:
    assert status(gateway.send(request("GET /health", key=None))) == 200
    assert KEY_OF_VLLM in heard[0][0]
    for answer in ("500 Internal Server Error", "503 Service Unavailable", "401 Unauthorized", "404 Not Found"):
        gateway.upstream.health = answer
        said = gateway.send(request("GET /health", key=None))
        assert status(said) == 503 and body_of(said)["error"]["code"] == 503
    assert status(gateway.send(request("POST /health", key=None, body=b"x" * 100))) == 401
    assert status(gateway.send(request("GET /health?x", key=None))) == 401
    assert status(gateway.send(request("GET /health", key=None, body=b"x" * 100))) == 413
    assert len(heard) == 5


@needs_nginx
def test_an_answer_is_handed_on_as_it_comes(gateway: Gateway, heard: list[Any]) -> None:
    said = b""
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=30) as client:
        client.sendall(request("POST /v1/chat/completions", "Accept: text/event-stream", body=b"{}"))
        for chunk, next_one in ((b"first", b"second"), (b"second", b"third"), (b"third", b"fourth")):
            while chunk not in said:
                part = client.recv(65536)
                assert part, said
                said += part
            assert next_one not in said
            gateway.upstream.go_on.release()
    gateway.upstream.go_on.acquire()  # nobody waited for the last


@needs_nginx
@pytest.mark.parametrize("line", ["POST /v1/chat/completions", "GET /v1/models", "GET /health"])
def test_who_took_the_port_of_a_service_that_does_not_serve_hears_nothing(
    gateway: Gateway, heard: list[Any], line: str
) -> None:
    """Without its unit's word, whoever listens there is somebody else: neither prompt nor key goes to him."""
    (gateway.folder / "serving").unlink()
    try:
        said = gateway.send(request(line, body=b"a prompt" if line.startswith("POST") else b""))
    finally:
        (gateway.folder / "serving").touch()
    assert status(said) == (503 if line == "GET /health" else 502) and heard == []
    assert status(gateway.send(request(line))) == 200 and len(heard) == 1


SLOW = {
    "Content-Length: 8": (b"a pr", b"ompt"),
    "Transfer-Encoding: chunked": (b"4\r\na pr\r\n", b"4\r\nompt\r\n0\r\n\r\n"),
}


@needs_nginx
@pytest.mark.parametrize("line", ["POST /v1/chat/completions", "GET /v1/models"])
@pytest.mark.parametrize("header", SLOW)
@pytest.mark.parametrize("serves", [False, True])
def test_who_took_the_port_while_a_request_came_slowly_hears_nothing(
    gateway: Gateway, heard: list[Any], line: str, header: str, serves: bool
) -> None:
    """With a key. It served when the request began, and its port has changed hands before the end of the body."""
    first, last = SLOW[header]
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=30) as client:
        client.sendall(request(line, header, "Expect: 100-continue"))
        assert client.recv(65536).startswith(b"HTTP/1.1 100 "), "NGINX waits for the body"
        client.sendall(first)
        if not serves:
            (gateway.folder / "serving").unlink()
        try:
            client.sendall(last)
            said = b"".join(iter(lambda: client.recv(65536), b""))
        finally:
            (gateway.folder / "serving").touch()
    if serves:
        assert status(said) == 200 and [body for _, body in heard] == [b"a prompt"]
    else:
        assert status(said) == 502 and body_of(said)["error"]["code"] == 502 and heard == []


@needs_nginx
def test_a_request_has_one_line_in_the_log_and_its_connection_goes_on(gateway: Gateway, heard: list[Any]) -> None:
    asks = request("POST /v1/embeddings", body=b"a prompt")
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=30, source_address=("127.0.0.80", 0)) as client:
        client.sendall(asks.replace(b"Connection: close\r\n", b"") + asks)
        said = b"".join(iter(lambda: client.recv(65536), b""))
    assert said.count(b"HTTP/1.1 200 ") == 2 and len(heard) == 2
    gateway.send(request("GET /v1/models"), source="127.0.0.81")
    gateway.log.await_line('127.0.0.81 "laptop" "GET /v1/models" 200')
    assert gateway.log.said.count("127.0.0.80 ") == 2
    assert gateway.log.said.count('127.0.0.80 "laptop" "POST /v1/embeddings" 200 2 B ') == 2


@needs_nginx
@pytest.mark.parametrize("header", ["Content-Length: 1", "Transfer-Encoding: chunked"])
def test_a_stranger_who_is_slow_to_ask_for_its_health_gets_no_connection(
    gateway: Gateway, heard: list[Any], header: str
) -> None:
    assert status(gateway.send(request("GET /health", header, key=None))) == 413 and heard == []


@needs_nginx
def test_what_is_too_large_is_said(gateway: Gateway, heard: list[Any]) -> None:
    size = catalog.load("gateway")["body"]["value"] * 2**20 + 1
    said = gateway.send(request("POST /v1/completions", f"Content-Length: {size}"))
    assert status(said) == 413 and body_of(said)["error"]["code"] == 413
    large = b"x" * (2 * 2**20)
    assert status(gateway.send(request("POST /v1/completions", body=large))) == 200
    assert [arrived for _, arrived in heard] == [large]


@needs_nginx
def test_where_there_is_no_room_for_a_large_request_a_small_one_is_served(tmp_path: Path) -> None:
    """The tmpfs of the unit has an end. A limit of the process stands in for it: nothing is written beyond it."""
    unit, room = named(document(**GATEWAY))[UNIT]["content"], catalog.load("gateway")["bodies"]["value"]
    assert f"TemporaryFileSystem=/var/lib/gb10-fleet:mode=0711,size={room}M\n" in unit
    listener = socket.create_server(("127.0.0.1", 0))
    upstream = Upstream(listener.getsockname()[1])
    threading.Thread(target=upstream.serve, args=(listener,), daemon=True).start()
    port = free_port()
    limited = [
        "sh",
        "-c",
        'trap "" XFSZ; ulimit -f 256; exec "$0" "$@"',
        *command(written(tmp_path, port, upstream.port)),
    ]
    with (tmp_path / "stderr").open("wb") as stderr:
        running = subprocess.Popen(limited, stderr=stderr)
    told = Gateway(tmp_path, port, upstream, Log(tmp_path / "log"))
    try:
        await_port(port, running, tmp_path / "stderr")
        said = told.send(request("POST /v1/completions?a-secret", body=b"x" * 2**20))
        assert (status(said), body_of(said)["error"]["code"]) == (503, 503)
        assert b"Retry-After: " in said
        assert status(told.send(request("POST /v1/completions", body=b"x"))) == 200
    finally:
        running.terminate()
        running.wait(30)
        listener.close()
    assert "a-secret" not in (tmp_path / "stderr").read_text()


def test_the_answers_do_not_say_what_answers(gateway: Gateway, heard: list[Any]) -> None:
    for line in ("GET /v1/models", "GET /nothing", "GET /%"):
        head = gateway.send(request(line)).partition(b"\r\n\r\n")[0]
        assert b"\r\nServer: nginx\r\n" in head and b"uvicorn" not in head


@needs_nginx
def test_a_stranger_does_not_fill_the_log(gateway: Gateway) -> None:
    one = b"GET / HTTP/1.1\r\nHost: gateway\r\n"
    said = gateway.send((one + b"\r\n") * 5 + one + b"Connection: close\r\n\r\n", source="127.0.0.77")
    assert said.count(b"HTTP/1.1 401 ") == 6
    gateway.send(request("GET /v1/models"), source="127.0.0.78")
    gateway.log.await_line('127.0.0.78 "laptop" "GET /v1/models" 200')
    assert gateway.log.said.count('127.0.0.77 "" "-" 401 ') == 1


@needs_nginx
@pytest.mark.parametrize("place", ["/v1/models", "/v1/completions", "@served", "@full"])
def test_an_answer_gives_the_gateway_no_orders(gateway: Gateway, heard: list[Any], place: str) -> None:
    """A container, or a host behind the router, sent the request of a client on to another place of ours."""
    gateway.upstream.orders = b"X-Accel-Redirect: %b\r\n" % place.encode()
    said = gateway.send(request("POST /v1/chat/completions", body=b"{}"))
    tally("an answer that sends a request on to another place", 1, int(len(heard) != 1 or status(said) != 200))
    assert status(said) == 200 and body_of(said) == {}
    assert [head.partition(" HTTP")[0] for head, _ in heard] == ["POST /v1/chat/completions"]


@needs_nginx
def test_an_answer_that_wants_to_be_kept_waits_for_its_reader(tmp_path: Path) -> None:
    """It was kept in the room of large requests, up to a GiB of it, and other clients got no room."""
    port, listener = free_port(), socket.create_server(("127.0.0.1", 0))
    config = written(tmp_path, port, listener.getsockname()[1])
    Log(tmp_path / "log")
    with listener, running_nginx(config, port), socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(request("GET /v1/models"))
        server, _ = listener.accept()
        with server:
            server.settimeout(2)
            server.recv(65536)
            server.sendall(b"HTTP/1.1 200 OK\r\nX-Accel-Buffering: yes\r\nContent-Length: %d\r\n\r\n" % 2**26)
            with pytest.raises(TimeoutError):
                server.sendall(bytes(2**26))


@needs_nginx
def test_health_may_not_be_asked_without_end(gateway: Gateway, heard: list[Any]) -> None:
    said = [status(gateway.send(request("GET /health", key=None), source="127.0.0.79")) for _ in range(60)]
    assert set(said) == {200, 429} and said[0] == 200
    assert len(heard) == said.count(200)
    assert status(gateway.send(request("GET /v1/models"))) == 200, "who has a key is not meant"


@needs_nginx
def test_a_machine_has_no_more_of_health_for_having_many_addresses(tmp_path: Path) -> None:
    """It has a whole /64 of IPv6, and each of its addresses had a rate of its own: 3,979 a second came through.

    On the LAN of the gateway all share one /64: a stranger there would speak for the monitors, too.
    """
    port = free_port()
    config = written(tmp_path, port, free_port(), gateway_address="2001:db8:0:b0b::11")
    believes = "http {\n    set_real_ip_from 127.0.0.1;\n    real_ip_header X-From;\n"
    text = config.read_text().replace("http {\n", believes, 1).replace("[2001:db8:0:b0b::11]:", "127.0.0.1:")
    config.write_text(text)
    Log(tmp_path / "log")

    def said(address: str) -> int:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            client.sendall(request("GET /health", f"X-From: {address}", key=None))
            return status(client.recv(65536))

    with running_nginx(config, port):
        one = [said(f"2001:db8:0:a0a::{number:x}") for number in range(1, 61)]
        many = [said(f"2001:db8:0:{number:x}::1") for number in range(1, 61)]
        tally("a machine asks for health from many addresses", 60, sum(each != 429 for each in one[30:]))
        assert set(one) == {503, 429} and set(many) == {503}
        for here in ("192.0.2.%d", "2001:db8:0:b0b::%d"):
            assert {said(here % number) for number in range(1, 61)} == {503}


@needs_nginx
def test_a_client_whose_key_was_taken_back_finishes_no_request_for_ever(tmp_path: Path) -> None:
    """A request that is half sent stays with the worker that knows the key. It sent a byte a minute, and was served."""
    port, listener = free_port(), socket.create_server(("127.0.0.1", 0))
    upstream = Upstream(listener.getsockname()[1])
    threading.Thread(target=upstream.serve, args=(listener,), daemon=True).start()
    config, keys = written(tmp_path, port, upstream.port), tmp_path / "keys.conf"
    limit = f"worker_shutdown_timeout {catalog.load('gateway')['silence']['value']}s;"
    assert limit in config.read_text()
    config.write_text(config.read_text().replace(limit, "worker_shutdown_timeout 1s;"))
    log = Log(tmp_path / "log")
    with listener, running_nginx(config, port) as running:
        gateway = Gateway(tmp_path, port, upstream, log)
        whole = request("POST /v1/completions", body=b"x" * 10_000)
        with socket.create_connection(("127.0.0.1", port), timeout=30) as slow:
            slow.sendall(whole[:-500])
            gateway.send(request("GET /v1/models"))
            keys.write_text("\n".join(line for line in keys.read_text().splitlines() if '"laptop"' not in line))
            running.send_signal(signal.SIGHUP)
            while status(gateway.send(request("GET /v1/models"))) != 401:
                pass
            upstream.heard.clear()
            said = _drip(slow, whole[-500:])
        tally("a request that a client began before its key was taken back", 1, int(b" 200 " in said))
        assert said == b"" and not upstream.heard


@contextlib.contextmanager
def running_nginx(config: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    with (config.parent / "stderr").open("wb") as stderr:
        running = subprocess.Popen(command(config), stderr=stderr)
    try:
        await_port(port, running, config.parent / "stderr")
        yield running
    finally:
        running.terminate()
        running.wait(30)


def _drip(client: socket.socket, rest: bytes) -> bytes:
    """Send byte after byte until the other side hangs up, or answers: then that."""
    try:
        for at in range(len(rest)):
            client.sendall(rest[at : at + 1])
            if select.select([client], [], [], 0.01)[0]:
                return client.recv(65536)
        return client.recv(65536)
    except ConnectionError:
        return b""


@needs_nginx
def test_without_the_model_it_says_so_at_once_and_stays_up(tmp_path: Path) -> None:
    port, nobody = free_port(), free_port()
    with (tmp_path / "stderr").open("wb") as stderr:
        running = subprocess.Popen(command(written(tmp_path, port, nobody)), stderr=stderr)
    log = Log(tmp_path / "log")
    try:
        await_port(port, running, tmp_path / "stderr")
        gateway = Gateway(tmp_path, port, Upstream(nobody), log)
        for _ in range(3):
            said = gateway.send(request(f"GET /v1/models?key={KEY}"))
            assert status(said) == 502 and body_of(said)["error"]["message"] == "the model is not running"
            assert status(gateway.send(request("GET /health", key=None))) == 503
        assert running.poll() is None
        log.await_line('"laptop" "GET /v1/models" 502')
    finally:
        running.terminate()
        running.wait(30)
    assert KEY not in log.said + (tmp_path / "stderr").read_text()


@needs_nginx
@pytest.mark.parametrize("more", [{}, {"vllm_model": ""}, {"gateway_fleet_key": "f" * 40}, {"vllm_on_demand": True}])
@pytest.mark.parametrize("paths", [[], ["POST /v1/score"], ["GET /v1/models"]])
def test_nginx_takes_what_is_written(tmp_path: Path, paths: list[str], more: dict[str, Any]) -> None:
    config = written(tmp_path, free_port(), free_port(), **{"vllm_model": "m", "gateway_paths": paths, **more})
    done = subprocess.run(command(config, "-t", "-q"), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# -- TLS


def certificate(folder: Path) -> dict[str, Any]:
    """A certificate of its own for the gateway's address."""
    made = {"gateway_certificate": str(folder / "cert.pem"), "gateway_certificate_key": str(folder / "key.pem")}
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=gateway", "-addext", "subjectAltName=IP:127.0.0.1",
         "-out", made["gateway_certificate"], "-keyout", made["gateway_certificate_key"]],
        check=True, capture_output=True,
    )  # fmt: skip
    return {**made, "gateway_plain_http": False}


@needs_nginx
def test_tls_from_1_2_on(tmp_path: Path) -> None:
    port = free_port()
    tls = certificate(tmp_path)
    config = written(tmp_path, port, free_port(), **tls)
    # OpenSSL as Debian has it would refuse older versions by itself, and Ubuntu's may be told otherwise.
    config.write_text(config.read_text().replace("ssl_protocols", 'ssl_ciphers "ALL:@SECLEVEL=0"; ssl_protocols'))
    with (tmp_path / "stderr").open("wb") as stderr:
        running = subprocess.Popen(command(config), stderr=stderr)
    try:
        await_port(port, running, tmp_path / "stderr")
        context = ssl.create_default_context(cafile=tls["gateway_certificate"])
        plain = socket.create_connection(("127.0.0.1", port), timeout=30)
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as client:
            client.sendall(request("GET /v1/models", key=None))
            assert status(client.recv(65536)) == 401
        with warnings.catch_warnings(action="ignore"):
            context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
        context.set_ciphers("ALL:@SECLEVEL=0")
        with socket.create_connection(("127.0.0.1", port), timeout=30) as plain, pytest.raises(ssl.SSLError):
            context.wrap_socket(plain, server_hostname="127.0.0.1")
        said = Gateway(tmp_path, port, Upstream(0), Log(tmp_path / "log")).send(request("GET /v1/models"))
        assert status(said) == 400, "plain HTTP is not spoken"
    finally:
        running.terminate()
        running.wait(30)


@needs_nginx
def test_a_client_of_gb10_share_trusts_one_file(tmp_path: Path) -> None:
    """Certificate and key in one file, as the role keeps the text of the inventory."""
    port, now = free_port(), datetime.now(UTC)
    made = authority.found("x", 2, now)
    text = authority.signed(made, ["127.0.0.1"], 2, now)
    config = written(tmp_path, port, free_port(), gateway_plain_http=False, gateway_certificate_text=text)
    (tmp_path / "gateway.pem").write_text(text)
    config.write_text(config.read_text().replace(PEM, str(tmp_path / "gateway.pem")))
    (tmp_path / "trusted").write_text(made.certificate)
    with (tmp_path / "stderr").open("wb") as stderr:
        running = subprocess.Popen(command(config), stderr=stderr)
    try:
        await_port(port, running, tmp_path / "stderr")
        for trusted, reached in ((tmp_path / "trusted", True), (None, False)):
            context = ssl.create_default_context(cafile=trusted)
            context.verify_flags |= ssl.VERIFY_X509_STRICT
            with socket.create_connection(("127.0.0.1", port), timeout=30) as plain:
                try:
                    client = context.wrap_socket(plain, server_hostname="127.0.0.1")
                except ssl.SSLCertVerificationError:
                    assert not reached
                    continue
                assert reached
                client.sendall(request("GET /v1/models", key=None))
                assert status(client.recv(65536)) == 401
                client.close()
    finally:
        running.terminate()
        running.wait(30)


@needs_nginx
@pytest.mark.parametrize("gone", ["cert.pem", "key.pem"])
def test_the_check_before_a_start_sees_a_certificate_that_is_gone(tmp_path: Path, gone: str) -> None:
    config = written(tmp_path, free_port(), free_port(), **certificate(tmp_path))
    assert subprocess.run(command(config, "-t", "-q"), capture_output=True, check=False).returncode == 0
    (tmp_path / gone).unlink()
    done = subprocess.run(command(config, "-t", "-q"), capture_output=True, text=True, check=False)
    assert done.returncode != 0 and gone in done.stderr


@pytest.mark.parametrize(("port", "says"), [(8443.5, "8443.5"), ("8443-8444", "the text '8443-8444'")])
def test_a_port_of_another_type_is_refused_whatever_is_served(port: Any, says: str) -> None:
    assert document(gateway_port=port).refusals == [f"gateway_port is {says}, and must be a whole number"]
