"""The verdict on a container that ended, and the sentence that a person reads: from real logs and vLLM's source."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit import causes
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.log import verdict_of_end
from ansible_collections.gb10.fleet.plugins.module_utils.system.service_failures import LASTING, NOT_AGAIN, WAYS_OUT

from tests.support.attacker import tally
from tests.support.cause_pairs import PAIRS
from tests.support.causes import FAULTY, HEALTHY
from tests.support.rig import ROOT
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


@pytest.mark.parametrize(("verdict", "versions", "words"), FAULTY)
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


def test_every_line_of_the_catalog_has_a_faulty_example() -> None:
    said = (
        [words for _, _, words in FAULTY]
        + [words for _, words, _ in PAIRS]
        + [error.text for name in ENDS for error in read(*of_the_container(name)).errors.found]
    )
    patterns = [pattern for _, pattern in new_log().config.failures]
    assert [each.pattern for each in patterns if not any(each.search(line) for line in said)] == []


@pytest.mark.parametrize("verdict", sorted({verdict for verdict, _ in new_log().config.failures}))
def test_words_of_a_sound_start_are_no_fault(verdict: str) -> None:
    assert read(HEALTHY[verdict]).fault is None


# What a process logs does not end what it prints; a traceback may begin behind other words (SGLang issue 32855); an
# error of PyTorch's own code is one without the word (NCCL issue 2213), beside a line of NCCL that is none.
READ_AS = {
    "kernel_unsupported": (
        "(EngineCore pid=212) Traceback (most recent call last):",
        '(EngineCore pid=212)   File "/x/gemm.py", line 1, in mm',
        "(EngineCore pid=212) ERROR 08-07 21:51:35 [core.py:1330] EngineCore failed to start.",
        "(EngineCore pid=212) torch.AcceleratorError: CUDA error: no kernel image is available",
    ),
    "weights_unfit": (
        "[2026-07-30 01:58:54 TP6] Scheduler hit an exception: Traceback (most recent call last):",
        '  File "/x/scheduler.py", line 4735, in run_scheduler_process',
        "    raise torch.OutOfMemoryError() if full else KeyError(name)",
        "KeyError: 'layers.0.mlp.gate.weight'",
    ),
    "nccl_failed": (
        "NCCL INFO dlvsym failed on mlx5dv_reg_dmabuf_mr - /lib/libmlx5.so: undefined symbol: mlx5dv_reg_dmabuf_mr",
        "[rank0]:[E909 08:45:31.9 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: x",
    ),
}


@pytest.mark.parametrize("verdict", READ_AS)
def test_an_error_is_found_among_other_words(verdict: str) -> None:
    fault = read(*READ_AS[verdict]).fault
    assert fault and fault[0] == verdict


# What carries a log puts before each line: compose (christopherowen/spark-vllm-mxfp4-docker issue 3), journald
# (community-scripts/ProxmoxVED issue 2047), Docker, Kubernetes, kubectl, a quotation.
CARRIERS = (
    *("", "vllm-mxfp4  | ", "> vllm-dspark-1  | ", "Aug 19 18:34:27 vllm vllm[8727]: ", "[pod/vllm-0/server] "),
    *("2026-08-19T18:34:27.123456789Z stderr F ", "2025-10-09T04:13:06.6371779Z ", "\x1b[2K\x1b[1G"),
    "2026-08-19T18:34:27+02:00 spark-a docker[8727]: ",
)


@pytest.mark.parametrize("ending", ["", "\r"])
@pytest.mark.parametrize("before", CARRIERS)
def test_code_of_a_traceback_is_no_error_whatever_carries_the_log(before: str, ending: str) -> None:
    """Its words name other faults than the one that was raised."""
    said = (
        "Traceback (most recent call last):",
        '  File "/x/core.py", line 1, in run',
        "    raise torch.OutOfMemoryError() if full else KeyError(name)",
        "KeyError: 'layers.0.mlp.gate.weight'",
    )
    engine = "(EngineCore pid=120) ERROR 09-13 10:00:01 [core.py:1129] "
    log = read(*(f"{before}{engine}{line}{ending}" for line in said))
    assert log.fault == ("weights_unfit", f"{said[-1]} (core.py, run)")
    assert read(f"{before}(APIServer pid=1) INFO 09-13 10:00:01 [x.py:1] no error, 0 failed{ending}").cause == ""


def test_a_traceback_that_is_quoted_within_a_line_begins_none() -> None:
    quoted = "RuntimeError: the worker said 'Traceback (most recent call last): ...', no kernel image is available"
    log = read(quoted, "INFO: nothing of note", "ValueError: a consequence")
    assert log.fault == ("kernel_unsupported", quoted)
    ray = read(
        "(EngineCore pid=1) Traceback (most recent call last): [repeated 2x across cluster]",
        "(EngineCore pid=1)     raise torch.OutOfMemoryError()",
        "(EngineCore pid=1) KeyError: 'layers.0.mlp.gate.weight'",
    )
    assert ray.fault and ray.fault[0] == "weights_unfit"


def test_a_line_that_comes_again_and_again_leaves_room_for_the_cause() -> None:
    log = read(*["plugin x failed to load"] * 50, *(f"plugin {n} failed to load" for n in range(50)), "ValueError: x")
    assert len(log.errors.found) == 20
    raised = read(
        *(f"plugin {n} failed to load" for n in range(50)), "Traceback (most recent call last):", "KeyError: 'x'"
    )
    assert raised.cause == "KeyError: 'x'"


RING = (
    "NCCL INFO NET/IB : Using [0]rocep1s0f0:1/RoCE [1]rocep1s0f1:1/RoCE [2]roceP2p1s0f0:1/RoCE [3]roceP2p1s0f1:1/RoCE",
    "NCCL INFO NET/IB: Subnet-aware routing: overriding dev 2 with dev 0",
)


def test_rails_that_carry_nothing_are_a_remark_and_no_end() -> None:
    """Field notes of 2026-10: a ring of four, where all four HCAs are listed."""
    log = read(*RING, "Application startup complete.")
    assert (log.phase, log.fault, log.remark and log.remark.verdict) == ("ready", None, "fabric_half_idle")
    assert read(RING[0]).remark is None
    capped = read("warning: IB_HCA lists 4 devices but listener GID publication is capped at 2").remark
    assert capped and capped.verdict == "fabric_half_idle"


def test_what_nccl_says_of_a_sound_ring_at_this_level_is_no_fault() -> None:
    """Lines of NCCL's source with the subsystem NET, of a start that goes well."""
    log = read(
        "NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal net plugin.",
        "NCCL INFO NCCL_IB_HCA set to =rocep1s0f0:1,roceP2p1s0f0:1,rocep1s0f1:1,roceP2p1s0f1:1",
        RING[0],
        "NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'rocep1s0f0'",
        "NCCL INFO NET/IB: NCCL Dev 1 IbDev 1 Port 1 qpn 263 mtu 5 query_ece={supported=1, vendor_id=0x15b3} GID 3",
        "NCCL INFO Using network IB",
        "NCCL INFO NET/IB: Subnet-aware routing: overriding dev 1 with dev 0",  # p1 to p0: the peer is behind p0
        "NCCL INFO NET/IB: Subnet-aware routing: overriding dev 3 with dev 0",
        "Application startup complete.",
    )
    assert (log.phase, log.fault, log.remark) == ("ready", None, None)


