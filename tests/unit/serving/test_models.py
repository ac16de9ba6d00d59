"""The catalogs of models and images: what they say of the seeds' models, and that they agree with the others."""

from __future__ import annotations

import re

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import memory_fit, models

SPARK = 121.63 * memory_fit.GIB


@pytest.mark.parametrize(
    "name",
    [
        "openai/gpt-oss-120b", "Qwen/Qwen3-235B-A22B", "Qwen/Qwen3-30B-A3B", "Qwen/Qwen3.6-27B",
        "Qwen/Qwen3.5-122B-A10B", "Qwen/Qwen3.6-35B-A3B", "Qwen/Qwen3.5-397B-A17B", "Qwen/Qwen3-235B-A22B-GPTQ-Int4",
        "Qwen/Qwen3.5-35B-A3B", "nvidia/Qwen3-235B-A22B-NVFP4", "Qwen/Qwen3-Coder-30B-A3B-Instruct", "zai-org/GLM-5",
        "deepseek-ai/DeepSeek-V3",
    ],
)  # fmt: skip
def test_what_the_seeds_name_is_there_whatever_its_capitals(name: str) -> None:
    found = models.find(name.upper())
    assert found and name in (found.id, *(checkpoint.id for checkpoint in found.checkpoints))


def test_what_nobody_knows_is_not_found() -> None:
    assert models.find("Qwen/Qwen3.6-72B") is None
    assert models.find("") is None


def test_ids_are_given_once() -> None:
    ids = [checkpoint.id.lower() for model in models.models() for checkpoint in model.checkpoints]
    assert len(ids) == len(set(ids))
    assert len({model.id.lower() for model in models.models()}) == len(models.models())


def test_every_format_has_its_place_its_needs_and_its_bits() -> None:
    data = catalog.load("models")
    used = {checkpoint.quantization for model in models.models() for checkpoint in model.checkpoints}
    assert used <= set(data["formats"]) == set(data["bits"])
    for entry in data["preference"]:
        assert {name.removesuffix("_verified") for name in entry["order"]} == set(data["formats"])


@pytest.mark.parametrize("checkpoint", [one.id for model in models.models() for one in model.checkpoints])
def test_the_nodes_of_a_checkpoint_are_those_on_which_it_fits(checkpoint: str) -> None:
    model = models.find(checkpoint)
    assert model
    one = model.checkpoint(checkpoint)
    assert one and memory_fit.hosts_needed(model, one, SPARK) == one.nodes


def test_a_contradicted_claim_stands_with_what_speaks_against_it() -> None:
    """Seeds 000 and 002 call these hybrids pure MoE, and NVFP4 the only way for one of them."""
    for name in ("Qwen/Qwen3.6-35B-A3B", "Qwen/Qwen3.5-122B-A10B", "Qwen/Qwen3.5-397B-A17B"):
        model = models.find(name)
        assert model and {"moe", "gdn_hybrid"} <= model.traits
        assert any("Pure MoE" in claim["claim"] and not claim["followed"] for claim in model.claims)
    large = models.find("Qwen/Qwen3.5-122B-A10B")
    assert large and any(one.quantization == "gptq_int4" and one.nodes == 1 for one in large.checkpoints)


@pytest.mark.parametrize("version", [None, "nightly", "muse-glimmer", "0.1.dev20482+g83cb22a0e"])
def test_a_version_that_names_no_release_is_unknown_and_not_old(version: str | None) -> None:
    assert not models.within(version, "<0.24") and models.within(version, ">=0.24", unknown=True)


@pytest.mark.parametrize(
    ("tag", "version", "cuda"),
    [
        ("v0.26.0-aarch64-cu129-ubuntu2404", "0.26.0", "12.9"),
        ("v0.25.1-cu129", "0.25.1", "12.9"),
        ("cu129-nightly-aarch64", None, "12.9"),
        ("v0.26.0-aarch64", "0.26.0", None),
        ("v0.28.0", "0.28.0", None),
    ],
)
def test_the_tag_of_an_image_says_with_which_cuda_it_was_built(tag: str, version: str | None, cuda: str | None) -> None:
    found = models.image(f"vllm/vllm-openai:{tag}")
    assert found and (found.version, found.cuda) == (version, cuda)
    assert ("sm120_cubins" in found.contains) == (cuda is None)


def test_a_checkpoint_is_avoided_in_its_versions_only() -> None:
    model = models.find("nvidia/Qwen3-235B-A22B-NVFP4")
    assert model
    one = model.checkpoint("nvidia/Qwen3-235B-A22B-NVFP4")
    assert one and "22906" in str(one.avoided("0.19.0")) and one.avoided("0.20.0") is None
    assert one.avoided(None), "an unknown version may be one of them"


# --- versions


