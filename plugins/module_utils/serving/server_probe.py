# SPDX-License-Identifier: GPL-3.0-or-later
"""Prove that a model server serves: /health, then /v1/models, then questions with known answers.

Each step answers another doubt. /health says that the engine's loop lives, but not that it is our model; /v1/models
says which model, but not that it talks sense. The result is one named verdict.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Callable, Protocol
from urllib.parse import urlsplit

from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.status import PHASES
from ansible_collections.gb10.fleet.plugins.module_utils.serving.answers import LARGEST_QUOTE, Questions
from ansible_collections.gb10.fleet.plugins.module_utils.serving.canary import QUESTIONS, Question
from ansible_collections.gb10.fleet.plugins.module_utils.serving.other_canaries import FORM, Body
from ansible_collections.gb10.fleet.plugins.module_utils.system import asking
from ansible_collections.gb10.fleet.plugins.module_utils.system.asking import Owner
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import document, document_in, quoted

LARGEST_REPLY = 2 * 2**20
POLL_S = 2.0
HEALTH_TIMEOUT_S = 5.0
# A dead vLLM engine answers 503 and its process exits within about 5 s: three polls in a row are no coincidence.
DEAD_POLLS = 3
# How long others may be awaited before that is the verdict: a unit that ended starts again after 60 s, and to drop the
# page cache may take 120 (catalog/memory.yml).
PATIENCE_S = 180.0
# Lives in a row that failed; another one would hardly fare better, and each costs memory.
FAILED_LIVES = 2
# Of the unit's phases those that lead to the last one by themselves, as far as it knows.
ON_THE_WAY = tuple(phase for phase in PHASES if phase not in ("waiting", "ready"))
# {unit} is that of the service.
WAYS_OUT = {
    "garbage": "do not use this server: compare image, quantization and kernel flags with what works on SM121",
    "rejected": "see the reply: a base model has no chat template, a short context has no room (vllm_max_model_len)",
    "still_thinking": "it may be well, and nothing is proven: read its thoughts, ask it by hand; raise"
    " vllm_max_model_len if its context ended the thoughts, or let it think less"
    " (--default-chat-template-kwargs in vllm_extra_args)",
    "engine_dead": "read `journalctl -u {unit}` for the first error",
    "engine_gone": "read `journalctl -u {unit}` for the first error; systemd restarts the unit",
    "foreign_listener": "`ss -ltnp` names it; end it, or set another vllm_port",
    "not_listening": "see `systemctl status {unit}`, and whether it listens on this port (vllm_port)",
    "loading": "read `journalctl -u {unit}`; a large model needs ten minutes and more (timeout_s)",
    "unauthorized": "give the key the server was started with (vllm_api_key)",
    "wrong_model": "another server may have the port; compare vllm_served_model_name and vllm_port",
}
STRANGER = "stranger"


@dataclass(frozen=True)
class Reply:
    """What came back: an HTTP status with a body, or no status at all and why ("refused", "dropped", "timeout")."""

    status: int | None
    body: str = ""
    problem: str = ""


class Ask(Protocol):
    """How requests are sent; a test injects its own."""

    def __call__(self, path: str, body: Body | None, timeout_s: float) -> Reply: ...


ReadStatus = Callable[[], dict[str, Any]]


def http_client(url: str, api_key: str | None, owner: Owner) -> Ask:
    """An ``Ask`` that sends nothing where ``owner`` does not know the other end, and reads at most 2 MiB."""
    if api_key and not re.fullmatch(r"[\x21-\x7e]+", api_key):
        raise ValueError("api_key has a character that cannot stand in an HTTP header")
    parts = urlsplit(url)
    address, port = parts.hostname or "", parts.port or 80

    def ask(path: str, body: Body | None, timeout_s: float) -> Reply:
        headers = {"Content-Type": FORM if isinstance(body, bytes) else "application/json"}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        try:
            status, said = asking.ask(
                address, port, path, owner, seconds=timeout_s, most=LARGEST_REPLY, data=data, headers=headers
            )
        except (OSError, asking.NoHttp) as error:
            return Reply(None, problem=_problem(error))
        return Reply(status, (said if status < 400 else said[:LARGEST_QUOTE]).decode("utf-8", "replace"))

    return ask


def _problem(error: Exception) -> str:
    if isinstance(error, asking.Stranger):
        return STRANGER
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, (socket.timeout, TimeoutError)):
        return "timeout"
    if isinstance(error, (ConnectionError, asking.NoHttp)):
        return "dropped"
    return f"unreachable: {error}"


def parse_url(url: str) -> str:
    """Accept http://host[:port] and nothing else."""
    parts = urlsplit(url)
    try:
        port_ok = parts.port is None or parts.port > 0
    except ValueError:
        port_ok = False
    if parts.scheme != "http" or not parts.hostname or not port_ok or parts.path not in ("", "/"):
        raise ValueError(f"url {url!r} is not of the form http://127.0.0.1:8000")
    if parts.username or parts.query or parts.fragment:
        raise ValueError("url must not carry credentials, a query or a fragment; the key goes into api_key")
    return f"{parts.scheme}://{parts.netloc}"


