"""What `vllm bench serve` and a GPU say of a load, as tests of the benchmark make it up."""

from __future__ import annotations

from typing import Any

GPT = "openai/gpt-oss-120b"  # mxfp4, 32 to 35 tok/s on one host; published 57 to 60 are above what the memory allows
# Clock, power, utilization and event reasons of a GPU under load.
HEALTHY = (2418.0, 86.2, 96.0, 0x0)


def result(tokens_per_s: float = 50.0, concurrency: int = 1, completed: int = 4) -> dict[str, Any]:
    """The keys of `vllm bench serve` 0.17.0, 0.19.0 and 0.33.0 without --save-detailed (`vllm.benchmarks.serve`)."""
    latency = {
        f"{kind}_{name}_ms": value
        for name, value in (("ttft", 250.0), ("tpot", 1000 / tokens_per_s), ("itl", 1000 / tokens_per_s))
        for kind in ("mean", "median", "std", "p99")
    }
    return {
        "date": "20261122-120000", "endpoint_type": "openai", "backend": "openai", "label": None, "model_id": GPT,
        "tokenizer_id": GPT, "num_prompts": 4, "request_rate": "inf", "burstiness": 1.0, "max_concurrency": concurrency,
        "duration": 10.0, "completed": completed, "failed": 4 - completed, "total_input_tokens": 2048,
        "total_output_tokens": 512, "request_throughput": 0.4, "request_goodput": None, "output_throughput": 51.2,
        "total_token_throughput": 256.0, "max_output_tokens_per_s": 60.0, "max_concurrent_requests": 2, "rtfx": 0.0,
        **latency,
    }  # fmt: skip


Readings = list[dict[str, Any] | None]


def readings(clock: float, power: float, utilization: float, reasons: int, count: int = 6) -> Readings:
    one = {
        "clock_mhz": clock, "power_w": power, "temperature_c": 60.0, "utilization_percent": utilization,
        "event_reasons": reasons, "driver": "580.142",
    }  # fmt: skip
    return [one] * count
