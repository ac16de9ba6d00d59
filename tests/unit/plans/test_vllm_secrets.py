"""Names of secrets in the container's environment, which everyone on the host can read; and odd draft tokens."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.plan_and_role import role

IMAGE = "vllm/vllm-openai:v0.32.0"


def refusals(**variables: Any) -> tuple[str, ...]:
    return tuple(role({"vllm_model": "openai/gpt-oss-120b", "vllm_image": IMAGE, **variables}).refusals)


@pytest.mark.parametrize(
    "name",
    ["AWS_CREDENTIALS", "AWS_SECRET_ACCESS_KEY", "AZURE_ACCOUNT_KEY", "DB_PASSWD", "GIT_CREDENTIAL", "SSH_PRIVATE_KEY"],
)
def test_a_secret_by_its_name_is_refused_with_a_way_out(name: str) -> None:
    (text,) = refusals(vllm_environment={name: "x"})
    assert name in text and "vllm_mounts gives it to the container" in text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS_SHARED_CREDENTIALS_FILE", "/run/secrets/aws"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/run/secrets/google.json"),
        ("VLLM_KEYBOARD", "1"),
        ("TOKENIZERS_PARALLELISM", "false"),
    ],
)
def test_the_path_of_a_file_and_another_word_pass(name: str, value: str) -> None:
    assert refusals(vllm_environment={name: value}) == ()


@pytest.mark.parametrize(
    ("wish", "says"),
    [
        ({"method": ["mtp"], "tokens": 2}, "vllm_speculative.method is ['mtp']. Write one name"),
        ({"method": "mtp", "tokens": 10**9}, "vllm_speculative.tokens is 1000000000. At most 64"),
    ],
)
def test_draft_tokens_that_no_start_survives(wish: dict[str, Any], says: str) -> None:
    assert any(says in text for text in refusals(vllm_speculative=wish))
    assert refusals(vllm_speculative={"method": "ngram", "tokens": 64}) == ()
