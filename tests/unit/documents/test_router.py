"""The router behind the gateway: real NGINX, real HAProxy, and a server in place of vLLM on each of three hosts."""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.programs import router as program
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

from tests.support import router_fleet, smuggling
from tests.support.attacker import tally
from tests.support.router_fleet import FLEET_KEY, KEY, Fleet, free_port

pytestmark = pytest.mark.skipif(router_fleet.MISSING, reason=router_fleet.WHY)
BIG, SMALL, THIRD = "Qwen/Qwen3-8B", "bge-m3", "reranker"
ALL = (BIG, f"{BIG}-sql", SMALL, f"{SMALL}-sql", THIRD)  # with the adapters of the first model of each host
HOSTS = {"spark-a": [BIG], "spark-b": [BIG], "spark-c": [SMALL, THIRD]}


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with router_fleet.running(HOSTS) as made:
        yield made


def connect(fleet: Fleet, host: str = "spark-a") -> http.client.HTTPSConnection:
    spark = fleet.spark(host)
    trusted = ssl.create_default_context(cafile=str(fleet.ca))
    return http.client.HTTPSConnection(spark.address, spark.gateway_port, context=trusted, timeout=60)


def ask(
    fleet: Fleet, path: str, body: bytes | None = None, key: str = KEY, host: str = "spark-a", kind: str = ""
) -> tuple[int, Any]:
    connection = connect(fleet, host)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": kind or "application/json"}
    connection.request("GET" if body is None else "POST", path, body, headers)
    answer = connection.getresponse()
    said = answer.read()
    connection.close()
    return answer.status, json.loads(said) if said else None


def chat(fleet: Fleet, body: dict[str, Any] | bytes) -> tuple[int, Any]:
    return ask(fleet, "/v1/chat/completions", body if isinstance(body, bytes) else json.dumps(body).encode())


def test_the_list_has_all_models_of_the_fleet(fleet: Fleet) -> None:
    status, said = ask(fleet, "/v1/models")
    assert (status, [model["id"] for model in said["data"]]) == (200, [*ALL])


def test_each_service_hears_its_own_key(fleet: Fleet) -> None:
    for model in (SMALL, THIRD):
        said = chat(fleet, {"model": model})[1]
        assert (said["replica"], said["model"], said["key"]) == ("spark-c", model, f"bearer key-of-{model}")


def test_a_request_goes_where_its_model_is(fleet: Fleet) -> None:
    assert {chat(fleet, {"model": SMALL})[1]["replica"] for _ in range(4)} == {"spark-c"}
    assert {chat(fleet, {"model": BIG})[1]["replica"] for _ in range(8)} == {"spark-a", "spark-b"}
    assert {chat(fleet, {"model": f"{BIG}-sql"})[1]["replica"] for _ in range(8)} == {"spark-a", "spark-b"}
    assert chat(fleet, {"model": f"{SMALL}-sql"})[1]["replica"] == "spark-c"


DEEP: dict[str, Any] = {}
for _ in range(30):
    DEEP = {"properties": DEEP}
LARGEST, WINDOW = (catalog.load("gateway")[name]["value"] << 20 for name in ("body", "router_window"))
ODD: dict[str, bytes] = {
    "name behind the messages": json.dumps({"messages": [{"role": "user", "content": "x"}], "model": SMALL}).encode(),
    "name behind a deep schema": json.dumps({"tools": DEEP, "model": BIG}).encode(),
    "slash as PHP writes it": b'{"model":"Qwen\\/Qwen3-8B"}',
    "another name within": json.dumps({"metadata": {"model": "no"}, "model": SMALL}).encode(),
    "another name in a text": json.dumps({"messages": [f'"model": "{BIG}"'], "model": SMALL}).encode(),
}


@pytest.mark.parametrize("body", ODD.values(), ids=ODD)
def test_where_the_name_may_stand(fleet: Fleet, body: bytes) -> None:
    status, said = chat(fleet, body)
    assert status == 200
    assert (said["replica"] == "spark-c") is (SMALL.encode() in body)
    assert said["bytes"] == len(body)


