# SPDX-License-Identifier: GPL-3.0-or-later
"""The engines by the names that an inventory has for them."""

from __future__ import annotations

from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.engines import llama_cpp, sglang, vllm
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.engines.engine import Engine

VLLM = vllm.ENGINE.name
ENGINES: dict[str, Engine] = {each.name: each for each in (vllm.ENGINE, sglang.ENGINE, llama_cpp.ENGINE)}
