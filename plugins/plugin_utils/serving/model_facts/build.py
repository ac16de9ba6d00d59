# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts of a model from its files, wherever these are. Reads names, small JSON files and headers; no weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import (
    attention,
    formats,
    parameters,
    safetensors,
)
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.facts import ModelFacts, Weights
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.reading import (
    FactsError,
    Fields,
    limit,
    parse,
)

_NESTED = ("text_config", "llm_config", "language_config", "language_model_config", "thinker_config")
_VISION = ("vision_config", "visual", "vit_config", "vision_tower_config", "vision_encoder_config")
_AUDIO = ("audio_config", "sound_config", "audio_encoder_config")
_CONTEXT = (
    *("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length"),
    *("max_sequence_length", "max_target_positions", "max_seq_length", "n_ctx"),
)
_DRAFT_LAYERS = (
    "num_nextn_predict_layers",
    "mtp_num_hidden_layers",
    "num_mtp_layers",
    "mtp_num_layers",
    "num_mtp_modules",
)
# Kinds of scaling whose max_position_embeddings is the stretched context already.
_STRETCHED = ("default", "su", "longrope", "llama3", "yarn", "deepseek_yarn", "mrope", "proportional")
_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
# Formats whose makers leave attention and its like as they were.
_PARTIAL = ("nvfp4", "mxfp4", "int4")
_AT_ONCE = 8  # headers that are asked for at the same time


class Files(Protocol):
    """A folder of a model, here or on the hub."""

    source: str  # where it is, for a person

    def names(self) -> frozenset[str]: ...

    def size(self, name: str) -> int: ...

    def part(self, name: str, start: int, length: int) -> bytes: ...


def facts(files: Files, model: str, revision: str = "") -> ModelFacts:
    """The facts of the model in these files."""
    whole = _json(files, "config.json")
    if whole is None:
        raise FactsError(
            f"{files.source} has no config.json. Name a folder in the format of Hugging Face, or write the facts by "
            "hand (--facts FILE)"
        )
    text = _text(whole)
    count = _layers(text)
    kinds = attention.layers(text, count)
    counted = parameters.count(text, kinds, count)
    encoder = next((child for name in _VISION if (child := _child(whole, name)) is not None), None)
    kept, cache = formats.formats(_quantized(whole, text), _json(files, "hf_quant_config.json"))
    tokenizer = _json(files, "tokenizer_config.json")
    weights = _weights(files, count) or _by_config(counted, parameters.vision(encoder), kept)
    task = task_of(next(iter(whole.texts("architectures")), ""), files.names(), encoder is not None)
    return ModelFacts(
        id=model,
        source=files.source,
        revision=revision,
        architecture=next(iter(whole.texts("architectures")), ""),
        model_type=text.text("model_type") or whole.text("model_type"),
        dtype=text.text("dtype", "torch_dtype") or whole.text("dtype", "torch_dtype", default="bfloat16"),
        format=kept[0],
        formats=kept,
        kv_cache_dtype=cache,
        parameters=counted.total + parameters.vision(encoder),
        active=counted.active,
        weights=weights,
        attention=kinds,
        layers=count,
        hidden=text.whole("hidden_size", "n_embd", "d_model"),
        intermediate=text.layered("intermediate_size", "ffn_hidden_size", "moe_intermediate_size"),
        vocabulary=text.whole("vocab_size"),
        query_heads=text.whole("num_attention_heads", "n_head", "num_heads", "decoder_attention_heads"),
        context=_context(text, tokenizer),
        scaling=_scaling(text)[0],
        experts=parameters.experts(text),
        vision=encoder is not None,
        audio=any(_child(whole, name) is not None for name in _AUDIO),
        draft_layers=next((number for name in _DRAFT_LAYERS if (number := text.whole(name))), 0),
        task=task,
        bidirectional=task in ("embed", "classify") and _bidirectional(whole, text),
        sound_positions=whole.whole("max_source_positions") if whole.has("decoder_layers") else 0,
        remote_code=whole.has("auto_map"),
        sampling=_sampling(_json(files, "generation_config.json")),
        chat_template=_template(files, tokenizer),
    )


def _json(files: Files, name: str) -> Fields | None:
    if name not in files.names():
        return None
    size = files.size(name)
    if size > limit("json_bytes"):
        raise FactsError(f"{files.source}/{name} has {size} bytes; at most {limit('json_bytes')} are read")
    return parse(files.part(name, 0, size), f"{files.source}/{name}")


def _text(whole: Fields) -> Fields:
    """What says how the text is computed, of a multimodal model below the rest."""
    for name in _NESTED:
        inner = _child(whole, name)
        if inner is not None and (inner.has("num_hidden_layers") or inner.has("text_config")):
            return _text(inner)
    return whole


def _child(fields: Fields, name: str) -> Fields | None:
    return fields.child(name) if isinstance(fields.data.get(name), dict) else None


