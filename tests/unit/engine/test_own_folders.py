"""A folder whose plain files, or all that is in it, are a role's own: they go with it, and nothing else does."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.attacker import tally
from tests.support.nested import nest
from tests.support.undone import World, documents_of

SHELF = "/etc/shelf"
OWN: dict[str, Any] = {"file": SHELF, "state": "directory", "mode": "0700", "with_files": True}
OTHER: dict[str, Any] = {"file": "/etc/other", "content": "x"}


@pytest.fixture(name="world")
def fixture_world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.done("converge", documents=documents_of(OWN, OTHER))
    world.host.file(f"{SHELF}/kept.tar", "made on the host")
    return world


def test_an_undo_takes_its_files_along(world: World) -> None:
    assert world.done("converge", documents=documents_of(OWN, OTHER))["changes"] == []
    assert world.done("drift")["changes"] == []
    world.done("undo")
    assert not world.host.path(SHELF).exists()


def test_so_does_a_document_that_no_longer_has_it(world: World) -> None:
    world.done("converge", documents=documents_of(OTHER), orphans="remove")
    assert not world.host.path(SHELF).exists() and world.host.path("/etc/other").exists()


def test_a_folder_in_it_was_made_by_somebody_and_stays(world: World) -> None:
    world.host.file(f"{SHELF}/theirs/x", "x")
    world.done("undo")
    assert world.host.path(f"{SHELF}/theirs/x").exists()


def test_a_link_in_it_goes_and_what_it_leads_to_stays(world: World) -> None:
    world.host.file("/etc/theirs", "x")
    world.host.path(f"{SHELF}/link").symlink_to(world.host.path("/etc/theirs"))
    world.done("undo")
    assert not world.host.path(SHELF).exists() and world.host.path("/etc/theirs").exists()


def test_a_folder_that_stood_before_us_keeps_all(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.host.file(f"{SHELF}/before", "x")
    world.done("converge", documents=documents_of(OWN))
    world.done("undo")
    assert world.host.path(f"{SHELF}/before").exists()


COMPILED: dict[str, Any] = {"file": "/etc/compiled/chat", "state": "directory", "with_all": True}
DEPTH = 3000  # more than Python calls itself, and longer than any path may be


@pytest.fixture(name="filled")
def fixture_filled(tmp_path: Path) -> Iterator[World]:
    """A container has left there what it liked."""
    world = World(tmp_path)
    world.done("converge", documents=documents_of(COMPILED, OTHER))
    world.host.file("/etc/theirs/x", "x")
    world.host.file("/etc/compiled/chat/key/x.so", "code")
    inside = world.host.path("/etc/compiled/chat/key")
    (inside / "link").symlink_to(world.host.path("/etc/theirs"))
    (inside / "closed").mkdir(mode=0o500)
    nest(inside, DEPTH, "x.so")
    yield world
    subprocess.run(["rm", "-rf", inside], check=True)  # pytest cannot remove it


def test_all_of_a_folder_goes_with_it_and_nothing_else(filled: World) -> None:
    assert filled.done("converge", documents=documents_of(COMPILED, OTHER))["changes"] == []
    assert filled.done("drift")["changes"] == []
    said = filled.done("undo", check=True)["changes"]
    assert "file:/etc/compiled/chat" in [each["resource"] for each in said]
    assert filled.host.path("/etc/compiled/chat/key/x.so").exists(), "a check removes nothing"
    filled.done("undo")
    gone = not filled.host.path("/etc/compiled").exists()
    tally("a container leaves a folder so deep that root cannot remove it", 1, int(not gone))
    assert gone and filled.host.path("/etc/theirs/x").exists()


def test_so_it_does_with_a_service_that_is_declared_no_longer(filled: World) -> None:
    filled.done("converge", documents=documents_of(OTHER), orphans="remove")
    assert not filled.host.path("/etc/compiled").exists()
    assert filled.done("converge", documents=documents_of(OTHER), orphans="remove")["changes"] == []


def test_all_of_a_folder_that_stood_before_us_stays(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.host.file("/etc/compiled/chat/theirs/x", "x")
    world.done("converge", documents=documents_of(COMPILED))
    world.done("undo")
    assert world.host.path("/etc/compiled/chat/theirs/x").exists()
