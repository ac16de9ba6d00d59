"""Names near a misspelt one."""

from __future__ import annotations

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import models
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.names import CLOSE, nearest


@pytest.mark.parametrize(
    ("wrong", "first"),
    [
        ("openai/gpt-oss-12b", "openai/gpt-oss-120b"),
        ("OpenAI/GPT-OSS-120B", "openai/gpt-oss-120b"),
        ("gpt-oss-120b", "openai/gpt-oss-120b"),
        ("Qwen/Qwen3.6-35B-A3B-NVFP4", "nvidia/Qwen3.6-35B-A3B-NVFP4"),
        ("qwen/qwen3_30b_a3b", "Qwen/Qwen3-30B-A3B"),
    ],
)
def test_a_misspelt_model_has_its_name_first(wrong: str, first: str) -> None:
    assert models.nearest(wrong)[0] == first


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("Qwen/Qwen3-Embedding-06B", ("Qwen/Qwen3-Embedding-0.6B",)),
        ("Qwen/Qwen3-Reranker-06B", ("Qwen/Qwen3-Reranker-0.6B",)),
        ("openai/whisper-large-v3", ()),
    ],
)
def test_a_model_that_does_not_chat_has_no_chat_model_beside_it(wrong: str, near: tuple[str, ...]) -> None:
    assert models.nearest(wrong) == near


def test_a_name_says_the_task_that_the_catalog_says() -> None:
    assert {model.id: models.task_of_name(model.id) for model in models.models()} == {
        model.id: model.task for model in models.models()
    }


def test_another_name_has_no_neighbour() -> None:
    assert models.nearest("acme/zzz-1") == ()
    assert nearest("aaaa/bbbb", ["aaab/bbbb", "cccc/dddd"]) == ("aaab/bbbb",)


def test_a_misspelt_name_is_told_from_another_model() -> None:
    assert nearest("openai/gpt-oss-120", models.ids(), at_least=CLOSE) == ("openai/gpt-oss-120b",)
    assert nearest("acme/gpt-neox-20b", models.ids(), at_least=CLOSE) == ()


def test_no_more_than_asked_for() -> None:
    assert len(models.nearest("Qwen/Qwen3", count=2)) <= 2
