"""The importer of the vendor's recipes, on small documents made after the format that its repository has.

NVIDIA/local-ai-inference-recipes at 12b25c66 (format 3) and dedcf6bc (format 4); names and figures here are our own.
"""

from __future__ import annotations

import copy
import hashlib
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from scripts import import_recipes

ROOT = Path(__file__).parents[3]
COMMIT, DIGEST, REVISION = "c0" * 20, "sha256:" + "d" * 64, "ab" * 20
PATH = "models/acme/small-7b/dgx-spark-2gpu/linux/vllm/nvfp4"
SETUP = """\
# Adjust to your network
export IF="<interface>"
export IMAGE="acme/vllm:latest"

mkdir -p "$HOME/.cache/vllm" "$HOME/.triton"

docker run --rm -it \\
  --privileged \\
  --gpus all --ipc host --network host --shm-size=16g \\
  --ulimit nofile=1048576:1048576 --ulimit memlock=-1 \\
  --security-opt seccomp=unconfined \\
  -e HF_TOKEN=$HF_TOKEN -e NCCL_SOCKET_IFNAME="$IF" -e VLLM_FLOAT32_MATMUL_PRECISION=high \\
  -v "$HOME/.cache/vllm:/root/.cache/vllm" -v "$HOME/.triton:/root/.triton" \\
  --entrypoint /bin/bash \\
  "$IMAGE"
"""
SERVE = """\
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
export VLLM_MOE_SKIP_PADDING="0" # needed since August

VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 \\
vllm serve acme/Small-7B-NVFP4 \\
  --host 0.0.0.0 --port 8000 \\
  --trust-remote-code \\
  --mamba_ssm_cache_dtype float32 \\
  --max-model-len auto --gpu-memory-utilization 0.85 \\
  --default-chat-template-kwargs.thinking=true \\
  --compilation-config '{"a": [1, 2]}' \\
  --speculative_config.method mtp --speculative_config.num_speculative_tokens 3 \\
  --tensor-parallel-size 2 --pipeline-parallel-size 1 --nnodes 2 --node-rank %s \\
  --master-addr "$HEAD_IP" --master-port 29501"""
RECIPE: dict[str, Any] = {
    "schema_version": 4,
    "hardware": "dgx-spark-2gpu",
    "backend": "vllm",
    "status": "optimized",
    "notes": "One thing to know.",
    "precision": {"label": "NVFP4"},
    "checkpoint": {"target_label": "acme/Small-7B-NVFP4", "draft_label": None},
    "topology": {"gpu_count": 2, "node_count": 2, "tensor_parallel_size": 2},
    "runtime": {"image": "acme/vllm:latest", "setup_command": SETUP},
    "serve": {
        "command": SERVE % "0",
        "additional_commands": [{"id": "worker", "command": SERVE % "1" + " --headless"}],
    },
}
PERFORMANCE: dict[str, Any] = {
    "schema_version": 1,
    "measured_at": "2026-09-03",
    "harness": {"name": "aiperf", "version": "0.12.0"},
    "system": {"os_version": "Ubuntu 24.04.4 LTS", "driver_version": "580.1.2", "cuda_version": "13.0"},
    "software": {"backend_version": "0.28.0", "model_revision": REVISION, "runtime_revision": DIGEST},
    "profiles": [
        {"workload": {"concurrency": 8}, "results": {}},
        {
            "workload": {
                "input_tokens_min": 8000, "input_tokens_max": 9000, "output_tokens": 256, "context_tokens": 262144,
                "dataset": "acme/bench", "profile": "throughput_8k", "concurrency": 1, "requests": 10,
                "warmup_requests": 3,
            },
            "results": {
                "prefill_tokens_per_second_mean": 2000.5, "decode_tokens_per_second_mean": 30.25,
                "e2e_latency_ms_mean": 9996.4,
            },
        },
    ],
}  # fmt: skip