@dataclass(frozen=True)
class Proof:
    """The verdict and everything it rests on. Times are in seconds, ``tokens_per_s`` is that of the longest answer."""

    verdict: str
    text: str
    way_out: str
    ready_after_s: float | None = None
    served_models: tuple[str, ...] = ()
    answers: tuple[dict[str, Any], ...] = ()
    tokens_per_s: float | None = None
    phase: str | None = None  # what the unit says of itself, and how many seconds each phase took
    phases: dict[str, float] = field(default_factory=dict)
    warm: dict[str, Any] | None = None  # the key of its warm cache, and what a start without it took
    remark: dict[str, str] | None = None  # verdict, text and way_out of what is not as it should be, though it serves


def status_reader(path: str | None) -> ReadStatus:
    """What the unit says of itself (see vllm_unit.Status); nothing where nobody says anything."""
    return lambda: document_in(Path(path)) if path else {}


class Unit:
    """Judges, poll by poll, whether waiting is of use.

    A failure counts when it is seen several times in a row: the next life may be about to begin.
    """

    def __init__(self, read: ReadStatus, clock: Callable[[], float]) -> None:
        self.read, self.clock = read, clock
        self.status: dict[str, Any] = {}
        self.failed = 0
        self.waits_since: float | None = None

    def judge(self) -> Proof | None:
        self.status = self.read()
        failure, waiting = self._part("failure"), self._part("waiting")
        self.failed = self.failed + 1 if self.status.get("phase") == "failed" and failure else 0
        if not waiting:
            self.waits_since = None
        elif self.waits_since is None:
            self.waits_since = self.clock()
        hopeless = failure.get("lasting") is True or self.status.get("failures", 0) >= FAILED_LIVES
        if self.failed >= DEAD_POLLS and hopeless:
            return _named(failure)
        if self.waits_since is not None and self.clock() - self.waits_since >= PATIENCE_S:
            return _named(waiting)
        return None

    def last_word(self) -> Proof | None:
        """When time is up: what it waits for, why it is down, or how far it has come."""
        phase = self.status.get("phase")
        said = self._part("waiting") or (self._part("failure") if phase == "failed" else {})
        if said:
            return _named(said)
        if phase in ON_THE_WAY:
            return Proof(
                "loading", f"it still loads, in the phase {phase}: {self.status.get('text')}", WAYS_OUT["loading"]
            )
        return None

    def _part(self, name: str) -> dict[str, Any]:
        part = self.status.get(name)
        return part if isinstance(part, dict) and {"verdict", "text", "way_out"} <= part.keys() else {}

    def on(self, proof: Proof) -> Proof:
        """The proof, with the phases."""
        phases, warm, remark = self.status.get("phases"), self.status.get("warm"), self._part("remark")
        return replace(
            proof,
            phase=self.status.get("phase"),
            phases=dict(phases) if isinstance(phases, dict) else {},
            warm=dict(warm) if isinstance(warm, dict) else None,
            remark={name: str(remark[name]) for name in ("verdict", "text", "way_out")} if remark else None,
        )


def _named(said: Mapping[str, Any]) -> Proof:
    return Proof(str(said["verdict"]), str(said["text"]), str(said["way_out"]))


