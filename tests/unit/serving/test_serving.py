"""The serving proof, against scripted replies and against a real HTTP server on loopback."""

from __future__ import annotations

import contextlib
import email
import email.policy
import io
import json
import os
import re
import socket
import subprocess
import threading
import time
import wave
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.reading import sockets
from ansible_collections.gb10.fleet.plugins.module_utils.serving import canary, listening, other_canaries
from ansible_collections.gb10.fleet.plugins.module_utils.serving import server_probe as serving
from ansible_collections.gb10.fleet.plugins.module_utils.serving.server_probe import Proof, Reply
from ansible_collections.gb10.fleet.plugins.module_utils.system.service_failures import WAYS_OUT
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Completed
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fitting import misfit

COUNTED = ", ".join(str(number) for number in range(1, 101))
MODELS = Reply(200, json.dumps({"data": [{"id": "gpt"}, {"id": "other"}]}))
REFUSED = Reply(None, problem="refused")

DO = WAYS_OUT["port_busy"]


def chat(text: str | None, tokens: int | None = 100) -> Reply:
    usage = {"completion_tokens": tokens}
    return Reply(200, json.dumps({"choices": [{"message": {"content": text}}], "usage": usage}))


def thoughts(tokens: int, content: str | None = None, **fields: Any) -> Reply:
    """Cut off in the middle of them, as vLLM 0.32 says it with a reasoning parser."""
    message = {"role": "assistant", "content": content, "reasoning": "Let me see: 17 and 25, that is", **fields}
    choice = {"message": message, "finish_reason": "length"}
    return Reply(200, json.dumps({"choices": [choice], "usage": {"completion_tokens": tokens}}))


NOT_FOUND = Reply(404, '{"detail":"Not Found"}')


class Server:
    """Replies by path; a list is used up, its last entry stays. Time passes only when the probe sleeps or asks."""

    def __init__(self, **replies: list[Reply]) -> None:
        self.replies = {
            "/health": replies.get("health", [Reply(200)]),
            "/v1/models": replies.get("models", [MODELS]),
            "/v1/chat/completions": replies.get("chat", [chat("42", 2), chat(COUNTED)]),
            "/v1/embeddings": replies.get("embeddings", [NOT_FOUND]),
            "/v1/rerank": replies.get("rerank", [NOT_FOUND]),
            "/v1/audio/transcriptions": replies.get("transcriptions", [NOT_FOUND]),
        }
        self.bodies: list[Any] = []
        self.now = 0.0
        self.asked: list[str] = []

    def __call__(self, path: str, body: dict[str, Any] | None, timeout_s: float) -> Reply:
        self.now += 0.5
        self.asked.append(path)
        self.bodies.append(body)
        replies = self.replies[path]
        return replies.pop(0) if len(replies) > 1 else replies[0]

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def probe(self, timeout_s: float = 60, model: str = "gpt", status: serving.ReadStatus = dict) -> Proof:
        proof = serving.probe(
            self,
            model,
            timeout_s=timeout_s,
            answer_timeout_s=10,
            status=status,
            clock=lambda: self.now,
            sleep=self.sleep,
        )
        assert misfit("serving_probe", {"ok": proof.verdict == "serving", **asdict(proof)}) is None
        return proof


@pytest.mark.parametrize("unit", ["gb10-vllm", "gb10-vllm-chat"])
def test_a_way_out_names_the_unit_of_the_service(unit: str) -> None:
    for server in (
        Server(health=[REFUSED]),
        Server(health=[Reply(502)]),
        Server(health=[Reply(503)]),
        Server(chat=[Reply(500, "EngineCore encountered an issue")]),
    ):
        clock = {"clock": lambda server=server: server.now, "sleep": server.sleep}
        proof = serving.probe(server, "gpt", timeout_s=5, answer_timeout_s=10, unit=unit, **clock)
        assert re.findall(r"(?:journalctl -u|systemctl status) ([\w{}-]+)`", proof.way_out) == [unit]


