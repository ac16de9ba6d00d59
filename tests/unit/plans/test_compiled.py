"""What an image compiled is code: neither the next image of this service runs it, nor the next model."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.attacker import tally
from tests.support.service_plans import CHAT, EMBED, document, made

FORMER = "registry.example/vllm@sha256:" + "1" * 64
DRAFTS = {"method": "eagle3", "model": "a/draft", "tokens": 3}


def folder(entry: dict[str, Any]) -> str:
    """Where the container writes to."""
    plan = made({"chat": CHAT | entry})["chat"]
    (mount,) = (word for word in plan.argv if word.endswith(":/root/.cache"))
    assert mount == f"{plan.compiled}:/root/.cache"
    return plan.compiled


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ({"image": FORMER}, {}),
        (
            {"image": "registry.example/vllm:v1", "allow_tag": True},
            {"image": "registry.example/vllm:v2", "allow_tag": True},
        ),
        ({"model": "openai/gpt-oss-20b"}, {}),
        ({"model_revision": "a" * 40}, {"model_revision": "b" * 40}),
        ({"speculative": DRAFTS}, {}),
        ({"speculative": DRAFTS}, {"speculative": DRAFTS | {"model": "b/draft"}}),
        ({"speculative": DRAFTS | {"revision": "a" * 40}}, {"speculative": DRAFTS | {"revision": "b" * 40}}),
    ],
)
def test_another_image_or_model_runs_nothing_of_what_the_former_one_compiled(was: Any, now: Any) -> None:
    before, after = folder(was), folder(now)
    wins = Path(before) in (Path(after), *Path(after).parents) or Path(after) in Path(before).parents
    tally("an image or model that was replaced leaves code that the next one runs", 1, int(wins))
    assert not wins
    assert folder(was) == before, "the way back has its own"


def test_it_is_kept_while_image_and_model_stay() -> None:
    """To compile takes minutes. The same digest by another name is the same image."""
    assert folder({}) == folder({"port": 8007, "max_model_len": 4096, "extra_args": ["--enforce-eager"]})
    assert folder({"image": FORMER}) == folder({"image": FORMER.replace("/vllm@", "/vllm:v1@")})
    assert made({"other": CHAT})["other"].compiled != folder({}), "another service has its own"


def before_the_start(entry: dict[str, Any]) -> list[list[str]]:
    """The commands of the unit."""
    files = {
        each["file"]: each for each in document({"chat": CHAT | entry, "embed": EMBED}).resources if "file" in each
    }
    lines = files["/etc/systemd/system/gb10-vllm-chat.service"]["content"].splitlines()
    return [shlex.split(line.partition("=")[2]) for line in lines if line.startswith("ExecStartPre=")]


def test_a_start_removes_what_other_images_of_the_service_compiled(tmp_path: Path) -> None:
    own, of_embed = (Path(made({"chat": CHAT, "embed": EMBED})[name].compiled) for name in ("chat", "embed"))
    ((program, top, *words),) = before_the_start({})
    assert (program, top) == ("-+/usr/bin/find", str(own.parent)), "as root: the unit sees /var read-only"
    theirs, former = tmp_path / "theirs", tmp_path / own.parent.name / "0123456789ab"
    kept = [tmp_path / own.parent.name / own.name / "x.so", tmp_path / of_embed.parent.name / of_embed.name / "x.so"]
    for file in (*kept, former / "-rf/deep er/\nx.so", theirs / "x", former.with_name("torch_compile_cache") / "x.so"):
        file.parent.mkdir(parents=True)
        file.touch()
    (former / "link").symlink_to(theirs)
    former.with_name("link").symlink_to(theirs)
    for __ in range(2):
        subprocess.run([program.lstrip("-+"), tmp_path / own.parent.name, *words], check=True)
    assert sorted(each for each in tmp_path.rglob("*") if each.is_file()) == sorted([*kept, theirs / "x"])
    assert list((tmp_path / own.parent.name).iterdir()) == [kept[0].parent]


@pytest.mark.parametrize("entry", [{"fetch": False}, {"span": "host", "warm_cache_gib": 20}])
def test_a_unit_that_compiles_to_no_such_folder_removes_none(entry: dict[str, Any]) -> None:
    assert before_the_start(entry) == []