# Exit status, what Docker or the image says, and whose failure it is. docker CLI 28.2.2.
CONTAINER = "failed to create task for container: failed to create shim task: OCI runtime create failed: runc create"
OF_DOCKER = [
    (127, f'docker: Error response from daemon: {CONTAINER} failed: error mounting "/usr/lib/x.so": no such file or'
     " directory: unknown", "docker_refused"),
    (127, 'docker: Error response from daemon: error gathering device information while adding custom device'
     ' "/dev/infiniband": no such file or directory', "docker_refused"),
    (127, f'docker: Error response from daemon: {CONTAINER} failed: exec: "vllm": executable file not found in $PATH',
     "image_unfit"),
    (126, f'docker: Error response from daemon: {CONTAINER} failed: exec: "/x": permission denied', "image_unfit"),
    (127, f'docker: Error response from daemon: {CONTAINER} failed: exec: "nvidia-container-runtime": not found',
     "docker_refused"),
    (127, f'docker: Error response from daemon: {CONTAINER} failed: exec: "vllm": resource temporarily unavailable',
     "docker_refused"),
    (127, f'docker: Error response from daemon: {CONTAINER} failed: exec: "vllm": stat vllm: no such file or directory',
     "image_unfit"),
    (127, "docker: Error response from daemon: unable to retrieve OCI runtime error: fork/exec"
     " /usr/bin/nvidia-container-runtime: no such file or directory", "docker_refused"),
    (127, "[FATAL tini (7)] exec vllm failed: No such file or directory", "image_unfit"),
    (126, "", "image_unfit"),
    (125, "", "docker_refused"),
    (125, "docker: Error response from daemon: could not select device driver", "docker_refused"),
    (125, "docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock.", "docker_down"),
    (125, "docker: failed to connect to the docker API at unix:///var/run/docker.sock; check if the path is correct and"
     " if the daemon is running: dial unix /var/run/docker.sock: connect: no such file or directory", "docker_down"),
    (125, "docker: Error response from daemon: No such image: x:1", "image_missing"),
    (125, "docker: Error response from daemon: mkdir /var/lib/docker/overlay2/x: no space left on device", "disk_full"),
    (125, "docker: Error response from daemon: mkdir /var/lib/docker/x: read-only file system", "disk_refuses"),
    (125, "docker: Error response from daemon: driver failed: Bind for 0.0.0.0:1 failed: port is already allocated",
     "port_busy"),
    (125, f"docker: Error response from daemon: {CONTAINER} failed: nvidia-container-cli: requirement error:"
     " unsatisfied condition: cuda>=13.2", "driver_old"),
    (125, "docker: Error response from daemon: OCI runtime create failed: could not apply required modification to OCI"
     " specification: failed to construct OCI spec modifier: failed to initialize NVML: Driver Not Loaded",
     "driver_incoherent"),
    (126, f'docker: Error response from daemon: {CONTAINER} failed: fork/exec /bin/sh: exec format error',
     "wrong_platform"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "said", "verdict"), OF_DOCKER)
