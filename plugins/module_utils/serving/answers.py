# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask a model what it can answer, and judge that: text, vectors, an order or a transcript.

The server says itself what it offers: a path that it does not have is answered with 404.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from ansible_collections.gb10.fleet.plugins.module_utils.serving.canary import Question, looks_broken
from ansible_collections.gb10.fleet.plugins.module_utils.serving.other_canaries import OTHER_KINDS, OtherKind
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import document

if TYPE_CHECKING:
    from ansible_collections.gb10.fleet.plugins.module_utils.serving.server_probe import Ask, Reply

LARGEST_QUOTE = 300
LARGEST_ANSWER = 1000
MORE = 4  # times the tokens, and the time, for a model that still thinks
PROMPT_TOKENS = 256  # more than any question has, with what the chat template adds
NOT_OFFERED = (404, 405, 501)
_MOST_TOKENS = 2**53  # what is more is no count, and no float either
THOUGHT, THINKS = "</think>", "<think>"  # around thoughts in the answer of a model without a reasoning parser


class Said(NamedTuple):
    """One reply to one question. `thinks`: its tokens ran out, and it had thought."""

    reply: Reply
    text: str
    fault: str | None
    tokens: int | None
    thinks: bool
    seconds: float


class Questions(NamedTuple):
    """How a model is asked. `context`: its tokens, where the server says them."""

    ask: Ask
    model: str
    timeout_s: float
    context: int | None
    clock: Callable[[], float]

    def answers(self, questions: Sequence[Question]) -> Iterator[dict[str, Any]]:
        """One after the other; a model without a chat gets a question of its own kind."""
        for question in questions:
            said, note = self._answer(question)
            if not _offered(said.reply):
                other = self._other_kind()
                if other:
                    yield other
                    return
            yield _entry(question.name, question.prompt, said, note)

    def _answer(self, question: Question) -> tuple[Said, str | None]:
        """A model that thinks for longer than expected is asked again with more room: that is no garbage."""
        said = self._chat(question, question.max_tokens, self.timeout_s)
        room = MORE * question.max_tokens
        more = min(room, self.context - PROMPT_TOKENS) if self.context else room
        if not (said.fault and said.thinks):
            return said, None
        if more <= question.max_tokens:
            return said, f"it still thought after {question.max_tokens} tokens, and its context has no more"
        note = f"it still thought after {question.max_tokens} tokens and was asked again with {more}"
        again = self._chat(question, more, MORE * self.timeout_s)
        if again.reply.problem == "timeout":
            again = again._replace(thinks=True)
        return again, note

    def _chat(self, question: Question, tokens: int, timeout_s: float) -> Said:
        request = {
            "model": self.model,
            "messages": [{"role": "user", "content": question.prompt}],
            "temperature": 0,
            "max_tokens": tokens,
        }
        started = self.clock()
        reply = self.ask("/v1/chat/completions", request, timeout_s)
        seconds = self.clock() - started
        data = document(reply.body)
        choice = _choice(data)
        text, thoughts = _text(choice, "content"), _text(choice, "reasoning") or _text(choice, "reasoning_content")
        used = _completion_tokens(data)
        sane = "\ufffd" not in thoughts + text
        thinks = choice.get("finish_reason") == "length" and bool(thoughts or THINKS in text) and sane
        shown = text or (f"(thoughts) {thoughts}" if thoughts else "")
        return Said(reply, shown, _fault(reply, question, text, thoughts, used), used, thinks, seconds)

    def _other_kind(self) -> dict[str, Any] | None:
        for kind in OTHER_KINDS:
            started = self.clock()
            reply = self.ask(kind.path, kind.body(self.model), self.timeout_s)
            if _offered(reply):
                return _other_entry(kind, reply, self.clock() - started)
        return None


def _offered(reply: Reply) -> bool:
    return not (reply.status in NOT_OFFERED or (reply.status == 400 and "does not support" in reply.body))


def _fault(reply: Reply, question: Question, text: str, thoughts: str, tokens: int | None) -> str | None:
    if reply.status != 200:
        return _refusal(reply)
    if "\ufffd" in thoughts:
        return "its thoughts have undecodable characters (U+FFFD)"
    if not text:
        return "the reply has no answer"
    answer = text.rpartition(THOUGHT)[2]
    fault = looks_broken(answer) or question.check(answer)
    if not fault and tokens is not None and tokens < question.least_tokens:
        fault = f"the answer has {tokens} tokens, at least {question.least_tokens} are needed for a proof"
    return fault


def _refusal(reply: Reply) -> str:
    return f"HTTP {reply.status}: {reply.body[:LARGEST_QUOTE]}" if reply.status else f"no answer ({reply.problem})"


def _entry(name: str, prompt: str, said: Said, note: str | None) -> dict[str, Any]:
    tokens, seconds = said.tokens, said.seconds
    return {
        "name": name,
        "question": prompt,
        "answer": said.text[:LARGEST_ANSWER],
        "seconds": round(seconds, 3),
        "completion_tokens": tokens,
        "tokens_per_s": round(tokens / seconds, 2) if tokens and seconds > 0 else None,
        "fault": said.fault,
        "note": note,
        "verdict": _verdict(said.reply.status, said.thinks and note is not None) if said.fault else None,
    }


def _other_entry(kind: OtherKind, reply: Reply, seconds: float) -> dict[str, Any]:
    summary, fault = kind.judge(document(reply.body)) if reply.status == 200 else ("", _refusal(reply))
    said = Said(reply, summary, fault, None, False, seconds)
    return _entry(kind.name, kind.question, said, None if fault else summary)


def _verdict(status: int | None, thinks: bool) -> str:
    if thinks and status in (200, None):
        return "still_thinking"
    if status == 200:
        return "garbage"
    return "rejected" if status and 400 <= status < 500 else "engine_dead"


def _choice(data: dict[str, Any]) -> dict[str, Any]:
    try:
        choice = data["choices"][0]
    except (KeyError, IndexError, TypeError):
        return {}
    return choice if isinstance(choice, dict) else {}


def _text(choice: dict[str, Any], name: str) -> str:
    message = choice.get("message")
    text = message.get(name) if isinstance(message, dict) else None
    return text if isinstance(text, str) else ""


def _completion_tokens(data: dict[str, Any]) -> int | None:
    usage = data.get("usage")
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return tokens if isinstance(tokens, int) and not isinstance(tokens, bool) and 0 <= tokens < _MOST_TOKENS else None
