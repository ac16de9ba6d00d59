"""The playbook build_image in a real ansible-playbook run, where a variable is missing or of another type."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.plays import Plays

PLAY = "- ansible.builtin.import_playbook: gb10.fleet.build_image\n"
A = {"spark-a": {"ansible_host": "kind-ok"}}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "spark-a: vllm_image_base is empty; name the image to start from"),
        (
            {"vllm_image_base": "lab/vllm:1", "vllm_image_jobs": "many"},
            "vllm_image_jobs is the text 'many', and must be a",
        ),
    ],
)
def test_what_is_wrong_is_named_without_the_specification(tmp_path: Path, given: dict[str, str], says: str) -> None:
    plays = Plays(tmp_path)
    rc, output = plays.play(A, PLAY, "--check", **given)
    assert rc == 2 and says in output and "argument_spec" not in output, output
    assert plays.requests() == []