def test_serving() -> None:
    proof = Server(health=[REFUSED, REFUSED, Reply(200)]).probe()
    assert (proof.verdict, proof.served_models) == ("serving", ("gpt", "other"))
    assert proof.ready_after_s == 5.5
    assert [(answer["name"], answer["fault"]) for answer in proof.answers] == [("arithmetic", None), ("counting", None)]
    assert proof.tokens_per_s == 200.0


@pytest.mark.parametrize(
    ("server", "verdict", "text"),
    [
        (Server(health=[REFUSED]), "not_listening", "once the model is loaded"),
        (Server(health=[Reply(None, problem="unreachable: no route")]), "not_listening", "no route"),
        (Server(health=[Reply(None, problem="dropped")]), "loading", "dropped"),
        (Server(health=[Reply(None, problem="timeout")]), "loading", "timeout"),
        (Server(health=[Reply(None, problem="stranger")]), "foreign_listener", "nothing was sent"),
        (Server(models=[Reply(None, problem="stranger")]), "foreign_listener", "nothing was sent"),
        (Server(health=[Reply(502)]), "loading", "HTTP 502"),
        (Server(health=[Reply(503)]), "engine_dead", "503"),
        (Server(models=[Reply(401, "{}")]), "unauthorized", "HTTP 401"),
        (Server(models=[Reply(200, '{"data": [{"id": "else"}]}')]), "wrong_model", "has else, not gpt"),
        (Server(models=[Reply(200, "[]")]), "wrong_model", "no model"),
        (Server(models=[Reply(404, "not found")]), "wrong_model", "HTTP 404"),
        (Server(chat=[chat("43")]), "garbage", "arithmetic: the answer is not 42"),
        (Server(chat=[chat("")]), "garbage", "no answer"),
        (Server(chat=[chat(None)]), "garbage", "no answer"),
        (Server(chat=[Reply(200, "<html>")]), "garbage", "no answer"),
        (Server(chat=[chat("42"), chat("1, 2, 4")]), "garbage", "counting: the answer does not count"),
        (Server(chat=[chat("42"), chat(COUNTED + " \ufffd")]), "garbage", "U+FFFD"),
        (Server(chat=[chat("42"), chat("the " * 90)]), "garbage", "repeats"),
        (Server(chat=[chat("42"), chat(COUNTED, 63)]), "garbage", "63 tokens"),
        (Server(chat=[Reply(400, "no chat template")]), "rejected", "no chat template"),
        (Server(chat=[Reply(500, "EngineCore encountered an issue")]), "engine_dead", "EngineCore"),
        (Server(chat=[Reply(None, problem="timeout")]), "engine_dead", "timeout"),
    ],
)
def test_every_verdict(server: Server, verdict: str, text: str) -> None:
    proof = server.probe(timeout_s=20)
    assert proof.verdict == verdict
    assert text in proof.text
    assert proof.way_out
    assert server.now < 30, "bounded"


@pytest.mark.parametrize(
    "first",
    [
        thoughts(512),
        thoughts(512, reasoning=None, reasoning_content="as older versions call it"),
        thoughts(512, reasoning=None, content="<think>without a reasoning parser"),
        thoughts(512, "The answer is"),
    ],
)
def test_a_model_that_thinks_long_is_asked_again_with_more(first: Reply) -> None:
    server = Server(chat=[first, chat("<think>so</think>42"), chat(COUNTED)])
    proof = server.probe()
    assert proof.verdict == "serving"
    assert "arithmetic: it still thought after 512 tokens and was asked again with 2048" in proof.text
    assert [body["max_tokens"] for body in server.bodies if body] == [512, 2048, 1024]
    assert proof.answers[0]["note"] and proof.answers[1]["note"] is None


