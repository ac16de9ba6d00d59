"""The contract of engines: what each of them says, and what everything else makes of it without knowing which it is."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.config import parse_config
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.log import Log, verdict_of_end
from ansible_collections.gb10.fleet.plugins.module_utils.reading import counters, services
from ansible_collections.gb10.fleet.plugins.module_utils.reading.engine_metrics import in_names_of_vllm
from ansible_collections.gb10.fleet.plugins.module_utils.serving.model_listing import wanted
from ansible_collections.gb10.fleet.plugins.module_utils.system.service_failures import way_out
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.settings import SettingsError
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import planner as vllm
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.engines import rules
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.engines.known import ENGINES

from tests.support.service_plans import CHAT, after, document, made, view
from tests.support.unit_log import settings

EXAMPLES: dict[str, dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parents[2] / "fixtures/engines/examples.yml").read_text(encoding="utf-8")
)
OTHERS = sorted(set(ENGINES) - {"vllm"})


def entry(name: str, **other: Any) -> dict[str, Any]:
    return {**EXAMPLES[name]["entry"], **other}


def refused(entries: dict[str, Any], hosts: int = 1, **variables: Any) -> str:
    try:
        plan = vllm.plan(view(entries, hosts=hosts, **variables))
    except SettingsError as error:
        return str(error)
    return "\n".join((*plan.refusals, *plan.joint_refusals))


def line(argv: tuple[str, ...]) -> str:
    return " ".join(argv)


def test_every_engine_has_its_example() -> None:
    assert set(EXAMPLES) == set(ENGINES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_command_line(name: str) -> None:
    argv = made({"own": entry(name)})["own"].argv
    assert " ".join(EXAMPLES[name]["begins"]) in line(argv)
    assert [part for part in EXAMPLES[name]["has"] if part not in line(argv)] == []


# How starts of other engines ended: al-engr.com (MiniMax on a pair), MiaAI-Lab/Qwen3.8-Flash-Next-Dual-DGX-Sparks
# issue 3, SGLang issue 18203, ZengboJamesWang/Qwen3.5-35B-A3B-openclaw-dgx-spark issue 3, ollama issue 17596,
# llama.cpp issues 28317 and 25791.
ENDED = (
    ("sglang", "RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied.", "memory_short"),
    ("sglang", "a:1:2 [0] NCCL WARN NET/IB : Got completion with error 12, opcode 1", "fabric_unreachable"),
    ("sglang", "RuntimeError: Rank 0 scheduler died (exit code: -9)", "killed"),
    ("sglang", "ImportError: [sgl_kernel] CRITICAL: Could not load any common_ops library!", "image_unfit"),
    ("llama_cpp", "CUDA error: no kernel image is available for execution on the device", "kernel_unsupported"),
    ("llama_cpp", "CUDA error: an illegal memory access was encountered", "kernel_fault"),
    (
        "llama_cpp",
        "0.30 E llama_model_load: error loading model: unknown model architecture: 'x'",
        "unknown_architecture",
    ),
    ("sglang", "AssertionError: Not enough space for mamba cache, try to increase the ratio", "memory_short"),
    ("llama_cpp", "llama_model_load: error loading model: vocab size mismatch", "model_incomplete"),
    (
        "llama_cpp",
        "clip_init: failed to load model 'x': load_hparams: unknown projector type: y",
        "unknown_architecture",
    ),
    ("llama_cpp", "clip_init: failed to load model 'x': operator(): unable to find tensor v.blk.0", "model_incomplete"),
    ("llama_cpp", "gguf_init_from_reader: failed: invalid magic characters: 'x'", "model_incomplete"),
    ("llama_cpp", "clip_init: failed to load model '/x.gguf': load: failed to open /x.gguf", "model_incomplete"),
    (
        "llama_cpp",
        "0.01.0.1 E load_model: the draft model '/d' is not compatible with the target model '/x'",
        "refused_flag",
    ),
    ("llama_cpp", "0.01.0.1 E llama_adapter_lora_init: failed to apply lora adapter: bad shape", "refused_flag"),
    ("llama_cpp", "error from HF API (https://hub.example/a/b), response code: 404, data: {}", "model_missing"),
    ("llama_cpp", "srv init: chat template parsing error: Unknown statement: generation", "refused_flag"),
    ("llama_cpp", "ggml/src/ggml-cuda/ggml-cuda.cu:3927: GGML_ASSERT(ok) failed", "kernel_fault"),
    ("llama_cpp", "ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory", "memory_short"),
)


@pytest.mark.parametrize(("name", "said", "verdict"), ENDED)
def test_the_end_of_a_start_has_its_verdict(name: str, said: str, verdict: str) -> None:
    config = settings() | {"failures": made({"own": entry(name)})["own"].program["failures"]}
    log = Log(parse_config(json.dumps(config)), [])
    log.feed("Loading safetensors checkpoint shards, no error")
    assert log.fault is None
    log.feed(said)
    assert log.fault == (verdict, said)


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_the_role_says_itself_is_refused_by_its_name(name: str) -> None:
    flag = EXAMPLES[name]["own_flag"]
    said = refused({"own": entry(name, extra_args=[flag])})
    assert flag.partition("=")[0] in said and said.startswith("own: ")


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_it_cannot_have_is_refused_by_its_name(name: str) -> None:
    for key, value in EXAMPLES[name]["refused"].items():
        assert key in refused({"own": entry(name, **{key: value})})


@pytest.mark.parametrize("name", OTHERS)
def test_each_key_that_an_engine_refuses_is_one_and_names_it(name: str) -> None:
    for key in ENGINES[name].refuses:
        with pytest.raises(SettingsError) as raised:
            vllm.plan(view({"own": entry(name, **{key: EXAMPLES[name]["entry"].get(key, "x")})}))
        assert f"vllm_services.own.{key}" in str(raised.value)


@pytest.mark.parametrize("name", OTHERS)
def test_what_it_needs_is_asked_for(name: str) -> None:
    for key in ENGINES[name].needs:
        said = entry(name)
        del said[key]
        assert key in refused({"own": said})


@pytest.mark.parametrize("name", OTHERS)
def test_what_a_host_says_to_vllm_is_not_for_another_engine(name: str) -> None:
    for_vllm = {
        "vllm_executor": "ray", "vllm_warm_cache_gib": 9, "vllm_version": "0.28.0",
        "vllm_environment": {"VLLM_X": "1"}, "vllm_host": "192.0.2.11", "vllm_extra_args": ["--enforce-eager"],
        "vllm_speculative": {"method": "mtp", "tokens": 2},
    }  # fmt: skip
    plain, beside = (made({"own": entry(name)}, **more)["own"] for more in ({}, for_vllm))
    assert beside.program == plain.program and beside.secrets == () and beside.warm is None


@pytest.mark.parametrize("name", EXAMPLES)
def test_its_key_is_the_host_s_or_its_own_and_in_no_command_line(name: str) -> None:
    variable = ENGINES[name].key_variable
    for own, common, secrets in (("", "", ()), ("", "sesame", (variable,)), ("open", "sesame", (variable,))):
        plan = made({"own": entry(name, **({"api_key": own} if own else {}))}, vllm_api_key=common)["own"]
        assert plan.secrets == secrets and plan.program["env_file"] == (plan.env_file if secrets else None)
        assert not {"sesame", "open"} & set(" ".join(plan.argv).split())


def test_a_key_that_an_engine_reads_as_several_is_refused() -> None:
    assert "reads several in it" in refused({"own": entry("llama_cpp", api_key="a,b")})
    assert made({"own": entry("sglang", api_key="a,b")})["own"].secrets


SPAWNED = """
import multiprocessing, sys
def tell():
    print(sys.argv[1:], "sesame" in open("/proc/self/cmdline").read(), flush=True)
