"""The order of rooms: who may import whom. docs/architecture.md draws it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PLUGINS = Path(__file__).parents[3] / "plugins"
PREFIX = "ansible_collections.gb10.fleet.plugins."
# A room imports those of lines above its own, and neighbours in its line as long as there is no way back.
TRAVELS = (
    ("system",),
    ("reading",),
    ("checks",),
    ("engine", "fabric", "programs"),
    ("bootstrap", "serving"),
    ("images", "releases"),
)
STAYS = (
    ("ground",),
    ("fabric", "releases", "monitoring", "power"),
    ("serving",),
    ("images",),
    ("plans",),
    ("documents",),
    ("doctor",),
    ("hosts",),
    ("health", "reports"),
)
HALVES = {"module_utils": TRAVELS, "plugin_utils": STAYS}


def imports(half: str) -> Iterator[tuple[str, str, Path]]:
    """Yield the room that imports, the room that is imported, and the file."""
    for path in sorted((PLUGINS / half).rglob("*.py")):
        parts = path.relative_to(PLUGINS).with_suffix("").parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom):
                continue
            if node.level:
                target = (*parts[: -node.level], *(node.module or "").split("."))
            elif (node.module or "").startswith(PREFIX):
                target = tuple(str(node.module)[len(PREFIX) :].split("."))
            else:
                continue
            if target[0] == half and len(target) > 1 and target[1] != parts[1]:
                yield parts[1], target[1], path
            elif target[0] != half:
                assert half == "plugin_utils", f"{path} travels to a host, and imports what stays on the controller"


@pytest.mark.parametrize("half", HALVES)
def test_every_room_has_its_place(half: str) -> None:
    rooms = {path.name for path in (PLUGINS / half).iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert rooms == {room for line in HALVES[half] for room in line}
    assert not list((PLUGINS / half).glob("*.py")), "a file without a room"


@pytest.mark.parametrize("half", HALVES)
def test_no_room_imports_one_that_comes_later(half: str) -> None:
    place = {room: number for number, line in enumerate(HALVES[half]) for room in line}
    assert {(room, other): path for room, other, path in imports(half) if place[other] > place[room]} == {}


@pytest.mark.parametrize("half", HALVES)
def test_no_two_rooms_import_each_other(half: str) -> None:
    arrows = {(room, other) for room, other, _path in imports(half)}
    assert {pair for pair in arrows if pair[::-1] in arrows} == set()