@pytest.mark.parametrize(
    ("size", "ahead", "status"),
    [(WINDOW, False, 200), (LARGEST, True, 200), (LARGEST, False, 413), (LARGEST + 1, True, 413)],
)
def test_large_requests(fleet: Fleet, size: int, ahead: bool, status: int) -> None:
    """The name is found at the end of the window, and in front of the largest request."""
    parts = [b'"messages": ""', b'"model": "%s"' % SMALL.encode()]
    body = b"{%s}" % b", ".join(reversed(parts) if ahead else parts)
    body = body.replace(b'""', b'"%s"' % (b"x" * (size - len(body))))
    found, said = chat(fleet, body)
    assert (found, len(body)) == (status, size)
    assert status != 200 or (said["model"], said["bytes"]) == (SMALL, size)


def test_a_large_request_hears_why_also_where_the_machine_is_busy(fleet: Fleet) -> None:
    """NGINX is still sending when the router refuses. It must see the answer, not the end of a connection."""
    body = b'{"messages": "%s"}' % (b"x" * (LARGEST - 100))
    with ThreadPoolExecutor(8) as clients:
        assert {said for _ in range(2) for said, _ in clients.map(lambda _: chat(fleet, body), range(8))} == {413}


def _asked(fleet: Fleet) -> int:
    """Return how many requests the replicas have heard, by their own word."""
    counts = []
    for spark in fleet.sparks:
        for port in spark.ports:
            direct = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            direct.request("POST", "/v1/embeddings", b"", {"Connection": "close"})
            counts.append(json.loads(direct.getresponse().read())["asked"])
    return sum(counts)


def _head(line: str, *headers: str) -> bytes:
    return "\r\n".join((f"{line} HTTP/1.1", "Host: fleet", "Content-Type: application/json", *headers, "", "")).encode(
        "latin-1"
    )


def _raw(fleet: Fleet, said: bytes) -> bytes:
    connection = connect(fleet)
    connection.connect()
    with connection.sock as client:
        client.sendall(said)
        try:
            return b"".join(iter(lambda: client.recv(65536), b""))
        except ConnectionResetError:
            return b""


INNER = _head("POST /v1/chat/completions", "Content-Length: 18") + b'{"model": "inner"}'
ATTACKS = smuggling.attacks(INNER)


@pytest.mark.parametrize(("headers", "body"), ATTACKS.values(), ids=ATTACKS)
def test_nothing_is_smuggled_through_gateway_and_router(fleet: Fleet, headers: tuple[str, ...], body: bytes) -> None:
    """A stream is under way on the same replicas, whose connections the servers in between keep."""
    key = f"Authorization: Bearer {KEY}"
    before = _asked(fleet)
    connection, stream_ = stream(fleet, {"model": BIG, "stream": True})
    last = _head("POST /v1/chat/completions", key, "Connection: close", "Content-Length: 2") + b"{}"
    said = _raw(fleet, _head("POST /v1/chat/completions", *headers, key) + body + last)
    heard = _asked(fleet) - before
    streamed = stream_.read()
    connection.close()
    tally("request smuggling through the router", 1, heard > 1)
    assert heard == 1, "the stream; neither the request outside nor the one inside names a model that there is"
    assert b" 200 OK" not in said, said
    assert streamed.count(b"data: ") == 8 and b"[DONE]" in streamed
    assert chat(fleet, {"model": SMALL})[1]["replica"] == "spark-c"


def test_the_name_in_a_form(fleet: Fleet) -> None:
    """As audio comes. OpenAI's library writes the fields in front of the file; behind one the name is not found."""
    audio = ["--x", 'Content-Disposition: form-data; name="file"; filename="a.wav"', "", "RIFF\0\0"]
    name = ["--x", 'Content-Disposition: form-data; name="model"', "", SMALL]
    for rows, expected in (([*name, *audio], 200), ([*audio, *name], 404)):
        body = "\r\n".join([*rows, "--x--", ""]).encode()
        assert ask(fleet, "/v1/completions", body, kind="multipart/form-data; boundary=x")[0] == expected


@pytest.mark.parametrize("body", [b'{"model": "gpt"}', b"{}", b"", b"[1", b'{"model": 7}', b'{"model": "bge-m3x"}'])
def test_an_unknown_model_is_told_which_there_are(fleet: Fleet, body: bytes) -> None:
    status, said = chat(fleet, body)
    assert status == 404
    assert said["error"]["message"] == f"there is no such model here; there are {', '.join(ALL)}"