@pytest.mark.parametrize(
    ("version", "specifier", "inside"),
    [
        ("0.19.0", "<0.20", True),
        ("0.20.0", "<0.20", False),
        ("0.20.0rc1", "<0.20", False),  # what it leads to
        ("0.17.0rc1.dev102+ge68de8adc", ">=0.17.0", True),
        ("0.18.3.dev17+gce884756f.d20260331", ">=0.17,<0.19", True),
        ("0.17.1+a03ca76a.nv26.03.46967107", "==0.17.1", True),
        ("0.33.0", "", True),
        (None, "", True),
        (None, "<0.20", False),
        ("main", "<0.20", False),
    ],
)
def test_ranges_of_versions(version: str | None, specifier: str, inside: bool) -> None:
    assert models.within(version, specifier) is inside


# --- images


@pytest.mark.parametrize(
    ("reference", "version", "contains", "not_contains"),
    [
        ("nvcr.io/nvidia/vllm:26.04-py3", "0.19.0", "ray", "fastsafetensors"),
        ("nvcr.io/nvidia/vllm:26.04-py3@sha256:" + "0" * 64, "0.19.0", "ray", "fastsafetensors"),
        ("nvcr.io/nvidia/vllm:26.03-py3", "0.17.1", "ray", "fastsafetensors"),
        ("nvcr.io/nvidia/vllm:26.05.post1-py3", "0.20.1", "sm120_cubins", "ray"),
        ("nvcr.io/nvidia/vllm:26.10-py3", "0.31.0", "fastsafetensors", "ray"),
        ("vllm/vllm-openai:v0.17.1", "0.17.1", "ray", "fastsafetensors"),
        ("docker.io/vllm/vllm-openai:v0.19.1-cu130", "0.19.1", "sm120_cubins", "ray"),
        ("vllm/vllm-openai:v0.33.0", "0.33.0", "fastsafetensors", "ray"),
        ("vllm/vllm-openai:cu130-nightly-e68de8adc0301bab", "0.17.0rc1.dev102+ge68de8adc", None, "ray"),
        ("vllm/vllm-openai:cu130-nightly", None, "fastsafetensors", "ray"),
        ("vllm-node-tf5:latest", None, "ray", None),
        ("vllm-custom:sm121-inject", "0.17.0rc1.dev102+ge68de8adc", "sm120_cubins", None),
    ],
)  # fmt: skip
def test_what_is_in_an_image(
    reference: str, version: str | None, contains: str | None, not_contains: str | None
) -> None:
    found = models.image(reference)
    assert found and found.version == version
    assert contains is None or contains in found.contains
    assert not_contains not in found.contains
    assert not found.contains & found.lacks


@pytest.mark.parametrize(
    "reference", ["localhost/mine:1", "nvcr.io/nvidia/vllm:25.09-py3", "name@sha256:" + "1" * 64, ""]
)
def test_an_image_that_nobody_described_is_unknown(reference: str) -> None:
    assert models.image(reference) is None


@pytest.mark.parametrize(
    ("reference", "version", "path"),
    [
        ("nvcr.io/nvidia/vllm:25.12-py3", "0.11.1", "/opt/nvidia/nvidia_entrypoint.sh"),
        ("nvcr.io/nvidia/vllm:25.12.post1-py3", "0.12.0", "/opt/nvidia/nvidia_entrypoint.sh"),
        ("nvcr.io/nvidia/vllm:26.01-py3", "0.13.0", "/opt/nvidia/nvidia_entrypoint.sh"),
        ("nvcr.io/nvidia/vllm@sha256:" + "a" * 64, None, "/opt/nvidia/nvidia_entrypoint.sh"),
        ("nvcr.io/nvidia/vllm:26.12-py3", None, "/opt/nvidia/nvidia_entrypoint.sh"),
        ("vllm/vllm-openai:v0.32.0", "0.32.0", ""),
        ("registry.lan/nvidia/vllm:26.08-py3", None, ""),
    ],
)
def test_images_of_ngc_have_an_entrypoint_and_the_version_that_they_say(
    reference: str, version: str | None, path: str
) -> None:
    known = models.image(reference)
    assert (known.version if known else None) == version and models.entrypoint(reference) == path


def test_a_listed_digest_names_its_image(monkeypatch: pytest.MonkeyPatch) -> None:
    digest = "sha256:" + "a" * 64
    (known,) = [each for each in catalog.load("images")["images"] if each.get("version") == "0.19.0"]
    entry = {**known, "digests": [digest]}
    monkeypatch.setattr(catalog, "load", lambda _name: {"images": [entry]})
    found = models.image(f"registry.example/mirror/vllm@{digest}")
    assert found and found.version == "0.19.0" and found.digest == digest


def test_images_agree_with_the_security_floors() -> None:
    """Two catalogs know NVIDIA's tags: one for what is inside, one for what is too old."""
    for entry in catalog.load("security_floors")["images"]:
        if "contains" in entry:
            reference = re.sub(r"\[(.)\]", r"\1", entry["value"])
            found = models.image(reference)
            assert found and found.version == entry["contains"]["vLLM"], reference