if __name__ == "__main__":
    tell()
    child = multiprocessing.get_context("spawn").Process(target=tell)
    child.start(), child.join()
"""


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_client_that_ends_a_model_names_no_hardware(name: str) -> None:
    """llama.cpp prints a grammar that it refuses, line by line; a nested one then overflows its stack."""
    words = ["CUDA error: uncorrectable ECC error encountered", "NCCL WARN NET/IB : Got completion with error 12"]
    words += ["x: Read-only file system", "Traceback (most recent call last):", "RuntimeError: GPU is lost"]
    log = Log(parse_config(json.dumps(made({"own": entry(name)})["own"].program)), [])
    log.serves()
    for word in words:
        log.feed(word)
    end = verdict_of_end(128 + signal.SIGSEGV, log, 0)
    assert end.verdict == "kernel_fault" and "reboot" not in way_out(end.verdict, "unit")


def test_no_engine_runs_what_another_one_has_compiled() -> None:
    """What is compiled is code: the container of one service would read the key of the other."""
    plans = made({f"s{number}": entry(name, port=8001 + number) for number, name in enumerate(EXAMPLES)})
    written = [
        each.argv[at + 1].partition(":")[0]
        for each in plans.values()
        for at, word in enumerate(each.argv)
        if word == "--volume" and not each.argv[at + 1].endswith(":ro")
    ]
    assert len(written) == len(plans) == len(set(written))


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_key_is_held_by_root_whatever_user_the_image_names(name: str) -> None:
    """A login with the number of that user reads the environment of its processes."""

    def words(**said: Any) -> list[str]:
        program = made({"own": entry(name, **said)})["own"].program
        return [word for word in parse_config(json.dumps(program)).argv if word.startswith(("--user", "-u"))]

    assert words(api_key="sesame") == ["--user=0:0"] and words() == []


def test_sglang_has_its_key_and_no_list_of_processes_shows_it(tmp_path: Path) -> None:
    """Its scheduler is a process of its own, which Python starts anew."""
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang/launch_server.py").write_text(SPAWNED)
    argv = made({"own": entry("sglang", api_key="sesame")})["own"].argv
    words = argv[argv.index("-c") :]
    given = {"PYTHONPATH": str(tmp_path), ENGINES["sglang"].key_variable: "sesame"}
    done = subprocess.run([sys.executable, *words], env=given, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == f"{[*words[2:], '--api-key', 'sesame']} False\n" * 2


def test_rules_of_sglang_s_key() -> None:
    said = {"version": "0.5.18"}
    assert "sglang_code_by_request" in [each["id"] for each in made({"own": entry("sglang", **said)})["own"].findings]
    keyed = made({"own": entry("sglang", api_key="k", **said)})["own"]
    assert "sglang_code_by_request" not in [each["id"] for each in keyed.findings]


@pytest.mark.parametrize(
    ("said", "warns"),
    [
        ({"version": "0.5.8"}, True),
        ({"version": "0.5.8", "extra_args": ["--nccl-port", "29520"]}, False),
        ({"version": "0.5.9"}, False),
    ],
)
def test_a_port_that_old_sglang_opens_to_all_is_told(said: dict[str, Any], warns: bool) -> None:
    found = [each["id"] for each in made({"own": entry("sglang", **said)})["own"].findings]
    assert ("sglang_open_store" in found) is warns


@pytest.mark.parametrize(
    ("name", "flags", "says"),
    [
        *(
            ("sglang", flags, "any login of the host may take before them")
            for flags in ("--tokenizer-worker-num 2", "--tokenizer-worker-num=16", "--tokenizer-work 4")
        ),
        *(
            ("llama_cpp", flags, "runs programs in its container")
            for flags in (
                "--tools all",
                "--agent",
                "-ag",
                "--mcp-servers-json {}",
                "--webui-mcp-proxy --no-slots",
                "--mcp_servers_json=x",
            )
        ),
        ("sglang", "--tokenizer-worker-num 1", ""),
        ("sglang", "--tokenizer-worker-num 1 --tokenizer-mode auto", ""),
        ("llama_cpp", "--no-agent --tools-runtime none --no-ui-mcp-proxy", ""),
    ],
)
def test_what_hands_the_container_to_a_login_is_refused(name: str, flags: str, says: str) -> None:
    for key in ("", "k"):
        entries = {"own": entry(name, api_key=key, extra_args=flags.split())}
        assert says in refused(entries) if says else made(entries)["own"].refusals == ()


@pytest.mark.parametrize("name", EXAMPLES)
def test_readiness(name: str) -> None:
    program = made({"own": entry(name)})["own"].program
    if EXAMPLES[name]["log"]:
        assert program["ready_url"] is None and program["phases"]
    else:
        assert program["ready_url"] == "http://127.0.0.1:8001/health" and not program["phases"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_metrics_have_the_names_that_everything_knows(name: str) -> None:
    written = json.dumps(made({"own": entry(name)})["own"].program)
    said = counters.service_of("vllm-own", written, "/etc/gb10-fleet/vllm-own.json").naming
    found = counters.parse(in_names_of_vllm(EXAMPLES[name]["metrics"], said))
    assert [found[key] for key in ("running", "waiting", "generated_tokens", "prompt_tokens")] == [2, 1, 8, 178]


@pytest.mark.parametrize("name", EXAMPLES)
def test_its_host_says_what_it_serves_and_where(name: str) -> None:
    """By that `gb10 stop` drains it, `start` proves it and `ask` asks it."""
    program = made({"own": entry(name, served_model_name="chat")})["own"].program
    found = services._settings(json.loads(json.dumps(program)))
    assert (found["model"], found["served_name"], found["port"]) == (entry(name)["model"], "chat", 8001)
    assert found["url"] == "http://127.0.0.1:8001"
    if EXAMPLES[name]["nodes"]:
        second = made({"own": entry(name)}, "spark-b", 2)["own"].program
        assert services._settings(json.loads(json.dumps(second)))["url"] is None


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_share_of_memory_is_in_the_budget_and_at_the_gate(name: str) -> None:
    own = made({"own": entry(name)})["own"]
    assert own.memory_gib == entry(name)["memory_gib"] and own.program["memory_gib"] <= own.memory_gib
    assert "but it has 121.7 GiB" in refused({"own": entry(name), "big": {**CHAT, "memory_gib": 100, "port": 8009}})


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_unit_is_the_same_for_all(name: str) -> None:
    rendered = document({"own": entry(name)})
    (unit,) = (each for each in rendered.resources if each.get("file") == "/etc/systemd/system/gb10-vllm-own.service")
    assert f"Description={ENGINES[name].title} serving {entry(name)['model']}\n" in unit["content"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_cluster_where_the_engine_has_one(name: str) -> None:
    if not EXAMPLES[name]["nodes"]:
        assert "one host" in refused({"own": entry(name, span="cluster")}, hosts=2)
        assert made({"own": entry(name)}, hosts=2)["own"].members == ("spark-a",)
        return
    head, second = (made({"own": entry(name)}, host, 2)["own"] for host in ("spark-a", "spark-b"))
    assert "--nnodes 2 --node-rank 0" in line(head.argv) and "--nnodes 2 --node-rank 1" in line(second.argv)
    assert f"{ENGINES[name].address_variable}=" in line(head.argv) and second.program["ready_url"] is None
    assert counters.place(second.argv)[1] is None and counters.place(head.argv)[1] == 8001
    assert head.program["join"]["settings"] == second.program["join"]["settings"]


def test_sglang_meets_where_the_firewall_lets_the_cluster_in() -> None:
    head = made({"own": entry("sglang")}, "spark-a", 2)["own"]
    address = head.program["join"]["members"][0]["address"]
    assert f"--tp-size 2 --pp-size 1 --nnodes 2 --node-rank 0 --dist-init-addr {address}:29501" in line(head.argv)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"extra_args": ["--enable-nccl-nvls"]}, "rule sglang_nvlink: it joins GPUs over NVLink"),
        ({"extra_args": ["--moe-a2a-backend", "deepep"]}, "rule sglang_deepep"),
        ({"extra_args": ["--attention-backend", "fa3"]}, "rule sglang_other_chips: its kernels are for SM90 or SM100"),
        ({"extra_args": ["--attention-backend", "flashmla"]}, "rule sglang_other_chips"),
        ({"extra_args": ["--moe-runner-backend", "flashinfer_trtllm"]}, "rule sglang_other_chips"),
        ({"extra_args": ["--dsa-decode-backend", "trtllm"]}, "rule sglang_other_chips"),
        ({"extra_args": ["--enforce-eager"]}, "rule sglang_flag: this version has no --enforce-eager"),
        ({"extra_args": ["--attn-dp-size", "2"], "version": "0.5.17"}, "--attn-dp-size is of another version"),
        ({"extra_args": ["--cuda-graph-max-bs", "8"]}, "this version has no --cuda-graph-max-bs"),
        (
            {"extra_args": ["--load-format=instanttensor"], "version": "0.5.19"},
            "--load-format of this version takes no",
        ),
        ({"extra_args": ["--load-format", "nothing"]}, "takes no nothing; it takes auto, pt, "),
        ({"extra_args": ["--speculative-draft-model-path", "o/d"]}, "extra_args hold --speculative-draft-model-path"),
        ({"max_model_len": -1}, "max_model_len is -1"),
        ({"memory_gib": 7}, "SGLang takes 7.5 GiB beside"),
        ({"extra_args": ["--tp_size=2"]}, "extra_args hold --tp_size, which the role sets itself"),
    ],
)
def test_what_sglang_cannot_do_here_is_refused_by_name(more: dict[str, Any], text: str) -> None:
    assert text in refused({"own": entry("sglang", **more)})


def test_a_rule_may_be_accepted_and_one_of_a_version_warns() -> None:
    plan = vllm.plan(view({"own": entry("sglang", version="0.5.17")}))
    assert [each["id"] for each in plan.findings] == ["sglang_code_by_request", "sglang_fp4_nonsense"]
    assert not refused({"own": entry("sglang", extra_args=["--enable-symm-mem"], accept={"sglang_nvlink": "tried"})})


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ("--max-model-len 8192", "llama_other_engine"),
        ("--reasoning_parser=qwen3", "llama_other_engine"),
        ("-ctv q8_0 -fa off", "llama_quantized_values"),
        ("--flash-attn=0 --jinja --cache-type-v iq4_nl", "llama_quantized_values"),
        ("-fa", "llama_value"),
        ("-fa --jinja", "llama_value"),
        ("-ctk q8", "llama_value"),
        ("--reasoning-format deepseek --reasoning-budget 0 --spec-draft-type-v q8_0", ""),
        ("-fa on -ctk q8_0 -ctv q8_0 -ctkd q8_0 --cache-type-k-draft f16", ""),
        ("-fa off -ctk q8_0 -ctv f16", ""),
        ("--flash-attn=auto --cache-type-k=bf16 --chat-template-kwargs {}", ""),
    ],
)
def test_what_llama_cpp_does_not_take_is_objected_to(words: str, rule: str) -> None:
    found = rules.judge("llama_cpp", "x/llama.cpp:server-cuda13-b9992", "", words.split(), 1, {})
    assert [each.id for each in found] == [rule] * bool(rule)


@pytest.mark.parametrize("words", ["--attention-backend triton", "--moe-runner-backend flashinfer_cutlass"])
def test_kernels_of_sglang_that_a_gb10_has_are_taken(words: str) -> None:
    assert not refused({"own": entry("sglang", extra_args=words.split())})


@pytest.mark.parametrize(
    ("image", "version"),
    [("lmsysorg/sglang:v0.5.23-cu130", "0.5.23"), ("x/y:0.5.15.post1@sha256:00", "0.5.15.post1"), ("x@sha256:1", "")],
)
def test_the_tag_of_an_image_says_its_version(image: str, version: str) -> None:
    assert rules.version_of(image) == version


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"model_revision": "main"}, "model_revision is main"),
        ({"gguf": "../secret.gguf"}, "gguf is '../secret.gguf'"),
        ({"gguf": "x-00002-of-00002.gguf"}, "named by its first"),
        ({"slots": 0}, "slots is 0"),
        ({"max_model_len": 0}, "slots needs max_model_len"),
        ({"fetch": False}, "fetch is false"),
        ({"draft": "d.gguf"}, "draft needs speculative.method"),
        ({"speculative": {"method": "draft_simple", "model": "o/d"}}, "draft names none of its files"),
        ({"speculative": {"method": "ngram", "model": "o/d"}, "draft": "d.gguf"}, "speculative.revision is missing"),
        ({"extra_args": ["--rpc", "192.0.2.12:50052"]}, "extra_args hold --rpc"),
    ],
)
def test_what_llama_cpp_cannot_do_here_is_refused_by_name(more: dict[str, Any], text: str) -> None:
    assert text in refused({"own": entry("llama_cpp", **more)})


def test_of_a_repository_llama_cpp_takes_the_parts_of_its_file_alone() -> None:
    own = made({"own": entry("llama_cpp", mmproj="mmproj-f16.gguf")})["own"]
    folder, exclude = after(own.argv, "--model").rpartition("/")[0], own.files.exclude
    assert after(own.argv, "--mmproj") == f"{folder}/mmproj-f16.gguf"
    names = ["gpt-oss-20b-mxfp4-00001-of-00002.gguf", "gpt-oss-20b-mxfp4-00002-of-00002.gguf", "mmproj-f16.gguf"]
    others = ["README.md", "gpt-oss-20b-q8.gguf", "gpt-oss-20b-mxfp4-00001-of-00003.gguf"]
    listed = [{"path": path, "size": 1, "hash": "a" * 40} for path in (*names, *others)]
    found = wanted({"commit": "b" * 40, "files": listed}, "o/m", "main", exclude)
    assert [file.path for file in found.files] == names


def test_a_second_model_is_told_in_the_words_of_each_engine_and_fetched() -> None:
    wish = {"method": "dflash", "model": "o/d", "revision": "c" * 40, "tokens": 8}
    further = {"further": {"accept-threshold-acc": 1}}
    sglang = made({"own": entry("sglang", speculative=wish | further)})["own"]
    drafts = f"DFLASH --speculative-draft-model-path o/d --speculative-draft-model-revision {'c' * 40}"
    drafts = f"{drafts} --speculative-num-draft-tokens 8 --speculative-accept-threshold-acc 1"
    assert f"--speculative-algorithm {drafts}" in line(sglang.argv)
    llama = made({"own": entry("llama_cpp", speculative=wish | {"method": "draft_dflash"}, draft="d.gguf")})["own"]
    path = f"/root/.cache/huggingface/hub/models--o--d/snapshots/{'c' * 40}/d.gguf"
    drafts = f"draft-dflash --spec-draft-model {path} --spec-draft-ngl 999 --spec-draft-n-max 8"
    assert f"--spec-type {drafts}" in line(llama.argv)
    assert sglang.files.draft == llama.files.draft == {"model": "o/d", "revision": "c" * 40}
    assert "!d.gguf" in llama.files.exclude


def test_a_draft_of_llama_cpp_may_be_of_the_same_repository() -> None:
    own = made({"own": entry("llama_cpp", speculative={"method": "draft_simple", "tokens": 4}, draft="d.gguf")})["own"]
    assert f"snapshots/{EXAMPLES['llama_cpp']['entry']['model_revision']}/d.gguf --spec-draft-ngl" in line(own.argv)
    assert own.files.draft is None


def test_a_service_that_changes_its_engine_stays_the_same_for_everybody_else() -> None:
    """So a wave takes it there and back: only the settings of its unit differ, and they restart it."""
    same = {"served_model_name": "chat", "memory_gib": 60}
    old, new, back = (made({"own": entry(name, **same)})["own"] for name in ("vllm", "sglang", "vllm"))
    for key in ("unit", "container", "config", "port", "url", "served_name", "memory_gib", "health", "members"):
        assert getattr(old, key) == getattr(new, key), key
    assert old.program != new.program and old.config in new.restart_on
    assert back == old


def test_an_inventory_that_names_no_engine_has_vllm_and_its_settings_say_nothing_of_engines() -> None:
    """So hosts of before keep their files, byte for byte, and nothing is restarted."""
    unnamed, named = (document({"own": entry("vllm", **more)}).resources for more in ({}, {"engine": "vllm"}))
    assert unnamed == named
    (written,) = (each["content"] for each in unnamed if each.get("file") == "/etc/gb10-fleet/vllm-own.json")
    assert not {"serves", "metrics"} & set(json.loads(written))


def test_engines_of_a_cluster_agree() -> None:
    plan = view({"own": entry("sglang")}, hosts=2)
    plan.given["spark-b"]["vllm_services"] = {"own": entry("vllm", engine="vllm")}
    with pytest.raises(SettingsError, match="do not agree on engine"):
        vllm.plan(plan)


def test_what_streams_not_is_no_time_to_the_first_token() -> None:
    text = "".join(
        f'sglang:time_to_first_token_seconds_{part}{{is_streaming="{said}",model_name="m"}} {value}\n'
        for said, part, value in (
            ("false", "sum", 12.0),
            ("false", "count", 1),
            ("true", "sum", 0.5),
            ("true", "count", 2),
        )
    )
    renamed = in_names_of_vllm(text, ENGINES["sglang"].metrics)
    assert "12.0" not in renamed
    assert 'vllm:time_to_first_token_seconds_sum{is_streaming="true",model_name="m"} 0.5' in renamed
    unknown = "llamacpp:n_decode_total 18\n"
    assert in_names_of_vllm(unknown, ENGINES["llama_cpp"].metrics) == unknown


def test_the_flags_of_sglang_are_those_of_every_version_that_was_read() -> None:
    assert json.dumps(sorted(rules._flags("sglang"))[-1:]) == '["0.5.23"]'
    argv = made({"own": entry("sglang")}, "spark-a", 2)["own"].argv
    own = [word for word in argv[argv.index("sglang.launch_server") :] if word.startswith("--")]
    assert [
        (version, flag) for version, known in rules._flags("sglang").items() for flag in own if flag not in known
    ] == []
