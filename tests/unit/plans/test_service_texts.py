"""What an entry of `vllm_services` says in words, where a unit, a process list or an error would show it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render import render
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import planner as vllm

from tests.unit.plans.test_services import EMBED, HEAR, document, view

BOTH = [EMBED, HEAR]


@pytest.mark.parametrize("entry", BOTH, ids=["vllm", "container"])
@pytest.mark.parametrize(
    "name", ["a\n[Service]\nExecStartPre=/bin/true", "a\\", "a\r", "a\0b", "\x1b[31m", "a\x7f", "a\u2028b"]
)
def test_a_name_that_a_unit_cannot_show_is_refused(entry: dict[str, Any], name: str) -> None:
    rendered = render("vllm", view({"one": entry | {"served_model_name": name}}))
    assert any("one: vllm_served_model_name is" in text for text in rendered.refusals)
    assert not [each for each in rendered.resources if "unit" in each]


def test_a_percent_sign_of_a_name_is_no_specifier_of_systemd() -> None:
    made = document({"hear": HEAR | {"served_model_name": "100%n"}}).resources
    (unit,) = (each["content"] for each in made if each.get("file", "").endswith("gb10-vllm-hear.service"))
    assert "Description=A container serving 100%%n\n" in unit


@pytest.mark.parametrize("flag", ["--api-key", "--api-key=S3SAME", "--api_key", "--hf-token", "--password"])
def test_a_secret_among_the_words_of_a_container_is_refused(flag: str) -> None:
    (text,) = vllm.plan(view({"hear": HEAR | {"args": [flag, "S3SAME"]}})).refusals
    assert text.startswith(f"hear: args hold {flag.partition('=')[0]},")
    assert "S3SAME" not in text and "mounts" in text


@pytest.mark.parametrize("words", [["--api-key-file", "/run/key"], ["--tokenizer", "x"], ["--max-tokens", "8"]])
def test_a_file_with_a_secret_may_be_named(words: list[str]) -> None:
    assert vllm.plan(view({"hear": HEAR | {"args": words}})).refusals == ()
