# SPDX-License-Identifier: GPL-3.0-or-later
"""Questions for models that do not chat: they give vectors, an order, or the words of a sound."""

from __future__ import annotations

import io
import math
import struct
import wave
from typing import Any, Callable, NamedTuple, Optional, Union

from ansible_collections.gb10.fleet.plugins.module_utils.serving.canary import looks_broken

# The first two are neighbours, the third one is a stranger.
SENTENCES = (
    "A cat sleeps on the sofa.",
    "A kitten is napping on the couch.",
    "The central bank has raised its interest rate.",
)
QUERY = "What is the capital of France?"
DOCUMENTS = ("Bread is baked in a hot oven.", "Paris is the capital of France.", "Cats sleep for most of the day.")
RIGHT_DOCUMENT = 1
BOUNDARY = "gb10-fleet-canary"
FORM = f"multipart/form-data; boundary={BOUNDARY}"  # the type of a body of bytes
RATE_HZ, TONE_HZ = 16000, 440

LARGEST_NUMBER = 1e30  # beyond it nothing is computed; no number is neither

Body = Union[dict[str, Any], bytes]  # JSON, or a form
Judgement = tuple[str, Optional[str]]  # what it answered, in words, and what is wrong with it


class OtherKind(NamedTuple):
    name: str
    question: str
    path: str
    body: Callable[[str], Body]
    judge: Callable[[dict[str, Any]], Judgement]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and -LARGEST_NUMBER < value < LARGEST_NUMBER


def _vectors(data: dict[str, Any]) -> list[list[float]]:
    entries = data.get("data")
    found = [
        entry.get("embedding") for entry in (entries if isinstance(entries, list) else []) if isinstance(entry, dict)
    ]
    return [each for each in found if isinstance(each, list) and all(map(_is_number, each))]


def judge_vectors(data: dict[str, Any]) -> Judgement:
    vectors = _vectors(data)
    sizes = {len(vector) for vector in vectors}
    if len(vectors) != len(SENTENCES) or len(sizes) != 1 or sizes == {0}:
        return "", f"not {len(SENTENCES)} vectors of finite numbers, of one size"
    lengths = [math.sqrt(sum(x * x for x in vector)) for vector in vectors]
    if not all(lengths):
        return "", "a vector is zero"
    near, far = (
        sum(x * y for x, y in zip(vectors[0], vectors[other])) / lengths[0] / lengths[other] for other in (1, 2)
    )
    said = f"vectors of {sizes.pop()} numbers; sentences of one meaning are alike by {near:.2f}, others by {far:.2f}"
    return said, None if near > far else f"sentences of one meaning are not nearer than others ({near:.2f}, {far:.2f})"


def judge_order(data: dict[str, Any]) -> Judgement:
    results = data.get("results")
    scores = {
        entry["index"]: entry["relevance_score"]
        for entry in (results if isinstance(results, list) else [])
        if isinstance(entry, dict) and isinstance(entry.get("index"), int) and _is_number(entry.get("relevance_score"))
    }
    if set(scores) != set(range(len(DOCUMENTS))):
        return "", f"not a score for each of {len(DOCUMENTS)} documents"
    said = "an order of documents, by scores of " + ", ".join(f"{scores[at]:.3f}" for at in sorted(scores))
    best = max(scores, key=lambda at: float(scores[at]))
    return said, None if best == RIGHT_DOCUMENT else f"the document that answers is not the first one ({said})"


def judge_transcript(data: dict[str, Any]) -> Judgement:
    """The sound is a tone, so any short text is right, also none."""
    text = data.get("text")
    if not isinstance(text, str):
        return "", "the reply has no text"
    said = "a transcript; the sound had no speech, so what it hears is not proven"
    return said, looks_broken(text) if text.strip() else None


def tone() -> bytes:
    """A second of sound as a WAV file."""
    samples = (int(8000 * math.sin(2 * math.pi * TONE_HZ * at / RATE_HZ)) for at in range(RATE_HZ))
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(RATE_HZ)
        writer.writeframes(struct.pack(f"<{RATE_HZ}h", *samples))
    return file.getvalue()


def _form(model: str) -> bytes:
    field = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="model"\r\n\r\n{model}\r\n'
    file = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="tone.wav"\r\n'
    head = f"{field}{file}Content-Type: audio/wav\r\n\r\n"
    return head.encode() + tone() + f"\r\n--{BOUNDARY}--\r\n".encode()


OTHER_KINDS = (
    OtherKind(
        "embedding",
        "Which of three sentences are neighbours?",
        "/v1/embeddings",
        lambda model: {"model": model, "input": list(SENTENCES)},
        judge_vectors,
    ),
    OtherKind(
        "reranking",
        f"Which of three documents answers: {QUERY}",
        "/v1/rerank",
        lambda model: {"model": model, "query": QUERY, "documents": list(DOCUMENTS)},
        judge_order,
    ),
    OtherKind("transcription", "A second of a tone", "/v1/audio/transcriptions", _form, judge_transcript),
)