@pytest.mark.parametrize(
    ("server", "verdict", "text"),
    [
        (Server(chat=[thoughts(512), thoughts(2048)]), "still_thinking", "asked again with 2048"),
        (Server(chat=[thoughts(512), Reply(None, problem="timeout")]), "still_thinking", "timeout"),
        (Server(chat=[thoughts(512), chat("43")]), "garbage", "the answer is not 42"),
        (Server(chat=[thoughts(512, reasoning="17 \ufffd")]), "garbage", "thoughts have undecodable"),
        (Server(chat=[thoughts(512), Reply(None, problem="dropped")]), "engine_dead", "dropped"),
    ],
)
def test_a_model_that_never_ends_its_thoughts(server: Server, verdict: str, text: str) -> None:
    proof = server.probe()
    assert (proof.verdict, text in proof.text) == (verdict, True), proof.text
    assert proof.way_out
    if verdict == "still_thinking" and "timeout" not in text:
        assert proof.answers[0]["answer"].startswith("(thoughts) Let me see")


@pytest.mark.parametrize(("context", "asked"), [(1024, [512, 768]), (600, [512]), (None, [512, 2048])])
def test_no_more_is_asked_than_the_context_has(context: int | None, asked: list[int]) -> None:
    models = Reply(200, json.dumps({"data": [{"id": "gpt", "max_model_len": context}]}))
    server = Server(models=[models], chat=[thoughts(512)])
    assert server.probe().verdict == "still_thinking"
    assert [body["max_tokens"] for body in server.bodies if body] == asked


def vectors(*values: list[Any]) -> Reply:
    return Reply(200, json.dumps({"data": [{"index": at, "embedding": value} for at, value in enumerate(values)]}))


def order(*scores: Any) -> Reply:
    """As vLLM sorts it: by score."""
    results = [{"index": at, "document": {"text": "t"}, "relevance_score": score} for at, score in enumerate(scores)]
    return Reply(200, json.dumps({"results": results[::-1]}))


@pytest.mark.parametrize(
    ("replies", "verdict", "text"),
    [
        ({"embeddings": vectors([1, 0.1], [1, 0], [0, 1])}, "serving", "vectors of 2 numbers"),
        ({"embeddings": vectors([1, 0], [0, 1], [1, 0.1])}, "garbage", "not nearer"),
        ({"embeddings": vectors([1, 0], [1, 0], [0, 0])}, "garbage", "zero"),
        ({"embeddings": vectors([1, 0], [float("nan"), 0], [0, 1])}, "garbage", "not 3 vectors"),
        ({"embeddings": vectors([1, 0], [1, 0, 1], [0, 1])}, "garbage", "not 3 vectors"),
        ({"embeddings": vectors([1, 0], [10**400, 0], [0, 1])}, "garbage", "not 3 vectors"),
        ({"embeddings": Reply(500, "EngineCore encountered an issue")}, "engine_dead", "EngineCore"),
        ({"rerank": order(0.1, 0.9, 0.2)}, "serving", "an order of documents"),
        ({"rerank": order(0.9, 0.1, 0.2)}, "garbage", "not the first one"),
        ({"rerank": order(0.1, float("nan"), 0.2)}, "garbage", "not a score for each"),
        ({"rerank": order(0.1, 0.9)}, "garbage", "not a score for each"),
        ({"transcriptions": Reply(200, '{"text": ""}')}, "serving", "what it hears is not proven"),
        ({"transcriptions": Reply(200, '{"text": "\ufffd"}')}, "garbage", "U+FFFD"),
        ({"transcriptions": Reply(200, "{}")}, "garbage", "no text"),
        ({}, "rejected", "HTTP 40"),
    ],
)
@pytest.mark.parametrize("refusal", [NOT_FOUND, Reply(400, "The model does not support Chat Completions API")])
def test_a_model_that_does_not_chat_gets_a_question_that_fits(
    refusal: Reply, replies: dict[str, Reply], verdict: str, text: str
) -> None:
    server = Server(chat=[refusal], **{name: [reply] for name, reply in replies.items()})
    proof = server.probe()
    assert (proof.verdict, text in proof.text) == (verdict, True), proof.text
    assert len(proof.answers) == 1


