# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts of a model from its files, wherever these are. Reads names, small JSON files and headers; no weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from ansible_collections.gb10.fleet.plugins.module_utils.system.budget import Budget
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog, effort
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import (
    attention,
    formats,
    parameters,
    safetensors,
)
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import layers as layer_reader
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.facts import (
    ModelFacts,
    Parts,
    Weights,
)
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.reading import (
    FactsError,
    Fields,
    budget,
    limit,
    parse,
)

_NESTED = (
    *("text_config", "llm_config", "language_config", "language_model_config", "thinker_config", "decoder"),
    *("text_model", "lm_config", "language_model", "decoder_config", "transf_decoder", "config_dict"),
)
_VISION = ("vision_config", "visual", "vit_config", "vision_tower_config", "vision_encoder_config")
_AUDIO = ("audio_config", "sound_config", "audio_encoder_config", "encoder_config", "encoder")
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
_SCORES = ("ForSequenceClassification", "ForTokenClassification", "ForRanking", "RewardModel")
_DIFFUSION = "a diffusion model or a part of one (diffusers), which no engine of this collection serves"
_OTHERS = {  # what stands in place of config.json, and what that is
    "model_index.json": _DIFFUSION,
    "adapter_config.json": "an adapter (LoRA): name the model that its base_model_name_or_path has, and --lora-modules",
}
_AT_ONCE = 8  # headers that are asked for at the same time


class Files(Protocol):
    """A folder of a model, here or on the hub."""

    source: str  # where it is, for a person

    def names(self) -> frozenset[str]: ...

    def size(self, name: str) -> int: ...

    def part(self, name: str, start: int, length: int) -> bytes: ...


def facts(files: Files, model: str, revision: str = "") -> ModelFacts:
    """The facts of the model in these files."""
    spent, doubts = budget(files.source), dict[str, None]()
    whole = _whole(files, spent, doubts)
    levels = _levels(whole)
    text = _text(whole, levels[-1])
    count = _layers(text)
    layers = layer_reader.read(text, count)
    encoder, sound = _lower(levels, _VISION), _lower(levels, _AUDIO)
    separate, tokenizer = (_json(files, f"{name}_config.json", spent, doubts) for name in ("hf_quant", "tokenizer"))
    kept, cache = formats.formats(_quantized(whole, text), separate)
    task = task_of(next(iter(whole.texts("architectures")), ""), files.names(), encoder is not None)
    counted = parameters.count(text, layers, task in ("generate", "transcribe"))
    bits = formats.bits(_quantized(whole, text), separate, kept, _having(layers))
    hidden = parameters.known_encoder(whole)
    besides = hidden + parameters.encoder(text) + sum(map(parameters.senses, (encoder, sound)))
    uncached = _uncached(whole, text) or (task in ("embed", "classify") and _bidirectional(whole, text))
    kinds = attention.kept(text, layers, empty=uncached)
    weights, context = _weights(files, count, spent) or _by_config(counted, besides, bits), _context(text, tokenizer)
    _told(text, weights, context)
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
        parameters=counted.total + besides,
        active=counted.active,
        parts=_parts(counted, besides, bits, kept[0] == "other"),
        weights=weights,
        attention=kinds,
        layers=count,
        hidden=text.whole(*layer_reader.HIDDEN),
        vocabulary=text.whole(*layer_reader.WORDS),
        query_heads=text.layered(*layer_reader.QUERY_HEADS),
        widths=parameters.widths(text, layers),
        context=context,
        scaling=_scaling(text)[0],
        experts=max((parameters.experts(layer.config) for layer in layers), key=lambda each: each.per_token),
        vision=encoder is not None or hidden > 0,
        audio=sound is not None,
        draft_layers=next((number for name in _DRAFT_LAYERS if (number := text.whole(name))), 0),
        task=task,
        bidirectional=uncached,
        sound_positions=whole.whole("max_source_positions") if whole.has("decoder_layers") else 0,
        remote_code=whole.has("auto_map"),
        sampling=_sampling(_json(files, "generation_config.json", spent, doubts)),
        chat_template=_template(files, tokenizer),
        doubts=tuple(doubts),
    )


def _whole(files: Files, spent: Budget, doubts: dict[str, None]) -> Fields:
    """The configuration, where it is one of a language model."""
    whole = _filled(_json(files, "config.json", spent, doubts))
    if whole is not None and not whole.has("_diffusers_version"):
        return whole
    other = _DIFFUSION if whole is not None else next((_OTHERS[name] for name in _OTHERS if name in files.names()), "")
    if other:
        raise FactsError(f"{files.source} is no language model, but {other}")
    raise FactsError(
        f"{files.source} has no config.json. Name a folder in the format of Hugging Face, or write the facts by hand "
        "(--facts FILE)"
    )


