"""LoRA adapters and further names: fetched and carried like the model, served offline, and routed by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.serving import file_steps, host_files
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import transfer
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import planner as vllm
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import lora, models, serving_plan
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import sources

from tests.support import model_daemon as kit
from tests.support.model_daemon import Daemon, Docker, image, needs_rsync, run_folder
from tests.support.model_folders import CASES
from tests.support.proofs import facts
from tests.support.vllm_plans import IMAGE, alone

__all__ = ["run_folder"]  # the fixture
COMMIT = "a" * 40
SQL, TALK = {"name": "sql", "model": "acme/sql-lora"}, {"name": "talk", "model": "acme/talk", "revision": COMMIT}
FILES = [{"model": "acme/draft", "revision": "main"}]


def words(**said: Any) -> list[str]:
    plan = alone(**said)
    assert plan.refusals == (), plan.refusals
    assert "stray_word" not in {each["id"] for each in plan.findings}, "the tables know that the flag takes several"
    argv = list(plan.argv)
    return argv[argv.index("serve") :]


def test_vllm_gets_each_by_name_and_where_it_lies_without_a_network() -> None:
    said = words(vllm_lora=[SQL, TALK], vllm_further_names=["best", "gpt-4"], vllm_served_model_name="main")
    at = said.index("--lora-modules")
    assert said[at - 1 : at + 3] == [
        "--enable-lora", "--lora-modules", "sql=acme/sql-lora",
        f"talk=/root/.cache/huggingface/hub/models--acme--talk/snapshots/{COMMIT}",
    ]  # fmt: skip
    assert said[at + 3].startswith("--"), "a list ends with the next flag"
    names = said.index("--served-model-name")
    assert said[names + 1 : names + 5] == ["main", "best", "gpt-4", said[names + 4]] and said[names + 4].startswith(
        "--"
    )
    assert "--lora-modules" not in words()
    assert alone(vllm_lora=[SQL, TALK]).files.loras == (
        {"model": "acme/sql-lora", "revision": "main"},
        {"model": "acme/talk", "revision": COMMIT},
    )


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"vllm_lora": [{**SQL, "name": "a b"}]}, "or an adapter is called 'a b'"),
        ({"vllm_lora": [{**SQL, "name": "a=b"}]}, "or an adapter is called 'a=b'"),
        ({"vllm_lora": [{**SQL, "model": "/srv/x"}]}, "sql is of '/srv/x', which is no id of the hub"),
        ({"vllm_lora": [{**SQL, "revision": "v2"}]}, "sql has the revision 'v2'. Name a commit"),
        ({"vllm_lora": [TALK], "vllm_fetch": False}, "talk has a revision, and vllm_fetch is false"),
        ({"vllm_lora": [SQL], "vllm_extra_args": ["--lora-modules", "x=y"]}, "vllm_extra_args holds --lora-modules"),
        ({"vllm_lora": [SQL, {**TALK, "name": "sql"}]}, "sql: two names of one server are alike"),
        ({"vllm_further_names": ["openai/gpt-oss-120b"]}, "openai/gpt-oss-120b: two names of one server are alike"),
        ({"vllm_further_names": ["--port"]}, "a further name or an adapter is called '--port'"),
    ],
)
def test_what_cannot_be_served_so_is_refused(said: dict[str, Any], text: str) -> None:
    assert any(text in each for each in alone(**said).refusals), alone(**said).refusals


def test_two_services_of_a_host_share_no_name() -> None:
    entry = {"model": "acme/chat", "memory_gib": 20, "lora": [SQL]}
    entries = {"one": {**entry, "port": 8000}, "two": {**entry, "port": 8001, "served_model_name": "other"}}
    known = {**facts(), "memory_bytes": int(121.69 * 2**30)}
    (text,) = vllm.plan(View("spark-a", known, {"vllm_image": IMAGE, "vllm_services": entries})).refusals
    assert "one and two serve the same name, sql" in text


def host(tmp_path: Path, name: str) -> host_files.Files:
    return kit.host(tmp_path, name, Docker({"i@sha256:1": image()}), loras=FILES)


def fetched(own: host_files.Files) -> dict[str, Any]:
    own.download("")
    assert own.loras[0].fetch_model("", None, move=False)
    return own.read()


def test_an_adapter_is_fetched_and_proven_like_the_model_with_a_commit_of_its_own(
    tmp_path: Path, run_folder: Path
) -> None:
    own = host(tmp_path, "a")
    assert own.read()["loras"] == [{"model": None, "pin": None}]
    said = fetched(own)
    (held,) = said["loras"]
    assert held["model"]["model"] == "acme/draft" and held["pin"] == held["model"]["commit"] != said["pin"]
    assert (own.loras[0].folder / "refs/main").read_text() == held["pin"], "by which vLLM finds it without a network"
    own.offer(["model", "lora-0"], [{"at": "192.168.100.10", "to": "192.168.100.11"}], 29502, "sesame", 60)
    assert {path.name for path in (own.stage / "offered-lora-0").iterdir()} == {
        each[2] for each in held["model"]["files"]
    }
    own.withdraw()
    assert not (own.stage / "offered-lora-0").exists() and not (own.stage / "offered").exists()


@needs_rsync
def test_it_arrives_whole_on_another_host(tmp_path: Path) -> None:
    giver = host(tmp_path, "a")
    said = fetched(giver)
    taker = host(tmp_path, "b")
    assert transfer.missing(said, taker.read()) == ["model", "lora-0"] or "lora-0" in transfer.missing(
        said, taker.read()
    )
    daemon = Daemon(tmp_path / "daemon", {"model": f"{giver.folder}/blobs", "lora-0": f"{giver.loras[0].folder}/blobs"})
    try:
        taker.take(said, ["model", "lora-0"], "127.0.0.1", daemon.port, "sesame")
    finally:
        daemon.stop()
    assert taker.read()["loras"] == said["loras"]
    assert not {"model", "lora-0"} & {*transfer.missing(said, taker.read())}
    assert transfer.size(said, ["lora-0"]) == said["loras"][0]["model"]["bytes"]


def test_a_step_downloads_all_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str | None]] = []

    def fetch(own: host_files.Files, _token: str, pin: str | None, _move: bool) -> bool:
        asked.append((own.model, pin))
        return own.part == "lora-0"

    monkeypatch.setattr(host_files.Files, "fetch_model", fetch)
    monkeypatch.setattr(host_files, "command", Docker({"gb10-fleet/vllm:1": image()}))
    own = host(tmp_path, "a")
    files = {
        "image": own.image, "name": own.name, "model": own.model, "revision": own.revision, "exclude": own.exclude,
        "cache": str(own.cache), "fetch": True, "environment": {}, "draft": None, "loras": FILES,
    }  # fmt: skip
    request = {"files": json.loads(json.dumps(files)), "pin": None, "lora_pins": [COMMIT], "move": False}
    assert file_steps.carry_out("download", request, "", kit.quiet)["changed"]
    assert asked == [(kit.MODEL, None), ("acme/draft", COMMIT)]


def _by_hand(experts: int, hidden: int, heads: int, kv_heads: int, wide: int) -> int:
    """Numbers of one rank in a layer: of each matrix one of its input and one of its output."""
    query, key = heads * 128, kv_heads * 128
    return 2 * (hidden + query) + 2 * (hidden + key) + experts * 3 * (hidden + wide)


@pytest.mark.parametrize(
    ("name", "layers", "layer"),
    [
        ("Qwen/Qwen3-8B", 36, _by_hand(1, 4096, 32, 8, 12288)),
        ("Qwen/Qwen3-30B-A3B", 48, _by_hand(128, 2048, 32, 4, 768)),
    ],
)
def test_room_for_adapters_is_what_their_matrices_take(name: str, layers: int, layer: int, tmp_path: Path) -> None:
    found = sources.find(str(next(case for case in CASES if case.id == name).folder(tmp_path / "m")))
    assert lora.numbers(models.of_facts(found), 1) == pytest.approx(layers * layer, rel=0.01)

    def room(**flags: str | None) -> float:
        said = {f"--{flag.replace('_', '-')}": value for flag, value in flags.items()}
        plan = serving_plan.plan(name, [128e9], facts=found, settings=said)
        assert plan.fit is not None
        return plan.fit.need.get("adapters", 0.0)

    one = 16 * layers * layer * 2 / 2**30  # in BF16
    assert room() == room(max_loras="4") == 0, "without --enable-lora there are none"
    assert room(enable_lora=None) == pytest.approx(one, rel=0.01)
    assert room(enable_lora=None, max_loras="3", max_lora_rank="32") == pytest.approx(6 * one, rel=0.01)