def test_what_docker_says_is_not_the_images(code: int, said: str, verdict: str) -> None:
    failure = verdict_of_end(code, read(said, "Run 'docker run --help' for more information"), 0)
    assert failure.verdict == verdict
    assert said in failure.text


@pytest.mark.parametrize("verdict", ["peer_lost", "waiting_for_peers"])
def test_whoever_misses_its_peer_is_sent_to_the_page_and_not_to_a_dead_host_alone(verdict: str) -> None:
    chapter = "One Spark of a pair is dead"
    assert f"docs/inventory.md ({chapter})" in WAYS_OUT[verdict]
    assert f"\n## {chapter}\n" in (ROOT / "docs/inventory.md").read_text()


def test_what_a_hook_of_docker_says_has_several_lines() -> None:
    """eugr/spark-vllm-docker issue 129."""
    said = (
        f"docker: Error response from daemon: {CONTAINER} failed: error running prestart hook #0: exit status 1,"
        " stderr: Using requested mode 'cdi'",
        "invoking the NVIDIA Container Runtime Hook directly (e.g. the docker --gpus flag) is not supported.",
    )
    failure = verdict_of_end(127, read(*said, "Run 'docker run --help' for more information"), 0)
    assert failure.verdict == "docker_refused" and "runtime hook directly" in failure.text.lower()


