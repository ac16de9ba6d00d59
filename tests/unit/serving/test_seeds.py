"""What the seeds say to do and not to do, row by row: wrong examples are refused, what worked is accepted.

The seeds are five texts by owners of DGX Sparks: 000 to 002 Conselara (May 2026), 003 Lablup (February 2026), 004 a
thread of NVIDIA's forum (March 2026). Each row names the seed and its lines. Where later evidence is against a seed,
the row says what is true now: a warning in the place of "never", or a seed's own advice that is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render import Rendered, render
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import models
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.rules import Profile, judge

from tests.support.proofs import facts


@dataclass(frozen=True)
class Image:
    reference: str
    version: str
    contains: frozenset[str] = frozenset()


NGC = Image("nvcr.io/nvidia/vllm:26.04-py3", "0.19.0", frozenset({"ray"}))  # what seeds 000 to 002 ran
NEWER = Image("vllm/vllm-openai:v0.24.0", "0.24.0", frozenset({"fastsafetensors"}))
NEWEST = Image("vllm/vllm-openai:v0.33.0", "0.33.0", frozenset({"fastsafetensors"}))
INJECTED = Image("vllm-custom:sm121-inject", "0.17.0rc1.dev102+ge68de8adc")  # what seed 004 built
EUGR = Image("vllm-node:eugr", "0.18.3.dev17+gce884756f.d20260331", frozenset({"fastsafetensors", "ray"}))

MODELS = {  # (traits, quantization)
    "Qwen/Qwen3-235B-A22B-GPTQ-Int4": ({"moe"}, "gptq_int4"),
    "nvidia/Qwen3-235B-A22B-NVFP4": ({"moe"}, "nvfp4"),
    "Qwen/Qwen3-30B-A3B": ({"moe"}, "bf16"),
    "Qwen/Qwen3-30B-A3B-FP8": ({"moe"}, "fp8"),
    "nvidia/Qwen3-30B-A3B-NVFP4": ({"moe"}, "nvfp4"),
    "openai/gpt-oss-120b": ({"moe", "sliding"}, "mxfp4"),
    "Qwen/Qwen3.6-27B": ({"dense", "gdn_hybrid", "multimodal"}, "bf16"),
    "Qwen/Qwen3.6-27B-FP8": ({"dense", "gdn_hybrid", "multimodal"}, "fp8"),
    "nvidia/Qwen3.6-27B-NVFP4": ({"dense", "gdn_hybrid", "multimodal"}, "nvfp4"),
    "Qwen/Qwen3.6-35B-A3B-FP8": ({"moe", "gdn_hybrid", "multimodal"}, "fp8"),
    "Qwen/Qwen3.5-35B-A3B": ({"moe", "gdn_hybrid", "multimodal"}, "bf16"),
    "Qwen/Qwen3.5-35B-A3B-FP8": ({"moe", "gdn_hybrid", "multimodal"}, "fp8"),
    "Qwen/Qwen3.5-122B-A10B": ({"moe", "gdn_hybrid", "multimodal"}, "bf16"),
    "Sehyo/Qwen3.5-122B-A10B-NVFP4": ({"moe", "gdn_hybrid", "multimodal"}, "nvfp4"),
    "Qwen/Qwen3.5-122B-A10B-GPTQ-Int4": ({"moe", "gdn_hybrid", "multimodal"}, "gptq_int4"),
    "nvidia/Qwen3.5-397B-A17B-NVFP4": ({"moe", "gdn_hybrid", "multimodal"}, "nvfp4"),
    "zai-org/GLM-5": ({"moe", "mla"}, "bf16"),
    "Qwen/Qwen3.5-397B-A17B-NVFP4": ({"moe", "gdn_hybrid", "multimodal"}, "nvfp4"),
}
SAFE = "--gpu-memory-utilization 0.80"
MARLIN = {"VLLM_NVFP4_GEMM_BACKEND": "marlin"}
RAY = {"RAY_memory_monitor_refresh_ms": "0"}
PAIR = "--tensor-parallel-size 2 --enable-expert-parallel --distributed-executor-backend ray"


@dataclass(frozen=True)
class Row:
    """`refused` are the rules that must refuse, exactly; `warned` and `told` must be among the warnings and notes."""

    seed: str
    says: str
    model: str
    args: str = SAFE
    image: Image = NGC
    environment: Mapping[str, str] = field(default_factory=dict)
    hosts: int = 1
    executor: str = "mp"
    driver: str = "580.142"
    listen: str = "127.0.0.1"
    container: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    warned: frozenset[str] = frozenset()
    told: frozenset[str] = frozenset()

    def profile(self) -> Profile:
        traits, quantization = MODELS[self.model]
        return Profile(
            model=self.model,
            traits=frozenset(traits),
            quantization=quantization,
            image=self.image.reference,
            version=self.image.version,
            contains=self.image.contains,
            lacks=known.lacks if (known := models.image(self.image.reference)) else frozenset(),
            args=tuple(self.args.split()),
            environment=self.environment,
            hosts=self.hosts,
            executor=self.executor,
            driver=self.driver,
            listen=self.listen,
            container=self.container,
        )


def these(*names: str) -> frozenset[str]:
    return frozenset(names)


WRONG = [
    # --- the FP4 kernels of CUTLASS
    Row("000:3 001:37", "CUTLASS FP4: silent garbage", "nvidia/Qwen3-30B-A3B-NVFP4",
        refused=these("nvfp4_moe", "nvfp4_linear")),
    Row("001:98", "CUTLASS FP4, chosen by name", "nvidia/Qwen3-30B-A3B-NVFP4", SAFE + " --moe-backend cutlass",
        refused=these("nvfp4_moe", "nvfp4_linear")),
    Row("002:164", "never CUTLASS FP4, of the dense layers either", "nvidia/Qwen3.6-27B-NVFP4",
        refused=these("nvfp4_linear")),
    Row("002:164", "marlin for MoE does nothing for dense layers", "nvidia/Qwen3-30B-A3B-NVFP4",
        SAFE + " --moe-backend marlin", refused=these("nvfp4_linear")),
    # From 0.24 on vLLM's recipes verify native FP4 on a GB10, so it is a note that sends to the canary.
    Row("002:164", "never CUTLASS FP4: no longer so", "nvidia/Qwen3-30B-A3B-NVFP4", image=NEWER,
        told=these("nvfp4_native")),
    Row("001:90 002:162", "MoE without marlin is garbage: of NVFP4", "Sehyo/Qwen3.5-122B-A10B-NVFP4",
        environment=MARLIN, refused=these("nvfp4_moe")),
    # The seeds' own rule, taken by the word, ends the start of a model that is not quantized.
    Row("002:162", "the MoE backend must be marlin: not in BF16", "Qwen/Qwen3-30B-A3B", SAFE + " --moe-backend marlin",
        refused=these("moe_marlin_bf16")),
    Row("001:99", "FlashInfer's MoE backends are absent: TRTLLM's are", "Qwen/Qwen3-30B-A3B-FP8",
        SAFE + " --moe-backend flashinfer_trtllm", refused=these("moe_kernel_absent")),
    # An open report on accuracy, and weeks without a fault by another owner.
    Row("001:99", "FlashInfer's MoE backend with FP8", "Qwen/Qwen3-30B-A3B-FP8",
        SAFE + " --moe-backend flashinfer_cutlass", warned=these("fp8_moe_flashinfer")),
    # --- attention
    # The issue that the seeds cite is about other GPUs, and NVIDIA's playbook uses FlashInfer on Sparks.
    Row("001:99 002:170", "FlashInfer with an fp8 KV cache", "Qwen/Qwen3.6-27B-FP8",
        SAFE + " --kv-cache-dtype fp8 --attention-backend FLASHINFER", told=these("attention_fp8_kv")),
    Row("002:170", "FP8 without TRITON_ATTN: vLLM takes FlashInfer by itself", "Qwen/Qwen3.6-27B-FP8",
        SAFE + " --kv-cache-dtype fp8", told=these("attention_fp8_kv")),
    Row("003:27", "FlashMLA", "zai-org/GLM-5", SAFE + " --attention-backend FLASHMLA --tensor-parallel-size 8", hosts=8,
        refused=these("attention_kernel_absent")),
    Row("003:27", "sparse FlashMLA, in the newest, too", "zai-org/GLM-5", SAFE + " --attention-backend FLASHMLA_SPARSE",
        image=NEWEST, hosts=8, refused=these("attention_kernel_absent")),
    Row("003:27", "FlashAttention 4", "Qwen/Qwen3-30B-A3B", SAFE + " --attention-config.flash_attn_version 4",
        refused=these("flash_attention_version")),
    Row("003:70", "FlashAttention with an fp8 KV cache", "Qwen/Qwen3-30B-A3B",
        SAFE + " --attention-backend FLASH_ATTN --kv-cache-dtype fp8", refused=these("flash_attention_fp8_kv")),
    # Not refused: a dense MLA model runs by TRITON_MLA, which vLLM chooses by itself.
    Row("003:71", "MLA has no kernel of its own", "zai-org/GLM-5", hosts=8, warned=these("mla_kernels")),
    # --- memory
    Row("001:46 002:161", "utilization above 0.90", "Qwen/Qwen3-30B-A3B-FP8", "--gpu-memory-utilization 0.95",
        refused=these("utilization_above_090")),
    Row("001:46", "utilization left alone, in the newest 0.92", "Qwen/Qwen3-30B-A3B-FP8", "", image=NEWEST,
        refused=these("utilization_unset_092")),
    Row("001:46", "utilization left alone, 0.90", "Qwen/Qwen3-30B-A3B-FP8", "", warned=these("utilization_unset")),
    Row("000:21 002:144", "397B in NVFP4 on two: it does not fit", "nvidia/Qwen3.5-397B-A17B-NVFP4",
        SAFE + " --tensor-parallel-size 2 --moe-backend marlin", environment=MARLIN, hosts=2,
        refused=these("nvfp4_397b")),
    Row("000:21", "122B in BF16 does not fit", "Qwen/Qwen3.5-122B-A10B", refused=these("bf16_122b")),
    # --- speed
    # A way to find a fault, and the way past some deadlocks; so no error.
    Row("001:101 002:160 002:171", "--enforce-eager", "Qwen/Qwen3-30B-A3B-FP8", SAFE + " --enforce-eager",
        warned=these("enforce_eager")),
    Row("003:71", "vLLM requires --enforce-eager: no longer so", "Qwen/Qwen3-30B-A3B-FP8", SAFE + " --enforce-eager",
        warned=these("enforce_eager")),
    # Against the seed: the cap is 512 by itself.
    Row("001:94", "--max-cudagraph-capture-size=2048 is required", "Qwen/Qwen3-30B-A3B-FP8",
        SAFE + " --max-cudagraph-capture-size=2048", told=these("capture_size_above_512")),
    Row("001:94", "... and keeps a hybrid from starting on 0.17", "Qwen/Qwen3.5-35B-A3B-FP8",
        SAFE + " --max-cudagraph-capture-size=2048", image=INJECTED, refused=these("capture_size_gdn"),
        told=these("capture_size_above_512")),
    # --- formats and loading
    Row("001:100 002:134 002:169", "mxfp4 on a BF16 checkpoint", "Qwen/Qwen3-30B-A3B", SAFE + " --quantization=mxfp4",
        refused=these("mxfp4_other_model")),
    # 0.20 has a loader of that name for other models; nobody has reported it.
    Row("002:134", "mxfp4 on a BF16 checkpoint, on the newest", "Qwen/Qwen3-30B-A3B", SAFE + " -q mxfp4", image=NEWEST,
        warned=these("mxfp4_other_model_new")),
    Row("001:102", "fastsafetensors in NGC 26.04", "Qwen/Qwen3-30B-A3B-FP8", SAFE + " --load-format=fastsafetensors",
        refused=these("fastsafetensors_missing")),
    Row("002:168", "the NVFP4 checkpoint of 235B, as it stands", "nvidia/Qwen3-235B-A22B-NVFP4",
        SAFE + " --tensor-parallel-size 2", hosts=2, refused=these("nvfp4_moe", "nvfp4_linear"),
        warned=these("nvfp4_235b")),
    # The issue is of vLLM 0.10, and vLLM's recipes list a sibling by now: with Marlin, a warning.
    Row("002:168", "the NVFP4 checkpoint of 235B, by Marlin", "nvidia/Qwen3-235B-A22B-NVFP4",
        SAFE + " --tensor-parallel-size 2 --moe-backend marlin", environment=MARLIN, hosts=2,
        warned=these("nvfp4_235b")),
    Row("004:379", "FP8 on the fly, where FP8 is published", "Qwen/Qwen3.5-35B-A3B", SAFE + " --quantization fp8",
        told=these("fp8_on_the_fly")),
    # --- more than one host
    Row("001:49", "Ray without RAY_memory_monitor_refresh_ms=0", "Qwen/Qwen3-235B-A22B-GPTQ-Int4", f"{SAFE} {PAIR}",
        hosts=2, executor="ray", refused=these("ray_memory_monitor")),
    Row("001:51", "TP=2 on one Spark", "Qwen/Qwen3-30B-A3B-FP8", SAFE + " -tp 2", refused=these("world_too_large")),
    Row("000:15", "Ray in an image without it", "Qwen/Qwen3-235B-A22B-GPTQ-Int4", f"{SAFE} {PAIR}", hosts=2,
        executor="ray", environment=RAY, image=NEWER, refused=these("ray_missing")),
    # The index differs between machines; a note, since NCCL 2.21 finds it.
    Row("001:84", "NCCL_IB_GID_INDEX=3 on every machine", "Qwen/Qwen3-235B-A22B-GPTQ-Int4", f"{SAFE} {PAIR}", hosts=2,
        executor="ray", environment={**RAY, "NCCL_IB_GID_INDEX": "3"}, warned=these("gid_index_by_hand")),
    # --- the host: one source, others run 590
    Row("001:61 002:163", "driver 590", "Qwen/Qwen3-30B-A3B-FP8", driver="590.44.01", told=these("driver_590")),
    # --- seed 004's own ways
    Row("004:18-20", "TORCH_CUDA_ARCH_LIST=12.1, the ptxas error", "Qwen/Qwen3.5-35B-A3B-FP8",
        environment={"TORCH_CUDA_ARCH_LIST": "12.1"}, refused=these("build_for_12_1")),
    Row("004:83", "TORCH_CUDA_ARCH_LIST=12.1 on 0.17: taken as 12.0", "Qwen/Qwen3.5-35B-A3B-FP8", image=INJECTED,
        environment={"TORCH_CUDA_ARCH_LIST": "12.1"}, told=these("build_for_12_1_filtered")),
    Row("004:54-58", "the patch from 12.0f to 12.0a", "Qwen/Qwen3.5-35B-A3B-FP8",
        image=Image("vllm-custom:sm121-inject", "0.17.0rc1", these("patch_fp4_120a")),
        refused=these("build_patch_fp4")),
    Row("004:140-162", "docker run -d -p 8000:8000, 0.0.0.0, no key", "Qwen/Qwen3.5-35B-A3B",
        "--port 8000 --host 0.0.0.0 --gpu-memory-utilization 0.65 --quantization fp8 --kv-cache-dtype fp8",
        image=INJECTED, container=these("detached", "published_port"),
        refused=these("host_header_bypass", "public_without_key", "published_port"), warned=these("detached")),
    Row("004:355", "0.0.0.0 without a key", "Qwen/Qwen3.5-35B-A3B",
        "--port 8000 --host 0.0.0.0 --gpu-memory-utilization 0.7 --load-format fastsafetensors", image=EUGR,
        refused=these("host_header_bypass", "public_without_key")),
    Row("004:355", "a flag of this thread on an image without the package", "Qwen/Qwen3.5-35B-A3B",
        "--gpu-memory-utilization 0.7 --load-format fastsafetensors", image=INJECTED,
        told=these("fastsafetensors_missing")),
]  # fmt: skip

WORKED = [
    Row("000:15", "235B GPTQ-Int4 over Ray, two Sparks, NGC 26.04", "Qwen/Qwen3-235B-A22B-GPTQ-Int4",
        f"{PAIR} --attention-backend=TRITON_ATTN --quantization=gptq_marlin --kv-cache-dtype=fp8"
        " --gpu-memory-utilization=0.87", hosts=2, executor="ray", environment=RAY,
        warned=these("utilization_above_085")),
    Row("001:86-94", "all flags of the table of what works", "Qwen/Qwen3-235B-A22B-GPTQ-Int4",
        f"{PAIR} --attention-backend=TRITON_ATTN --moe-backend=marlin --quantization gptq_marlin --kv-cache-dtype=fp8"
        " --max-cudagraph-capture-size=2048 --gpu-memory-utilization 0.85", hosts=2, executor="ray", environment=RAY),
    Row("001:92 002:128 002:138", "gpt-oss-120b, mxfp4", "openai/gpt-oss-120b", SAFE + " --quantization=mxfp4"),
    Row("000:21", "gpt-oss-120b with 128K context", "openai/gpt-oss-120b", SAFE + " --max-model-len 131072"),
    Row("002:130 002:139", "GPTQ-Int4 by gptq_marlin", "Qwen/Qwen3-235B-A22B-GPTQ-Int4",
        f"{SAFE} {PAIR} --quantization=gptq_marlin", hosts=2, executor="ray", environment=RAY),
    Row("002:131", "FP8 by --quantization=fp8", "Qwen/Qwen3-30B-A3B-FP8", SAFE + " --quantization=fp8"),
    Row("002:132 002:140", "BF16 without a flag", "Qwen/Qwen3-30B-A3B"),
    Row("002:140", "30B in NVFP4, by Marlin", "nvidia/Qwen3-30B-A3B-NVFP4", SAFE + " --moe-backend marlin",
        environment=MARLIN),
    Row("002:140", "30B in FP8", "Qwen/Qwen3-30B-A3B-FP8"),
    Row("002:141", "27B, a dense hybrid, in FP8", "Qwen/Qwen3.6-27B-FP8"),
    Row("002:142", "122B in NVFP4 on one Spark, by Marlin", "Sehyo/Qwen3.5-122B-A10B-NVFP4",
        SAFE + " --moe-backend marlin", environment=MARLIN),
    Row("002:142", "122B in GPTQ-Int4, which the seeds did not know", "Qwen/Qwen3.5-122B-A10B-GPTQ-Int4"),
    Row("002:143", "35B-A3B in FP8", "Qwen/Qwen3.6-35B-A3B-FP8"),
    Row("002:143", "35B-A3B in FP8 by Marlin", "Qwen/Qwen3.6-35B-A3B-FP8", SAFE + " --moe-backend marlin"),
    Row("002:170", "FP8 with TRITON_ATTN", "Qwen/Qwen3.6-27B-FP8",
        SAFE + " --kv-cache-dtype fp8 --attention-backend TRITON_ATTN"),
    Row("004:140-162", "the injected image, behind loopback", "Qwen/Qwen3.5-35B-A3B",
        "--served-model-name qwen3.5-35b --port 8000 --max-model-len 32768 --gpu-memory-utilization 0.65"
        " --quantization fp8 --kv-cache-dtype fp8", image=INJECTED,
        environment={"VLLM_FLASHINFER_MOE_BACKEND": "latency", "VLLM_TEST_FORCE_FP8_MARLIN": "1"},
        told=these("flashinfer_moe_latency", "force_fp8_marlin", "fp8_on_the_fly")),
    Row("004:333", "35B-A3B in FP8, a nightly of eugr's", "Qwen/Qwen3.5-35B-A3B-FP8", SAFE, image=EUGR),
    Row("004:353-355", "a local model with parsers and fastsafetensors", "Qwen/Qwen3.5-35B-A3B",
        "--port 8000 --gpu-memory-utilization 0.7 --served-model-name Qwen3.5-35B-A3B --tool-call-parser qwen3_coder"
        " --enable-auto-tool-choice --reasoning-parser qwen3 --load-format fastsafetensors", image=EUGR),
]  # fmt: skip


def named(row: Row) -> str:
    return f"{row.seed} {row.says}"


@pytest.mark.parametrize("row", WRONG, ids=named)
def test_a_wrong_example_of_a_seed_is_refused(row: Row) -> None:
    fired = judge(row.profile())
    assert {each.id for each in fired if each.severity == "error"} == row.refused
    assert row.warned <= {each.id for each in fired if each.severity == "warn"}
    assert row.told <= {each.id for each in fired if each.severity == "info"}
    assert row.refused or row.warned or row.told, "a wrong example that nothing is said about"
    for each in fired:
        if each.id in row.refused | row.warned:
            assert each.text and each.way_out and each.sources


@pytest.mark.parametrize("row", WORKED, ids=named)
def test_what_worked_for_a_seed_is_accepted(row: Row) -> None:
    fired = judge(row.profile())
    assert [f"{each.id}: {each.text}" for each in fired if each.severity == "error"] == []
    assert row.warned <= {each.id for each in fired if each.severity == "warn"}
    assert row.told <= {each.id for each in fired if each.severity == "info"}


# --- the same rows as an inventory would say them to the role vllm, and what its document makes of them

# What the role has a variable for.
OF_THE_ROLE = {
    "--gpu-memory-utilization": "vllm_gpu_memory_utilization", "--max-model-len": "vllm_max_model_len",
    "--tensor-parallel-size": "vllm_tensor_parallel_size", "-tp": "vllm_tensor_parallel_size",
    "--served-model-name": "vllm_served_model_name", "--host": "vllm_host", "--port": "vllm_port",
}  # fmt: skip
# What an inventory cannot get wrong: no port is published, the memory's share is always said, Ray starts as it should.
NEVER_SAID = these("published_port", "detached", "utilization_unset", "utilization_unset_092", "ray_memory_monitor")
# It says these in its own words.
OWN_WORDS = {
    "utilization_above_090": "vllm_gpu_memory_utilization",
    "public_without_key": "vllm_api_key is empty",
    "world_too_large": "does not divide",
}
# What the catalog does not know of an image.
PACKAGE = {"fastsafetensors_missing": "imported in the image on 2026-11-21"}


def by_the_role(row: Row, model: str = "", **variables: Any) -> Rendered:
    """What the role says on the first of the row's hosts."""
    said: dict[str, Any] = {
        "vllm_model": model or row.model,
        "vllm_image": row.image.reference,
        "vllm_allow_tag": True,
        "vllm_version": row.image.version,
        "vllm_environment": dict(row.environment),
        "vllm_flags": "none",
        "vllm_extra_args": [],
        "vllm_host": row.listen,
        "fabric_topology": {1: "none", 2: "pair"}.get(row.hosts, "switch"),
        **variables,
    }
    words = row.args.replace("=", " ").split()
    while words:
        word = words.pop(0)
        if word in OF_THE_ROLE:
            said[OF_THE_ROLE[word]] = words.pop(0)
        elif word == "--distributed-executor-backend":
            said |= {"vllm_executor": words.pop(0), "vllm_ray_token": "0" * 32}
        else:
            said["vllm_extra_args"].append(word)
    members = [f"spark-{number}" for number in range(row.hosts)]
    known = {name: {**facts(name), "driver": {**facts()["driver"], "userland": row.driver}} for name in members}
    return render(
        "vllm",
        View(
            members[0],
            known[members[0]],
            said,
            members,
            {name: known[name] for name in members[1:]},
            dict.fromkeys(members[1:], said),
        ),
    )


