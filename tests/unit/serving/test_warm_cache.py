"""The warm cache of a service: made where nobody can ask, kept as plain files, and taken only as it was told."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit import warm
from ansible_collections.gb10.fleet.plugins.module_utils.serving import host_files, host_tools, warm_cache
from ansible_collections.gb10.fleet.plugins.module_utils.serving.canary import COUNT_TO, QUESTIONS
from ansible_collections.gb10.fleet.plugins.module_utils.serving.transfer_errors import FilesError
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import warm as deciding

from tests.support.model_daemon import Daemon, needs_rsync, quiet
from tests.support.nested import nest

SHELF = "/var/cache/gb10-warm/vllm"
MARKER = "/var/cache/gb10-files/models--a--b@main.json"
SAID = {"shelf": SHELF, "flags": "f" * 64, "markers": [MARKER], "budget_gib": 1, "image": "gb10-fleet/vllm:1"}
REQUEST = {
    **{"argv": ["docker", "run", "--detach", "--network", "none"], "container": "gb10-warm-cache", "memory_gib": 8},
    **{"ready_s": 60, "answer_s": 5, "served_name": "tiny", "url": "http://127.0.0.1:8000", "health": "/health"},
}
IMAGE = {"RootFS": {"Layers": ["sha256:1"]}, "Os": "linux", "Architecture": "arm64", "Config": {}}
RIGHT = ("42", ", ".join(map(str, range(1, COUNT_TO + 1))))
NO_DAEMON = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"


class Docker:
    """One container on one host: what it compiles, and what it answers."""

    def __init__(self, making: Path, answers: Sequence[str] = RIGHT, dies: bool = False) -> None:
        self.making, self.answers, self.dies = making, answers, dies
        self.ran: list[list[str]] = []
        self.there = self.unreachable = False

    def __call__(self, argv: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        self.ran.append(list(argv))
        rc, out, err = 0, "", ""
        match list(argv):
            case ["docker", "image", "inspect", *_]:
                out = json.dumps(IMAGE)
            case ["docker", "run", *_]:
                self.there = True
                self.compile()
            case ["timeout", "--kill-after=5", _, "docker", "exec", *_]:
                assert self.there
                out = json.dumps(self.answer(json.loads(options["input"])))
            case ["docker", "inspect", *_]:
                out = "exited\n" if self.dies else "running\n"
            case ["docker", "rm" | "stop", *_]:
                self.there = False
            case ["docker", "container", "inspect", *_]:
                gone = f"Error response from daemon: No such container: {argv[-1]}"
                rc, err = (1, NO_DAEMON) if self.unreachable else (0, "") if self.there else (1, gone)
            case ["docker" | "systemctl", *_]:
                pass
            case [path, *_] if path.endswith("gb10-drop-caches"):
                pass
            case _:
                return host_tools.command(argv, **options)
        return subprocess.CompletedProcess(list(argv), rc, out, err)

    def compile(self) -> None:
        for path, mode in (("vllm/torch_compile_cache/x/kernel.so", 0o755), ("triton/y/z.json", 0o600)):
            file = self.making / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"compiled {path}")
            file.chmod(mode)

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        if self.dies:
            return {"status": None, "problem": "refused"}
        path = asked["url"].removeprefix(REQUEST["url"])
        if path == "/health":
            return {"status": 200, "body": ""}
        if path == "/v1/models":
            return {"status": 200, "body": json.dumps({"data": [{"id": "tiny"}]})}
        prompt = warm_cache.base64.b64decode(asked["data"] or "").decode()
        right = next((said for known, said in zip(QUESTIONS, self.answers, strict=True) if known.prompt in prompt), "")
        choice = {"message": {"content": right}, "finish_reason": "stop"}
        return {"status": 200, "body": json.dumps({"choices": [choice], "usage": {"completion_tokens": 80}})}


def host(root: Path, available_gib: float = 100, **docker: Any) -> warm_cache.WarmCache:
    for path, text in (
        ("proc/driver/nvidia/version", "NVRM version: 580.142\n"),
        ("proc/meminfo", f"MemTotal: 1 kB\nMemAvailable: {int(available_gib * 1024**2)} kB\n"),
        (MARKER, json.dumps({"commit": "c" * 40})),
    ):
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    made = warm_cache.WarmCache(SAID, quiet, root=root)
    made.run = Docker(made.making, **docker)
    return made


@pytest.fixture(autouse=True)
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_files, "RUN", tmp_path / "run")


def test_a_cache_is_made_once_by_a_container_that_is_gone_when_it_is_read(tmp_path: Path) -> None:
    own = host(tmp_path)
    assert isinstance(own.run, Docker)
    said = own.make(REQUEST)
    cache = said["cache"]
    assert said["changed"] and cache["size"] > 0 and cache["cold_s"] >= 0
    asked = [words[:3] for words in own.run.ran]
    gone = asked.index(["docker", "stop", "--time"])
    assert asked[gone + 1 :][:2] == [["docker", "rm", "--force"], ["docker", "container", "inspect"]]
    path = warm.archive(own.shelf, said["key"])
    with tarfile.open(path) as archive:
        names = {member.name: oct(member.mode) for member in archive}
    assert names == {"triton/y/z.json": "0o644", "vllm/torch_compile_cache/x/kernel.so": "0o755"}
    assert (
        not own.making.exists() and path.stat().st_mode & 0o777 == 0o600 and own.shelf.stat().st_mode & 0o777 == 0o700
    )
    (kept,) = (tmp_path / "var/lib/gb10-warm/vllm").iterdir()
    assert kept.name == f"{said['key']}.json" and kept.parent.stat().st_mode & 0o777 == 0o700
    again = own.make(REQUEST)
    assert not again["changed"] and again["cache"] == cache
    assert len([words for words in own.run.ran if words[:2] == ["docker", "run"]]) == 1


@pytest.mark.parametrize(
    ("docker", "says"), [({"answers": ("7", "x")}, "garbage"), ({"dies": True}, "start_failed|failed")]
)
def test_a_start_that_does_not_answer_rightly_leaves_no_cache(tmp_path: Path, docker: Any, says: str) -> None:
    own = host(tmp_path, **docker)
    with pytest.raises(FilesError, match=says) as caught:
        own.make(REQUEST | {"ready_s": 0})
    assert caught.value.verdict == "not_warm"
    assert own.read()["cache"] is None and not own.making.exists() and not list(own.shelf.iterdir())


def test_nothing_is_made_where_the_memory_is_not_free(tmp_path: Path) -> None:
    own = host(tmp_path, available_gib=7.9)
    said = own.make(REQUEST)
    assert (said["changed"], said["cache"], said["why"]) == (
        False, None, "8 GiB must be available to make one, and 7.9 are",
    )  # fmt: skip
    assert isinstance(own.run, Docker) and not [words for words in own.run.ran if words[:2] == ["docker", "run"]]


def test_what_is_more_than_its_budget_is_not_kept(tmp_path: Path) -> None:
    own = host(tmp_path)
    own.budget = 10
    with pytest.raises(FilesError, match="vllm_warm_cache_gib") as caught:
        own.make(REQUEST)
    assert caught.value.verdict == "too_large" and not list(own.shelf.iterdir())


def test_an_archive_beyond_the_budget_is_not_kept_and_no_older_one_goes_for_it(tmp_path: Path) -> None:
    own = host(tmp_path)
    own.make(REQUEST)
    older = list(own.shelf.iterdir())
    own.wish = own.wish._replace(flags="e" * 64)
    assert isinstance(own.run, Docker)
    own.budget, content = 40_000, 30_000

    def compile_many() -> None:
        for number in range(300):  # in an archive each of them takes a kilobyte or more
            (own.making / f"k{number}").write_bytes(b"x" * (content // 300))

    own.run.compile = compile_many  # type: ignore[method-assign]
    with pytest.raises(FilesError, match="vllm_warm_cache_gib") as caught:
        own.make(REQUEST)
    assert caught.value.verdict == "too_large" and list(own.shelf.iterdir()) == older


def test_an_archive_is_never_larger_on_the_disk_than_it_may_be(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    for number in range(200):
        (top / f"empty{number}").touch()
    with pytest.raises(warm_cache.TooLarge):
        warm_cache.pack(top, tmp_path / "a.tar", 50_000)
    assert (tmp_path / "a.tar").stat().st_size <= 60_000


def test_folders_without_end_are_refused_by_name_and_do_not_stay(tmp_path: Path) -> None:
    own = host(tmp_path)
    assert isinstance(own.run, Docker)
    compiled = own.run.compile
    own.run.compile = lambda: nest(own.making, 1100)  # type: ignore[method-assign]
    try:
        with pytest.raises(FilesError, match="folders in each other") as caught:
            own.make(REQUEST)
        left = own.making.exists()
    finally:  # pytest itself cannot remove them
        subprocess.run(["rm", "-rf", str(own.making)], check=True)
    assert caught.value.verdict == "too_deep" and not left and not list(own.shelf.iterdir())
    own.run.compile = compiled  # type: ignore[method-assign]
    assert own.make(REQUEST)["cache"]


def test_what_an_earlier_start_left_and_cannot_be_removed_is_in_no_cache(tmp_path: Path) -> None:
    own = host(tmp_path)
    assert isinstance(own.run, Docker)
    docker = own.run
    own.making.mkdir(parents=True)

    def run(argv: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        if argv[0] == "rm":
            return subprocess.CompletedProcess(list(argv), 1, "", "rm: cannot remove 'x': Operation not permitted")
        return docker(argv, **options)

    own.run = run
    with pytest.raises(FilesError, match="Operation not permitted") as caught:
        own.make(REQUEST)
    assert caught.value.verdict == "failed" and not [words for words in docker.ran if words[:2] == ["docker", "run"]]


def test_a_container_is_gone_only_when_docker_says_that_there_is_none(tmp_path: Path) -> None:
    own = host(tmp_path)
    assert isinstance(own.run, Docker)
    own.run.unreachable = True
    with pytest.raises(FilesError, match="Cannot connect to the Docker daemon") as caught:
        own.make(REQUEST)
    assert caught.value.verdict == "not_warm" and not list(own.shelf.iterdir())


def test_only_plain_files_go_into_the_archive(tmp_path: Path) -> None:
    top, secret = tmp_path / "top", tmp_path / "secret"
    (top / "in").mkdir(parents=True)
    secret.write_text("of the host")
    (top / "in/good").write_text("x")
    (top / "in/good").chmod(0o4777)
    (top / "link").symlink_to(secret)
    (top / "folder").symlink_to(tmp_path)
    os.link(secret, top / "twin")
    os.mkfifo(top / "fifo")
    warm_cache.pack(top, tmp_path / "a.tar", 1 << 20)
    with tarfile.open(tmp_path / "a.tar") as archive:
        (member,) = archive.getmembers()
    assert (member.name, member.mode, member.uid, member.type) == ("in/good", 0o755, 0, tarfile.REGTYPE)


def test_the_oldest_make_room(tmp_path: Path) -> None:
    kept = [(tmp_path / name, size, at) for name, size, at in (("new", 40, 3.0), ("old", 30, 1.0), ("mid", 20, 2.0))]
    assert warm_cache.superseded(kept, 10, 100) == []
    assert warm_cache.superseded(kept, 20, 100) == [tmp_path / "old"]
    assert warm_cache.superseded(kept, 50, 100) == [tmp_path / "old", tmp_path / "mid"]


def made(tmp_path: Path) -> tuple[warm_cache.WarmCache, dict[str, Any], Daemon]:
    giver = host(tmp_path / "a")
    told = giver.make(REQUEST)
    return giver, told, Daemon(tmp_path / "daemon", {warm_cache.PART: str(giver.shelf)})


@needs_rsync
def test_a_peer_takes_the_very_archive(tmp_path: Path) -> None:
    giver, told, daemon = made(tmp_path)
    own = host(tmp_path / "b")
    try:
        said = own.take(told, "127.0.0.1", daemon.port, "sesame")
    finally:
        daemon.stop()
    assert said["changed"] and said["cache"] == told["cache"] == giver.read()["cache"]
    assert not (own.shelf.parent / "arriving").exists()


@needs_rsync
def test_an_archive_that_was_exchanged_on_its_way_is_not_kept(tmp_path: Path) -> None:
    giver, told, daemon = made(tmp_path)
    path = warm.archive(giver.shelf, told["key"])
    path.write_bytes(b"p" * path.stat().st_size)
    own = host(tmp_path / "b")
    try:
        with pytest.raises(FilesError) as caught:
            own.take(told, "127.0.0.1", daemon.port, "sesame")
    finally:
        daemon.stop()
    assert caught.value.verdict == "archive_differs" and own.read()["cache"] is None
    assert not list(own.shelf.iterdir())


@pytest.mark.parametrize("wrong", [{"key": "0" * 64}, {"key": "../../x"}, {"cache": {"sha256": "x"}}])
def test_what_a_peer_says_is_not_believed(tmp_path: Path, wrong: dict[str, Any]) -> None:
    own = host(tmp_path)
    told = {"key": own.read()["key"], "cache": {"sha256": "0" * 64, "size": 1, "cold_s": 1, "at": ""}}
    with pytest.raises(ValueError, match="something else"):
        own.take(told | wrong, "127.0.0.1", 1, "sesame")


HELD = {"key": "k", "cache": {"size": 1}}
BARE = {"key": "k", "cache": None}
OTHER = {"key": "other", "cache": None}
UNKNOWN = {"key": "", "cache": None}


@pytest.mark.parametrize(
    ("said", "sources"),
    [
        ({"a": BARE, "b": BARE}, {"a": "a", "b": "a"}),
        ({"a": BARE, "b": HELD}, {"a": "b", "b": "b"}),
        ({"a": HELD, "b": OTHER, "c": OTHER}, {"a": "a", "b": "b", "c": "b"}),
        ({"a": UNKNOWN, "b": BARE}, {"b": "b"}),
        ({"a": UNKNOWN, "b": UNKNOWN}, {}),
        ({"a": {}, "b": HELD}, {"b": "b"}),
    ],
)
def test_who_makes_a_cache_and_who_takes_it(said: dict[str, Any], sources: dict[str, str]) -> None:
    assert deciding.sources(said) == sources


def test_only_hosts_with_the_same_key_take_it() -> None:
    said = {"a": HELD, "b": BARE, "c": OTHER, "d": HELD, "e": UNKNOWN}
    assert deciding.takers(said, "a") == ["b"]
    assert deciding.takers(said, "b") == deciding.takers(said, "nobody") == []


@pytest.mark.parametrize(
    "said",
    [
        "[" * 50_000,
        "7",
        '{"status": "200", "body": ""}',
        '{"status": 200, "body": 7}',
        '{"status": null, "problem": "stranger"}',
        "",
    ],
)
def test_what_a_container_says_in_the_place_of_our_question_is_no_answer(tmp_path: Path, said: str) -> None:
    """What runs in it may print anything, also our own words for what only we can know."""
    made = host(tmp_path)
    made.run = lambda argv, **_: subprocess.CompletedProcess(list(argv), 0, said, "")
    reply = made._ask(REQUEST, "/health", None, 1.0)
    assert (reply.status, reply.body, reply.problem) == (None, "", "refused")
