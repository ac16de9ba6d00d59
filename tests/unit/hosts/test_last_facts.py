"""The facts of last time: a guess, so nothing that is wrong with them may be an error."""

from __future__ import annotations

import errno
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import last_facts

FACTS: dict[str, Any] = {"hostname": "spark-a", "rails": []}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "gb10-fleet" / "facts"


def test_what_is_written_is_read_for_the_same_name_and_address_only(cache: Path) -> None:
    last_facts.write("spark-a", "192.0.2.11", FACTS)
    assert last_facts.read("spark-a", "192.0.2.11") == FACTS
    assert last_facts.read("spark-a", "192.0.2.12") is None
    assert last_facts.read("spark-b", "192.0.2.11") is None
    assert cache.stat().st_mode & 0o777 == 0o700
    assert len(list(cache.iterdir())) == 1, "a temporary file was left"


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b'{"facts": 1}', b"\xff", b"[" * 100_000])
def test_a_damaged_file_is_none(cache: Path, text: bytes) -> None:
    last_facts.write("spark-a", "x", FACTS)
    (file,) = cache.iterdir()
    file.write_bytes(text)
    assert last_facts.read("spark-a", "x") is None
    last_facts.write("spark-a", "x", FACTS)
    assert last_facts.read("spark-a", "x") == FACTS


@pytest.mark.parametrize("kept", [{"project": "0.0.0", "facts": FACTS}, {"project": None, "facts": []}])
def test_the_facts_of_another_version_are_none(cache: Path, kept: dict[str, Any]) -> None:
    last_facts.write("spark-a", "x", FACTS)
    (file,) = cache.iterdir()
    file.write_text(json.dumps({"project": kept["project"] or catalog.collection_version(), "facts": kept["facts"]}))
    assert last_facts.read("spark-a", "x") is None


def test_the_same_facts_are_not_written_again(cache: Path) -> None:
    last_facts.write("spark-a", "x", FACTS)
    (file,) = cache.iterdir()
    before = file.stat().st_ino
    last_facts.write("spark-a", "x", dict(FACTS))
    assert file.stat().st_ino == before
    last_facts.write("spark-a", "x", {**FACTS, "rails": [1]})
    assert last_facts.read("spark-a", "x") == {**FACTS, "rails": [1]}


def test_a_name_leads_nowhere_else(cache: Path) -> None:
    for name in ("../../x", "/etc/x", "a\0b", "\udcff", "a" * 5000):
        last_facts.write(name, "x", {"hostname": name[:9]})
        assert last_facts.read(name, "x") == {"hostname": name[:9]}
    assert {path.parent for path in cache.parent.parent.rglob("*.json")} == {cache}


def test_a_place_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    last_facts.write("spark-a", "x", FACTS)
    assert last_facts.read("spark-a", "x") is None


def test_a_relative_cache_home_counts_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for value in ("cache", ""):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert last_facts._folder() == tmp_path / "home" / ".cache" / "gb10-fleet"


def test_other_users_files_are_not_readable(cache: Path) -> None:
    old = os.umask(0)
    try:
        last_facts.write("spark-a", "x", FACTS)
    finally:
        os.umask(old)
    assert cache.stat().st_mode & 0o077 == 0


def test_many_writers_leave_one_whole_file(cache: Path) -> None:
    """Threads, for these have one process id, as have the processes of two containers that share a home."""

    def write(mark: str) -> set[str]:
        for _ in range(20):
            last_facts.write("spark-a", "x", {"hostname": mark * 100_000})
        return set((last_facts.read("spark-a", "x") or {})["hostname"])

    with ThreadPoolExecutor(8) as writers:
        assert all(len(seen) == 1 for seen in writers.map(write, "abcdefgh"))
    assert len(list(cache.iterdir())) == 1, "a temporary file was left"


def test_a_write_that_fails_leaves_what_was_there(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    last_facts.write("spark-a", "x", FACTS)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", full)
    last_facts.write("spark-a", "x", {**FACTS, "rails": [1]})
    assert last_facts.read("spark-a", "x") == FACTS
    assert len(list(cache.iterdir())) == 1, "a temporary file was left"


def test_all_hosts_that_are_remembered(cache: Path) -> None:
    assert list(last_facts.everything()) == []
    last_facts.write("spark-a", "x", FACTS)
    last_facts.write("spark-b", "x", {**FACTS, "hostname": "spark-a"})
    (cache / "z.json").write_text("{")
    assert {host for host, _ in last_facts.everything()} == {"spark-a", "spark-b"}, "whatever a host calls itself"