def changed(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy in which one field is another one; None takes it out."""
    new = copy.deepcopy(document)
    node: Any = new
    *before, last = path.split(".")
    for key in before:
        node = node[int(key) if key.isdigit() else key]
    if value is None:
        del node[last]
    else:
        node[last] = value
    return new


def texts(recipe: dict[str, Any], performance: dict[str, Any] | None = PERFORMANCE) -> tuple[str, str | None]:
    recipe_text = yaml.safe_dump(recipe)
    if performance is None:
        return recipe_text, None
    checksum = hashlib.sha256(recipe_text.encode()).hexdigest()
    return recipe_text, yaml.safe_dump({"recipe_sha256": checksum, **performance})


def imported(recipe: dict[str, Any] = RECIPE, performance: dict[str, Any] | None = PERFORMANCE) -> dict[str, Any]:
    return import_recipes.entry(*texts(recipe, performance), PATH, COMMIT)


def test_two_documents_become_one_entry() -> None:
    found = imported()
    assert found.pop("recipe_sha256") == hashlib.sha256(texts(RECIPE)[0].encode()).hexdigest()
    assert found == {
        "id": "small-7b-2",
        "path": PATH,
        "commit": COMMIT,
        "status": "optimized",
        "model": "acme/Small-7B-NVFP4",
        "revision": REVISION,
        "precision": "NVFP4",
        "hosts": 2,
        "image": "acme/vllm:latest",
        "digest": DIGEST,
        "version": "0.28.0",
        "utilization": 0.85,
        "max_model_len": "auto",
        "arguments": {
            "--trust-remote-code": None,
            "--mamba-ssm-cache-dtype": "float32",
            "--default-chat-template-kwargs.thinking": "true",
            "--compilation-config": '{"a": [1, 2]}',
        },
        "draft": {"method": "mtp", "num_speculative_tokens": 3},
        "environment": {
            "VLLM_FLOAT32_MATMUL_PRECISION": "high",
            "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
            "VLLM_MOE_SKIP_PADDING": "0",
            "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1",
        },
        "container": {
            "privileged": True,
            "ulimits": {"nofile": "1048576:1048576"},
            "security_options": ["seccomp=unconfined"],
            "folders": ["/root/.triton"],
        },
        "measured": {
            "date": "2026-09-03",
            "driver": "580.1.2",
            "harness": "aiperf 0.12.0",
            "dataset": "acme/bench",
            "profile": "throughput_8k",
            "system": "Ubuntu 24.04.4 LTS",
            "cuda": "13.0",
            "concurrency": 1,
            "requests": 10,
            "warm_up": 3,
            "input_tokens": [8000, 9000],
            "output_tokens": 256,
            "context": 262144,
            "decode": 30.25,
            "prefill": 2000.5,
            "latency_s": 10.0,
        },
        "notes": "One thing to know.",
        "source": "NVIDIA/local-ai-inference-recipes, recipe.yaml and performance.yaml",
        "date": "2026-09-03",
        "confidence": "vendor",
    }


def test_an_entry_keeps_to_the_schema_of_the_catalog() -> None:
    schema = json.loads((ROOT / "catalog/schema/recipes.json").read_text(encoding="utf-8"))
    content = {"repository": "https://x", "conditions": {}, "recipes": [imported()]}
    assert [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(content)] == []


def test_a_recipe_without_a_measurement_is_assumed() -> None:
    found = imported(changed(RECIPE, "status", "experimental"), None)
    assert found["confidence"] == "assumed" and not {"measured", "digest", "revision", "version"} & found.keys()


def test_an_image_that_the_script_names_otherwise_is_told() -> None:
    found = imported(changed(RECIPE, "runtime.image", "acme/vllm:v0.28.0"))
    assert found["image"] == "acme/vllm:v0.28.0"
    assert (
        found["left_out"]["setup_command"]
        == "its docker run names acme/vllm:latest, and runtime.image acme/vllm:v0.28.0"
    )


def without(text: str, words: str, instead: str = "") -> str:
    assert words in text
    return text.replace(words, instead)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("schema_version", 5, "recipe.yaml: schema_version is 5; this reads 3 and 4"),
        ("backend", "llama-cpp", "recipe.yaml: backend is llama-cpp"),
        ("hardware", "rtx-pro", "recipe.yaml: hardware is rtx-pro"),
        ("status", None, "recipe.yaml: status is missing"),
        ("precision.label", 4, "recipe.yaml: precision.label is 4"),
        ("topology.node_count", 0, "recipe.yaml: topology.node_count is 0"),
        ("topology.gpu_count", 4, "recipe.yaml: topology.gpu_count is not topology.node_count"),
        ("checkpoint.target_label", "acme/Other", "and not checkpoint.target_label"),
        ("runtime.image", None, "recipe.yaml: runtime.image is missing"),
        ("runtime.setup_command", "docker ps", "runtime.setup_command: docker is not understood"),
        ("runtime.setup_command", "export A=1", "runtime.setup_command: expected one `docker run`"),
        ("runtime.setup_command", without(SETUP, "--privileged", "--device /dev/x"),
         "--device of docker run is not understood"),
        ("serve.command", "echo hello", "serve.command: echo is no `vllm serve`"),
        ("serve.command", "vllm serve 'a", "serve.command: No closing quotation"),
        ("serve.command", SERVE % "0" + " -n 2", "serve.command: '-n' belongs to no flag"),
        ("serve.command", SERVE % "0" + " --port 1", "serve.command: --port is said twice"),
        ("serve.command", without(SERVE, "size 2", "size 4") % "0", "--tensor-parallel-size is not 2"),
        ("serve.command", without(SERVE, "pipeline-parallel-size 1", "pipeline-parallel-size 2") % "0", "is not 1"),
        ("serve.command", without(SERVE, "0.85", "most") % "0", "--gpu-memory-utilization is 'most'"),
        ("serve.command", without(SERVE, "len auto", "len long") % "0", "--max-model-len is 'long'"),
        ("serve.command", SERVE % "0" + " --speculative-config {", "--speculative-config is no JSON"),
        ("serve.additional_commands.0.command", without(SERVE, "float32", "float16") % "1",
         "serve.additional_commands[0].command serves something else"),
    ],
)  # fmt: skip
def test_a_recipe_that_is_not_as_described_names_the_field(field: str, value: Any, says: str) -> None:
    with pytest.raises(import_recipes.RecipeError) as error:
        imported(changed(RECIPE, field, value))
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("schema_version", 2, "performance.yaml: schema_version is 2"),
        ("measured_at", None, "performance.yaml: measured_at is missing"),
        ("software.model_revision", None, "performance.yaml: software.model_revision is missing"),
        ("software.runtime_revision", "", "performance.yaml: software.runtime_revision is ''"),
        ("profiles", [], "performance.yaml: profiles has none"),
        ("profiles.1.workload.requests", None, "performance.yaml: profiles: workload.requests is missing"),
        ("profiles.1.results.decode_tokens_per_second_mean", -1, "results.decode_tokens_per_second_mean is -1"),
    ],
)
def test_a_measurement_that_is_not_as_described_names_the_field(field: str, value: Any, says: str) -> None:
    with pytest.raises(import_recipes.RecipeError) as error:
        imported(RECIPE, changed(PERFORMANCE, field, value))
    assert says in str(error.value)


def test_a_measurement_belongs_to_one_text_of_a_recipe() -> None:
    recipe, performance = texts(RECIPE)
    with pytest.raises(import_recipes.RecipeError, match="recipe_sha256 is not that of this recipe"):
        import_recipes.entry(recipe + "# a word\n", performance, PATH, COMMIT)


@pytest.mark.parametrize(("text", "says"), [("- 1", "a mapping"), ("a: [", "not YAML")])
def test_what_is_no_document_is_named(text: str, says: str) -> None:
    with pytest.raises(import_recipes.RecipeError, match=f"recipe.yaml: .*{says}"):
        import_recipes.entry(text, None, PATH, COMMIT)


def test_a_checkout_is_read_and_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe, performance = texts(RECIPE)
    folder = tmp_path / PATH
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").write_text(recipe, encoding="utf-8")
    (folder / "performance.yaml").write_text(str(performance), encoding="utf-8")
    assert import_recipes.main([str(tmp_path), COMMIT]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == {"recipes": [imported()]}
    (folder / "recipe.yaml").write_text(recipe.replace("vllm", "other", 1), encoding="utf-8")
    assert import_recipes.main([str(tmp_path), COMMIT]) == 1
    assert PATH in capsys.readouterr().err
    assert import_recipes.main([]) == 2