def probe(
    ask: Ask,
    model: str,
    *,
    timeout_s: float,
    answer_timeout_s: float,
    questions: Sequence[Question] = QUESTIONS,
    status: ReadStatus = dict,
    health: str = "/health",
    unit: str = "gb10-vllm",
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Proof:
    """Wait up to ``timeout_s`` for ``health``, then ask for models and answers (each bounded by ``answer_timeout_s``).

    ``status`` gives what the unit says of itself: why there is no use in waiting on.
    """
    started = clock()
    said = Unit(status, clock)
    proof = _wait_for_health(ask, health, said, started + timeout_s, clock, sleep)
    if proof is None:
        proof = _ask_model(
            ask, model, answer_timeout_s, questions, Proof("serving", "", "", round(clock() - started, 3)), clock
        )
    proof = said.on(proof)
    return replace(proof, way_out=proof.way_out.replace("{unit}", unit))


def _wait_for_health(
    ask: Ask, health: str, unit: Unit, until: float, clock: Callable[[], float], sleep: Callable[[float], None]
) -> Proof | None:
    dead = strange = 0
    while True:
        reply = ask(health, None, min(HEALTH_TIMEOUT_S, max(0.5, until - clock())))
        hopeless = unit.judge()
        if reply.status == 200:
            return None
        if hopeless:
            return hopeless
        strange = strange + 1 if reply.problem == STRANGER else 0
        if strange >= DEAD_POLLS:
            return _foreign()
        # While it loads, SGLang and llama.cpp answer so too.
        dead = dead + 1 if reply.status == 503 and unit.status.get("phase") not in ON_THE_WAY else 0
        if dead >= DEAD_POLLS:
            text = "/health answers 503: the engine died, the server around it is still there"
            return Proof("engine_dead", text, WAYS_OUT["engine_gone"])
        if clock() >= until:
            return unit.last_word() or _not_ready(reply)
        sleep(min(POLL_S, max(0.0, until - clock())))


def _foreign() -> Proof:
    return Proof(
        "foreign_listener",
        "another process than the unit's has the port, so nothing was sent to it",
        WAYS_OUT["foreign_listener"],
    )


def _not_ready(reply: Reply) -> Proof:
    if reply.problem == STRANGER:
        return _foreign()
    if reply.problem == "refused" or reply.problem.startswith("unreachable"):
        return Proof(
            "not_listening",
            f"nobody listens ({reply.problem}); most servers only listen once the model is loaded",
            WAYS_OUT["not_listening"],
        )
    seen = f"HTTP {reply.status}" if reply.status else f"the connection was {reply.problem}"
    return Proof(
        "loading",
        f"the port is open and /health is not well yet ({seen})",
        WAYS_OUT["loading"],
    )


def _ask_model(
    ask: Ask, model: str, timeout_s: float, questions: Sequence[Question], proof: Proof, clock: Callable[[], float]
) -> Proof:
    reply = ask("/v1/models", None, timeout_s)
    if reply.problem == STRANGER:
        return replace(_foreign(), ready_after_s=proof.ready_after_s)
    if reply.status in (401, 403):
        return replace(
            proof,
            verdict="unauthorized",
            text=f"/v1/models answers HTTP {reply.status}",
            way_out=WAYS_OUT["unauthorized"],
        )
    entries = _models(reply)
    served = tuple(entry["id"] for entry in entries)
    proof = replace(proof, served_models=served)
    if model not in served:
        return replace(
            proof,
            verdict="wrong_model",
            text=f"the server has {quoted(', '.join(served)) or f'no model (HTTP {reply.status})'}, not {model}",
            way_out=WAYS_OUT["wrong_model"],
        )
    context = next((entry["max_model_len"] for entry in entries if entry.get("id") == model), None)
    asked = Questions(ask, model, timeout_s, context, clock)
    for answer in asked.answers(questions):
        proof = replace(
            proof, answers=(*proof.answers, answer), tokens_per_s=answer["tokens_per_s"] or proof.tokens_per_s
        )
        if answer["fault"]:
            note = f" ({answer['note']})" if answer["note"] else ""
            return replace(
                proof,
                verdict=answer["verdict"],
                text=f"{answer['name']}: {answer['fault']}{note}",
                way_out=WAYS_OUT[answer["verdict"]],
            )
    notes = "".join(f"; {answer['name']}: {answer['note']}" for answer in proof.answers if answer["note"])
    count = len(proof.answers)
    return replace(proof, text=f"{model} answered {count} test question{'s' if count > 1 else ''} correctly{notes}")


def _models(reply: Reply) -> list[dict[str, Any]]:
    """Each with its id, and with its context where that is said."""
    entries = document(reply.body).get("data")
    return [
        {"id": str(entry["id"]), "max_model_len": _length(entry.get("max_model_len"))}
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, dict) and "id" in entry
    ]


def _length(said: Any) -> int | None:
    return said if isinstance(said, int) and not isinstance(said, bool) and said > 0 else None