def refusing(rendered: Rendered) -> set[str]:
    """The rules that refuse, also those in the words of the role."""
    texts = rendered.refusals
    named_rules = {found[1] for text in texts if (found := re.match(r"rule (\w+): ", text))}
    own = {rule for rule, words in OWN_WORDS.items() if any(words in text for text in texts)}
    assert len(named_rules) + len(own) == len(texts), texts
    return named_rules | own


# What a build of one's own contains is not said in an inventory.
SAID = [row for row in WRONG if not row.image.contains - these("ray", "fastsafetensors")]


@pytest.mark.parametrize("row", SAID, ids=named)
def test_the_role_refuses_what_a_seed_says_not_to_do(row: Row) -> None:
    rendered = by_the_role(row, vllm_accept={} if (row.refused | row.warned) & set(PACKAGE) else PACKAGE)
    assert refusing(rendered) - {"memory_fit"} == row.refused - NEVER_SAID
    warned = {each["id"] for each in rendered.findings if each["severity"] == "warn"}
    assert row.warned - NEVER_SAID <= warned


@pytest.mark.parametrize("row", WORKED, ids=named)
def test_the_role_serves_what_worked_for_a_seed(row: Row) -> None:
    rendered = by_the_role(row, vllm_accept=PACKAGE)
    assert rendered.refusals == []
    assert row.warned <= {each["id"] for each in rendered.findings}


def test_all_seeds_are_there() -> None:
    assert {word[:3] for row in WRONG + WORKED for word in row.seed.split()} == {"000", "001", "002", "003", "004"}


@pytest.mark.parametrize("image", [NGC, NEWER, NEWEST], ids=lambda image: image.reference)
def test_the_catalog_knows_these_images_as_the_rows_do(image: Image) -> None:
    known = models.image(image.reference)
    assert known is not None and known.version == image.version
