"""A folder whose plain files are a role's own: they go with it, and nothing else does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

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