def _quantized(whole: Fields, text: Fields) -> Fields:
    return text if text.has("quantization_config") and not whole.has("quantization_config") else whole


def _layers(text: Fields) -> int:
    names = ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "decoder_layers")
    count = text.whole(*names, default=len(text.text("hybrid_override_pattern")))
    if not 1 <= count <= limit("layers"):
        raise text.wrong("num_hidden_layers", count or None, f"a number from 1 to {limit('layers')}")
    return count


def _context(text: Fields, tokenizer: Fields | None) -> int:
    found = text.whole(*_CONTEXT)
    kind, factor, original = _scaling(text)
    if kind and kind not in _STRETCHED and not text.text("model_type").startswith("gemma3"):
        found = int(found * max(1.0, factor))
    elif kind == "yarn":
        found = max(found, int(original * factor))
    said = tokenizer.data.get("model_max_length") if tokenizer else None  # a number of 30 digits stands for none
    if isinstance(said, int | float) and not isinstance(said, bool) and 0 < said < (found or limit("number")):
        found = int(said)
    return found


def _scaling(text: Fields) -> tuple[str, float, int]:
    """(kind, factor, original context) of the rotary embedding."""
    said = text.child("rope_scaling", "rope_parameters")
    if said is None:
        return "", 1.0, 0
    kind = said.text("rope_type", "type")
    original = said.whole("original_max_position_embeddings") or text.whole("original_max_position_embeddings")
    return ("" if kind == "default" else kind), said.number("factor", default=1.0), original


def _weights(files: Files, layers: int) -> Weights | None:
    """By the headers of all files; else by what the index says."""
    index = _json(files, "model.safetensors.index.json")
    summed, named = safetensors.of_index(index) if index else (None, ())
    shards = named or tuple(sorted(name for name in files.names() if name.endswith(".safetensors")))[:1]
    if not named and "consolidated.safetensors" in files.names():
        shards = ("consolidated.safetensors",)
    there = [name for name in shards if name in files.names()]
    if not shards or not there:
        return summed
    if len(there) < len(shards):
        missing = next(name for name in shards if name not in there)
        raise FactsError(f"{files.source} lacks {missing}, which the index names. Fetch it again")
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = pool.map(lambda name: _tensors(files, name), there)
        return safetensors.of_headers((tensor for each in found for tensor in each), layers)


def _tensors(files: Files, name: str) -> Iterable[tuple[str, str, int]]:
    file = f"{files.source}/{name}"
    size = safetensors.header_size(files.part(name, 0, safetensors.LENGTH), file)
    return safetensors.tensors(files.part(name, safetensors.LENGTH, size), file, files.size(name))


def _by_config(counted: parameters.Count, vision: int, kept: tuple[str, ...]) -> Weights:
    """Rather too large: which layers a checkpoint leaves as they were is not known."""
    bits = catalog.load("models")["bits"]
    narrow = counted.feeding if kept[0] in _PARTIAL else counted.total - counted.tables
    rest = counted.total - counted.tables - narrow
    wide = bits[kept[1]] if len(kept) > 1 and kept[1] in bits else 16
    total = (narrow * bits[kept[0]] + rest * wide + (counted.tables + vision) * 16) / 8
    return Weights({"": int(total)}, vision=vision * 2, basis="config")


def task_of(architecture: str, names: frozenset[str] = frozenset(), vision: bool = False) -> str:
    """What a model of this architecture, with files of these names, does."""
    tests: tuple[tuple[str, Callable[[], bool]], ...] = (
        ("classify", lambda: "ForSequenceClassification" in architecture),
        ("transcribe", lambda: any(word in architecture for word in ("Whisper", "ASR", "Asr", "SpeechRecognition"))),
        ("embed", lambda: "modules.json" in names or (architecture.endswith("Model") and not vision)),
    )
    return next((word for word, test in tests if test()), "generate")


def _bidirectional(whole: Fields, text: Fields) -> bool:
    """By what the configuration says, else by its family: BERT and its like say nothing of it."""
    said = [each for each in (whole, text) if each.has("is_causal") or each.has("use_bidirectional_attention")]
    if said:
        return any(not each.flag("is_causal", default=True) or _both_ways(each) for each in said)
    encoders = catalog.load("models")["encoders"]["value"]
    return not whole.flag("is_decoder") and whole.text("model_type") in encoders


def _both_ways(fields: Fields) -> bool:
    """Gemma 3 says true or false; later ones a word, and `vision` means that text is read in one direction."""
    value = fields.data.get("use_bidirectional_attention")
    return value is True or value == "all"


def _sampling(said: Fields | None) -> dict[str, float]:
    return {name: said.number(name) for name in _SAMPLING if said.has(name)} if said else {}


def _template(files: Files, tokenizer: Fields | None) -> bool:
    if files.names() & {"chat_template.jinja", "chat_template.json", "tekken.json"}:
        return True
    return tokenizer is None or tokenizer.has("chat_template")