# Errors whose words nobody knows, by the code that raised them: the frames, what was raised, and whose failure it is.
BY_PLACE = [
    # Avarok-Cybersecurity/dgx-vllm issue 6, a GB10
    (["models/qwen3_next_mtp.py:load_weights", "parameter.py:load_column_parallel_weight"], "AssertionError",
     "weights_unfit"),
    # llm-compressor issue 1127
    (["vllm/model_executor/parameter.py:load_row_parallel_weight"],
     "RuntimeError: start (0) + length (1280) exceeds dimension size (1024).", "weights_unfit"),
    (["vllm/models/llama.py:load_weights", "requests/adapters.py:send"], "requests.exceptions.ConnectionError: no",
     "start_failed"),
    (["vllm/engine/arg_utils.py:create_engine_config", "vllm/config/parallel.py:__post_init__"],
     "ValueError: this goes with nothing else", "refused_flag"),
    (["bin/vllm:<module>", "vllm/platforms/cuda.py:<module>"], "RuntimeError: built for something else", "image_unfit"),
    (["vllm/v1/worker/gpu_worker.py:execute_model", "flashinfer/decode.py:run"], "RuntimeError: plan first",
     "kernel_fault"),
    # vLLM issue 20221
    (["vllm/_custom_ops.py:cutlass_scaled_mm", "torch/_ops.py:__call__"],
     "RuntimeError: Expected a.dtype() == torch::kInt8 to be true, but got false.", "kernel_fault"),
    (["vllm/v1/worker/gpu_worker.py:determine_available_memory", "torch/_inductor/codecache.py:load"],
     "AttributeError: a kernel of forty and more words has no run", "compile_failed"),
    (["tvm_ffi/cpp/extension.py:build_ninja", "python3.12/subprocess.py:_execute_child"],
     "FileNotFoundError: [Errno 2] No such file or directory: 'ninja'", "image_unfit"),
    (["deep_gemm/jit/compiler.py:get"], "RuntimeError: NVCC should be of 12.9 or newer, and what is there is 12.8",
     "compile_failed"),
    (["flashinfer/prefill.py:plan"], "RuntimeError: Error in function 'aligned_alloc' at /x/a.h:49: Buffer overflow",
     "kernel_fault"),
    (["vllm/v1/worker/gpu_worker.py:load", "python3.12/pathlib.py:open"],
     "FileNotFoundError: [Errno 2] No such file or directory: 'ninja'", "start_failed"),
    (["vllm/v1/worker/gpu_worker.py:load_model", "vllm/lora/utils.py:process_packed_modules_mapping"],
     "AttributeError: to support it for this model, 'get_expert_mapping' must be implemented", "refused_flag"),
    (["vllm/lora/utils.py:load", "vllm/v1/worker/gpu_worker.py:execute"],
     "AttributeError: something of which nobody has ever heard before", "start_failed"),
    # Of the hub, whatever it asked with; a file that is not there is none of that.
    (["vllm/x.py:load", "huggingface_hub/file_download.py:hf_hub_download", "httpx/default.py:map_exceptions"],
     "httpx.ReadTimeout: The read operation timed out", "model_missing"),
    (["huggingface_hub/file_download.py:hf_hub_download"], "FileNotFoundError: [Errno 2] No such file: 'a'",
     "start_failed"),
    (["entrypoints/openai/serving_models.py:init_static_loras"],
     "ValueError: Loading a failed: nothing of forty and more letters is there", "refused_flag"),
    (["srt/server_args.py:__post_init__"], "AssertionError: The page size must be 64 for flashmla", "refused_flag"),
    # vLLM issue 46480
    (["v1/core/kv_cache_utils.py:unify_kv_cache_spec_page_size"], "AssertionError", "kernel_unsupported"),
    (["v1/attention/backends/mla.py:__init__"], "NotImplementedError: this layer of forty and more words is not for it",
     "kernel_unsupported"),
    (["v1/attention/backends/mla.py:__init__"], "IndexError: this list of forty and more words has no end at all",
     "start_failed"),
    (["vllm/platforms/x.py:get", "torch/cuda/__init__.py:_lazy_init"], "RuntimeError: CUDA is not as it was, at all",
     "gpu_dead"),
    (["triton/runtime/build.py:_build", "python3.12/subprocess.py:check_call"],
     "subprocess.CalledProcessError: Command '['/usr/bin/gcc', '-O3']' returned non-zero exit status 1.",
     "compile_failed"),
    (["transformers/modeling_rope_utils.py:check"], "KeyError: \"Missing required keys in `rope_scaling`: {'factor'}\"",
     "image_unfit"),
    (["transformers/modeling_rope_utils.py:check"], "ValueError: a value of which nobody has ever heard before",
     "image_unfit"),
    # transformers issues 44534 and 41553, vLLM issue 56824 and others of GB10s: the code of a start, in whatever words
    (["multimodal/processing/context.py:call_hf_processor"], "ValueError: Failed to apply it on data={'text': '<|i|>'}",
     "image_unfit"),
    (["models/auto/processing_auto.py:from_pretrained"], "ValueError: Unrecognized processing class in a/b, at all",
     "image_unfit"),
    (["srt/configs/gigachat35.py:__init__"], "ValueError: layer_types must have length num_hidden_layers (48), got 47",
     "image_unfit"),
    (["torchvision/__init__.py:<module>", "torch/library.py:_register"], "RuntimeError: operator a::b does not exist",
     "image_unfit"),
    (["transformers/utils/versions.py:_compare"], "ImportError: huggingface-hub>=1.5.0,<2.0 is required for all of it",
     "image_unfit"),
    (["vllm/v1/engine/core.py:load", "xgrammar/base.py:_load"],
     "RuntimeError: /x/libxgrammar.so: cannot open shared object file: No such file or directory", "image_unfit"),
    (["transformers/utils/hub.py:cached_files"], "OSError: a/b does not appear to have a file named config.json.",
     "model_incomplete"),
    (["transformers/utils/hub.py:get"], "ValueError: Can't find a checkpoint index (/m/x.index.json) in /m.",
     "model_incomplete"),
    (["tokenizers/mistral.py:find_tokenizer_file"], "OSError: Found 0 files matching the pattern: `^tekken.json$`",
     "model_incomplete"),
    (["v1/structured_output/__init__.py:__init__", "vllm/reasoning/basic_parsers.py:__init__"],
     "RuntimeError: it could not locate its tokens in the tokenizer", "refused_flag"),
    (["vllm/tool_parsers/abstract_tool_parser.py:get"], "KeyError: \"Tool parser 'qwen9' not found.\"", "refused_flag"),
    (["kv_transfer/kv_connector/factory.py:get"], "ValueError: Unsupported connector type: NobodysConnector",
     "refused_flag"),
    (["kv_transfer/kv_connector/factory.py:get", "urllib3/x.py:send"], "ConnectionError: nobody answers there, at all",
     "start_failed"),
    (["vllm/v1/spec_decode/dflash.py:load_model"], "ValueError: it expects 5 states, and the target has 24 layers",
     "refused_flag"),
    (["srt/speculative/dflash_utils.py:build"], "ValueError: layer selection wants 4 of them, and got 3, not enough",
     "refused_flag"),
    (["v1/spec_decode/eagle.py:propose", "torch/functional.py:embed"], "RuntimeError: forty words and more of a tensor",
     "start_failed"),
    (["vllm/config/parallel.py:__post_init__"], "AssertionError: a partition of which nobody has ever heard",
     "refused_flag"),
    (["vllm/v1/worker/gpu_worker.py:init_device"], "AssertionError: local_world_size (2) exceeds the count (1)",
     "refused_flag"),
    (["model_executor/model_loader/runai_streamer_loader.py:__init__"], "ValueError: Unexpected extra keys: threads",
     "refused_flag"),
    (["model_executor/model_loader/gguf_loader.py:_map"], "RuntimeError: Failed to map parameters: ['layers.0.conv1d']",
     "weights_unfit"),
    (["model_executor/models/gemma4.py:__init__"], "AttributeError: 'X' object has no attribute 'per_layer_of_them'",
     "weights_unfit"),
    (["model_executor/models/gemma4.py:forward"], "OSError: nobody has ever seen these forty words and more",
     "start_failed"),
    (["layers/quantization/modelopt.py:from_config"], "ValueError: Missing 'quant_algo' in its configuration",
     "unknown_quantization"),
    (["layers/quantization/modelopt.py:process_weights"], "RuntimeError: weight_scale must be of float8, got uint8",
     "unknown_quantization"),
    (["srt/layers/attention/registry.py:create"], "AssertionError: it requires SM>=80 and SM<=90, so try --another",
     "kernel_unsupported"),
    (["layers/quantization/modelopt.py:create_weights"], "ValueError: hidden_size divisible by 128 is a must, got 2880",
     "kernel_unsupported"),
    (["layers/fused_moe/activation.py:from_str"], "ValueError: Unknown activation of experts: 'nobodys'",
     "kernel_unsupported"),
    (["vllm/compilation/caching.py:deserialize"], "_pickle.UnpicklingError: pickle data was truncated somewhere",
     "compile_failed"),
    (["cutlass/base_dsl/dsl.py:compile_and_cache"], "cutlass.base_dsl.common.DSLRuntimeError: DSLRuntimeError: ICE",
     "compile_failed"),
    (["uvicorn/config.py:create_ssl_context", "x/ssl.py:load_cert_chain"], "TypeError: certfile should be a valid path",
     "refused_flag"),
    (["serve/options.py:read", "x/yaml/scanner.py:fetch_value"], "ScannerError: mapping values are not allowed here",
     "refused_flag"),
    # vLLM issues 10457 and 51618: what reads settings says little of them.
    (["vllm/utils/argparse_utils.py:load_config_file"], "AttributeError: 'NoneType' object has no attribute 'items'",
     "refused_flag"),
    (["vllm/logger.py:_configure", "python3.12/logging/config.py:configure"], "ValueError: Unable to configure handler",
     "refused_flag"),
    (["vllm/envs.py:__getattr__", "vllm/envs.py:<lambda>"], "ValueError: invalid literal for int() with base 10: '10m'",
     "refused_flag"),
    (["entrypoints/openai/api_server.py:build_app"], "ValueError: Invalid middleware a.b. Must be a function or class",
     "refused_flag"),
    (["entrypoints/openai/api_server.py:create_server_socket"], "socket.gaierror: [Errno -2] Name or service not known",
     "refused_flag"),
    (["entrypoints/openai/serving.py:build"], "ValueError: a value of which nobody has ever heard before",
     "start_failed"),
    (["srt/constrained/reasoner_grammar_backend.py:__init__"], "ValueError: a token must encode to exactly one of them",
     "refused_flag"),
    (["srt/managers/template_manager.py:_detect"], "TypeError: expected string or bytes-like object, got 'dict'",
     "image_unfit"),
    (["transformers/tokenization_utils_base.py:_from", "json/decoder.py:raw_decode"],
     "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)", "model_incomplete"),
    (["vllm/v1/engine/core.py:load", "json/decoder.py:raw_decode"],
     "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)", "start_failed"),
    (["torchcodec/_core/ops.py:load"], "RuntimeError: Could not load libtorchcodec. Likely causes:", "image_unfit"),
    (["third_party/fmha_sm100/interface.py:plan"], "ValueError: page_table and seqused_k are of two devices here",
     "kernel_unsupported"),
    (["third_party/fmha_sm100/interface.py:plan"], "RuntimeError: plan() must be called before a capture begins",
     "kernel_fault"),
    (["dist-packages/vllm/distributed/kv_transfer/kv_connector/v1/a/worker.py:__init__"],
     "ValueError: no source of forty slots and more of them", "refused_flag"),
    (["site-packages/ray/util/client/worker.py:_connect"], "ConnectionError: ray client connection timeout, at all",
     "ray_incomplete"),
    (["x/util/client/worker.py:_connect"], "ConnectionError: a client's connection timeout, of forty words",
     "start_failed"),
    (["vllm/distributed/utils.py:get_pp_indices"], "ValueError: Invalid partition string: 20;44, and so on",
     "refused_flag"),
    (["srt/mem_cache/qsa_kv_pool.py:__init__"], "ValueError: positions must be [tokens] or [3, tokens], got [7]",
     "kernel_unsupported"),
    (["srt/model_loader/expert_pack/validate.py:validate"], "ValueError: entry 7 source tensor hash mismatch of them",
     "weights_unfit"),
    (["openai/api_server.py:create_server_socket"], "OverflowError: bind(): port must be 0-65535, whatever it was",
     "refused_flag"),
    (["nimlib/profiles.py:select"], "NIMProfileIDNotFound: Could not match a profile in manifest at /opt/nim/x.yaml",
     "kernel_unsupported"),
    (["srt/x.py:get"], "RuntimeError: CUDA runtime error in cudaDeviceGetDefaultMemPool(&m): operation not supported",
     "kernel_unsupported"),
    (["ray/_private/worker.py:get"], "ray.exceptions.ActorDiedError: it died because its node has died. Node Id: ab12",
     "peer_lost"),
    (["ray/_private/worker.py:init"], "ray.exceptions.AuthenticationError: no authentication token was found there",
     "ray_incomplete"),
    (["tiktoken/load.py:read_file", "requests/adapters.py:send"], "requests.exceptions.ConnectionError: Max retries",
     "model_missing"),
    (["flashinfer/jit/env.py:<module>"], "RuntimeError: SM 12.x requires CUDA >= 12.9, and this is an older one of it",
     "kernel_unsupported"),
    (["vllm/distributed/utils.py:init", "python3.12/socket.py:getaddrinfo"],
     "socket.gaierror: [Errno -2] Name or service not known", "fabric_unreachable"),
    (["bin/vllm:<module>"], "BlockingIOError: [Errno 11] Resource temporarily unavailable", "start_failed"),
    (["bin/vllm:<module>"], "IsADirectoryError: [Errno 21] Is a directory: '/models/x.jinja'", "start_failed"),
    (["runai/utils.py:list", "botocore/auth.py:add_auth"], "NoCredentialsError: Unable to locate credentials, at all",
     "model_missing"),
    # Words by their class; the code is asked before.
    (["vllm/v1/engine/core.py:load"], "ValueError: this attention of a model does not yet support what is asked of it",
     "kernel_unsupported"),
    (["vllm/_custom_ops.py:gptq_marlin_gemm", "torch/_ops.py:__call__"],
     "RuntimeError: Unsupported kernel config: num_bits = 4, group_size = 16", "kernel_unsupported"),
    (["backends/mla/flashinfer_mla_sparse.py:forward"], "NotImplementedError: it handles 64 or 128 heads, and got 40",
     "kernel_unsupported"),
    (["vllm/envs.py:__getattr__"], "ValueError: Invalid value 'yes please' for VLLM_BACKEND. Valid options: x",
     "refused_flag"),
    (["vllm/v1/engine/core.py:load"], "ValueError: max_num_partial_prefills must be set where nobody would set it",
     "refused_flag"),
    (["vllm/v1/engine/core.py:load"], "RuntimeError: the pool could not allocate what a model of this size asks for",
     "out_of_memory"),
    (["vllm/v1/engine/core.py:load"], "ValueError: linear_backend 'x' cannot serve it on this device at all",
     "refused_flag"),
    (["vllm/v1/engine/core.py:load"], "ValueError: to load it, please set the option that nobody would ever set",
     "refused_flag"),
    (["vllm/v1/engine/core.py:load"], "AssertionError: libcudart is not loaded in the current process, try setting X",
     "image_unfit"),
    (["vllm/v1/engine/core.py:wait"], "ray.exceptions.RayTaskError(TimeoutError): ray::RayWorkerWrapper.execute()",
     "rank_silent"),
    (["vllm/entrypoints/api.py:wait"], "TimeoutError: nobody has seen these forty and more words of an end",
     "start_failed"),
    (["vllm/lora/utils.py:load"], "ValueError: this adapter of a model does not yet support what is asked of it",
     "refused_flag"),
    (["vllm/v1/engine/core.py:step"], "IndexError: list index out of range in the scheduler's own list",
     "start_failed"),
]  # fmt: skip


