"""Trouble that a program went on after is no cause of its end, and what ends it keeps its reason."""

from __future__ import annotations

import json

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.config import parse_config
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.log import Log, verdict_of_end
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

from tests.support.cause_pairs import OF_LLAMA, PAIRS
from tests.support.unit_log import new_log, read, settings

# What programs say of trouble in starts that serve, as their sources word it, and what it would be if it ended them:
# below the level of an error, and with the word of how it goes on.
SLIGHT = {
    "fabric_unreachable": (  # PyTorch, TCPStore and socket.cpp: a rank that starts before the first one
        "[W1129 08:20:00.125243957 TCPStore.cpp:358] [c10d] TCP client failed to connect/validate to host"
        " 10.0.1.1:29501 - retrying (try=0, timeout=600000ms, delay=15196ms): The client socket has timed out",
        "[W1129 08:20:01.1 socket.cpp:759] [c10d] The client socket has failed to connect to [spark-a]:29501 (errno:"
        " 111 - Connection refused).",
    ),
    "model_missing": (  # huggingface_hub, through Python's logging
        "2026-11-29 10:00:00,412 WARNING _http.py:319 -- '[Errno -3] Temporary failure in name resolution' thrown while"
        " requesting HEAD; it failed",
    ),
    "kernel_fault": ("[2026-02-08 03:06:09] Warning: a longer context may lead to CUDA error: misaligned address",),
    "out_of_memory": ("[TensorRT-LLM][WARNING] Cuda failure 'out of memory' of a profile",),
    "disk_refuses": ("0.00.397.695 W load: failed to lock: Read-only file system",),
}
GOES_ON = {
    "kernel_unsupported": (  # FlashInfer, its autotuner
        "[Autotuner]: Skipping tactic <x> 3 for fp4_gemm due to failure while profiling: RuntimeError: [FP4 gemm"
        " Runner] Failed to run cutlass FP4 gemm on sm120. Error: Error Internal",
    ),
    "image_unfit": (  # SGLang, its list of models
        "[2026-11-29 10:00:00] Ignore import error when loading sglang.srt.models.x: ImportError: libx.so.1: cannot"
        " open shared object file: No such file or directory",
    ),
    "port_busy": (  # NCCL, ras/client_support.cc: a second start on a host; bootstrap.cc goes on
        "spark-a:1:1 [0] ras/client_support.cc:181 NCCL WARN Call to bind failed: Address already in use",
    ),
}
ROWS = [(verdict, line) for verdict, lines in (*SLIGHT.items(), *GOES_ON.items()) for line in lines]


def llama_log() -> Log:
    tables = catalog.load("engines")["failures"], catalog.load("units")["vllm_log"]["failures"]
    failures = [[each["verdict"], each["value"]] for table in tables for each in table]
    return Log(parse_config(json.dumps(settings() | {"failures": failures})), [])


RAISED = ("Traceback (most recent call last):", '  File "/x/run.py", line 1, in run')
ENDED = (
    "ValueError: To serve at least one request, KV cache is needed, which is larger than the available KV cache memory"
)
OPEN = "RuntimeError: nobody has ever seen these forty and more words of an end"


@pytest.mark.parametrize(("verdict", "line"), ROWS)
def test_what_ends_a_program_is_its_cause_whatever_trouble_came_before(verdict: str, line: str) -> None:
    assert line in [words.search(line) and line for name, words in new_log().config.failures if name == verdict]
    known, unknown = verdict_of_end(1, read(line, *RAISED, ENDED), 0), verdict_of_end(1, read(line, *RAISED, OPEN), 0)
    assert (known.verdict, known.text.endswith(ENDED)) == ("kv_cache_short", True)
    assert (unknown.verdict, unknown.text.endswith(OPEN)) == ("start_failed", True)


@pytest.mark.parametrize(("verdict", "line"), ROWS)
def test_a_start_that_somebody_ended_has_no_cause_in_trouble_before(verdict: str, line: str) -> None:
    assert [verdict_of_end(code, read(line), 0).verdict for code in (137, 143)] == ["killed", "killed"]


