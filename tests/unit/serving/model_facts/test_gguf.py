"""The header of a model in GGUF, made here: what a token keeps, parts, and files that are none."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.memory_fit import GIB
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import gguf, sources
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.reading import FactsError
from typer.testing import CliRunner

from gb10_fleet import cli, gguf_plan
from tests.support.attacker import tally

GEMMA: dict[str, Any] = {
    "general.architecture": "gemma3", "gemma3.context_length": 32768, "gemma3.embedding_length": 640,
    "gemma3.block_count": 18, "gemma3.attention.head_count": 4, "gemma3.attention.head_count_kv": 1,
    "gemma3.attention.key_length": 256, "gemma3.attention.value_length": 256,
    "tokenizer.ggml.tokens": ["<bos>", "a", "b"],
}  # fmt: skip


def text(said: str) -> bytes:
    return struct.pack("<Q", len(said)) + said.encode()


def value(said: Any) -> bytes:
    if isinstance(said, str):
        return struct.pack("<I", 8) + text(said)
    if isinstance(said, list) and isinstance(said[0], str):
        return struct.pack("<IIQ", 9, 8, len(said)) + b"".join(map(text, said))
    if isinstance(said, list):
        return struct.pack(f"<IIQ{len(said)}I", 9, 4, len(said), *said)
    if isinstance(said, float):
        return struct.pack("<Id", 12, said)
    return struct.pack("<Iq", 11, said)


def header(said: dict[str, Any], version: int = 3) -> bytes:
    entries = b"".join(text(key) + value(each) for key, each in said.items())
    return b"GGUF" + struct.pack("<IQQ", version, 0, len(said)) + entries


def read(folder: Path, content: bytes, name: str = "m.gguf") -> gguf.Gguf:
    (folder / name).write_bytes(content)
    return gguf.read(sources.Folder(folder), name)


def test_what_a_token_keeps(tmp_path: Path) -> None:
    found = read(tmp_path, header(GEMMA) + b"0" * 1000)
    assert (found.architecture, found.context, found.keys, found.values) == ("gemma3", 32768, 4608, 4608)
    assert found.cache_bytes(4096) == 4096 * 9216 * 2 and found.cache_bytes(32, "q8_0", "q8_0") == 9216 * 34


def test_layers_that_keep_nothing(tmp_path: Path) -> None:
    hybrid = {**GEMMA, "gemma3.block_count": 4, "gemma3.attention.head_count_kv": [0, 2, 0, 2]}
    assert read(tmp_path, header(hybrid)).cache_bytes(1) == 4 * 512 * 2


def test_the_width_of_a_head_follows_where_it_is_not_said(tmp_path: Path) -> None:
    less = {key: each for key, each in GEMMA.items() if not key.endswith(("key_length", "value_length"))}
    assert read(tmp_path, header(less)).cache_bytes(1) == 18 * 2 * 160 * 2


def test_all_parts_count(tmp_path: Path) -> None:
    (tmp_path / "m-00002-of-00002.gguf").write_bytes(b"0" * 5000)
    content = header(GEMMA)
    assert read(tmp_path, content, "m-00001-of-00002.gguf").weights == len(content) + 5000


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"PK\x03\x04" + b"0" * 90, "no model in GGUF"),
        (header(GEMMA, 1), "no model in GGUF"),
        (header(GEMMA)[:-4], "ends within its header"),
        (header({"a": "b"}), "names no architecture"),
        (header({**GEMMA, "gemma3.block_count": 0}), "no whole number"),
        (header({**GEMMA, "gemma3.attention.head_count_kv": 0}), "what a token keeps"),
        (header({**GEMMA, "gemma3.attention.head_count_kv": -1}), "what a token keeps"),
        (header({**GEMMA, "gemma3.attention.head_count_kv": "x" * 2**16}), "what a token keeps"),
        (header({**GEMMA, "gemma3.attention.head_count_kv": float("inf")}), "what a token keeps"),
        (header({**GEMMA, "gemma3.attention.key_length": 2**60}), "what a token keeps"),
        (header({**GEMMA, "gemma3.attention.head_count": -4, "gemma3.attention.key_length": -4}), "what a token keeps"),
        (header({**GEMMA, "gemma3.context_length": -1}), "no whole number"),
        (header({**GEMMA, "gemma3.context_length": 2**62}), "no whole number"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60), "entries"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**60), "a header of more than"),
    ],
)
def test_what_is_none(tmp_path: Path, content: bytes, words: str) -> None:
    with pytest.raises(FactsError, match=words):
        read(tmp_path, content)


def test_a_name_does_not_have_a_stranger_asked_for_99999_files(tmp_path: Path) -> None:
    with pytest.raises(FactsError, match="more than 1000 parts"):
        read(tmp_path, header(GEMMA), "m-00001-of-99999.gguf")


def test_the_plan_says_the_entry_and_what_fits(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(header(GEMMA))
    lines, said = gguf_plan.plan(str(tmp_path / "m.gguf"), "", 119.7 * GIB, 8192, 4, {})
    assert said["fits"] and said["memory_gib"] == 2 and "    slots: 4" in lines and "    gguf: m.gguf" in lines
    lines, said = gguf_plan.plan(str(tmp_path / "m.gguf"), "", 14 * GIB, 0, 64, {})
    assert said["longest_context"] < 32768 == 32768 and said["context"] == said["longest_context"]
    lines, said = gguf_plan.plan(str(tmp_path / "m.gguf"), "", 14 * GIB, 32768, 64, {})
    assert not said["fits"] and lines[-1].startswith("Fix: --max-model-len ")


def test_keys_and_values_count_by_their_types(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(header(GEMMA))
    place = str(tmp_path / "m.gguf")
    types = {"--cache-type-k": "q8_0", "--cache-type-v": "q4_0"}
    lines, said = gguf_plan.plan(place, "", 119.7 * GIB, 32768, 64, types)
    assert said["cache_gib"] == round(32768 * 64 * 4608 * (34 + 18) / 32 / GIB, 2)
    assert said["cache_types"] == ["q8_0", "q4_0"]
    assert lines[-1] == "    extra_args: [--cache-type-k, q8_0, --cache-type-v, q4_0]"


@pytest.mark.parametrize(
    ("flags", "words"),
    [({"--cache-type-k": "fp8"}, "is 'fp8': it is one of f32, f16"), ({"--swa-full": None}, "it takes --cache-type-k")],
)
def test_a_flag_that_the_plan_of_a_file_has_not_is_refused(
    tmp_path: Path, flags: dict[str, str | None], words: str
) -> None:
    (tmp_path / "m.gguf").write_bytes(header(GEMMA))
    with pytest.raises(FactsError, match=words):
        gguf_plan.plan(str(tmp_path / "m.gguf"), "", 119.7 * GIB, 0, 1, flags)


def test_many_lists_of_one_header_are_one_sum(tmp_path: Path) -> None:
    """Each of 10,000 numbers was allowed, and 94 MiB of such lists took 960 MiB."""
    lists = {f"a{number}": [1] * 10_000 for number in range(101)}
    with pytest.raises(FactsError, match="more than 1000000 numbers in its lists"):
        read(tmp_path, header({**lists, **GEMMA}))
    tally("a header takes ten times its bytes", 1, 0)


def test_many_empty_texts_of_one_header_are_one_sum(tmp_path: Path) -> None:
    """12 million of them took a minute."""
    many = b"GGUF" + struct.pack("<IQQ", 3, 0, 2)
    for name, count in (("a", 3), ("b", 1_999_998)):
        many += text(name) + struct.pack("<IIQ", 9, 8, count) + b"\0" * 24
    with pytest.raises(FactsError, match="more than 2000000 texts in its lists"):
        read(tmp_path, many)
    tally("a header takes a minute", 1, 0)


@pytest.mark.parametrize("name", ["{{ lookup('pipe', 'id') }}.gguf", "a: b #.gguf", "a\nb.gguf"])
def test_a_name_of_a_file_that_is_no_plain_word_gets_no_line_to_paste(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(header(GEMMA) + b"0" * 1000)
    done = CliRunner().invoke(cli.app, ["plan", str(tmp_path / name)])
    assert done.exit_code != 0 and "letters, digits" in " ".join(done.output.split()), done.output


def test_an_error_that_quotes_a_header_steers_no_terminal(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(header({"general.architecture": "\x1b[2J\x1b]0;mine\x07x"}))
    said = CliRunner().invoke(cli.app, ["plan", str(tmp_path / "m.gguf")], color=True).output
    tally("a file of a stranger steers the terminal", 1, int("\x1b]" in said or "\x07" in said))
    assert "\x1b]" not in said and "\x07" not in said and "general.architecture" in said


def test_an_architecture_is_a_short_word(tmp_path: Path) -> None:
    """It was shown whole, with two million letters."""
    long = "x" * 2_000_000
    said = {key.replace("gemma3", long): long if each == "gemma3" else each for key, each in GEMMA.items()}
    with pytest.raises(FactsError, match="a short word") as error:
        read(tmp_path, header(said))
    assert len(str(error.value)) < 500