@pytest.mark.parametrize(("frames", "raised", "verdict"), BY_PLACE)
def test_the_code_that_raised_an_error_tells_where_its_words_do_not(
    frames: list[str], raised: str, verdict: str
) -> None:
    head = "(EngineCore pid=222) ERROR 08-15 11:20:19 [core.py:1361] "
    shown = (
        f'  File "/usr/x/{place}", line 1, in {function}' for place, function in (f.rsplit(":", 1) for f in frames)
    )
    said = ("EngineCore failed to start.", "Traceback (most recent call last):", *shown, raised)
    last = "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above."
    failure = verdict_of_end(1, read(*(head + line for line in said), last), 0)
    assert (failure.verdict, raised in failure.text) == (verdict, True)


def test_the_refusal_of_a_request_is_no_end_in_whatever_words() -> None:
    """While it serves, words of a class are a client's as well."""
    log = new_log()
    log.serves()
    said = "Traceback (most recent call last):", '  File "/x/y.py", line 1, in run', "ValueError: it is not supported"
    assert verdict_of_end(143, read(*said, log=log), 0).verdict == "killed"
    assert verdict_of_end(1, read(*said), 0).verdict == "kernel_unsupported"
    assert verdict_of_end(1, read(said[0], said[2]), 0).verdict == "kernel_unsupported", "its frames are cut off"