def _text(whole: Fields, inner: Fields) -> Fields:
    """What says how the text is computed, with what the whole says of it."""
    text = layer_reader.flat(inner)
    if whole.has("tie_word_embeddings"):  # of a model of several, the whole decides
        text = text.with_({"tie_word_embeddings": whole.flag("tie_word_embeddings")})
    if not any(map(text.has, layer_reader.WORDS)):
        text = text.with_({name: whole.data[name] for name in layer_reader.WORDS if whole.has(name)})
    return text


def _json(files: Files, name: str, spent: Budget, doubts: dict[str, None] | None = None) -> Fields | None:
    if name not in files.names():
        return None
    size = files.size(name)
    if size > limit("json_bytes"):
        raise FactsError(f"{files.source}/{name} has {size} bytes; at most {limit('json_bytes')} are read")
    spent.spend("bytes", size)
    return parse(files.part(name, 0, size), f"{files.source}/{name}", spent, doubts)


def _levels(whole: Fields) -> list[Fields]:
    """From the whole down to what says how the text is computed, which of a multimodal model is below the rest."""
    for name in _NESTED:
        inner = _child(whole, name)
        if inner is not None and (_has_layers(inner) or any(_child(inner, deeper) is not None for deeper in _NESTED)):
            return [whole, *_levels(inner)]
    if not _has_layers(whole):  # a name that is not known here, with words and layers
        inners = (inner for name in whole.data if (inner := _child(whole, name)) is not None)
        return [
            whole,
            *[inner for inner in inners if any(map(inner.has, layer_reader.WORDS)) and _has_layers(inner)][:1],
        ]
    return [whole]


def _lower(levels: Sequence[Fields], names: Iterable[str]) -> Fields | None:
    """The first of these objects at any level."""
    found = (_child(level, name) for level in levels for name in names)
    return next((each for each in found if each is not None), None)


def _has_layers(fields: Fields) -> bool:
    return any(fields.has(name) for name in (*layer_reader.COUNT, "layers_block_type", "hybrid_override_pattern"))


def _child(fields: Fields, name: str) -> Fields | None:
    return _filled(fields.child(name)) if isinstance(fields.data.get(name), dict) else None


def _filled(fields: Fields | None) -> Fields | None:
    """With what its class has anyway: the hub's files leave that out."""
    usual = catalog.load("model_facts")["defaults"].get(fields.text("model_type")) if fields else None
    return fields.with_({**usual["value"], **fields.data}) if fields and usual else fields


def _quantized(whole: Fields, text: Fields) -> Fields:
    return text if text.has("quantization_config") and not whole.has("quantization_config") else whole


def _layers(text: Fields) -> int:
    named = len(text.text("hybrid_override_pattern")) or max(len(text.items(name)) for name in layer_reader.LISTS)
    count = layer_reader.number(text, named)
    if not count and not text.has(layer_reader.COUNT[0]):
        raise FactsError(
            f"{text.file} does not say how many layers the model has, so nothing can be counted. Write a file of facts "
            "(--facts FILE): id, architecture, weights and attention"
        )
    if not 1 <= count <= limit("layers"):
        name = next((each for each in layer_reader.COUNT if text.has(each)), layer_reader.COUNT[0])
        raise text.wrong(name, text.data.get(name, count), f"a number from 1 to {limit('layers')}")
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


def _told(text: Fields, weights: Weights, context: int) -> None:
    """Doubt what nobody says, for nothing is 0."""
    if not weights.total:
        text.doubt(
            f"{text.file} does not say how large its weights are, so they are missing from the sum of the memory"
        )
    if not context:
        usual = catalog.load("model_facts")["usual"]["context"]["value"]
        text.doubt(
            f"{text.file} does not say how long a context it was made for, so {usual:,} tokens count, or what "
            "--max-model-len asks for"
        )


def _scaling(text: Fields) -> tuple[str, float, int]:
    """(kind, factor, original context) of the rotary embedding."""
    said = text.child("rope_scaling", "rope_parameters")
    if said is None:
        return "", 1.0, 0
    kind = said.text("rope_type", "type")
    original = said.whole("original_max_position_embeddings") or text.whole("original_max_position_embeddings")
    return ("" if kind == "default" else kind), said.number("factor", default=1.0), original


