# SPDX-License-Identifier: GPL-3.0-or-later
"""llama.cpp's server: one file in GGUF, or its parts, on one host."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ansible_collections.gb10.fleet.plugins.module_utils.reading.engine_metrics import Naming
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.engines.engine import NOT_HERE, Engine, Entry, Start

_HUB = "/root/.cache/huggingface/hub"
_ALL_LAYERS = 999  # more than any model has
_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
FILE = re.compile(r"(?!.*(\A|/)[.]{1,2}(/|\Z))[\w+-][\w.+-]*(/[\w+-][\w.+-]*)*[.]gguf\Z")
_PART = re.compile(r"-\d{5}(-of-\d{5}[.]gguf)\Z")
_FIRST = "00001"
_FILES = ("gguf", "mmproj", "draft")  # keys of an entry
_MOST_SLOTS = 256
_NAME_THE_COMMIT = (
    "llama.cpp is given a path, so name the commit: 40 hexadecimal digits, which the hub shows beside each file."
)
_KEY = "LLAMA_API_KEY"
# What its server showed, 0c1e570, read 2026-11-28.
_METRICS = Naming(
    prefix="llamacpp:",
    key_variable=_KEY,
    names={
        "requests_processing": "num_requests_running",
        "requests_deferred": "num_requests_waiting",
        "tokens_predicted_total": "generation_tokens_total",
        "prompt_tokens_total": "prompt_tokens_total",
        "spec_decode_num_drafts_total": "spec_decode_num_drafts_total",
        "spec_decode_num_draft_tokens_total": "spec_decode_num_draft_tokens_total",
        "spec_decode_num_accepted_tokens_total": "spec_decode_num_accepted_tokens_total",
    },
)


def _words(start: Start) -> list[object]:
    """Each slot has the whole context. It has no flag for its memory: weights, context and slots make it."""
    slots = start.own.get("slots", 1)
    words: list[object] = ["--model", _path(start, "gguf"), "--alias", start.served_name]
    if start.own.get("mmproj"):
        words += ["--mmproj", _path(start, "mmproj")]
    words += _drafts(start)
    if start.context:
        words += ["--ctx-size", start.context * slots]
    words += ["--parallel", slots, "--n-gpu-layers", _ALL_LAYERS, "--metrics"]
    return [*words, *start.further, "--host", start.address, "--port", start.port]


def _drafts(start: Start) -> Iterator[object]:
    wish = start.draft
    if not wish:
        return
    yield from ("--spec-type", wish.method.replace("_", "-"))
    if start.own.get("draft"):
        model, revision = (wish.model, wish.revision) if wish.model else (start.model, start.revision)
        path = _path(replace(start, model=model, revision=revision), "draft")
        yield from ("--spec-draft-model", path, "--spec-draft-ngl", _ALL_LAYERS)
    if wish.tokens:
        yield from ("--spec-draft-n-max", wish.tokens)
    for name, value in wish.further.items():
        yield from (f"--spec-{name}", value)


def _path(start: Start, key: str) -> str:
    folder = f"{_HUB}/models--{start.model.replace('/', '--')}/snapshots/{start.revision}"
    return f"{folder}/{start.own[key]}"


def _files(entry: Entry) -> list[str]:
    """None but those that are named, and of a file in parts all parts; a draft's repository has the draft alone."""
    named = [str(entry[key]) for key in _FILES if entry.get(key)]
    return ["*", *("!" + _PART.sub(r"-[0-9][0-9][0-9][0-9][0-9]\1", name) for name in named)]


def _mistakes(entry: Entry) -> Iterator[str]:
    for key in _FILES:
        name = str(entry.get(key, "x.gguf"))
        if not FILE.match(name):
            yield f"{key} is {name!a}. Name a file of the repository that ends in .gguf, with its folder there."
        elif _PART.search(name) and f"-{_FIRST}-of-" not in name:
            yield f"{key} is {name}, and a model in parts is named by its first, ...-{_FIRST}-of-NNNNN.gguf."
    yield from _mistakes_of_drafts(entry)
    if not _COMMIT.match(str(entry.get("model_revision", "0" * 40))):
        yield f"model_revision is {entry['model_revision']}. {_NAME_THE_COMMIT}"
    if not 1 <= entry.get("slots", 1) <= _MOST_SLOTS:
        yield f"slots is {entry['slots']}. Say how many requests it answers at once, 1 to {_MOST_SLOTS}."
    if entry.get("slots", 1) > 1 and not entry.get("max_model_len"):
        yield "slots needs max_model_len: each slot takes memory for that many tokens."
    if entry.get("fetch") is False:
        yield "fetch is false, and llama.cpp is given a file that the role has fetched. Leave it out."


def _mistakes_of_drafts(entry: Entry) -> Iterator[str]:
    wish = entry.get("speculative") or {}
    if entry.get("draft") and not wish.get("method"):
        yield "draft needs speculative.method, which is --spec-type of llama.cpp, for example draft_simple."
    if wish.get("model") and not entry.get("draft"):
        yield f"speculative.model is {wish['model']}, and draft names none of its files. Name it: FILE.gguf."
    if wish.get("model") and not _COMMIT.match(str(wish.get("revision"))):
        yield f"speculative.revision is {wish.get('revision') or 'missing'}. {_NAME_THE_COMMIT}"


ENGINE = Engine(
    name="llama_cpp",
    title="llama.cpp",
    words=_words,
    own_flags=frozenset({
        *("--model", "-m", "--model-url", "-mu", "--hf-repo", "-hf", "-hfr", "--hf-file", "-hff", "--alias", "-a"),
        *("--mmproj", "-mm", "--ctx-size", "-c", "--parallel", "-np", "--n-gpu-layers", "--gpu-layers", "-ngl"),
        *("--spec-type", "--spec-draft-model", "-md", "--model-draft"),
        *("--metrics", "--host", "--port", "--api-key", "--api-key-file", "--hf-token", "-hft", "--rpc"),
    }),
    # Else a page of the web in a browser on the host may read its answers, as a login does. An older server does not
    # know the variable, and an unknown flag would end it.
    environment=lambda _s: {"LLAMA_ARG_CORS_ORIGINS": "localhost"},
    program="/app/llama-server",
    key_variable=_KEY,
    key_without=',"',  # it reads a row of several keys
    metrics=_METRICS,
    keys={"gguf": {"type": "str"}, "mmproj": {"type": "str"}, "draft": {"type": "str"}, "slots": {"type": "int"}},
    needs=("image", "port", "memory_gib", "model", "model_revision", "gguf"),
    refuses={
        **NOT_HERE,
        "tensor_parallel_size": "is of several hosts, and llama.cpp serves on one here",
        "model_exclude": "says what is left out, and gguf says what is taken",
        "model_move": "follows a branch, and llama.cpp is given a commit",
        "version": "is of engines with releases",
    },
    mistakes=_mistakes,
    files=_files,
)  # fmt: skip
