"""The verdict on a container that ended, and the sentence that a person reads: from real logs and vLLM's source."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.log import verdict_of_end

from tests.support.unit_log import new_log, read

LOGS = Path(__file__).parents[2] / "fixtures/vllm_logs"
UNIT = "gb10-vllm: "  # begins the unit's own lines


def lines_of(name: str) -> list[str]:
    return (LOGS / f"{name}.log").read_text(encoding="utf-8").splitlines()


def of_the_container(name: str) -> list[str]:
    return [line for line in lines_of(name) if not line.startswith(UNIT)]


ENDED = "the container ended with exit status"
MODEL = "/root/.cache/huggingface/hub/models--tiny--broken/snapshots/c664b54592b1224167acd96ccd88fa3de4659545"
# Each log in which the container ended by itself: exit status, verdict, and what the sentence says after the status.
ENDS = {
    "bad_flag": (2, "refused_flag", "vllm: error: unrecognized arguments: --no-such-flag 1"),
    "bad_json": (
        *(2, "refused_flag"),
        "vllm serve: error: argument --compilation-config/-cc: 1 validation error for CompilationConfig:"
        " Invalid JSON: key must be a string",
    ),
    "bad_quantization": (
        *(1, "unknown_quantization"),
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig:"
        " Value error, Unknown quantization method: nope. Must be one of",
    ),
    "bad_reasoning_parser": (1, "refused_flag", "KeyError: \"Reasoning parser 'nope' not found. Available parsers:"),
    "bad_tool_parser": (1, "refused_flag", "KeyError: 'invalid tool call parser: nope (chose from {"),
    "bad_utilization": (
        *(1, "refused_flag"),
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for CacheConfig:"
        " gpu_memory_utilization: Input should be less than or equal to 1 [type=less_than_equal, input_value=1.5,",
    ),
    "blob_missing": (
        *(1, "model_incomplete"),
        f"FileNotFoundError: [Errno 2] No such file or directory: '{MODEL}/model-00002-of-00003.safetensors'",
    ),
    "kill_engine_loading": (1, "killed", "Failed core proc(s): {'EngineCore': -9}"),
    "kill_engine_ready": (0, "engine_died", "its log names no cause"),
    "kill_worker1-1": (0, "engine_died", "Worker proc VllmWorker-1 died unexpectedly (exit code: None),"),
    "kill_worker_ready": (0, "engine_died", "Worker proc VllmWorker-0 died unexpectedly (exit code: None),"),
    "kv_too_small": (
        *(1, "kv_cache_short"),
        "a context of 2097024 tokens fits; ValueError: To serve at least one request with the model's max seq len"
        " (4000000), (1.91 GiB KV cache is needed, which is larger than the available KV cache memory (1.0 GiB).",
    ),
    "no_config": (
        *(1, "model_incomplete"),
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig:"
        f" Value error, Invalid repository ID or local directory specified: '{MODEL}'",
    ),
    "no_model_offline": (
        *(1, "model_missing"),
        "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate cached snapshot folder",
    ),
    "no_model_path": (
        *(1, "model_missing"),
        "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name':"
        " '/models/nope'",
    ),
    "no_tokenizer": (1, "model_incomplete", "IndexError: list index out of range (strategies.py, reply_label_ids)"),
    "port_busy": (1, "port_busy", "OSError: [Errno 98] Address already in use"),
    "shard_cut": (
        *(1, "model_incomplete"),
        "safetensors._safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata,"
        " file not fully covered",
    ),
    "shard_missing": (
        *(1, "model_incomplete"),
        f"FileNotFoundError: Weight files referenced in index but missing: {{'{MODEL}/model-00002-of-00003.safe",
    ),
    "too_long": (
        *(1, "context_too_long"),
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig: Value error, User-specified"
        " max_model_len (999999) is greater than the derived max_model_len (max_position_embeddings=4096.0",
    ),
    "tp_too_large": (
        *(1, "refused_flag"),
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for VllmConfig: Value error, Total number of"
        " attention heads (4) must be divisible by tensor parallel size (3).",
    ),
    "unknown_architecture": (
        *(1, "unknown_architecture"),
        f"Error parsing config for {MODEL}: The checkpoint you are trying to load has model type `nope9` but"
        " Transformers does not recognize this architecture.",
    ),
}
HEADLESS = {"kill_worker1-1"}  # its head said that it serves; a rank without an API does not
# Those in which the unit ended the container, or nobody did.
UNDISTURBED = {
    *("cable-0", "cable-1", "good", "kill_worker1-0", "pair-0", "pair-1", "reasoning", "stop_busy", "stop_loading"),
}


def test_every_log_has_its_row() -> None:
    assert {path.stem for path in LOGS.glob("*.log")} == ENDS.keys() | UNDISTURBED


@pytest.mark.parametrize("name", sorted(ENDS))
def test_a_real_log_names_the_cause(name: str) -> None:
    code, verdict, says = ENDS[name]
    log = new_log()
    if name in HEADLESS:
        log.serves()
    failure = verdict_of_end(code, read(*of_the_container(name), log=log), 0)
    assert (failure.verdict, failure.text.startswith(f"{ENDED} {code}")) == (verdict, True)
    assert failure.text.partition(f"{ENDED} {code}")[2].lstrip(":; ").startswith(says), failure.text


@pytest.mark.parametrize("name", sorted(UNDISTURBED))
def test_a_real_log_without_an_end_of_its_own_says_nothing_wrong(name: str) -> None:
    """Up to the moment at which the unit itself ends it."""
    lines = lines_of(name)
    end = next(
        at for at, line in enumerate([*lines, f"{UNIT}stopping"]) if line.startswith((f"{UNIT}stop", f"{UNIT}peer"))
    )
    log = read(*(line for line in lines[:end] if not line.startswith(UNIT)))
    assert (log.fault, log.cause, log.gone_since) == (None, "", None)


# What a CPU does not show, as vLLM's source, CUDA, PyTorch and the hub word it: the verdict, and the versions.
WORDS = [
    (
        *("memory_short", "0.17 to 0.33"),
        "ValueError: Free memory on device cuda:0 (36.75/121.63 GiB) on startup is less than desired GPU memory"
        " utilization (0.85, 103.38 GiB). Decrease GPU memory utilization or reduce GPU memory used by other",
    ),
    (
        *("kv_cache_short", "0.17 to 0.28"),
        "ValueError: To serve at least one request with the models's max seq len (262144), (24.00 GiB KV cache is"
        " needed, which is larger than the available KV cache memory (9.61 GiB). Try increasing `gpu_memory",
    ),
    (
        "out_of_memory",
        "0.17 to 0.33",
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory",
    ),
    (
        *("kernel_unsupported", "CUDA"),
        "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device",
    ),
    ("kernel_unsupported", "CUDA", "RuntimeError: CUDA error: an illegal instruction was encountered"),
    ("kernel_unsupported", "ptxas", "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'"),
    (
        *("kernel_unsupported", "0.17 to 0.33"),
        "  Value error, The quantization method x is not supported for the current GPU. Minimum capability: 130.",
    ),
    (
        *("kernel_unsupported", "0.24"),
        "NotImplementedError: No NvFp4 MoE backend supports the deployment configuration.",
    ),
    ("gpu_dead", "PyTorch", "RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment"),
    ("gpu_dead", "NVML", "pynvml.NVMLError_GpuIsLost: GPU is lost"),
    ("gpu_dead", "CUDA", "torch.AcceleratorError: CUDA error: CUDA-capable device(s) is/are busy or unavailable"),
    (
        *("token_refused", "huggingface_hub"),
        "huggingface_hub.errors.HfHubHTTPError: 401 Client Error: Unauthorized. Invalid credentials in Authorization"
        " header",
    ),
    (
        *("unknown_architecture", "0.17 to 0.33"),
        "ValueError: Model architectures ['Nope9ForCausalLM'] are not supported for now. Supported"
        " architectures: dict_keys",
    ),
    (
        *("unknown_quantization", "0.17 to 0.33"),
        "  Value error, Quantization method specified in the model config (modelopt) does not match the quantization"
        " method specified in the `quantization` argument (fp8).",
    ),
    ("model_incomplete", "0.17 to 0.33", "RuntimeError: Cannot find any model weights with `/models/x`"),
    (
        *("port_busy", "PyTorch"),
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address."
        " port: 29501, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
    ),
    (
        *("refused_flag", "0.17 to 0.33"),
        "  Value error, World size (2) is larger than the number of available GPUs (1) in this node.",
    ),
]


@pytest.mark.parametrize(("verdict", "versions", "words"), WORDS)
def test_what_a_gpu_or_the_hub_says_has_its_verdict(verdict: str, versions: str, words: str) -> None:
    engine, api = "(EngineCore_DP0 pid=272) ERROR 11-20 10:00:00 [core.py:1108] ", "(APIServer pid=1) "
    head, said = (["1 validation error for VllmConfig", words]) if words.startswith("  ") else ([], words)
    log = read(
        "(APIServer pid=1) WARNING 11-20 09:59:59 [x.py:1] CUDA out of memory is an error that this is not",
        f"{engine}EngineCore failed to start.",
        f"{engine}Traceback (most recent call last):",
        f'{engine}  File "/usr/lib/vllm/v1/engine/core.py", line 1082, in run_engine_core',
        f"{engine}    raise OutOfMemoryError(",
        *([f"{engine}ValidationError: {head[0]}", f"{engine}{words}"] if head else [f"{engine}{said}"]),
        f"{api}Traceback (most recent call last):",
        f"{api}RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {{}}",
    )
    failure = verdict_of_end(1, log, 0)
    assert failure.verdict == verdict, versions
    assert words.strip()[:150] in failure.text


def test_the_kernels_killing_beats_what_the_log_says_of_a_killed_engine() -> None:
    log = read(*of_the_container("kill_engine_loading"))
    assert (verdict_of_end(1, log, 0).verdict, verdict_of_end(1, log, 1).verdict) == ("killed", "out_of_memory")


def test_trouble_of_a_start_that_ended_well_is_forgotten() -> None:
    fault = "ValueError: No available memory for the cache blocks."
    served = [fault, "INFO:     Application startup complete."]
    assert read(*served).fault is None and read(*served, fault).fault == ("out_of_memory", fault)
    assert verdict_of_end(0, read(*served), 0).text == f"{ENDED} 0; its log names no cause"


def test_a_request_that_failed_long_ago_is_no_cause_of_an_end() -> None:
    log = new_log()
    log.serves()
    for when, line in (
        (0, "ERROR:    a request failed: OSError: [Errno 28] No space left on device"),
        (1000, "RuntimeError: the first one"),
        (1001, "RuntimeError: what follows from it"),
    ):
        log.clock = lambda when=when: when
        log.feed(line)
    assert (log.fault, log.cause) == (None, "RuntimeError: the first one")
    log.clock = lambda: 1070
    log.feed("RuntimeError: EngineCore encountered an issue. See stack trace (above) for the root cause.")
    assert (log.fault, log.cause) == (None, "")


def test_tracebacks_of_two_processes_do_not_mix() -> None:
    log = read(
        "(Worker pid=3) ERROR 11-22 21:24:46 [a.py:1] Traceback (most recent call last):",
        "\x1b[36m(Other pid=4)\x1b[0m Traceback (most recent call last):",
        '(Worker pid=3) ERROR 11-22 21:24:46 [a.py:1]   File "/x/worker.py", line 1, in work',
        '\x1b[36m(Other pid=4)\x1b[0m   File "/x/other.py", line 1, in idle',
        "(Worker pid=3) INFO 11-22 21:24:46 [b.py:1] still here",
        "(Worker pid=3) ERROR 11-22 21:24:46 [a.py:1] KeyError: 'x'",
        "\x1b[36m(Other pid=4)\x1b[0m AssertionError",
    )
    assert [error.text for error in log.errors.found] == [
        "KeyError: 'x' (worker.py, work)",
        "AssertionError (other.py, idle)",
    ]


def test_tracebacks_without_an_end_of_ever_new_processes_are_forgotten() -> None:
    log = read(*(f"(Worker pid={pid}) Traceback (most recent call last):" for pid in range(1000)))
    assert len(log.errors.frames) <= 100
    read("(Worker pid=999) KeyError: 'x'", log=log)
    assert log.cause == "KeyError: 'x'"
