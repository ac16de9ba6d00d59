# SPDX-License-Identifier: GPL-3.0-or-later
"""What the weights of a checkpoint are in: quantization_config of config.json, or hf_quant_config.json."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.reading import Fields, limit

# Bits of one weight with its scales, the smallest first: the first of several formats is what most weights are in.
_SMALLEST_FIRST = ("nvfp4", "mxfp4", "gptq_int4", "awq_int4", "autoround_int4", "int4", "int8", "fp8", "other", "bf16")
_BY_METHOD = {
    "fp8": "fp8", "fbgemm_fp8": "fp8", "ptpc_fp8": "fp8", "mxfp8": "fp8", "mxfp4": "mxfp4", "gpt_oss_mxfp4": "mxfp4",
    "nvfp4": "nvfp4", "deepseek_v4_fp8": "fp8", "experts_int8": "int8",
}  # fmt: skip
_INT4 = {
    "gptq": "gptq_int4",
    "gptqmodel": "gptq_int4",
    "awq": "awq_int4",
    "auto-round": "autoround_int4",
    "inc": "autoround_int4",
}


# Formats whose makers leave attention and its like as they were, unless they say what they left out.
PARTIAL = ("nvfp4", "mxfp4", "int4")
# Tools that leave nothing as it was, unless they say so.
_ENTIRE = ("bitsandbytes", "hqq", "torchao", "auto-round", "auto_round", "fp_quant")
_LEFT_OUT = ("ignore", "ignored_layers", "exclude", "exclude_modules", "modules_to_not_convert", "skip_modules")
# Parts of a model by words in the names of its modules; the first that fits. Encoders, tables and routers are in none.
_PARTS = (
    ("", re.compile(r"visual|vision|audio|embed|mtp|(^|[._])(gate|router|in_proj_(a|b|ba)|conv1d)[*$]*$")),
    ("shared", re.compile("shared_?expert")),
    ("head", re.compile(r"(^|\.)(lm_head|head|output)\b")),
    ("feeding", re.compile("experts|moe")),
    ("dense", re.compile("mlp|ffn|feed_forward")),  # which feed a model without experts
    ("mixing", re.compile("attn|attention|mixer|mamba|conv|q_proj|qkv|in_proj")),
)
_WHOLE_LAYER = re.compile(r"layers\.(\d+)[.*]*$")
_LAYER = re.compile(r"\.(\d+)[.*]")
_ALL = ("Linear", "FusedMoE")
_USUAL_GROUP = 128  # integers of 4 bits that share a scale, as the table counts them; in 8 bits a whole row does


@dataclass(frozen=True)
class Bits:
    """Of one weight, by part: experts or dense layers, what mixes tokens, shared experts, the output layer."""

    feeding: float
    mixing: float
    shared: float
    head: float


def _said(config: Fields, separate: Fields | None) -> Fields | None:
    """ModelOpt has it one level lower in some files."""
    found = config.child("quantization_config", "compression_config") or separate
    return (found.child("quantization") or found) if found and found.data else None


def formats(config: Fields, separate: Fields | None = None) -> tuple[tuple[str, ...], str]:
    """All formats of the weights, the smallest first, and the type of the KV cache that there are scales for."""
    said = _said(config, separate)
    if said is None:
        return ("bf16",), ""
    found = set(_formats(said, config))
    return tuple(each for each in _SMALLEST_FIRST if each in found) or ("other",), _of_cache(said)


def _of_cache(said: Fields) -> str:
    """Return the type of the KV cache: its name, or how many bits a number has."""
    if isinstance(said.data.get("kv_cache_scheme"), str):
        return said.text("kv_cache_scheme").lower()
    scheme = said.child("kv_cache_scheme")
    if scheme is not None and scheme.has("num_bits"):
        return f"fp{scheme.whole('num_bits')}"
    return said.text("kv_cache_quant_algo").lower()


def bits(config: Fields, separate: Fields | None, kept: tuple[str, ...], having: Mapping[str, int]) -> Bits:
    """By what is named with a format, and what is left out. `having`: the number of layers that have each part.

    Where a file says neither, makers of the smallest formats leave attention and its like as they were.
    """
    table = catalog.load("models")["bits"]
    said, wide = _said(config, separate), float(table["bf16"])
    usual = _grouped(table, kept[0], said) if said else float(table[kept[0]])
    if said is None:
        return Bits(usual, usual, usual, wide)
    if kept[0] == "other":
        usual = _own_bits(said) or usual
    if said.text("quant_method") == "fp8" and kept[0] != "fp8":  # experts in less, all else in FP8 (DeepSeek-V4)
        wide = float(table["fp8"])
    named = _named(said, table)
    if not having.get("shared") and "dense" in named:
        named["feeding"] = named.pop("dense")
    left = [text for name in _LEFT_OUT for text in _texts(said, name)]
    rules = said.child("dynamic") if isinstance(said.data.get("dynamic"), dict) else None
    left += [name.removeprefix("-:") for name in (rules.data if rules else ()) if name.startswith("-:")]  # GPTQModel
    partly = bool(named) and "all" not in named
    plain = not named and not left and kept[0] in PARTIAL and said.text("quant_method") not in _ENTIRE
    found = {}
    for part in ("feeding", "mixing", "shared"):
        if own := named.get(part):
            share = min(1.0, sum(own.values()) / max(1, having.get(part, 1)))
            mean = sum(size * number for size, number in own.items()) / sum(own.values())
            found[part] = mean if partly else share * mean + (1 - share) * usual
        elif part == "feeding":
            found[part] = usual
        else:
            share = 1.0 if partly or plain else _share_left(left, part, having)
            found[part] = share * wide + (1 - share) * usual
    head = said.number("head_bits") or float(table["bf16"])
    return Bits(**found, head=min(named.get("head", {head: 1})))


def _grouped(table: Mapping[str, float], kind: str, said: Fields) -> float:
    """Bits of one weight with its scales, of which there are more where a group of integers is smaller than usual."""
    groups = [said, *(group.child("weights") or group for group in _children(said, "config_groups"))]
    sizes = [size for each in groups if isinstance(size := each.data.get("group_size"), int) and size > 0]
    if not sizes or not kind.endswith(("int4", "int8")):
        return float(table[kind])
    counted = 0.0 if kind == "int8" else 16 / _USUAL_GROUP
    return float(table[kind]) + max(0.0, 16 / min(sizes) - counted)


def _children(said: Fields, name: str) -> Iterator[Fields]:
    above = said.child(name)
    for each in above.data if above else ():
        if above and (found := above.child(each)) is not None:
            yield found


def _own_bits(said: Fields) -> float:
    """Bits of one weight, where a tool that is not known here says a number (EXL3: 2.05); 0: it says none."""
    found = said.number("bits", "nbits", "w_bit", "weight_bits")
    return found if 1 <= found < 16 else 0.0


def _named(said: Fields, table: Mapping[str, float]) -> dict[str, dict[float, int]]:
    """Bits of the modules that are named with a format, as a number of layers by part; `all`: of all linear layers."""
    found: dict[str, dict[float, dict[str, None]]] = {}
    for name, size in _assigned(said, table):
        part = "all" if name in _ALL else _part(name)
        layer = _LAYER.search(name)
        found.setdefault(part, {}).setdefault(size, {})[layer[1] if layer else name] = None
    return {part: {size: len(layers) for size, layers in sizes.items()} for part, sizes in found.items()}


def _assigned(said: Fields, table: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    layers = said.child("quantized_layers")
    for name in layers.data if layers else ():
        layer = layers.child(name) if layers else None
        yield name, table[_algorithm(layer.text("quant_algo").upper() if layer else "", said)]
    for group in _children(said, "config_groups") if not layers else ():
        if (weights := group.child("weights")) is not None:
            kind = _scheme(weights.text("type"), weights.whole("num_bits"), weights.whole("group_size"))
            size = _grouped(table, kind, weights)
            yield from ((target, size) for target in _texts(group, "targets"))
    extra = said.child("extra_config")  # AutoRound names exceptions: all other layers are in the usual format
    for name, value in (extra.data if extra else {}).items():
        bits = value.get("bits") if isinstance(value, Mapping) else None
        if isinstance(bits, int) and bits in (8, 16):
            yield from ((name, float(bits)), (_ALL[0], 0.0))


def _part(name: str) -> str:
    return next((part for part, pattern in _PARTS if pattern.search(name)), "")


def _share_left(left: list[str], part: str, having: Mapping[str, int]) -> float:
    """Of the layers that have this part, those in which it is left out; a name without a layer stands for all."""
    layers = {whole[1] for name in left if (whole := _WHOLE_LAYER.search(name))}
    for name in (name for name in left if _part(name) == part):
        layer = _LAYER.search(name)
        if not layer:
            return 1.0
        layers.add(layer[1])
    return min(1.0, len(layers) / max(1, having.get(part, 1)))


def _texts(said: Fields, name: str) -> list[str]:
    value = said.data.get(name)
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _formats(said: Fields, config: Fields) -> Iterator[str]:
    method = said.text("quant_method", "quantization_method", default="modelopt").lower()
    method = method.rpartition("/")[2].removesuffix("_marlin").replace("auto_round", "auto-round")
    bits = said.number("bits", "w_bit", default=4)
    if method in ("compressed-tensors", "compressed_tensors"):
        yield from _groups(said) if said.has("config_groups") else [_algorithm(said.text("format").upper(), said)]
    elif method.startswith("modelopt") or said.has("quant_algo"):
        yield from _modelopt(said)
    elif method in _INT4:
        floats = "fp" in said.text("data_type").lower()  # of AutoRound: int, mx_fp, nv_fp4_with_static_gs, fp8, ...
        whole = _INT4[method] if bits == 4 else "int8" if bits == 8 else "other"
        yield _scheme("float", int(bits), 32 if said.data.get("group_size") == 32 else 0) if floats else whole
        if extra := said.child("extra_config"):
            yield from _extra(extra)
    else:
        yield _BY_METHOD.get(method) or _by_type(method, said) or _algorithm(method.upper(), said)
    if config.text("expert_dtype").lower() == "fp4":  # DeepSeek-V4: experts in FP4, the rest in FP8
        yield "mxfp4"


def _by_type(method: str, said: Fields) -> str:
    """Of tools that say the type of a weight in words of their own."""
    if method == "bitsandbytes":
        return "int8" if said.flag("load_in_8bit", "_load_in_8bit") else "int4"
    if method == "hqq":
        weight = _deeper(said, "quant_config", "weight_quant_params")
        return _scheme("int", weight.whole("nbits", default=4), 0) if weight else ""
    if method == "quark":
        weight = _deeper(said, "global_quant_config", "weight")
        kind = weight.text("dtype") if weight else ""
        return _scheme(*_typed(kind), weight.whole("group_size")) if weight and kind else ""
    if method in ("eetq", "quanto"):
        return _scheme(*_typed(said.text("weights")), 0)
    if method == "fp_quant":
        return _algorithm(said.text("forward_dtype", default="mxfp4").upper(), said)
    if method == "torchao":
        usual = _deeper(said, "quant_type", "default")
        return _scheme(*_typed(usual.text("_type") if usual else said.text("quant_type")), 0)
    return ""


def _typed(word: str) -> tuple[str, int]:
    """(float or int, bits) of a word such as fp8_e4m3, Int4WeightOnlyConfig, mxfp4."""
    found = re.search(r"(fp|float|int)_?(\d+)", word.lower())
    return ("int" if found[1] == "int" else "float", int(found[2])) if found else ("", 0)


def _deeper(said: Fields, *names: str) -> Fields | None:
    found: Fields | None = said
    for name in names:
        found = found.child(name) if found and isinstance(found.data.get(name), dict) else None
    return found


def _groups(said: Fields) -> Iterator[str]:
    """compressed-tensors: one scheme for each group of modules."""
    for group in _children(said, "config_groups"):
        if (weights := group.child("weights")) is not None:
            yield _scheme(weights.text("type"), weights.whole("num_bits"), weights.whole("group_size"))


def _scheme(kind: str, bits: int, group_size: int) -> str:
    if kind == "float":
        return "fp8" if bits == 8 else "mxfp4" if group_size == 32 else "nvfp4" if bits == 4 else "other"
    return {4: "int4", 8: "int8"}.get(bits, "other")


def _modelopt(said: Fields) -> Iterator[str]:
    algorithm = said.text("quant_algo").upper()
    for layer in _children(said, "quantized_layers"):
        yield _algorithm(layer.text("quant_algo").upper(), said)
    if said.has("config_groups"):
        yield from _groups(said)
    elif algorithm != "MIXED_PRECISION":
        yield _algorithm(algorithm or said.text("quant_method").upper(), said)


_IN_WORDS = (
    *(("NVFP4", "nvfp4"), ("MXFP4", "mxfp4"), ("FP4", "nvfp4"), ("FP8", "fp8"), ("W4A", "int4"), ("INT4", "int4")),
    *(("W8A", "int8"), ("INT8", "int8"), ("NONE", "bf16")),
    *(("FLOAT-QUANTIZED", "fp8"), ("INT-QUANTIZED", "int8"), ("PACK-QUANTIZED", "int4")),  # of compressed-tensors
)


def _algorithm(text: str, said: Fields) -> str:
    """By the first of these words in it; where nobody knows, its own bits, or 16, which is the most."""
    if found := next((name for word, name in _IN_WORDS if word in text), ""):
        return found
    shown = ascii(text)[: limit("shown")]
    counted = f"{_own_bits(said):g} bits, as it says," if _own_bits(said) else "16 bits"
    said.doubt(f"{said.file}: the weights are quantized by {shown}, not known here: {counted} are counted")
    return "other"


def _extra(extra: Fields) -> Iterator[str]:
    """AutoRound: modules with other bits than the rest."""
    for value in extra.data.values():
        bits = value.get("bits") if isinstance(value, Mapping) else None
        if bits in (8, 16):
            yield "int8" if bits == 8 else "bf16"
