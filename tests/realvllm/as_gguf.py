"""The tiny model as one file in GGUF: with what it was taught, so that llama.cpp passes the proof, or at random.

Its layers are Qwen3's, whose tensors llama.cpp takes as they lie in safetensors: no package is needed to copy them.
"""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.realvllm.real import TEMPLATE

_ALIGNED = 32  # bytes; llama.cpp's own default
_F32 = 0  # of ggml's types
_ORDINARY, _CONTROL, _UNUSED = 1, 3, 5  # of llama.cpp's kinds of tokens
_TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
_IN_A_LAYER = {
    **{"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"},
    **{f"self_attn.{part}_proj": f"attn_{part}" for part in "qkv"},
    **{f"self_attn.{part}_norm": f"attn_{part}_norm" for part in "qk"},
    "self_attn.o_proj": "attn_output",
    **{f"mlp.{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")},
}


def write(folder: Path, file: Path) -> None:
    """Write the model of `folder`, in float32, to `file`; one that was taught nothing has random weights."""
    weights = folder / "model.safetensors"
    tensors = list(_tensors(weights) if weights.exists() else _random(json.loads((folder / "config.json").read_text())))
    head, place = b"", 0
    for name, shape, content in tensors:
        turned = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        head += _text(name) + turned + struct.pack("<IQ", _F32, place)
        place += len(_filled(content))
    said = _said(folder)
    entries = b"".join(_text(key) + _value(each) for key, each in said.items())
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(said)) + entries + head
    file.write_bytes(_filled(head) + b"".join(_filled(content) for _, _, content in tensors))


def _tensors(file: Path) -> Iterator[tuple[str, list[int], bytes]]:
    raw = file.read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    begin = 8 + length
    for name, about in sorted(json.loads(raw[8:begin]).items()):
        if name != "__metadata__":
            assert about["dtype"] == "F32", f"{name} is {about['dtype']}"
            first, last = about["data_offsets"]
            yield _name(name), about["shape"], raw[begin + first : begin + last]


def _random(config: dict[str, Any]) -> Iterator[tuple[str, list[int], bytes]]:
    wide, inner, words, head = (config[key] for key in ("hidden_size", "intermediate_size", "vocab_size", "head_dim"))
    asked, kept = (config[f"num_{key}_heads"] * head for key in ("attention", "key_value"))
    of_a_layer = {
        **{"attn_norm": [wide], "ffn_norm": [wide], "attn_q_norm": [head], "attn_k_norm": [head]},
        **{"attn_q": [asked, wide], "attn_k": [kept, wide], "attn_v": [kept, wide], "attn_output": [wide, asked]},
        **{"ffn_gate": [inner, wide], "ffn_up": [inner, wide], "ffn_down": [wide, inner]},
    }
    shapes = {"token_embd": [words, wide], "output_norm": [wide], "output": [words, wide]}
    for layer in range(config["num_hidden_layers"]):
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in of_a_layer.items()}
    chance = random.Random(1)  # noqa: S311 - no secret
    for name, shape in shapes.items():
        count = math.prod(shape)
        numbers = [1.0] * count if name.endswith("norm") else [chance.gauss(0, 0.05) for _ in range(count)]
        yield f"{name}.weight", shape, struct.pack(f"<{count}f", *numbers)


def _name(name: str) -> str:
    stem = name.removesuffix(".weight")
    if stem in _TOP:
        return f"{_TOP[stem]}.weight"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{_IN_A_LAYER[part]}.weight"


def _said(folder: Path) -> dict[str, Any]:
    config = json.loads((folder / "config.json").read_text())
    rope = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
    own = {
        **{"block_count": config["num_hidden_layers"], "context_length": config["max_position_embeddings"]},
        **{"embedding_length": config["hidden_size"], "feed_forward_length": config["intermediate_size"]},
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        **{"attention.key_length": config["head_dim"], "attention.value_length": config["head_dim"]},
        **{"attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]), "rope.freq_base": float(rope)},
    }
    known = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    words = {number: word for word, number in known.items()}
    count, end = config["vocab_size"], config["eos_token_id"]
    kinds = [_CONTROL if at == end else _ORDINARY if at in words else _UNUSED for at in range(count)]
    return {
        "general.architecture": "qwen3",
        **{f"qwen3.{key}": value for key, value in own.items()},
        **{"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2"},
        "tokenizer.ggml.tokens": [words.get(at, f"<none {at}>") for at in range(count)],
        **{"tokenizer.ggml.token_type": kinds, "tokenizer.ggml.merges": []},
        **{"tokenizer.ggml.eos_token_id": end, "tokenizer.ggml.add_bos_token": False},
        "tokenizer.chat_template": TEMPLATE,
    }


def _text(said: str) -> bytes:
    return struct.pack("<Q", len(said.encode())) + said.encode()


def _value(said: Any) -> bytes:
    """With its type before it: uint32, float32, bool, string, or an array of numbers or strings."""
    match said:
        case bool():
            return struct.pack("<I?", 7, said)
        case int():
            return struct.pack("<II", 4, said)
        case float():
            return struct.pack("<If", 6, said)
        case str():
            return struct.pack("<I", 8) + _text(said)
        case [int(), *_]:
            return struct.pack(f"<IIQ{len(said)}i", 9, 5, len(said), *said)
        case _:
            return struct.pack("<IIQ", 9, 8, len(said)) + b"".join(map(_text, said))


def _filled(content: bytes) -> bytes:
    return content + bytes(-len(content) % _ALIGNED)
