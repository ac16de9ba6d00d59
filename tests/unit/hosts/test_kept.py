"""What is computed once and kept: never anything but what would be computed now."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents import render as documents
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import kept
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.view import View

VALUE: dict[str, Any] = {"code": compile("1 + 1", "x", "eval"), "names": frozenset({"a"}), "text": "ä"}


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "gb10-fleet" / "computed" / "it"


@pytest.fixture
def sources(tmp_path: Path) -> list[Path]:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    return [tmp_path / "a", tmp_path / "b"]


def never() -> Any:
    raise AssertionError("computed again")


def test_the_same_sources_are_computed_once(file: Path, sources: list[Path]) -> None:
    assert kept.computed("it", sources, lambda: VALUE) == VALUE
    assert kept.computed("it", sources, never) == VALUE
    assert (file.parent.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)
    assert [path.name for path in file.parent.iterdir()] == ["it"], "a temporary file was left"


@pytest.mark.parametrize(
    "change",
    [
        lambda sources, _: sources[0].write_text("c"),
        lambda sources, _: [path.write_text(text) for path, text in zip(sources, ("", "ab"), strict=True)],
        lambda sources, _: sources.pop(),
        lambda _, patch: patch.setattr("jinja2.__version__", "0"),
        lambda _, patch: patch.setattr(kept, "ansible_version", "0"),
        lambda _, patch: patch.setattr("sys.version", "0"),
    ],
    ids=["content", "border", "fewer", "jinja", "ansible", "python"],
)
def test_what_something_else_led_to_is_not_used(
    sources: list[Path], monkeypatch: pytest.MonkeyPatch, change: Callable[[list[Path], pytest.MonkeyPatch], Any]
) -> None:
    kept.computed("it", sources, lambda: "old")
    change(sources, monkeypatch)
    assert kept.computed("it", sources, lambda: "new") == "new"
    assert kept.computed("it", sources, never) == "new"


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(file.read_bytes()[:-1]),
        lambda file: file.write_bytes(file.read_bytes()[:-1] + b"x"),
        lambda file: file.unlink(),
        lambda file: file.parent.chmod(0o770),
        lambda file: file.chmod(0o644),
        lambda file: file.parent.rename(file.parent.parent / "there") and file.parent.symlink_to("there"),
    ],
    ids=["empty", "cut", "changed", "absent", "open folder", "open file", "folder elsewhere"],
)
def test_what_is_not_whole_or_not_surely_ours_is_not_used(
    file: Path, sources: list[Path], damage: Callable[[Path], Any]
) -> None:
    kept.computed("it", sources, lambda: "old")
    damage(file)
    assert kept.computed("it", sources, lambda: "new") == "new"
    if not file.parent.is_symlink():
        assert kept.computed("it", sources, never) == "new", "not mended"


@pytest.mark.parametrize("theirs", ["folder", "file"])
def test_somebody_elses_is_not_used(
    file: Path, sources: list[Path], monkeypatch: pytest.MonkeyPatch, theirs: str
) -> None:
    """The file alone: put there while the folder was open to others, which another `write` has closed since."""
    kept.computed("it", sources, lambda: "old")
    asked = file.parent if theirs == "folder" else file
    number = asked.stat().st_ino
    for name in ("stat", "lstat", "fstat"):
        monkeypatch.setattr(os, name, another_owner(getattr(os, name), number))
    assert kept.computed("it", sources, lambda: "new") == "new"


def another_owner(read: Callable[..., os.stat_result], number: int) -> Callable[..., os.stat_result]:
    """What reads a status, but the file of this number is somebody else's."""

    def status(*args: Any, **options: Any) -> os.stat_result:
        found = read(*args, **options)
        return os.stat_result([*found[:4], 4711, *found[5:]]) if found.st_ino == number else found

    return status


def test_what_changed_while_it_was_computed_is_not_kept(file: Path, sources: list[Path]) -> None:
    def changing() -> str:
        sources[0].write_text("c")
        return "of both"

    assert kept.computed("it", sources, changing) == "of both"
    assert not file.exists()


def test_an_unreadable_source_is_no_error_of_ours(file: Path, sources: list[Path]) -> None:
    sources[0].unlink()
    assert kept.computed("it", sources, lambda: "new") == "new"
    assert not file.exists()


def test_many_writers_leave_one_whole_file(file: Path) -> None:
    """Threads, for these have one process id, as have the processes of two containers that share a home."""

    def write(mark: int) -> set[int]:
        for _ in range(20):
            kept.write(file, bytes([mark]) * 1_000_000)
        return set(file.read_bytes())

    with ThreadPoolExecutor(8) as writers:
        assert all(len(seen) == 1 for seen in writers.map(write, range(8)))
    assert len(file.read_bytes()) == 1_000_000
    assert [path.name for path in file.parent.iterdir()] == ["it"]


def test_a_write_that_fails_leaves_what_was_there(
    file: Path, sources: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.computed("it", sources, lambda: "old")
    old = file.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", full)
    sources[0].write_text("c")
    assert kept.computed("it", sources, lambda: "new") == "new"
    assert file.read_bytes() == old
    assert [path.name for path in file.parent.iterdir()] == ["it"], "a temporary file was left"


@pytest.mark.parametrize("home", ["file", "/proc/nowhere"])
def test_without_a_place_it_is_computed_each_time(
    tmp_path: Path, sources: list[Path], monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / home))
    assert [kept.computed("it", sources, lambda: 1), kept.computed("it", sources, lambda: 2)] == [1, 2]


def test_an_error_is_not_kept(file: Path, sources: list[Path]) -> None:
    with pytest.raises(AssertionError, match="computed again"):
        kept.computed("it", sources, never)
    assert not file.exists()


def test_kept_documents_are_not_compiled_and_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def fresh() -> None:
        documents.load.cache_clear()
        monkeypatch.setattr(documents, "_COMPILED", {})
        documents.preload()

    fresh()
    first = {source: names for source, (_, names, _) in documents._COMPILED.items()}
    monkeypatch.setattr(documents, "_translated", never)
    fresh()
    assert {source: names for source, (_, names, _) in documents._COMPILED.items()} == first
    assert documents.render("page_cache", View("spark-a", {})).resources