@pytest.mark.parametrize(
    "place",
    [
        *("reasoning/basic.py", "multimodal/media.py", "models/llama.py", "lmcache/v1/x.py", "v1/spec_decode/eagle.py"),
        *("v1/core/kv_cache_utils.py", "srt/mem_cache/radix_cache.py"),
    ],
)
def test_code_that_a_request_runs_names_the_end_of_a_start_alone(place: str) -> None:
    said = "Traceback (most recent call last):", f'  File "/x/{place}", line 1, in __init__', "ValueError: forty words"
    log = new_log()
    log.serves()
    assert verdict_of_end(143, read(*said, log=log), 0).verdict == "killed"
    assert log.end is None and read(*said).end is not None


@pytest.mark.parametrize("said", ["TimeoutError: a lookup took longer", "ValueError: CUDA error: misaligned address"])
def test_a_server_that_served_on_after_an_error_was_ended_by_who_asked_for_it(said: str) -> None:
    lines = "Traceback (most recent call last):", '  File "/x/vllm/v1/kv.py", line 1, in look', said
    log = new_log()
    log.serves()
    assert verdict_of_end(143, read(*lines, log=log), 0).verdict == "killed"
    assert verdict_of_end(1, log, 0).verdict in ("rank_silent", "kernel_fault")
    gone = "EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause."
    read(f"(APIServer pid=1) vllm.v1.engine.exceptions.{gone}", log=log)
    assert verdict_of_end(143, log, 0).verdict != "killed", "its engine was gone"