def test_from_outside_exactly_what_is_declared_answers(fleet: Fleet) -> None:
    """Hosts times keys times paths: clients reach no replica, and gateways nothing else."""
    places = {"spark-a": ["qwen-qwen3-8b"], "spark-b": ["qwen-qwen3-8b"], "spark-c": ["bge-m3", "reranker"]}
    declared = [entry["value"].split() for entry in catalog.load("gateway")["endpoints"]]
    others = ["/pause", "/invocations", "/metrics", "/v1/load_lora_adapter", "/replica", "/replica/", "/v1/score"]
    wrong = []
    every = {place for here in places.values() for place in here}
    for host, here in places.items():
        paths = {path: method for method, path in declared}
        paths |= {f"/replica/{each}{path}": "POST" for each in every for path in [*paths, "/pause"]}
        paths |= {f"/replica/{each}/health": "GET" for each in every}
        paths |= dict.fromkeys(others, "POST")
        for path, method in paths.items():
            body = json.dumps({"model": BIG}).encode() if method == "POST" else None
            for key, status in (
                (KEY, 200 if [method, path] in declared else 404),
                (FLEET_KEY, 200 if _is_replicas(path, here, declared) else 404),
                ("stranger", 401),
            ):
                found = ask(fleet, path, body, key, host)[0]
                wrong += [(host, key, method, path, found)] if found != status else []
    assert not wrong


def _is_replicas(path: str, here: list[str], declared: list[list[str]]) -> bool:
    offered = [end for method, end in declared if method == "POST"]
    return path in {f"/replica/{place}{end}" for place in here for end in [*offered, "/health"]}


def test_a_replica_that_is_down_costs_no_request(fleet: Fleet) -> None:
    spark = fleet.spark("spark-b")
    spark.kill()
    try:
        assert [chat(fleet, {"model": BIG})[0] for _ in range(20)] == [200] * 20
        fleet.await_state("spark-b", "sick")
        assert {chat(fleet, {"model": BIG})[1]["replica"] for _ in range(4)} == {"spark-a"}
    finally:
        spark.start(fleet.gap_s)
    fleet.await_state("spark-b", "ready")


def test_a_model_without_a_replica_says_when_to_try_again(fleet: Fleet) -> None:
    spark = fleet.spark("spark-c")
    spark.kill()
    try:
        fleet.await_state("spark-c", "sick")
        connection = connect(fleet)
        connection.request("POST", "/v1/completions", json.dumps({"model": SMALL}), {"Authorization": f"Bearer {KEY}"})
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
        assert json.loads(answer.read())["error"]["code"] == 503
        assert ask(fleet, "/health", key="stranger")[0] == 200, "another model serves"
    finally:
        spark.start(fleet.gap_s)
    fleet.await_state("spark-c", "ready")


PROMPT = json.dumps({"model": BIG}).encode()


def opened(fleet: Fleet, host: str) -> socket.socket:
    if host == fleet.head.name:
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(60)
        made.connect(str(fleet.head.home / "router/replicas.sock"))
        return made
    connection = connect(fleet, host)
    connection.connect()
    assert isinstance(connection.sock, socket.socket)
    return connection.sock


def send_slowly(fleet: Fleet, host: str, between: Callable[[], None]) -> tuple[int, str]:
    """As a router asks a replica: another host's by TLS, its own by the socket. `between` comes in front of the end."""
    head = (
        "POST /replica/qwen-qwen3-8b/v1/chat/completions HTTP/1.1", f"Host: {host}", "Connection: close",
        f"Authorization: Bearer {FLEET_KEY}", f"Content-Length: {len(PROMPT)}", "Expect: 100-continue", "", "",
    )  # fmt: skip
    with opened(fleet, host) as client:
        client.sendall("\r\n".join(head).encode())
        assert client.recv(65536).startswith(b"HTTP/1.1 100 "), "NGINX waits for the body"
        between()
        client.sendall(PROMPT)
        said = b"".join(iter(lambda: client.recv(65536), b""))
    return int(said.split(b" ", 2)[1]), said.decode()