@pytest.mark.parametrize(("verdict", "line"), ROWS)
def test_where_nothing_else_is_said_a_warning_is_named_after_all(verdict: str, line: str) -> None:
    gone = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
    named = verdict_of_end(1, read(line, *RAISED, gone), 0).verdict
    assert named == ("start_failed" if verdict in GOES_ON else verdict)


def test_a_program_that_gives_up_after_its_tries_has_ended() -> None:
    """NCCL's count of tries is no word of going on."""
    line = (
        "spark-a:1:1 [0] NCCL WARN socketPollConnect: connect to 10.0.1.2<47813> returned Connection refused, exceeded"
    )
    said = read(
        f"{line} error retry count after 35 attempts", *RAISED, "RuntimeError: NCCL error: unhandled system error"
    )
    assert verdict_of_end(1, said, 0).verdict == "fabric_unreachable"


def test_words_that_say_of_no_end_are_heard_last() -> None:
    """llama.cpp, server-http.cpp: it ends so, without any word of an error."""
    said = "main: couldn't bind HTTP server socket, hostname: 0.0.0.0, port: 8001"
    assert said in verdict_of_end(1, read("load: it goes well", said), 0).text
    assert verdict_of_end(1, read("it could not find libx", "exit: it failed"), 0).text.endswith(": exit: it failed")


def test_a_message_with_an_empty_first_line_keeps_its_next_one() -> None:
    """sgl-kernel: its list of places comes after it, and is no message."""
    said = ("ImportError: ", "", "[sgl_kernel] CRITICAL: Could not load any common_ops library!", "1. found files: []")
    failure = verdict_of_end(1, read(*RAISED, *said, "KeyError: another error"), 0)
    assert failure.verdict == "image_unfit"
    assert failure.text.endswith("ImportError: [sgl_kernel] CRITICAL: Could not load any common_ops library!")
    assert read(*RAISED, "ImportError: a name of nothing that is known here").cause.startswith("ImportError: a name")


def test_what_nccl_warned_of_stands_beside_its_error() -> None:
    """NCCL, misc/param and init.cc: the error itself says nothing."""
    reason = "spark-a:1:1 [0] graph/connect.cc:2 NCCL WARN Error : ring 1 does not contain rank 1"
    error = "RuntimeError: NCCL error: internal error - please report this issue to the NCCL developers"
    failure = verdict_of_end(1, read(reason, *RAISED, error), 0)
    assert failure.verdict == "nccl_failed" and error in failure.text and "does not contain rank 1" in failure.text
    assert verdict_of_end(1, read(*RAISED, error), 0).text.endswith(error)


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("RuntimeError: [/x/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.1.2]:4",
         "Connection closed by peer"),
        ("RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.1.2]:4",
         "Connection closed by peer"),
        ("[rank0]:[E1129 09:12:57.1 ProcessGroupNCCL.cpp:688] [Rank 0] Watchdog caught collective operation timeout: x",
         "Watchdog caught collective operation timeout"),
        ("[2026-11-29 08:22:02] spark-a:1:8 [0] p2p.cc:651 NCCL WARN NET/IB: Completion status=IBV_WC_RETRY_EXC_ERR",
         "IBV_WC_RETRY_EXC_ERR"),
    ],
)  # fmt: skip
def test_where_and_when_an_error_came_hides_no_word_of_it(said: str, kept: str) -> None:
    """What a client has asked is cut off; a place in the source is not what it asked."""
    log = new_log()
    log.serves()
    assert kept in verdict_of_end(1, read(said, log=log), 0).text


@pytest.mark.parametrize(
    "quoted", ["[my illness]", "[/data/illness.py:3]", "'my illness'", "{illness}", "[rank0 illness]"]
)
def test_what_a_client_asked_is_hidden_in_whatever_it_stands(quoted: str) -> None:
    log = new_log()
    log.serves()
    failure = verdict_of_end(1, read(f"ERROR 11-28 10:00:00 [core.py:1] ValueError: cannot parse {quoted}", log=log), 0)
    assert "ValueError: cannot parse" in failure.text and "illness" not in failure.text