def test_a_server_that_kills_itself_after_an_error_was_not_killed() -> None:
    said = "Traceback (most recent call last):", '  File "/x/y.py", line 1, in run', "ValueError: an answer of 42 words"
    assert said[-1] in verdict_of_end(137, read(*said), 0).text
    assert [verdict_of_end(code, read("Loading"), 0).verdict for code in (137, 143)] == ["killed", "killed"]


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        (139, ["main: server is listening on http://0.0.0.0:8080", "srv  update_slots: all slots are idle"]),
        (139, ["/run.sh: line 3:    12 Segmentation fault      (core dumped) llama-server -m /m/a.gguf"]),
        (1, ["/run.sh: line 3:    12 Segmentation fault      (core dumped) llama-server -m /m/a.gguf"]),
    ],
)
def test_a_server_that_reached_where_it_may_not_has_a_name_though_it_says_nothing(code: int, lines: list[str]) -> None:
    """llama.cpp issue 27427, a GB10: the process is gone, and its log ends in the middle of work."""
    assert verdict_of_end(code, read(*lines), 0).verdict == "kernel_fault"


@pytest.mark.parametrize(
    ("code", "verdict"), [(132, "kernel_fault"), (136, "kernel_fault"), (135, "out_of_memory"), (129, "start_failed")]
)
def test_the_signal_that_ended_a_silent_server_names_its_end(code: int, verdict: str) -> None:
    """SIGILL, SIGFPE, SIGBUS, and SIGHUP, which somebody else sent."""
    assert verdict_of_end(code, read("Loading"), 0).verdict == verdict


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("[2026-03-24 10:00:00,123 E 75 1] gcs_rpc_client.h:151: Failed to connect to GCS at address 10.0.1.1:6379",
         "fabric_unreachable"),
        ("(RayWorker pid=355) *** SIGBUS received at time=1692931519 on cpu 3 ***", "out_of_memory"),
        ("[12-16 14:27:10] Exit code: -9", "killed"),
        ("requests.exceptions.ConnectionError: HTTPSConnectionPool(host='x'): connect: Network is unreachable",
         "start_failed"),
    ],
)  # fmt: skip
def test_what_a_layer_below_vllm_says_alone_names_the_end(line: str, verdict: str) -> None:
    assert verdict_of_end(1, read(line), 0).verdict == verdict


@pytest.mark.parametrize(
    "line",
    [
        "0.00.400.000 E a: no room for it",
        "[2026-11-30 10:00:00,1 E 7 9] a.cc:1: no room for it",
        "[TRT-LLM] [E] no room for it",
        'time=1 level=error msg="no room for it"',
    ],
)
def test_a_line_that_its_program_marks_as_an_error_is_one_without_the_word(line: str) -> None:
    assert line in verdict_of_end(1, read(line, "bye"), 0).text
    assert "names no cause" in verdict_of_end(1, read(line.replace("E", "I").replace("error", "info"), "bye"), 0).text


def test_a_cause_in_the_log_is_heard_before_the_signal_that_ended_the_server() -> None:
    short = "ValueError: No available memory for the cache blocks."
    assert verdict_of_end(139, read(short), 0).verdict == "out_of_memory"
    said = "Traceback (most recent call last):", '  File "/x/y.py", line 1, in run', "ValueError: an answer of 42 words"
    assert verdict_of_end(139, read(*said), 0).verdict == "start_failed"


