"""Root works where a user owns the folder, and that user exchanges what it works on."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources import files
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.file_resource import File
from ansible_collections.gb10.fleet.plugins.module_utils.system import folders
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError, System

from tests.support.attacker import NOBODY, TRIES, attacking, clear, exchange, needs_root, public_folder, tally

RACE = "a user exchanges what root works on"


class Place:
    """A host with a folder of a user, and beside it what only root may touch."""

    def __init__(self, root: Path) -> None:
        self.system = System(root, lambda *_: pytest.fail("no command is run"))
        for name in ("etc", "srv", "secret.d"):
            (root / name).mkdir()
        for name in ("passwd", "group"):
            (root / "etc" / name).write_text("root:x:0:0::/root:/bin/sh\n")
        self.home, self.secret, self.private = root / "srv", root / "secret", root / "secret.d"
        self.secret.write_text("only root reads this")
        self.secret.chmod(0o600)
        self.private.chmod(0o700)
        os.chown(self.home, NOBODY, NOBODY)

    def lost(self) -> bool:
        """Whether the user has got at what was root's."""
        modes = self.secret.stat().st_mode & 0o777, self.private.stat().st_mode & 0o777
        same = self.secret.read_text() == "only root reads this" and not list(self.private.iterdir())
        return modes != (0o600, 0o700) or not same


@pytest.fixture
def place() -> Iterator[Place]:
    with public_folder() as root:
        yield Place(root)


def linked(place: Place, name: str, target: Path) -> Path:
    """A link of the user's own that waits to be exchanged for what root makes."""
    link = place.home / name
    link.symlink_to(target)
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    return link


def begin_anew(place: Place, moving: Path, link: Path) -> None:
    """What root made is gone, and the link waits again."""
    for left in (*place.private.iterdir(), *(each for each in (moving, link) if not each.is_symlink())):
        clear(left)
    with contextlib.suppress(OSError):
        moving.rename(link)


def wins(place: Place, resource: File, action: str, moving: Path, link: Path) -> int:
    """How often the user wins while root does the same thing again and again."""
    won = 0
    with attacking(lambda: exchange(moving, link)):
        for _ in range(TRIES):
            with contextlib.suppress(OSError, HostError):
                files._apply(place.system, resource, action)
            won += place.lost()
            place.secret.chmod(0o600)
            place.private.chmod(0o700)
            place.secret.write_text("only root reads this")
            begin_anew(place, moving, link)
    tally(RACE, TRIES, won)
    return won


@needs_root
def test_a_folder_that_becomes_a_link_gives_no_access_to_a_file_of_root(place: Place) -> None:
    link = linked(place, "waiting", place.secret)
    wanted = File(0, "/srv/new", "demo", state="directory", mode=0o755, stated=frozenset({"mode"}))
    assert wins(place, wanted, "mkdir", place.home / "new", link) == 0


@needs_root
def test_a_folder_that_becomes_a_link_at_the_worst_moment(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same without luck: the user comes between making the folder and giving it its access."""
    new, link = place.home / "new", linked(place, "waiting", place.secret)
    moves = [lambda: exchange(new, link)]
    monkeypatch.setattr(place.system, "account_id", lambda *_: (moves and moves.pop()()) or 0)
    files._apply(place.system, File(0, "/srv/new", "demo", state="directory"), "mkdir")
    assert new.is_symlink() and not place.lost()


@needs_root
def test_a_file_that_becomes_a_link_at_the_worst_moment(place: Place) -> None:
    mine = place.home / "mine"
    mine.write_text("mine")
    link = linked(place, "waiting", place.secret)

    class Accounts(dict[int, str]):
        def get(self, *_: object) -> str:  # type: ignore[override]
            exchange(mine, link)
            return "somebody"

    found = files._find(place.system, "/srv/mine", Accounts(), {})
    assert found and found.content == b"mine"


@needs_root
def test_a_file_is_not_written_where_its_folder_leads_to(place: Place) -> None:
    link = linked(place, "waiting", place.private)
    wanted = File(0, "/srv/new/cron", "demo", content=b"* * * * * root id\n")
    assert wins(place, wanted, "create", place.home / "new", link) == 0


@needs_root
def test_nothing_is_removed_where_a_folder_leads_to(place: Place) -> None:
    link = linked(place, "waiting", place.private)
    kept, won = place.private / "kept", 0
    with attacking(lambda: exchange(place.home / "new", link)):
        for _ in range(TRIES):
            kept.touch()
            (place.home / "new").mkdir(exist_ok=True)
            with contextlib.suppress(OSError, HostError):
                files._apply(place.system, File(0, "/srv/new/kept", "demo", state="absent"), "remove")
            won += not kept.exists()
    tally(RACE, TRIES, won)
    assert won == 0


@needs_root
def test_what_root_shows_of_a_file_is_of_that_file(place: Place) -> None:
    """A diff and the manifest hold the content: no user may put there what only root can read."""
    mine, won = place.home / "mine", 0
    mine.write_text("mine")
    link = linked(place, "waiting", place.secret)
    with attacking(lambda: exchange(mine, link)):
        for _ in range(TRIES):
            with contextlib.suppress(OSError, HostError):
                found = files._find(place.system, "/srv/mine", {}, {})
                won += found is not None and b"only root" in found.content
    tally(RACE, TRIES, won)
    assert won == 0


@needs_root
def test_the_access_of_a_secret_is_that_of_the_file_that_was_looked_at(place: Place) -> None:
    link = linked(place, "waiting", place.private)
    mine = place.home / "mine"
    wanted = File(0, "/srv/mine", "demo", secret=True, sha256="0" * 64, mode=0o644)
    won = 0
    with attacking(lambda: exchange(mine, link)):
        for _ in range(TRIES):
            if not mine.is_symlink():
                mine.touch()
            with contextlib.suppress(OSError, HostError):
                files._apply(place.system, wanted, "update")
            won += place.lost()
            place.private.chmod(0o700)
    tally(RACE, TRIES, won)
    assert won == 0


@needs_root
def test_a_link_of_root_is_followed_and_one_of_a_user_is_not(place: Place) -> None:
    root = str(place.system.root)
    (place.system.root / "run").mkdir()
    (place.system.root / "var").symlink_to("/run")
    (place.system.root / "here").symlink_to("run")
    for name in ("/var", "/here"):
        with folders.folder(f"{name}/new", root=root, make=True) as made:
            assert os.path.samestat(os.fstat(made), (place.system.root / "run/new").stat())
    (place.system.root / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="levels of symbolic links"), folders.folder("/loop/x", root=root):
        pass
    linked(place, "theirs", place.private)
    with pytest.raises(HostError, match="is a link that somebody else may have made; name the folder"):
        files._find(place.system, "/srv/theirs/x", {}, {})
    (place.system.root / "run").chmod(0o777)
    (place.system.root / "run/link").symlink_to("new")
    with pytest.raises(folders.ForeignLink), folders.folder("/run/link", root=root):
        pass