def test_a_sound_is_sent_as_a_form(http: Callable[[Handler], str]) -> None:
    seen: list[tuple[str | None, bytes]] = []

    def handler(request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        seen.append((request.headers["Content-Type"], body))
        send(request, 200, b"{}")

    (kind,) = (kind for kind in other_canaries.OTHER_KINDS if kind.name == "transcription")
    assert serving.http_client(http(handler), None, is_ours)(kind.path, kind.body("m"), 5).status == 200
    head = f"Content-Type: {seen[0][0]}\r\n\r\n".encode()
    form = email.message_from_bytes(head + seen[0][1], policy=email.policy.HTTP)
    parts = {
        part.get_param("name", header="content-disposition"): part.get_payload(decode=True) for part in form.walk()
    }
    assert parts["model"] == b"m"
    with wave.open(io.BytesIO(parts["file"])) as sound:
        assert (sound.getnframes(), sound.getframerate()) == (16000, 16000)


@pytest.mark.parametrize(("phase", "verdict"), [("formation", "serving"), ("ready", "engine_dead")])
def test_a_server_may_answer_503_while_it_loads(phase: str, verdict: str) -> None:
    server = Server(health=[Reply(503)] * 5 + [Reply(200)])
    assert server.probe(status=lambda: {"phase": phase, "failures": 0}).verdict == verdict


def test_one_503_is_no_dead_engine() -> None:
    assert Server(health=[Reply(503), Reply(503), REFUSED, Reply(503), Reply(200)]).probe().verdict == "serving"


def test_without_time_it_asks_once() -> None:
    server = Server(health=[REFUSED])
    assert server.probe(timeout_s=0).verdict == "not_listening"
    assert server.asked == ["/health"]


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        ("42", False),
        ("17 + 25 = 42", False),
        ("<think>17 plus 25</think> **42**.", False),
        ("42 or 43", True),
        ("142", True),
    ],
)
def test_arithmetic(answer: str, wrong: bool) -> None:
    assert (canary.QUESTIONS[0].check(answer) is not None) == wrong


def test_counting_tolerates_manners_but_no_gap() -> None:
    check = canary.QUESTIONS[1].check
    assert check(f"Sure, 1 to 100:\n{COUNTED}.") is None
    assert check(COUNTED.replace("57, ", "")) is not None


@given(st.text(max_size=400))
def test_any_answer_can_be_judged(answer: str) -> None:
    canary.looks_broken(answer)
    for question in canary.QUESTIONS:
        question.check(answer)


@given(st.one_of(st.text(max_size=80), st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps)))
def test_any_reply_can_be_judged(body: str) -> None:
    for server in (Server(models=[Reply(200, body)]), Server(chat=[Reply(200, body)])):
        assert server.probe().verdict in ("wrong_model", "garbage")


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000", "http://spark-a", "http://[::1]:8000/"])
def test_urls(url: str) -> None:
    assert serving.parse_url(url) == url.rstrip("/")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8000",
        "file:///etc/passwd",
        "http://",
        "https://a",
        "http://a:x",
        "http://a/v1",
        "http://u:p@a",
        "http://a?b=c",
    ],
)
def test_bad_urls(url: str) -> None:
    with pytest.raises(ValueError, match="url"):
        serving.parse_url(url)


def test_bad_key_is_refused_and_not_repeated() -> None:
    with pytest.raises(ValueError, match="api_key") as error:
        serving.http_client("http://127.0.0.1:1", "geheim\r\nX: y", is_ours)
    assert "geheim" not in str(error.value)


Handler = Callable[[BaseHTTPRequestHandler], None]


def is_ours(_connection: socket.socket) -> bool:
    return True


