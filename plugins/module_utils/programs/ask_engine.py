# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks vLLM itself what a model takes: its own configuration, and the model without memory on torch's meta device.

The Python of the image that will serve runs it, and nothing is loaded: no weights, no memory of a GPU, no network. Its
argument is JSON: `model`, a folder, and `flags`, fields of vLLM's EngineArgs. Its last line is JSON, too.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

MARK = "gb10-engine: "  # begins the line of the answer: vLLM's own lines may come before and after
LONGEST_TEXT = 600
UNSEEN = "failed to be inspected"  # an import that failed here may do at the start, with other folders to write to
# No tokenizer, whose files may not be there; nothing is compiled. Foreign code only where the operator said so.
ASKED = {"load_format": "dummy", "skip_tokenizer_init": True, "enforce_eager": True}
QUIET = {
    **{"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"},
    **{"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_CPU_KVCACHE_SPACE": "1"},
}


def answer(model: str, flags: dict[str, Any]) -> dict[str, Any]:
    """Return what vLLM says of the model; `refusal` where it does not take it, in its own words.

    A refusal is `firm` where vLLM's own checks of the configuration refuse. What fails otherwise, or when the model is
    made without memory, may serve all the same. `unasked` instead where a release of vLLM has no longer what this
    program imports: that is no word on the model.
    """
    found: dict[str, Any] = {"model": model}
    began = time.monotonic()
    try:
        import vllm  # type: ignore[import-not-found]

        found["version"] = vllm.__version__
        _configured(found, model, flags)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"[:LONGEST_TEXT]
        if isinstance(error, ImportError) and str(error.name).partition(".")[0] == "vllm":
            found["unasked"] = text
        else:
            found["refusal"] = text
            checks = isinstance(error, (ValueError, NotImplementedError)) and "architectures" not in found
            found["firm"] = checks and UNSEEN not in str(error)
    found["seconds"] = round(time.monotonic() - began, 1)
    return found


def _configured(found: dict[str, Any], model: str, flags: dict[str, Any]) -> None:
    from vllm.engine.arg_utils import EngineArgs  # type: ignore[import-not-found]

    trusted = {"trust_remote_code": flags.get("trust_remote_code") is True}
    config = EngineArgs(model=model, **{**flags, **ASKED, **trusted}).create_engine_config()
    said = config.model_config
    found.update(
        architectures=list(said.architectures),
        task=str(said.runner_type),
        context=int(said.max_model_len),
        dtype=str(said.dtype),
        quantization=said.quantization,
        cache_dtype=str(config.cache_config.cache_dtype),
    )
    _made(found, config)


def _made(found: dict[str, Any], config: Any) -> None:
    """Make the model on the meta device, and ask each of its layers what it keeps."""
    import tempfile

    import torch  # type: ignore[import-not-found]
    from vllm.config import set_current_vllm_config  # type: ignore[import-not-found]
    from vllm.distributed import ensure_model_parallel_initialized, init_distributed_environment  # type: ignore[import-not-found]
    from vllm.model_executor.model_loader.utils import initialize_model  # type: ignore[import-not-found]

    with set_current_vllm_config(config), tempfile.TemporaryDirectory() as folder:
        init_distributed_environment(1, 0, f"file://{folder}/ranks", 0, "gloo")
        ensure_model_parallel_initialized(1, 1)
        usual = torch.get_default_dtype()
        torch.set_default_dtype(config.model_config.dtype)
        try:
            with torch.device("meta"):
                model = initialize_model(vllm_config=config)
        finally:
            torch.set_default_dtype(usual)
        weights: dict[str, int] = {}
        layers: list[dict[str, Any]] = []
        for tensor in model.parameters():
            name = str(tensor.dtype).rpartition(".")[2]
            weights[name] = weights.get(name, 0) + tensor.numel() * tensor.element_size()
        for layer in config.compilation_config.static_forward_context.values():
            shares = getattr(layer, "kv_sharing_target_layer_name", None)  # with another layer, which keeps it
            spec = None if shares or not hasattr(layer, "get_kv_cache_spec") else layer.get_kv_cache_spec(config)
            if spec is not None:
                layers.append(_kept(spec, config))
    found["weights"] = weights
    found["layers"] = _counted(layers)
    found["backends"] = sorted({*_backends(model)})


def _backends(model: Any) -> Iterator[str]:
    """Name what computes attention here, and the classes that compute each format of weights."""
    for module in model.modules():
        if hasattr(getattr(module, "attn_backend", None), "get_name"):
            yield str(module.attn_backend.get_name())
        if getattr(module, "quant_method", None) is not None:
            yield type(module.quant_method).__name__


def _kept(spec: Any, config: Any) -> dict[str, Any]:
    """What a layer keeps: bytes of a token, or of a whole request where it does not grow with the context."""
    kind = type(spec).__name__
    if kind == "CrossAttentionSpec":  # of what the encoder has read, however long the answer is
        return {"kind": kind, "request_bytes": int(spec.max_memory_usage_bytes(config))}
    if kind == "MambaSpec":
        return {"kind": kind, "request_bytes": int(spec.page_size_bytes)}
    said: dict[str, Any] = {"kind": kind, "token_bytes": spec.page_size_bytes / spec.block_size}
    window = getattr(spec, "sliding_window", None) or getattr(spec, "attention_chunk_size", None)
    return {**said, "window": int(window)} if window else said


def _counted(layers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Equal layers once, with their number."""
    texts = [json.dumps(each, sort_keys=True) for each in layers]
    return [{**json.loads(text), "layers": texts.count(text)} for text in dict.fromkeys(texts)]


def main(words: list[str]) -> int:
    asked = json.loads(words[0])
    os.environ.update({name: value for name, value in QUIET.items() if name not in os.environ})
    sys.stdout.write(MARK + json.dumps(answer(asked["model"], asked.get("flags") or {})) + "\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