@pytest.mark.parametrize(("verdict", "ends", "sound"), PAIRS, ids=[ends[:60] for _, ends, _ in PAIRS])
def test_words_of_an_end_have_their_verdict_and_words_alike_have_none(verdict: str, ends: str, sound: str) -> None:
    said = [ends] if ends.startswith("spark") else [*RAISED, ends]
    failure = verdict_of_end(1, read(*said), 0)
    assert (failure.verdict, ends in failure.text) == (verdict, True)
    assert read(sound).fault is None


@pytest.mark.parametrize(("verdict", "ends", "sound"), OF_LLAMA)
def test_words_of_llama_cpp_have_their_verdict(verdict: str, ends: str, sound: str) -> None:
    said, fine = (read(line, log=llama_log()) for line in (ends, sound))
    assert said.fault == (verdict, ends) and fine.fault is None


def test_a_type_that_llama_cpp_does_not_know_is_no_damaged_file() -> None:
    """gguf.cpp says of both that it could not read on."""
    unknown = "gguf_init_from_reader: tensor 'a.weight' has invalid ggml type 40. should be in [0, 39)"
    rest = ("gguf_init_from_reader: failed to read tensor info", "llama_model_load: error loading model: x")
    assert read(unknown, *rest, log=llama_log()).fault == ("unknown_quantization", unknown)
    assert read(*rest, log=llama_log()).fault is None


BESIDE = {
    "a thread": ("Exception in thread Thread-2 (watch):", *RAISED, "x.NVMLError_NotSupported: Not Supported"),
    "a destructor": ("Exception ignored in: <function X.__del__ at 0xff>", *RAISED, "AttributeError: no close"),
    "a task": ("Task exception was never retrieved", "future: <Task finished>", *RAISED, "OSError: no such host"),
    "a log line": ("--- Logging error ---", *RAISED, "TypeError: not all arguments converted"),
    "one and its reason": (
        *("Exception in thread Thread-2 (watch):", *RAISED, "KeyError: 'x'", ""),
        *("During handling of the above exception, another exception occurred:", "", *RAISED, "OSError: no such host"),
    ),
}


@pytest.mark.parametrize("lines", BESIDE.values(), ids=BESIDE)
def test_what_is_raised_beside_a_program_does_not_end_it(lines: tuple[str, ...]) -> None:
    assert verdict_of_end(137, read(*lines), 0).verdict == "killed"
    assert verdict_of_end(1, read(*lines, "Loading", *RAISED, ENDED), 0).verdict == "kv_cache_short"
    assert [read(*before, *RAISED, OPEN).cause for before in ((lines[0], "Loading"), lines)] == [OPEN, OPEN]
    log = read(*lines)
    assert log.end is None and ": " in log.cause and log.cause.split()[0] in " ".join(lines[2:])


def test_vllm_goes_on_without_a_flash_attention_that_it_names() -> None:
    said = "(EngineCore pid=1) ERROR 12-01 09:59:01 [fa_utils.py:72] Cannot use FA version 3 is not supported due to"
    assert read(f"{said} FA3 is only supported on devices with compute capability 9.0").fault is None


def test_rust_says_below_a_panic_and_an_error_why() -> None:
    panic = read("thread 'main' (89) panicked at src/main.rs:40:14:", 'Os { message: "Address already in use" }', "x")
    chain = read(
        "Error: no gateway", "", "Caused by:", "    0: cannot listen", "    1: Address already in use", "Error: x"
    )
    assert [log.fault[0] if log.fault else None for log in (panic, chain)] == ["port_busy", "port_busy"]
    assert [error.text for error in chain.errors.found][1:] == ["Error: x"]
    assert "said" not in read("thread 'main' panicked at a.rs:4:1:", "no", "error: said").errors.found[0].text
    assert read("Caused by:", "    nothing above").fault is None