@pytest.fixture
def http() -> Iterator[Callable[[Handler], str]]:
    servers: list[ThreadingHTTPServer] = []

    def start(handler: Handler) -> str:
        class Requests(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                handler(self)

            def do_POST(self) -> None:
                handler(self)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Requests))
        threading.Thread(target=servers[-1].serve_forever, args=(0.02,), daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def send(request: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> None:
    request.send_response(status)
    for name, value in headers.items():
        request.send_header(name, value)
    request.end_headers()
    request.wfile.write(body)


def test_http_sends_key_and_question(http: Callable[[Handler], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    seen: list[tuple[str, str | None, bytes]] = []

    def handler(request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        seen.append((request.path, request.headers["Authorization"], body))
        send(request, 200, "grün".encode())

    ask = serving.http_client(http(handler), "secret", is_ours)
    assert ask("/v1/x", {"a": 1}, 5) == Reply(200, "grün")
    assert seen == [("/v1/x", "Bearer secret", b'{"a": 1}')]


def test_nothing_is_sent_to_whoever_else_has_the_port(http: Callable[[Handler], str]) -> None:
    """A user of the host has taken it, and waits for the key."""
    seen: list[str] = []

    def handler(request: BaseHTTPRequestHandler) -> None:
        seen.append(request.path)
        send(request, 200)

    running = subprocess.Popen(["/usr/bin/sleep", "600"])
    url = http(handler)
    try:
        for process, problem in ((running.pid, "stranger"), (0, "stranger"), (os.getpid(), "")):
            seen.clear()

            def inspect(argv: Sequence[str], *_: Any, said: int = process) -> Completed:
                assert argv[-1] == "gb10-vllm"
                return Completed(tuple(argv), 0, f"{said}\n")

            owner = listening.of_container("gb10-vllm", inspect)
            with pytest.MonkeyPatch.context() as patch:  # here both are of one control group
                patch.setattr(sockets, "kin", lambda process, _proc: [process])
                assert serving.http_client(url, "secret", owner)("/health", None, 5).problem == problem
            assert seen == ([] if problem else ["/health"])
        gone = listening.of_container("gb10-vllm", lambda argv, *_: Completed(tuple(argv), 1))
        assert serving.http_client(url, "secret", gone)("/health", None, 5).problem == "stranger"
    finally:
        running.kill()
        running.wait()


def test_a_server_that_accepts_nobody_gets_nothing_either() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        owner = listening.of_container("gb10-vllm", lambda argv, *_: Completed(tuple(argv), 0, f"{os.getpid()}\n"))
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        assert serving.http_client(url, "secret", owner)("/health", None, 0.3).problem == "timeout"


def test_http_failures(http: Callable[[Handler], str]) -> None:
    assert serving.http_client("http://127.0.0.1:1", None, is_ours)("/health", None, 5).problem == "refused"

    def drop(request: BaseHTTPRequestHandler) -> None:
        request.connection.close()

    def error(request: BaseHTTPRequestHandler) -> None:
        send(request, 503, b"dead")

    def elsewhere(request: BaseHTTPRequestHandler) -> None:
        send(request, 302, Location="http://127.0.0.1:1/")

    assert serving.http_client(http(drop), None, is_ours)("/health", None, 5).problem == "dropped"
    assert serving.http_client(http(error), None, is_ours)("/health", None, 5) == Reply(503, "dead")
    assert serving.http_client(http(elsewhere), "k", is_ours)("/health", None, 5).status == 302, (
        "a key follows no redirect"
    )


def test_http_is_bounded(http: Callable[[Handler], str]) -> None:
    def flood(request: BaseHTTPRequestHandler) -> None:
        with contextlib.suppress(OSError):
            send(request, 200, b"x" * (serving.LARGEST_REPLY + 100_000))

    release = threading.Event()

    def drip(request: BaseHTTPRequestHandler) -> None:
        send(request, 200)
        drop(request)

    def drip_head(request: BaseHTTPRequestHandler) -> None:
        request.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        drop(request)

    def drop(request: BaseHTTPRequestHandler) -> None:
        for _ in range(100):
            if release.wait(0.05):
                return
            try:
                request.wfile.write(b"x")
            except OSError:
                return

    assert len(serving.http_client(http(flood), None, is_ours)("/", None, 5).body) == serving.LARGEST_REPLY
    try:
        for handler in (drip, drip_head):
            began = time.monotonic()
            assert serving.http_client(http(handler), None, is_ours)("/", None, 0.3).problem == "timeout"
            assert time.monotonic() - began < 2
    finally:
        release.set()


def unit_says(phase: str, failures: int = 0, lasting: bool = False, waiting: str = "", **other: Any) -> dict[str, Any]:
    failure = {"verdict": "refused_flag", "text": "--nonsense", "way_out": DO, "lasting": lasting}
    return {
        "phase": phase,
        "failures": failures,
        "failure": failure if failures else None,
        "waiting": {"verdict": waiting, "text": "waiting for spark-b", "way_out": DO} if waiting else None,
        "phases": {"starting": 1.5},
    } | other


@pytest.mark.parametrize(
    ("status", "verdict", "within_s"),
    [
        (unit_says("failed", failures=1, lasting=True), "refused_flag", 30),
        (unit_says("failed", failures=2), "refused_flag", 30),
        (unit_says("waiting", waiting="peers_differ"), "peers_differ", serving.PATIENCE_S + 30),
        # Where waiting may help it goes on, and at its end says what it knows.
        (unit_says("failed", failures=1), "refused_flag", None),
        *((unit_says(phase, failures=2), "loading", None) for phase in ("starting", "formation", "weights", "graphs")),
        (unit_says("ready"), "not_listening", None),
        (unit_says("stopped"), "not_listening", None),
        ({}, "not_listening", None),
        ({"phase": "failed", "failure": {"lasting": True}, "failures": 9, "phases": []}, "not_listening", None),
        ({"phase": "failed", "failure": "x", "waiting": 5}, "not_listening", None),
    ],
)
def test_the_unit_says_why_there_is_no_use_in_waiting(
    status: dict[str, Any], verdict: str, within_s: float | None
) -> None:
    server = Server(health=[REFUSED])
    proof = server.probe(timeout_s=1800, status=lambda: status)
    assert proof.verdict == verdict
    assert server.now < within_s if within_s else server.now >= 1800
    assert proof.phase == status.get("phase") and proof.text and proof.way_out


@pytest.mark.parametrize("remark", [None, "x", {"verdict": "fabric_half_idle", "text": "t", "way_out": DO, "more": 1}])
def test_what_the_unit_remarks_is_in_the_proof_and_no_verdict(remark: Any) -> None:
    proof = Server(health=[Reply(200)]).probe(status=lambda: {"phase": "ready", "remark": remark})
    assert proof.verdict == "serving"
    wanted = {"verdict": "fabric_half_idle", "text": "t", "way_out": DO} if isinstance(remark, dict) else None
    assert proof.remark == wanted


def test_a_unit_that_starts_again_is_waited_for() -> None:
    """Its failure is that of the life before, and another one begins while we look."""
    said = [unit_says("failed", failures=2), unit_says("failed", failures=2), unit_says("weights", failures=2)]
    server = Server(health=[REFUSED, REFUSED, REFUSED, Reply(200)])
    proof = server.probe(status=lambda: said.pop(0) if len(said) > 1 else said[0])
    assert (proof.verdict, proof.phases) == ("serving", {"starting": 1.5})


def test_a_wait_that_ends_and_begins_anew_is_two() -> None:
    waits, loads = unit_says("waiting", waiting="waiting_for_peers"), unit_says("weights")
    said = [waits] * 60 + [loads] + [waits] * 60
    proof = Server(health=[REFUSED]).probe(timeout_s=280, status=lambda: said.pop(0) if len(said) > 1 else said[0])
    assert proof.verdict == "waiting_for_peers"
    assert len(said) < 20, "it was patient twice"


def test_a_status_is_read_from_its_file(tmp_path: Path) -> None:
    assert serving.status_reader(None)() == serving.status_reader(str(tmp_path / "status.json"))() == {}
    (tmp_path / "status.json").write_text('{"phase": "ready"}')
    assert serving.status_reader(str(tmp_path / "status.json"))() == {"phase": "ready"}


def test_names_without_end_fill_no_verdict() -> None:
    many = Reply(200, json.dumps({"data": [{"id": f"model-{number}"} for number in range(60_000)]}))
    assert len(Server(models=[many]).probe().text) < 300


def test_a_count_that_is_none_is_no_count() -> None:
    proof = Server(chat=[chat("42"), chat(COUNTED, 10**400)]).probe()
    assert (proof.verdict, proof.answers[-1]["completion_tokens"]) == ("serving", None)