@pytest.mark.parametrize("host", ["spark-a", "spark-b"])
def test_a_replica_whose_port_changes_hands_is_not_asked_and_another_one_may_be(fleet: Fleet, host: str) -> None:
    """503 lets HAProxy ask the next replica, 502 does not: vLLM may have begun."""
    spark = fleet.spark(host)
    assert send_slowly(fleet, host, lambda: None)[0] == 200
    spark.kill()
    try:
        with socket.create_server(("127.0.0.1", spark.port)) as thief:
            thief.settimeout(60)
            status, said = send_slowly(fleet, host, lambda: None)
            assert (status, "Retry-After: 5" in said) == (503, True)
            spark.serving(BIG).touch()
            status, said = send_slowly(fleet, host, spark.serving(BIG).unlink)
            assert (status, "Retry-After: 5" in said) == (503, True)
            thief.setblocking(False)
            with pytest.raises(BlockingIOError):
                thief.accept()
            thief.settimeout(60)
            spark.serving(BIG).touch()

            def breaks_off() -> None:
                while True:
                    client, _ = thief.accept()
                    with client:
                        if not client.recv(65536).startswith(b"GET /health "):
                            return

            server = threading.Thread(target=breaks_off)
            server.start()
            status, said = send_slowly(fleet, host, lambda: None)
            assert (status, "the model broke off" in said) == (502, True)
            server.join()
        assert send_slowly(fleet, host, lambda: None)[0] == 503, "nobody listens"
    finally:
        spark.serving(BIG).unlink(missing_ok=True)
        spark.start(fleet.gap_s)
    fleet.await_state(host, "ready")


def test_a_draining_replica_ends_what_it_has_begun_over_a_reload(fleet: Fleet) -> None:
    connections = [stream(fleet, {"model": BIG, "endless": True}) for _ in range(2)]
    assert sum(replica["in_flight"] for replica in fleet.show()) == 2
    assert fleet.router("drain", "spark-b").returncode == 3, "one is in flight"
    fleet.reload()
    assert {(each["host"], each["in_flight"], each["state"]) for each in fleet.show()} == {
        ("spark-a", 1, "ready"), ("spark-b", 1, "draining"), ("spark-c", 0, "ready"),
    }  # fmt: skip
    assert {chat(fleet, {"model": BIG})[1]["replica"] for _ in range(6)} == {"spark-a"}
    for _, answer in connections:
        assert answer.read(2000), "cut by the reload"
    for connection, _ in connections:
        connection.close()
    assert fleet.router("drain", "spark-b", "--wait", "60").returncode == 0, "the clients have left"
    assert fleet.router("ready", "spark-b").returncode == 0
    fleet.await_state("spark-b", "ready")


def test_what_drains_stays_out_over_a_boot_and_no_way_to_a_host_is_kept() -> None:
    """A host that failed its proof got requests again. A login at the old port got the key of the fleet; so did the
    wire, where a host had TLS by now."""
    with router_fleet.running({"spark-a": [BIG], "spark-b": [BIG]}) as fleet:
        assert fleet.router("drain", "spark-b").returncode == 0
        fleet.boot_the_router()
        after_boot = {replica["host"]: replica["state"] for replica in fleet.show()}["spark-b"]
        config = fleet.folder / "spark-a" / "router.cfg"
        today = config.read_text()
        old = f"server spark-b 127.0.0.2:{fleet.spark('spark-b').gateway_port} "
        new = f"server spark-b 127.0.0.2:{free_port()} "
        assert f"{old}ssl " in today
        for text in (re.sub(rf"{re.escape(old)}ssl .*", old, today), today.replace(old, new)):
            config.write_text(text)
            fleet.reload()
        router = program.Router(fleet.folder / "router", fleet.folder / "kept", config)
        rows = [row.split(" ") for row in router._ask(f"@!{fleet.workers()[0]} show servers state").splitlines()]
        (reached,) = ((row[18], row[20]) for row in rows if row[3:4] == ["spark-b"])
        after_reloads = {replica["host"]: replica["state"] for replica in fleet.show()}["spark-b"]
    right = [after_boot == "draining", f":{reached[0]} " in new, reached[1] == "1", after_reloads == "draining"]
    tally("a router sends to a host that is out, or on a way of before", len(right), right.count(False))
    assert all(right), (after_boot, reached, after_reloads)


def test_a_gateway_that_takes_no_new_configuration_says_so() -> None:
    """A login had the new port: the reload failed without a word, and a revoked key went on to open the old one."""
    with router_fleet.running({"spark-a": [BIG]}) as fleet:
        assert reloaded(fleet) == 0
        with socket.socket() as login:
            fleet.head.gateway_port = free_port()
            login.bind((fleet.head.address, fleet.head.gateway_port))
            login.listen()
            fleet.write(fleet.head)
            held = reloaded(fleet)
        tally("a gateway goes on with what was revoked, and its reload is well", 1, int(held == 0))
        assert held == 1


