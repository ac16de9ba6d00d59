"""Which releases of vLLM load an architecture, and the tool that reads it from their registries."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import architectures, models, vllm_cli

from scripts import vllm_models
from scripts.vllm_cli import Source, Unknown

REGISTRY = """
raise SystemExit("ran")
_TEXT_GENERATION_MODELS = {"OneForCausalLM": ("one", "One"), "TwoForCausalLM": ("two", "Two")}
_MULTIMODAL_MODELS = {"SeeForConditionalGeneration": ("see", "See")}
_OTHER = {"NoModel": ("no", "No")}
"""


@pytest.mark.parametrize(
    ("name", "version", "kind"),
    [
        ("DeepseekV4ForCausalLM", "0.19.0", "too_new"),
        ("DeepseekV4ForCausalLM", "0.20.1", None),
        ("Qwen4ExpForConditionalGeneration", "0.28.1rc1.dev345+g4cc0cb6f7", "too_new"),
        ("Qwen4ExpForConditionalGeneration", "0.33.0", None),
        ("Qwen4ExpForConditionalGeneration", "0.40.0", None),
        ("DeepseekV4ForCausalLM", None, None),  # nothing is known of the image
        ("DeepseekV4ForCausalLM", "0.1.dev20482+g83cb22a0e", None),
        ("Qwen3ForCausalLM", "0.11.0", None),  # older than what was read
        ("MadeUpForCausalLM", "0.33.0", "unknown"),
    ],
)
def test_what_speaks_against_an_architecture(name: str, version: str | None, kind: str | None) -> None:
    found = architectures.objection(name, version)
    assert (found[0] if found else None) == kind


def test_what_is_gone_is_known_by_its_last_release() -> None:
    content = vllm_models.kept(architectures._content())
    gone = next(name for name in content["0.17.0"] if name not in content[architectures.newest()])
    found = architectures.objection(gone, "0.33.0")
    assert found and found[0] == "gone" and "was the last" in found[1]


def test_the_catalog_has_every_release_whose_flags_are_known_and_every_model() -> None:
    content = architectures._content()
    assert set(map(str, vllm_cli.versions())) <= set(content["versions"])
    assert {model.architecture for model in models.models()} <= set(content["architectures"])


def test_the_registry_is_read_and_not_run(tmp_path: Path) -> None:
    file = tmp_path / "vllm" / "model_executor" / "models" / "registry.py"
    file.parent.mkdir(parents=True)
    for folder in (file.parent, file.parents[1], file.parents[2]):
        (folder / "__init__.py").write_text("", encoding="utf-8")
    file.write_text(REGISTRY, encoding="utf-8")
    found = vllm_models.architectures(Source(tmp_path))
    assert found == {"OneForCausalLM", "TwoForCausalLM", "SeeForConditionalGeneration"}
    file.write_text("_OTHER = {}", encoding="utf-8")
    with pytest.raises(Unknown, match="none of the tables"):
        vllm_models.architectures(Source(tmp_path))


def test_what_comes_goes_and_comes_back_is_kept() -> None:
    known = {"0.9.0": {"A"}, "0.10.0": {"B"}, "0.11.0": {"A", "B"}}
    content = vllm_models.joined(known)
    assert content["architectures"] == {"A": [["0.9.0", "0.9.0"], ["0.11.0"]], "B": [["0.10.0"]]}
    assert vllm_models.kept(content) == known and '"A": [["0.9.0", "0.9.0"], ["0.11.0"]]' in vllm_models.written(
        content
    )