def test_the_reason_of_a_long_answer_of_docker_is_its_end() -> None:
    words = f"docker: Error response from daemon: {CONTAINER} failed: {'x: ' * 100}nvidia-container-cli: initialization"
    failure = verdict_of_end(125, read(f"{words} error: nvml error: driver not loaded: unknown"), 0)
    assert failure.verdict == "driver_incoherent" and failure.text.endswith("driver not loaded: unknown")


def test_what_llama_cpp_says_of_cuda_goes_on_in_the_next_line() -> None:
    """llama.cpp issue 28251."""
    log = read("[46009] ggml/src/ggml-cuda/ggml-cuda.cu:108: CUDA error", "1.22 E CUDA error: nothing of use", "  err")
    assert log.cause == "ggml/src/ggml-cuda/ggml-cuda.cu:108: CUDA error: 1.22 E CUDA error: nothing of use: err"


def test_every_verdict_of_the_tables_has_a_way_out() -> None:
    config = new_log().config
    tables = (config.failures, config.places, config.remarks, config.docker_said)
    named = {verdict for table in tables for verdict, _ in table}
    assert named <= WAYS_OUT.keys() and set(NOT_AGAIN) <= set(LASTING)


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


@pytest.mark.parametrize(
    "words",
    [
        "See root cause",
        "EngineCore failed to start. (x",
        "RuntimeError: Executor failed. (x",
        "GPU has fallen off the bus",
        "CUDA out of memory",
        RING[1],
        "listener GID publication is capped at 2",
    ],
)
def test_what_a_client_asks_for_is_no_verdict_of_ours(words: str) -> None:
    """vLLM 0.32.0 writes down the name of a model that there is not, in its log of errors. One such request
    had the unit end a model that served, or name a fault of the hardware.
    """
    asked = (
        "(APIServer pid=1) ERROR 11-30 13:00:00 [serving.py:274] Error with model error=ErrorInfo(message='The model"
        f" `{words}` does not exist.', type='NotFoundError', param='model', code=404)"
    )
    log = read("INFO:     Application startup complete.", asked)
    end = verdict_of_end(1, log, 0)
    said = (log.gone_since, log.fault, log.remark, end.verdict)
    tally("a client whose words are a verdict of ours", 1, int(said != (None, None, None, "engine_died")))
    assert said == (None, None, None, "engine_died")


def test_a_disk_that_is_full_while_it_serves_has_its_verdict() -> None:
    log = read("INFO:     Application startup complete.", "OSError: [Errno 28] No space left on device: 'x'")
    assert verdict_of_end(1, log, 0).verdict == "disk_full"


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


@pytest.mark.parametrize("process", ["", "(APIServer pid=1) "])
def test_an_exception_in_a_group_is_read_as_one_alone(process: str) -> None:
    """As Python 3.12 shows a group, of what asyncio's task groups run: bars before each line, and the group's own."""
    said = (
        *("  + Exception Group Traceback (most recent call last):", '  |   File "/x/vllm/a.py", line 1, in main'),
        *(
            "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)",
            "  +-+---------------- 1 -----------",
        ),
        *("    | Traceback (most recent call last):", '    |   File "/x/vllm/lora/utils.py", line 1, in load'),
        *("    | ValueError: an adapter of forty and more words", "    +------------------------------------"),
    )
    log = read(*(process + line for line in said))
    assert [(error.text, error.raised) for error in log.errors.found] == [(said[-2][6:], True)]
    assert verdict_of_end(1, log, 0).verdict == "refused_flag"
    read(f"{process}next", f"{process}  | 0  NVIDIA GB10  Fatal |", log=log)
    assert log.errors.found[-1].text.startswith("| 0"), "a table is none"


def test_a_line_that_is_made_to_match_slowly_holds_up_nobody() -> None:
    """Each digit was tried as the last one: 0.2 s for a line of 8 KiB, and a container writes as many as it likes."""
    began = time.process_time()
    for _ in range(10):
        causes.Errors().feed("(pid=" + "1" * 8192)
    assert time.process_time() - began < 0.5


def test_what_a_client_asked_is_in_no_text_that_every_login_reads() -> None:
    served = "INFO Application startup complete."
    said = "ERROR 11-28 10:00:00 [core.py:1] ValueError: cannot parse the call of: {'content': 'my illness'}"
    failure = verdict_of_end(1, read(served, said), 0)
    tally("a status quotes a client", 1, int("illness" in failure.text))
    assert "ValueError: cannot parse the call of" in failure.text and "illness" not in failure.text


NGC_BANNER = """
ERROR: This container was built for NVIDIA Driver Release 595.45 or later, but
       version 580.142 was detected.

NOTE: CUDA Forward Compatibility mode ENABLED.
"""


def test_what_ngc_says_of_an_older_driver_is_no_cause() -> None:
    """An owner's log of NGC 26.03: it serves all the same, so another end has another cause."""
    found = verdict_of_end(1, read(*NGC_BANNER.splitlines(), log=new_log()), 0)
    assert "NVIDIA Driver Release" not in found.text
