"""Looks at a host, as `gb10 top` reads them."""

from __future__ import annotations

from typing import Any

from tests.support.health import NOW, Record, reading, sample


def served(tokens: float = 1000, running: float = 1, at_s: float = NOW, **more: Any) -> Record:
    counters = {
        "running": running, "generated_tokens": tokens, "waiting": 0.0, "prompt_tokens": 10.0, "ttft_s_sum": 4.0,
        "ttft_count": 8.0, "step_s_sum": None, "step_count": None, **more.pop("counters", {}),
    }  # fmt: skip
    own = {"name": "vllm", "at_s": at_s, "phase": "ready", "since": None, "verdict": None, "counters": counters,
           "problem": None}  # fmt: skip
    return {**own, **more}


def look(at_s: float = NOW, *services: Record, **more: Any) -> Any:
    return {"reading": reading([sample(at_s, **more)], at_s=at_s), "services": list(services)}
