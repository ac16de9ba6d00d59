"""The command line of vLLM: read as its parser reads it, and refused where a version's parser would refuse it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import vllm_cli


def problems(version: str | None, args: Sequence[str], environment: Mapping[str, str]) -> list[vllm_cli.Fired]:
    """Whatever of a profile a version would refuse or ignore."""
    return [
        *vllm_cli.of_words(version, vllm_cli.words(version, args)),
        *vllm_cli.of_environment(version, environment),
    ]


def objections(args: str, version: str | None = "0.19.0") -> list[tuple[str, str]]:
    return [(each.id, each.severity) for each in problems(version, args.split(), {})]


def values(args: str, version: str | None = "0.19.0") -> dict[str, list[str]]:
    return vllm_cli.words(version, args.split()).values


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("--port 8000", {"--port": ["8000"]}),
        ("--port=8000", {"--port": ["8000"]}),
        ("--max_model_len 32k", {"--max-model-len": ["32k"]}),
        ("-tp 2 -q fp8", {"--tensor-parallel-size": ["2"], "--quantization": ["fp8"]}),
        ("--enforce-eager", {"--enforce-eager": ["true"]}),
        ("--no-enforce-eager", {"--enforce-eager": ["false"]}),
        ("--served-model-name a b --port 1", {"--served-model-name": ["a", "b"], "--port": ["1"]}),
        ("--seed -1", {"--seed": ["-1"]}),
        ("--port 1 --port 2", {"--port": ["2"]}),
        ("-O3", {"--optimization-level": ["3"]}),
        ("-O 3", {"--optimization-level": ["3"]}),
        ("--tensor-parallel 2", {"--tensor-parallel-size": ["2"]}),
        ("--hf-token", {"--hf-token": ["true"]}),
        ("-cc.cudagraph_mode NONE", {"--compilation-config": [], "--compilation-config.cudagraph_mode": ["NONE"]}),
        (
            '--speculative-config {"method":"mtp","draft_load_config":{"y":true}}',
            {
                "--speculative-config": ['{"method":"mtp","draft_load_config":{"y":true}}'],
                "--speculative-config.method": ["mtp"],
                "--speculative-config.draft_load_config": ["{'y': True}"],
                "--speculative-config.draft_load_config.y": ["true"],
            },
        ),
    ],
)
def test_words_are_read_as_the_parser_reads_them(args: str, expected: dict[str, list[str]]) -> None:
    read = vllm_cli.words("0.19.0", args.split())
    assert (read.values, read.wrong) == (expected, [])


@pytest.mark.parametrize(
    ("args", "version", "name"),
    [
        ("--moe-bakend marlin", "0.19.0", "unknown_flag"),
        ("--swap-space 4", "0.19.0", "unsupported_flag"),
        ("--linear-backend marlin", "0.19.0", "unsupported_flag"),
        ("--shutdown-timeout 30", "0.17.0", "unsupported_flag"),
        ("--shutdown-timeout 30", "0.17.1", None),  # between two that we know, and one of them has it
        ("--max-num 5", "0.19.0", "ambiguous_flag"),
        ("--kv-cache-dtype fp16", "0.19.0", "bad_choice"),
        ("--kv-cache-dtype nvfp4", "0.19.0", "bad_choice"),
        ("--kv-cache-dtype nvfp4", "0.24.0", None),
        ("--moe-backend Marlin", "0.19.0", None),
        ("--attention-backend triton_attn", "0.19.0", None),
        ("--attention-backend TRITON", "0.19.0", "bad_choice"),
        ("--attention-backend auto", "0.17.0", "bad_choice"),
        ("--attention-backend auto", "0.19.0", None),
        ("--quantization bitsandbytes", "0.33.0", "bad_quantization"),
        ("--quantization gguf", "0.24.0", "bad_quantization"),
        ("--quantization petit_nvfp4", "0.20.1", "bad_quantization"),
        ("--quantization ptpc_fp8", "0.19.0", "bad_quantization"),
        ("--quantization gptq_marlin", "0.33.0", None),
        ("--load-format fastsafetensors", "0.17.0", None),
        ("--load-format fast", "0.19.0", "bad_choice"),
        ("--tool-call-parser qwen3_code", "0.19.0", "bad_choice"),
        ("--tool-call-parser mine --tool-parser-plugin /x.py", "0.19.0", None),
        ("--reasoning-parser openai_gptoss", "0.19.0", None),
        ("--distributed-executor-backend my.Executor", "0.19.0", None),
        ("--port x", "0.19.0", "bad_value"),
        ("--gpu-memory-utilization 0,8", "0.19.0", "bad_value"),
        ("--max-model-len lots", "0.19.0", "bad_value"),
        ("--max-model-len auto", "0.19.0", None),
        ("--speculative-config {method:mtp}", "0.19.0", "bad_value"),
        ("--speculative-config [1]", "0.32.0", "bad_value"),
        ("--compilation-config 3", "0.32.0", "bad_value"),
        ("-cc 3", "0.32.0", "bad_value"),
        ("--cudagraph-capture-sizes 1 2 x", "0.32.0", "bad_value"),
        ('--kv-transfer-config {"kv_connector_extra_config":{"bytes":80m}}', "0.33.0", None),
        ('--kv-transfer-config {"kv_buffer_size":1e9}', "0.31.0", None),
        ('--kv-transfer-config {"kv_buffer_size":1e9}', "0.32.0", "bad_value"),
        ('--kv-transfer-config {"kv_role":"both"}', "0.33.0", "bad_choice"),
        ('--kv-transfer-config {"kv_roles":"kv_both"}', "0.33.0", "bad_value"),
        ('--kv-transfer-config {"kv_connector_extra_config":{"any":1}}', "0.33.0", None),
        ('--compilation-config {"cudagraf_mode":"NONE"}', "0.28.0", "bad_value"),
        ('--compilation-config {"cudagraph_mode":"full_and_piecewise"}', "0.28.0", None),
        ('--compilation-config {"cudagraph_mode":"PIECEWIZE"}', "0.28.0", "bad_choice"),
        ('--speculative-config {"num-speculative-tokens":3}', "0.28.0", None),
        ('--speculative-config {"num_spec_tokens":3}', "0.28.0", "bad_value"),
        ('--speculative-config {"prompt_lookup_max":0}', "0.28.0", "bad_value"),
        ('--speculative-config {"model":null,"prompt_lookup_max":null}', "0.28.0", None),
        ("--structured-outputs-config.backend lmfe", "0.28.0", "bad_choice"),
        ("--structured-outputs-config.backend guidance", "0.28.0", None),
        ('--override-generation-config {"whatever":1}', "0.28.0", None),
        ("--hf-overrides {a:1}", "0.28.0", "bad_value"),
        ('--hf-overrides {"a":1}', "0.28.0", None),
        ("--max-loras 0", "0.28.0", "bad_value"),
        ("--max-loras 1", "0.28.0", None),
        ("--video-pruning-rate 1.0", "0.28.0", "bad_value"),
        ("--video-pruning-rate 0.99", "0.28.0", None),
        ("--headless=1", "0.19.0", "bad_value"),
        ("--port", "0.19.0", "missing_value"),
        ("--port --headless", "0.19.0", "missing_value"),
        ("some/model --port 1", "0.19.0", "stray_word"),
        ("--disable-prefix-caching", "0.33.0", None),
        ("--disable-prefix-caching", "0.19.0", "unsupported_flag"),
        ("--no-port 1", "0.19.0", "unknown_flag"),
    ],
)
def test_what_a_version_refuses(args: str, version: str, name: str | None) -> None:
    assert objections(args, version) == ([(name, "error")] if name else [])


def test_a_typo_names_the_nearest_flag_and_a_flag_that_went_says_when() -> None:
    (typo,) = problems("0.19.0", ["--gpu-memory-utilisation", "0.8"], {})
    assert typo.way_out == "did you mean --gpu-memory-utilization?"
    (gone,) = problems("0.22.0", ["--swap-space=4"], {})
    assert "0.17.0 was the last that we know to have it; 0.18.0 has not" in gone.text
    assert gone.way_out.startswith("leave it out")
    (young,) = problems("0.19.0", ["--linear-backend", "marlin"], {})
    assert "vLLM 0.19.0 does not know it, 0.22.0 does" in young.text
    assert "VLLM_NVFP4_GEMM_BACKEND" in young.way_out
    (negation,) = problems("0.19.0", ["--disable-prefix-caching"], {})
    assert "vLLM 0.19.0 does not know it, 0.33.0 does" in negation.text


@pytest.mark.parametrize(
    ("environment", "version", "expected"),
    [
        ({"VLLM_NVFP4_GEMM_BACKEND": "marlin"}, "0.19.0", []),
        ({"VLLM_NVFP4_GEMM_BACKEND": "marlin"}, "0.24.0", [("stale_variable", "warn")]),
        ({"VLLM_TEST_FORCE_FP8_MARLIN": "1"}, "0.28.0", []),
        ({"VLLM_TEST_FORCE_FP8_MARLIN": "1"}, "0.29.0", [("stale_variable", "warn")]),
        ({"VLLM_FLASHINFER_MOE_BACKEND": "fast"}, "0.19.0", [("bad_choice", "error")]),
        ({"VLLM_ATTENTION_BACKEND": "TRITON_ATTN"}, "0.19.0", [("unknown_environment", "warn")]),
        ({"VLLM_ENGINE_READY_TIMEOUT": "9"}, "0.33.0", [("unknown_environment", "warn")]),
        ({"NCCL_DEBUG": "INFO", "HF_HOME": "/x"}, "0.19.0", []),
    ],
)
def test_variables(environment: dict[str, str], version: str, expected: list[tuple[str, str]]) -> None:
    found = problems(version, [], environment)
    assert [(each.id, each.severity) for each in found] == expected


def test_a_variable_that_went_names_its_successor() -> None:
    (gone,) = problems("0.24.0", [], {"VLLM_NVFP4_GEMM_BACKEND": "marlin"})
    assert gone.way_out.startswith("--linear-backend")
    (typo,) = problems("0.24.0", [], {"VLLM_ENGINE_READY_TIMEOUT": "1"})
    assert typo.way_out == "did you mean VLLM_ENGINE_READY_TIMEOUT_S?"


def test_a_variable_that_nobody_reads_ends_the_start_where_vllm_was_told_so() -> None:
    given = {"VLLM_ENGINE_READY_TIMEOUT": "9"}
    (mild,) = vllm_cli.of_environment("0.33.0", given)
    (strict,) = vllm_cli.of_environment("0.33.0", given, strict=True)
    assert (mild.severity, strict.severity) == ("warn", "error") and "ends the start" in strict.text


@pytest.mark.parametrize(
    "version", ["0.25.2.dev0+g752a3a504.d20260714", "0.28.1rc1.dev345+g4cc0cb6f7", "0.1.dev20482+g83cb22a0e"]
)
def test_a_build_between_releases_only_warns(version: str) -> None:
    for args in (["--moe-bakend", "marlin"], ["--moe-backend", "b12x_fork"]):
        (found,) = problems(version, args, {})
        assert (found.severity, found.verified) == ("warn", False) and "is no release" in found.text
    assert problems(version, [], {"VLLM_FORK_ONLY": "1"})[0].severity == "warn"


def test_a_version_without_tags_is_no_release() -> None:
    assert vllm_cli.release("0.1.dev20482+g83cb22a0e.d20260903") is None
    assert str(vllm_cli.release("0.25.2.dev0+g752a3a504")) == "0.25.2" and str(vllm_cli.release("0.1.3")) == "0.1.3"


@pytest.mark.parametrize("version", [None, "nightly", "0.99.0", "0.16.0"])
def test_beyond_what_is_known_an_objection_is_a_warning(version: str | None) -> None:
    (found,) = problems(version, ["--moe-bakend", "marlin"], {})
    assert (found.id, found.severity, found.verified) == ("unknown_flag", "warn", False)
    assert found.text.endswith(f"({vllm_cli.unverified(version)})")


def test_beyond_all_that_are_known_the_nearest_one_is_read() -> None:
    oldest, *_, newest = vllm_cli.versions()
    assert vllm_cli.known(vllm_cli.release("0.16.0")) == (vllm_cli.cli(oldest), False)
    assert vllm_cli.known(vllm_cli.release("0.99.0")) == (vllm_cli.cli(newest), False)
    assert vllm_cli.known(newest) == (vllm_cli.cli(newest), True)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("8192", 8192),
        ("8_192", 8192),
        ("32k", 32000),
        ("32K", 32768),
        ("1.5k", 1500),
        ("2M", 2**21),
        ("auto", -1),
        ("-1", -1),
    ],
)
def test_a_size_is_read_as_vllm_reads_it(text: str, tokens: int) -> None:
    assert vllm_cli.size(text) == tokens
    assert objections(f"--max-model-len {text}", "0.33.0") == []


@pytest.mark.parametrize("text", ["1.5K", "1.5", "32kb", "_8", "8__192", "k", "one"])
def test_a_size_that_vllm_refuses(text: str) -> None:
    with pytest.raises(ValueError, match=text):
        vllm_cli.size(text)
    assert objections(f"--max-model-len {text}", "0.33.0") == [("bad_value", "error")]


def test_a_short_flag_may_hold_its_value() -> None:
    read = vllm_cli.words("0.33.0", ["-n2", "-r1"])
    assert (read.values["--nnodes"], read.values["--node-rank"], read.wrong) == (["2"], ["1"], [])


def test_between_two_known_versions_either_one_is_enough() -> None:
    assert objections("--linear-backend marlin", "0.21.0") == []  # 0.20.1 has it not, 0.22.0 has
    assert objections("--quantization gguf", "0.23.0") == []  # 0.22.0 has it, 0.24.0 has not
    assert objections("--moe-backend b12x", "0.28.1") == []  # a choice of 0.29.0
    assert objections("--moe-bakend x", "0.27.0") == [("unknown_flag", "error")]


def test_the_default_of_the_utilization_rose_in_0_20() -> None:
    """utilization_unset and utilization_unset_092 rest on it."""
    flags = {str(each): vllm_cli.cli(each).flags for each in vllm_cli.versions()}
    assert flags["0.19.0"]["--gpu-memory-utilization"]["default"] == 0.9
    assert flags["0.20.1"]["--gpu-memory-utilization"]["default"] == 0.92


def test_the_versions_of_the_catalog() -> None:
    """The ends of the ranges in rules.yml, and what images.yml names."""
    assert {"0.17.0", "0.19.0", "0.22.0", "0.24.0"} <= set(map(str, vllm_cli.versions()))
    assert list(vllm_cli.versions()) == sorted(vllm_cli.versions())


def test_aliases_lead_to_flags() -> None:
    for version in vllm_cli.versions():
        known = vllm_cli.cli(version)
        assert set(known.aliases.values()) <= set(known.flags)
        assert {flag["unless"] for flag in known.flags.values() if "unless" in flag} <= set(known.flags)


def test_a_version_that_is_written_shorter_is_the_same() -> None:
    assert vllm_cli.known(vllm_cli.release("0.19")) == vllm_cli.known(vllm_cli.release("0.19.0"))
