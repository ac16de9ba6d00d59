"""The load test: the client's command and file, what the GPUs said, and the verdict of both."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.serving import load as serving_load
from ansible_collections.gb10.fleet.plugins.module_utils.serving.load import Load, Sampling
from ansible_collections.gb10.fleet.plugins.module_utils.serving.server_probe import Reply
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Completed
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog, schema
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import answers
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import benchmark, draft_figures

from tests.support.attacker import tally
from tests.support.fitting import misfit
from tests.support.load_figures import GPT, HEALTHY, Readings, readings, result
from tests.support.proofs import NOW
from tests.support.world import NoClock

SCHEMA = json.loads((Path(benchmark.__file__).parent / "schemas/benchmark.schema.json").read_text())
THRESHOLDS = catalog.load("thresholds")
LIMITS = {name: entry["value"] for name, entry in THRESHOLDS["benchmark"].items()}
QWEN = "Qwen/Qwen3-235B-A22B-GPTQ-Int4"  # 17.0 on two, 36.4 in sum of four
# The power-delivery fault as NVIDIA forum 355255 has it.
FAULT = (507.0, 12.0, 96.0, 0x0)
# As vLLM 0.17 to 0.32 name them in `vllm.v1.spec_decode.metrics`.
DRAFTED = "".join(
    f'vllm:spec_decode_num_{name}_total{{{{engine="0",model_name="m"}}}} {{}}.0\n'
    for name in ("drafts", "draft_tokens", "accepted_tokens")
)
HOT = (900.0, 30.0, 96.0, 0x20)
IDLE = (208.0, 4.5, 0.0, 0x1)
LOAD = Load(GPT, "served", "http://127.0.0.1:8000", 8, 2, 512, 256, 128, 7, 900)


def build(
    gpus: dict[str, Readings],
    tokens_per_s: float = 58.0,
    concurrency: int = 1,
    model: str = GPT,
    args: Sequence[str] = (),
    **load: Any,
) -> dict[str, Any]:
    """The only step of a document of one cluster; its first host answers."""
    said = {
        "result": result(tokens_per_s, concurrency), "version": "0.19.0", "others": 0,
        "prefix_cache": {"queries": 2048.0, "hits": 768.0}, **load,
    }  # fmt: skip
    hosts: dict[str, Any] = {
        name: {
            "cluster": "c",
            "steps": [{"concurrency": concurrency, "load": None, "readings": read}],
        }
        for name, read in gpus.items()
    }
    first = next(iter(hosts.values()))
    first["steps"][0]["load"] = said
    first["conditions"] = {"model": model, "image": "i", "args": list(args)}
    request = {"prompts": 4, "input_tokens": 512, "shared_tokens": 256, "output_tokens": 128}
    document = benchmark.build(hosts, {}, request, THRESHOLDS, NOW)
    jsonschema.validate(json.loads(json.dumps(document)), SCHEMA)
    assert document["verdict"] == document["clusters"][0]["verdict"]
    step: dict[str, Any] = document["clusters"][0]["steps"][0]
    return {**step, "document": document}


# ------------------------------------------------------------------------------------------------------------- verdicts


@pytest.mark.parametrize(
    ("tokens_per_s", "gpu", "verdict"),
    [
        (58.0, HEALTHY, "as_expected"),
        (32.0 * 0.75, HEALTHY, "as_expected"),
        (32.0 * 0.74, HEALTHY, "slow"),
        (32.0 * 0.46, HEALTHY, "third_of_expected"),
        (32.0 * 0.33, HEALTHY, "third_of_expected"),
        (32.0 * 0.33, FAULT, "power_fault"),
        (32.0 * 0.33, IDLE, "third_of_expected"),
        (58.0, FAULT, "power_fault"),  # the next prompt may be longer
        (32.0 * 0.33, HOT, "throttled"),
        (58.0, IDLE, "as_expected"),
    ],
)
def test_verdicts(tokens_per_s: float, gpu: tuple[float, float, float, int], verdict: str) -> None:
    step = build({"spark-a": readings(*gpu)}, tokens_per_s)
    assert step["verdict"] == verdict
    assert bool(step["way_out"]) is (verdict != "as_expected")


def test_a_third_leads_to_the_power_supply_and_says_so() -> None:
    seen = build({"spark-a": readings(*HEALTHY)}, 10.6)
    assert "0.33 of the expected 32 to 35 tok/s, as a power supply that throttles makes it" in seen["text"]
    assert "spark-a: 2418 MHz, 86.2 W" in seen["text"]
    assert "power off spark-a, pull the power supply out of the wall" in seen["way_out"]
    unseen = build({"spark-a": readings(*IDLE)}, 10.6)
    assert "too few readings under load of spark-a" in unseen["way_out"]


def test_the_host_that_throttles_is_named_alone() -> None:
    step = build({"spark-a": readings(*HEALTHY), "spark-b": readings(*FAULT)}, 7.0, model=QWEN)
    assert step["verdict"] == "power_fault"
    assert step["text"].startswith("spark-b: 507 MHz, 12 W, 60 C, no reason given under load; 0.41 of the expected 17")
    assert step["way_out"].startswith("power off spark-b, pull") and "60 s" in step["way_out"]
    assert "spark-a" not in step["text"] + step["way_out"]


def test_few_readings_or_none_accuse_nobody() -> None:
    assert build({"spark-a": readings(*FAULT, count=4)})["verdict"] == "as_expected"
    assert build({"spark-a": [None] * 9})["verdict"] == "as_expected"
    mixed = readings(*IDLE, count=60) + readings(*FAULT)
    assert build({"spark-a": mixed})["verdict"] == "power_fault"  # the idle ones do not count


@pytest.mark.parametrize(
    ("hosts", "concurrency", "model", "args", "said"),
    [
        (1, 2, GPT, (), "(mxfp4, hosts: 1, at once: 2); known is 33.81 tok/s with mxfp4, hosts: 1, vLLM 0.28.0"),
        (2, 1, GPT, (), "(mxfp4, hosts: 2, at once: 1)"),
        (1, 1, GPT, ("--quantization", "fp8"), "(fp8, hosts: 1, at once: 1)"),
        (1, 1, GPT, ("-q=fp8",), "(fp8, hosts: 1, at once: 1)"),
        (1, 1, "somebody/else", (), "somebody/else is not in catalog/models.yml"),
    ],
)
def test_other_conditions_have_no_expectation(
    hosts: int, concurrency: int, model: str, args: tuple[str, ...], said: str
) -> None:
    gpus = {f"spark-{number}": readings(*HEALTHY) for number in range(hosts)}
    step = build(gpus, 1.0, concurrency, model, args)
    assert (step["verdict"], step["ratio"], step["expected"]) == ("no_expectation", None, None)
    assert said in step["text"]


@pytest.mark.parametrize(
    ("version", "tokens"), [("0.19.0", "32 to 35"), ("0.28.0", "33.81"), ("0.33.0", ""), (None, "")]
)
def test_what_another_version_does_is_no_pass_mark(version: str | None, tokens: str) -> None:
    said = {"model": GPT, "quantization": "mxfp4", "hosts": 1, "version": version, "args": []}
    found, why = benchmark.expectation(said, 1)
    assert (found.text if found else "") == (f"{tokens} tok/s" if tokens else "")
    assert bool(why) is not bool(tokens)


def test_what_is_expected_of_four_requests_is_their_sum() -> None:
    gpus = {"spark-a": readings(*HEALTHY), "spark-b": readings(*HEALTHY)}
    step = build(gpus, 9.1, 4, QWEN)
    assert (step["verdict"], step["ratio"]) == ("as_expected", 1.0)


@pytest.mark.parametrize(
    ("load", "said"),
    [
        ({"result": None, "error": "the load did not end within 900 s"}, "did not end"),
        ({"result": result(completed=3)}, "3 of 4 requests were answered"),
        ({"result": {}}, "0 of 0 requests"),
    ],
)
def test_a_load_that_failed(load: dict[str, Any], said: str) -> None:
    step = build({"spark-a": readings(*FAULT)}, **load)
    assert step["verdict"] == "failed" and said in step["text"] and step["way_out"]


def test_what_one_host_answers_ends_no_document_of_the_others() -> None:
    """A figure of a host is divided by and has a logarithm, and is kept for the runs to come."""

    def fleet(of_a: Any) -> dict[str, Any]:
        conditions = {"model": GPT, "image": "i", "args": []}
        of_b = {**{"result": result(58.0, 1), "version": "0.19.0", "others": 0}, "prefix_cache": None, "drafts": None}
        return {
            host: {"cluster": host, "conditions": conditions, "steps": [
                {"concurrency": 1, "load": load, "readings": readings(*HEALTHY)}
            ]}
            for host, load in (("a", of_a), ("b", of_b))
        }  # fmt: skip

    def lost(of_a: Any, earlier: list[dict[str, Any]]) -> tuple[bool, list[dict[str, Any]]]:
        if schema.problem({"load": of_a, "readings": []}, answers.Load, "answer"):
            return False, earlier  # that host is named, and its answer goes no further
        try:
            document = benchmark.build(fleet(of_a), {}, {}, THRESHOLDS, NOW, earlier)
            text = json.dumps(document, allow_nan=False)
        except (ValueError, ArithmeticError, LookupError, TypeError, StopIteration):
            return True, earlier
        found = [cluster["verdict"] for cluster in document["clusters"] if cluster["name"] == "b"]
        return found != ["as_expected"], [json.loads(text), *earlier]

    sound = fleet(None)["b"]["steps"][0]["load"]
    figures = (0, 5e-324, -5e-324, -1e-9, -58.0, 2**62, -(2**62), 9e18)
    names = ("median_tpot_ms", "output_throughput", "completed")
    loads: list[Any] = [None]
    loads += [{**sound, "result": {**sound["result"], name: figure}} for name in names for figure in figures]
    for figure in figures:
        loads.append({**sound, "drafts": {"drafts": 1.0, "draft_tokens": figure, "accepted_tokens": 9e18}})
        loads.append({**sound, "prefix_cache": {"queries": figure, "hits": 9e18}})
    wins: list[Any] = []
    earlier: list[dict[str, Any]] = []
    for load in loads * 2:
        won, earlier = lost(load, earlier)
        wins += [load] if won else []
    tally("one host's figure ends the benchmark of the others", 2 * len(loads), len(wins))
    assert not wins, wins[:2]


def test_a_load_that_failed_names_the_unit_of_the_service() -> None:
    assert "sudo journalctl -u gb10-vllm on" in build({"spark-a": readings(*FAULT)}, result={})["way_out"]
    judged = benchmark.judge("it did not end", None, None, "", {}, THRESHOLDS, "gb10-vllm-chat")
    assert judged[2].startswith("sudo journalctl -u gb10-vllm-chat on the first host")


def test_figures_and_what_people_read() -> None:
    step = build({"spark-a": readings(*HEALTHY)}, 58.0, others=2)
    assert (step["tokens_per_s"], step["tokens_per_s_sum"]) == (58.0, 51.2)
    assert (step["first_token_ms"], step["prefix_hit_rate"]) == (250.0, 0.375)
    assert "2 requests of others were running" in step["text"]
    table = benchmark.table(step["document"])
    assert table[1].split() == ["c", "1", "58.0", "51.2", "32", "to", "35", "tok/s", "250", "ms", "38%", "as_expected"]
    assert benchmark.findings(step["document"]) == []
    assert build({"spark-a": readings(*HEALTHY)}, prefix_cache=None)["prefix_hit_rate"] is None


def test_the_document_is_written_whole_and_shows_no_secret(tmp_path: Path) -> None:
    args = ["--hf-token", "hf_x", "--api_key=k", "--max-num-batched-tokens", "8192"]
    document = build({"spark-a": readings(*HEALTHY)}, args=args)["document"]
    for _ in range(2):
        file = benchmark.write(document, tmp_path)
    assert json.loads((tmp_path / "latest" / "benchmark.json").read_text()) == document
    assert [path.name for path in file.parent.iterdir()] == ["benchmark.json"]
    shown = document["clusters"][0]["conditions"]["args"]
    assert shown == ["--hf-token", "(not shown)", "--api_key=(not shown)", "--max-num-batched-tokens", "8192"]


# ------------------------------------------------------------------------------------------------------ on the host


def test_the_command_has_the_names_of_secrets_only() -> None:
    argv = serving_load.argv(LOAD)
    assert argv[:5] == ["docker", "exec", "--env", "HF_HUB_OFFLINE=1", "gb10-vllm"]
    assert 'OPENAI_API_KEY="$VLLM_API_KEY"' in argv[argv.index("-c") + 1]
    assert argv[argv.index("--random-prefix-len") + 1] == argv[argv.index("--random-input-len") + 1] == "256"
    assert argv[argv.index("--model") + 1 : argv.index("--model") + 4] == [GPT, "--served-model-name", "served"]


def test_the_client_finds_the_servers_tokenizer() -> None:
    args = ("--tokenizer_mode=mistral", "--tokenizer", "x/y", "--trust_remote_code", "--tokenizer-revision", "r")
    argv = serving_load.argv(Load(**{**LOAD.__dict__, "serve_args": args}))
    found = argv[argv.index("served") + 1 : argv.index("--dataset-name")]
    assert found == ["--tokenizer-mode", "mistral", "--tokenizer", "x/y", "--trust-remote-code"]


@pytest.mark.parametrize(
    "wrong", [{"concurrency": 0}, {"shared_tokens": 512}, {"model": "--help"}, {"container": "-x"}, {"timeout_s": 0}]
)
def test_wrong_loads_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Load(**{**LOAD.__dict__, **wrong})


@pytest.mark.parametrize(
    ("rc", "out", "err", "said"),
    [
        (124, "", "", "did not end within 900 s"),
        (1, "", "Error response from daemon: No such container: gb10-vllm\n", "No such container"),
        (1, "", "", "it said nothing"),
        (0, "Welcome", "", "no result that can be read"),
        (0, "[]", "", "no result that can be read"),
    ],
)
def test_a_client_that_fails(rc: int, out: str, err: str, said: str) -> None:
    assert said in serving_load.put(LOAD, lambda argv, _stdin, _s: Completed(tuple(argv), rc, out, err))["error"]


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ("2418, 86.20, 68, 96, 0x0000000000000000, 580.142\n", (2418, 86.2, 68, 96, 0)),
        ("507, 12.00, 52, 96, 0x0000000000000004, 580.142\n", (507, 12, 52, 96, 4)),
        ("507, [N/A], [Not Supported], 96, [N/A], 580.142\n", (507, None, None, 96, None)),
    ],
)
def test_readings(row: str, wanted: Any) -> None:
    read = serving_load.read_gpu(lambda argv, _stdin, _s: Completed(tuple(argv), 0, row))
    assert read == serving_load.Reading(*(*wanted, "580.142"))


@pytest.mark.parametrize(("rc", "out"), [(124, ""), (9, "NVIDIA-SMI has failed\n"), (0, ""), (0, "No devices\n")])
def test_a_gpu_that_does_not_answer(rc: int, out: str) -> None:
    assert serving_load.read_gpu(lambda argv, _stdin, _s: Completed(tuple(argv), rc, out)) is None


def metrics(queries: int, hits: int, running: int = 0) -> str:
    """As vLLM 0.19 has them, with two engines; the counters count since the start."""
    return "".join(
        f'vllm:{name}{{engine="{engine}",model_name="a b"}} {float(value)}\n'
        for name, value in (
            ("prefix_cache_queries_total", queries),
            ("prefix_cache_hits_total", hits),
            ("num_requests_running", running),
        )
        for engine in (0, 1)
    )  # fmt: skip


def test_the_prefix_cache_is_that_of_the_load_alone() -> None:
    before, after = metrics(1000, 900), metrics(1500, 1000)
    assert serving_load.prefix_cache(before, after) == {"queries": 1000.0, "hits": 200.0}
    assert serving_load.prefix_cache("", after) is None


def test_the_gpu_is_read_for_as_long_as_the_load_runs() -> None:
    read = threading.Event()
    rows = iter(["2418, 86, 68, 96, 0x0, 580.142"] * 3)

    def run(argv: Sequence[str], _stdin: str | None, _seconds: float) -> Completed:
        if argv[0] == "docker":
            assert read.wait(30)
            return Completed(tuple(argv), 0, json.dumps(result()))
        row = next(rows, None)
        if row is None:
            read.set()
        return Completed(tuple(argv), 0, row or "2418, 86, 68, 96, 0x0, 580.142")

    answers = {"/metrics": [metrics(0, 0, 1), metrics(64, 32)], "/version": ['{"version": "0.33.0"}']}

    def ask(path: str, body: dict[str, Any] | None, timeout_s: float) -> Reply:
        return Reply(200, answers[path].pop(0))

    found = serving_load.measure(LOAD, Sampling(80, 2, 5, 0.0), ask, run, NoClock())
    assert misfit("serving_load", found) is None
    assert len(found["readings"]) >= 4
    load = found["load"]
    assert (load["version"], load["others"], load["prefix_cache"]) == ("0.33.0", 2, {"queries": 128.0, "hits": 64.0})
    assert load["result"]["completed"] == 4


@pytest.mark.parametrize(("rows", "wanted"), [("0, 96, 96, 96", 3), ("0", 5)])
def test_a_host_without_load_reads_until_it_was_busy(rows: str, wanted: int) -> None:
    said = iter(rows.split(", ") + ["0"] * 9)

    def run(argv: Sequence[str], _stdin: str | None, _seconds: float) -> Completed:
        return Completed(tuple(argv), 0, f"2418, 86, 68, {next(said)}, 0x0, 580.142")

    found = serving_load.measure(None, Sampling(80, 2, 5), None, run, NoClock())
    assert (found["load"], len(found["readings"])) == (None, wanted)


def drafting(tokens_per_s: float, earlier: Sequence[dict[str, Any]] = (), **conditions: Any) -> dict[str, Any]:
    """A document of one request at a time; `conditions` over those of a plain server."""
    said = {
        "model": GPT, "image": "an/image:1", "args": [], "environment": {}, "max_model_len": 0, "speculative": {},
        "gpu_memory_utilization": 0.8, "served_name": GPT, **conditions,
    }  # fmt: skip
    counted = {"drafts": 100.0, "draft_tokens": 300.0, "accepted_tokens": 190.0} if conditions else None
    load = {"result": result(tokens_per_s), "version": "0.28.0", "others": 0, "prefix_cache": None, "drafts": counted}
    host = {
        "cluster": "c", "conditions": said,
        "steps": [{"concurrency": 1, "load": load, "readings": readings(*HEALTHY)}],
    }  # fmt: skip
    request = {"prompts": 4, "input_tokens": 512, "shared_tokens": 256, "output_tokens": 128}
    made = benchmark.build({"spark-a": host}, {}, request, THRESHOLDS, NOW, earlier)
    jsonschema.validate(made, SCHEMA)
    return made


def test_draft_tokens_are_shown_beside_the_speed_without_them(tmp_path: Path) -> None:
    mtp = {"speculative": {"method": "mtp", "tokens": 3}}
    plain, by_flag = drafting(40.0), drafting(58.0, [], args=["--speculative-config", '{"method": "mtp"}'])
    assert plain["clusters"][0]["steps"][0]["drafts"] is None and "drafts accepted" not in benchmark.table(plain)[0]
    benchmark.write(plain, tmp_path)
    (tmp_path / "20990101T000000Z").mkdir()
    (tmp_path / "20990101T000000Z" / benchmark.DOCUMENT).write_text("[]")
    earlier = draft_figures.earlier(tmp_path, benchmark.DOCUMENT, benchmark.SCHEMA_VERSION)
    made = drafting(60.0, [by_flag, *earlier], **mtp)
    assert made["clusters"][0]["steps"][0]["drafts"] == {
        "acceptance": 0.633, "tokens_per_step": 2.9, "off": {"tokens_per_s": 40.0, "created": plain["created"]},
    }  # fmt: skip
    head, row = (line.split("  ") for line in benchmark.table(made))
    assert "without drafts" in " ".join(head) and {"63%", "2.9", "40.0"} <= {cell.strip() for cell in row}
    other = drafting(60.0, earlier, **mtp, image="an/image:2")
    assert other["clusters"][0]["steps"][0]["drafts"]["off"] is None
    assert "not measured" in benchmark.table(other)[1]


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ("", "", None),
        ("", DRAFTED.format(2, 6, 3), {"drafts": 2.0, "draft_tokens": 6.0, "accepted_tokens": 3.0}),
        (
            DRAFTED.format(2, 6, 3),
            DRAFTED.format(5, 15, 9),
            {"drafts": 3.0, "draft_tokens": 9.0, "accepted_tokens": 6.0},
        ),
    ],
)
def test_draft_tokens_by_the_counters(before: str, after: str, found: dict[str, float] | None) -> None:
    assert serving_load.drafts(before, after) == found
