"""The simulated hosts of the tests: what they write stays on them, whatever links a test made."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fake_host import FakeHost
from tests.support.rooted import place
from tests.support.world import World


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "kept").write_text("the machine's own\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize("kind", [World, FakeHost])
def test_a_link_leads_to_the_simulated_host(kind: type[World] | type[FakeHost], tmp_path: Path, outside: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    host = kind(root)
    host.path("/etc/folder").symlink_to(outside)
    host.path("/etc/file").symlink_to(outside / "kept")
    host.path("/etc/up").symlink_to("../../../outside/kept")
    for path in ("/etc/folder/kept", "/etc/file", "/etc/up"):
        host.file(path, "written by a test\n")
    assert (outside / "kept").read_text(encoding="utf-8") == "the machine's own\n"
    assert (root / str(outside).lstrip("/") / "kept").read_text(encoding="utf-8") == "written by a test\n"


@pytest.mark.parametrize("kind", [World, FakeHost])
def test_a_link_is_compared_by_its_text(kind: type[World] | type[FakeHost], tmp_path: Path, outside: Path) -> None:
    """What it leads to may be a file of the machine, or missing on it."""
    root = tmp_path / "root"
    root.mkdir()
    host = kind(root)
    link = host.path("/etc/localtime")
    seen = []
    for target in (outside / "kept", outside / "other", "/nowhere", "/usr/share/zoneinfo/UTC"):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        seen.append(host.digest())
    assert [found for number, found in enumerate(seen) if found in seen[:number]] == []
    (outside / "other").write_text("new\n", encoding="utf-8")
    link.unlink()
    link.symlink_to(outside / "other")
    assert host.digest() == seen[1]


def test_links_that_lead_to_each_other_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="too many links"):
        place(tmp_path, "/a/x")
    assert place(tmp_path, "/a") == tmp_path / "a"