def _weights(files: Files, layers: int, spent: Budget) -> Weights | None:
    """By the headers of all files; else by what the index says."""
    index = _json(files, "model.safetensors.index.json", spent)
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
    found = effort.at_once(lambda name: _tensors(files, name, spent), there, _AT_ONCE)
    return safetensors.of_headers((tensor for each in found for tensor in each), layers)


def _tensors(files: Files, name: str, spent: Budget) -> Iterable[tuple[str, str, int]]:
    file = f"{files.source}/{name}"
    size = safetensors.header_size(files.part(name, 0, safetensors.LENGTH), file)
    spent.spend("bytes", size)
    return safetensors.tensors(files.part(name, safetensors.LENGTH, size), file, files.size(name), spent)


def _having(layers: Sequence[layer_reader.Layer]) -> dict[str, int]:
    """Return the number of layers that have each part of formats.Bits."""
    sparse = sum(layer.feed == "sparse" for layer in layers)
    return {
        "mixing": sum(bool(layer.mixers) for layer in layers),
        "shared": sparse,
        "feeding": sparse or sum(layer.feed == "dense" for layer in layers),
    }


def _sides_bits(counted: parameters.Count, bits: formats.Bits) -> float:
    """Bits of one of the parameters beside experts and dense layers."""
    if not counted.sides:
        return bits.mixing
    return (counted.shared * bits.shared + (counted.sides - counted.shared) * bits.mixing) / counted.sides


def _by_config(counted: parameters.Count, besides: int, bits: formats.Bits) -> Weights:
    """Rather too large: which layers a checkpoint leaves as they were is not always known."""
    sides = counted.total - counted.tables - counted.feeding
    head = 0 if counted.tied else counted.head
    narrow = counted.feeding * bits.feeding + sides * _sides_bits(counted, bits) + head * bits.head
    total = narrow + (counted.tables - head + besides) * 16
    return Weights({"": int(total / 8)}, vision=besides * 2, basis="config")


def _parts(counted: parameters.Count, besides: int, bits: formats.Bits, own: bool) -> Parts:
    """`own`: the format has as many bits as the file says, and not those of a table."""
    dense = counted.dense if counted.routed else 0  # layers before the experts stay as attention does
    return Parts(
        feeding=counted.feeding,
        chosen=counted.chosen or counted.dense,
        sides=counted.sides + dense,
        head=counted.head,
        unread=counted.tables - counted.head + besides,  # a tied head is the embedding, and read as a whole
        sides_bits=_sides_bits(counted, bits),
        head_bits=0.0 if counted.tied else bits.head,
        feeding_bits=bits.feeding if own else 0.0,
        again=counted.again,
    )


def _uncached(whole: Fields, text: Fields) -> bool:
    """Families that answer without a cache: diffusion of text computes all of it again."""
    names = catalog.load("model_facts")["families"]["uncached"]["value"]
    return whole.text("model_type").lower() in names or text.text("model_type").lower() in names


def task_of(architecture: str, names: frozenset[str] = frozenset(), vision: bool = False) -> str:
    """What a model of this architecture, with files of these names, does."""
    tests: tuple[tuple[str, Callable[[], bool]], ...] = (
        ("classify", lambda: any(word in architecture for word in _SCORES)),
        ("transcribe", lambda: any(word in architecture for word in ("Whisper", "ASR", "Asr", "SpeechRecognition"))),
        ("embed", lambda: "modules.json" in names or _gives_vectors(architecture, vision)),
    )
    return next((word for word, test in tests if test()), "generate")


def _gives_vectors(architecture: str, vision: bool) -> bool:
    """Without a head of its own, or with that of BERT's training, in whose place vLLM gives vectors."""
    known = catalog.load("model_facts")["architectures"]
    if architecture in known["vectors"]["value"] or architecture.endswith("ForMaskedLM"):
        return True
    return architecture.endswith("Model") and not vision and architecture not in known["chats"]["value"]


def _bidirectional(whole: Fields, text: Fields) -> bool:
    """By what the configuration says, else by its family: BERT and its like say nothing of it."""
    said = [each for each in (whole, text) if each.has("is_causal") or each.has("use_bidirectional_attention")]
    if said:
        return any(not each.flag("is_causal", default=True) or _both_ways(each) for each in said)
    encoders, family = catalog.load("models")["encoders"]["value"], whole.text("model_type")
    return not whole.flag("is_decoder") and (family in encoders or "bert" in family or "bidirec" in family)


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
