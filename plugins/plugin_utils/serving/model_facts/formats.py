# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the weights of a checkpoint are in: quantization_config of config.json, or hf_quant_config.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
_LEFT_OUT = ("ignore", "ignored_layers", "exclude_modules", "modules_to_not_convert")
_SIDES = ("attn", "attention", "mixer", "q_proj", "qkv", "in_proj", "shared_expert")


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
    cache = said.text("kv_cache_quant_algo").lower()
    scheme = said.child("kv_cache_scheme")
    if scheme is not None and scheme.has("num_bits"):
        cache = f"fp{scheme.whole('num_bits')}"
    return tuple(each for each in _SMALLEST_FIRST if each in found) or ("other",), cache


def sides_kept(config: Fields, separate: Fields | None, kept: tuple[str, ...]) -> bool:
    """Whether attention and its like stay as they were: by the list of what is left out, else as makers usually do."""
    said = _said(config, separate)
    left = [text for name in _LEFT_OUT for text in _texts(said, name)] if said else []
    if said and said.has("config_groups") and not _all_linear(said):
        return True
    if any(word in text for text in left for word in _SIDES):
        return True
    return kept[0] in PARTIAL and not left


def _texts(said: Fields, name: str) -> list[str]:
    value = said.data.get(name)
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _all_linear(said: Fields) -> bool:
    """compressed-tensors: whether any group is of all linear layers."""
    groups = said.child("config_groups")
    found = [group for name in (groups.data if groups else ()) if groups and (group := groups.child(name))]
    targets = [target for group in found for target in _texts(group, "targets")]
    return not targets or "Linear" in targets


def _formats(said: Fields, config: Fields) -> Iterator[str]:
    method = said.text("quant_method", "quantization_method", default="modelopt").lower()
    method = method.rpartition("/")[2].removesuffix("_marlin").replace("auto_round", "auto-round")
    bits = said.number("bits", "w_bit", default=4)
    if method in ("compressed-tensors", "compressed_tensors"):
        yield from _groups(said) if said.has("config_groups") else [_algorithm(said.text("format").upper(), said)]
    elif method.startswith("modelopt") or said.has("quant_algo"):
        yield from _modelopt(said)
    elif method in _INT4:
        yield _INT4[method] if bits == 4 else "int8" if bits == 8 else "other"
        if extra := said.child("extra_config"):
            yield from _extra(extra)
    else:
        yield _BY_METHOD.get(method) or _algorithm(method.upper(), said)
    if config.text("expert_dtype").lower() == "fp4":  # DeepSeek-V4: experts in FP4, the rest in FP8
        yield "mxfp4"


def _groups(said: Fields) -> Iterator[str]:
    """compressed-tensors: one scheme for each group of modules."""
    groups = said.child("config_groups")
    for name in groups.data if groups else ():
        group = groups.child(name) if groups else None
        weights = group.child("weights") if group else None
        if weights is not None:
            yield _scheme(weights.text("type"), weights.whole("num_bits"), weights.whole("group_size"))


def _scheme(kind: str, bits: int, group_size: int) -> str:
    if kind == "float":
        return "fp8" if bits == 8 else "mxfp4" if group_size == 32 else "nvfp4" if bits == 4 else "other"
    return {4: "int4", 8: "int8"}.get(bits, "other")


def _modelopt(said: Fields) -> Iterator[str]:
    algorithm = said.text("quant_algo").upper()
    layers = said.child("quantized_layers")
    if layers is not None:
        for name in layers.data:
            layer = layers.child(name)
            yield _algorithm(layer.text("quant_algo").upper() if layer else "", said)
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
    """By the first of these words in it; where nobody knows, 16 bits, which is the most."""
    if found := next((name for word, name in _IN_WORDS if word in text), ""):
        return found
    shown = ascii(text)[: limit("shown")]
    said.doubt(f"{said.file}: the weights are quantized by {shown}, not known here: 16 bits are counted")
    return "other"


def _extra(extra: Fields) -> Iterator[str]:
    """AutoRound: modules with other bits than the rest."""
    for value in extra.data.values():
        bits = value.get("bits") if isinstance(value, Mapping) else None
        if bits in (8, 16):
            yield "int8" if bits == 8 else "bf16"
