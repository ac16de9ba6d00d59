"""The second model of speculative decoding: fetched with checksums, pinned, and carried over the fabric."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.serving import file_steps, host_files, transfer_errors
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import transfer as deciding

from tests.unit.serving import test_model_files as kit
from tests.unit.serving.test_model_files import Daemon, Docker, Run, image, needs_rsync

run_folder = kit.run_folder
DRAFT = {"model": "acme/draft", "revision": "main"}
COMMIT_OF_DRAFT = "d" * 40


def host(tmp_path: Path, name: str, docker: Docker, **said: Any) -> host_files.Files:
    return kit.host(tmp_path, name, docker, **{"draft": DRAFT, **said})


def draft_of(own: host_files.Files) -> host_files.Files:
    assert own.draft is not None
    return own.draft


def fetched(own: host_files.Files) -> dict[str, Any]:
    own.download("")
    draft_of(own).fetch_model("", None, move=False)
    return own.read()


def test_both_are_downloaded_checked_and_marked_each_with_a_commit_of_its_own(tmp_path: Path) -> None:
    own = host(tmp_path, "a", Docker({"i@sha256:1": image()}))
    assert own.read() == {
        "image": None, "model": None, "pin": None, "pull": False, "draft": None, "draft_pin": None,
    }  # fmt: skip
    said = fetched(own)
    assert said["model"]["model"] == kit.MODEL and said["draft"]["model"] == "acme/draft"
    assert said["draft_pin"] == said["draft"]["commit"] != said["pin"]
    draft = draft_of(own)
    snapshot = draft.folder / "snapshots" / said["draft_pin"]
    assert all((snapshot / path).is_file() for path, _, _ in said["draft"]["files"])
    assert (draft.folder / "refs/main").read_text() == said["draft_pin"]
    (draft.folder / "blobs" / said["draft"]["files"][0][2]).unlink()
    assert own.read()["draft"] is None and own.read()["model"] is not None
    assert draft.fetch_model("", None, move=False) and own.read()["draft_pin"] == said["draft_pin"]


def test_a_wrong_draft_is_named(tmp_path: Path) -> None:
    own = host(tmp_path, "a", Docker({"i@sha256:1": image()}))
    own.download("")
    broken = host(tmp_path, "a", Docker({"i@sha256:1": image()}, {"GB10_SIM_HUB": "corrupt"}))
    with pytest.raises(transfer_errors.FilesError, match=r"checksum_wrong: of acme/draft"):
        draft_of(broken).fetch_model("", None, move=False)
    assert own.read()["draft"] is None and own.read()["model"] is not None


def test_an_offer_shows_both_in_folders_of_their_own(tmp_path: Path, run_folder: Path) -> None:
    own = host(tmp_path, "a", Docker({"i@sha256:1": image()}))
    said = fetched(own)
    own.offer(["model", "draft"], [{"at": "192.168.100.10", "to": "192.168.100.11"}], 29502, "sesame", 60)
    for part, folder in (("model", "offered"), ("draft", "offered-draft")):
        shown = {path.name for path in (own.stage / folder).iterdir()}
        assert shown == {name for _, _, name in said[part]["files"]}
    config = (run_folder / "rsyncd-0.conf").read_text()
    assert f"path = {own.stage}/offered\n" in config and f"path = {own.stage}/offered-draft\n" in config
    own.withdraw()
    assert not (own.stage / "offered").exists() and not (own.stage / "offered-draft").exists()


@needs_rsync
def test_both_arrive_whole_and_are_compared_again(tmp_path: Path) -> None:
    giver = host(tmp_path, "a", Docker({"i@sha256:1": image()}))
    said = fetched(giver)
    theirs = {"model": f"{giver.folder}/blobs", "draft": f"{draft_of(giver).folder}/blobs"}
    daemon = Daemon(tmp_path / "daemon", theirs)
    try:
        own = host(tmp_path, "b", Docker({}))
        own.take(said, ["model", "draft"], "127.0.0.1", daemon.port, "sesame")
        assert {part: own.read()[part] for part in theirs} == {part: said[part] for part in theirs}
        wrong = draft_of(giver).folder / "blobs" / said["draft"]["files"][-1][2]
        wrong.write_bytes(b"?" * wrong.stat().st_size)
        other = host(tmp_path, "c", Docker({}))
        with pytest.raises(transfer_errors.FilesError, match=r"checksum_wrong: of acme/draft"):
            other.take(said, ["model", "draft"], "127.0.0.1", daemon.port, "sesame")
        assert other.read()["draft"] is None and other.read()["model"] is not None
    finally:
        daemon.stop()


def test_a_step_downloads_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str | None, bool]] = []

    def fetch(own: host_files.Files, _token: str, pin: str | None, move: bool) -> bool:
        asked.append((own.model, pin, move))
        return own.part == "draft"

    monkeypatch.setattr(host_files.Files, "fetch_model", fetch)
    monkeypatch.setattr(host_files, "command", Docker({"gb10-fleet/vllm:1": image()}))
    own = host(tmp_path, "a", Docker({}))
    files = {
        "image": own.image, "name": own.name, "model": own.model, "revision": own.revision, "exclude": own.exclude,
        "cache": str(own.cache), "fetch": True, "environment": {}, "draft": DRAFT,
    }  # fmt: skip
    request = {"files": files, "pin": "a" * 40, "draft_pin": COMMIT_OF_DRAFT, "move": False}
    assert file_steps.carry_out("download", request, "", kit.quiet)["changed"]
    assert asked == [(kit.MODEL, "a" * 40, False), ("acme/draft", COMMIT_OF_DRAFT, False)]


# --- what is decided


def test_what_a_peer_lacks_of_the_draft() -> None:
    tiny = kit.TINY.as_dict()
    giver = {"image": None, "model": tiny, "draft": {**tiny, "model": "acme/draft"}}
    assert deciding.missing(giver, giver) == []
    assert deciding.missing(giver, {**giver, "draft": None}) == ["draft"]
    assert deciding.missing(giver, {**giver, "draft": {**giver["draft"], "commit": "b" * 40}}) == ["draft"]
    assert deciding.size(giver, ["model", "draft"]) == 2 * kit.TINY.size


def test_each_model_keeps_its_own_commit_and_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    speculative = {"method": "eagle3", "model": "acme/draft", "revision": "v2", "tokens": 3}
    run = Run(monkeypatch, vllm_speculative=speculative)
    nothing = {**kit.NOTHING, "draft": None}
    others = {"spark-a": nothing, "spark-b": {**kit.HELD, "draft": None, "draft_pin": COMMIT_OF_DRAFT}}
    run.answers = [nothing]
    said = run("spark-a", "download", others, check=True)
    assert "acme/draft at v2 as it was first fetched (dddddddddddd) from the hub" in said["msg"]
    run.answers = [nothing, kit.STARTED, {"finished": True, "changed": True, **kit.HELD}]
    run("spark-a", "download", others)
    asked = run.asked[-3]["request"] if "request" in run.asked[-3] else run.asked[-4]["request"]
    assert (asked["draft_pin"], asked["files"]["draft"]) == (COMMIT_OF_DRAFT, {**DRAFT, "revision": "v2"})
    tiny = kit.TINY.as_dict()
    held = {**kit.HELD, "draft": {**tiny, "model": "acme/draft"}}
    given = {"spark-a": {**held, "source": "spark-a"}, "spark-b": {**held, "draft": None, "source": "spark-a"}}
    run.asked, run.answers = [], [kit.STARTED, {"finished": True, "changed": False}]
    run("spark-a", "offer", given)
    assert run.asked[0]["request"]["parts"] == ["draft"]
    run.answers = [nothing]
    assert run("spark-b", "take", {"spark-a": nothing, "spark-b": {**nothing, "source": "spark-a"}}, check=True)[
        "msg"
    ].endswith("would get image and model and draft from spark-a")
