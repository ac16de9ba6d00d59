"""A service of a real llama.cpp: its server, and the entry of an inventory."""

from __future__ import annotations

import os
from typing import Any

SERVER = os.environ.get("GB10_LLAMA_SERVER", "")
ENTRY: dict[str, Any] = {
    "engine": "llama_cpp", "image": "registry.example/llama.cpp@sha256:" + "3" * 64, "model": "o/m", "slots": 2,
    "model_revision": "a" * 40, "gguf": "m.gguf", "memory_gib": 2, "max_model_len": 2048, "served_model_name": "m",
}  # fmt: skip