def reloaded(fleet: Fleet) -> int:
    """As the last ExecReload of the gateway's unit; systemd makes one dollar of two."""
    unit = (fleet.folder / fleet.head.name / "gb10-gateway.service").read_text().replace("\\\n", "")
    reload = [line.partition("=")[2] for line in unit.splitlines() if line.startswith("ExecReload=")][-1]
    words = shlex.split(reload)
    nginx = (fleet.folder / fleet.head.name / "pid").read_text().strip()
    script = words[2].replace("$$", "$").replace("seq 300", "seq 30")
    return subprocess.run([*words[:2], script], env={**os.environ, "MAINPID": nginx}, check=False).returncode


def stream(fleet: Fleet, body: dict[str, Any]) -> tuple[http.client.HTTPSConnection, http.client.HTTPResponse]:
    connection = connect(fleet)
    connection.request(
        "POST", "/v1/chat/completions", json.dumps({**body, "stream": True}), {"Authorization": f"Bearer {KEY}"}
    )
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.readline().startswith(b"data: 0 ")
    return connection, answer


def test_the_model_hears_that_a_client_has_left(fleet: Fleet) -> None:
    connection, _ = stream(fleet, {"model": SMALL, "endless": True})
    connection.close()
    until = time.monotonic() + 60
    while not ask(fleet, "/v1/embeddings", json.dumps({"model": SMALL}).encode())[1]["left"]:
        assert time.monotonic() < until, "it goes on for nobody"


def test_no_key_is_in_a_log_or_among_arguments(fleet: Fleet) -> None:
    texts = [path.read_text() for path in fleet.folder.rglob("*log")]
    assert texts and not any(key in text for text in texts for key in (KEY, FLEET_KEY))
    assert all(FLEET_KEY not in " ".join(map(str, process.args)) for process in fleet.processes)  # type: ignore[arg-type]


def test_a_router_that_asks_how_a_replica_is_counts_as_no_request(fleet: Fleet) -> None:
    """Else a replica that its operator has stopped would be a gateway whose requests all fail."""
    texts = [path.read_text() for path in fleet.folder.rglob("*.log")]
    lines = [line for text in texts for line in text.splitlines() if '"(fleet)"' in line]
    assert lines and [line for line in lines if "/health" in line] == []


def test_requests_that_no_engine_gets_keep_none_out_of_the_journal_that_one_gets() -> None:
    """journald counts lines by severity: whoever ended a model hid it behind requests that anybody can have refused."""
    with router_fleet.running({"spark-a": [BIG]}) as alone:
        assert chat(alone, {"model": BIG})[0] == 200
        assert ask(alone, "/nothing")[0] == 404 and chat(alone, {"model": "none"})[0] == 404
        stream(alone, {"model": BIG, "endless": True})
        alone.head.kill()  # the stream breaks off
        assert chat(alone, {"model": BIG})[0] == 503
        until = time.monotonic() + 10
        said: list[list[str]] = [[]]
        while sum(map(len, said)) < 5:
            logs = ((alone.folder / "spark-a" / f"{name}.log").read_text() for name in ("heard", "access"))
            said = [[line.split('"')[4].split()[0] for line in log.splitlines()] for log in logs]
            assert time.monotonic() < until, said
    heard, unheard = said
    tally("a client keeps its request out of the journal", 1, int("503" in heard))
    assert heard == ["200", "200"] and unheard == ["404", "404", "503"]


def test_the_router_listens_on_nothing_but_its_sockets(fleet: Fleet) -> None:
    config = fleet.document(fleet.head)["/etc/gb10-fleet/router.cfg"]
    entrances = [line.split()[1] for line in config.splitlines() if line.split()[:1] == ["bind"]]
    assert entrances == ["unix@/run/gb10-router/api.sock"]


def test_a_request_takes_its_buffers_from_what_the_router_has_at_hand(fleet: Fleet) -> None:
    """Else the kernel gives each page of them anew: some 500 for each request."""

    def faults() -> int:
        return int(Path(f"/proc/{fleet.workers()[0]}/stat").read_text().rpartition(")")[2].split()[7])

    for _ in range(20):  # each of its threads has had some
        chat(fleet, {"model": BIG})
    before, asked = faults(), 40
    for _ in range(asked):
        chat(fleet, {"model": BIG})
    assert (faults() - before) / asked < 100


def test_the_router_takes_no_memory_without_end(fleet: Fleet) -> None:
    most = catalog.load("gateway")["router_most"]["value"]
    unit = (fleet.folder / "spark-a/gb10-router.service").read_text()
    assert f"MemoryMax={most}M\n" in unit
