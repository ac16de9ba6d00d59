"""What stops a release, and what one changes in the tree. The whole of it is rehearsed by a gate of `make test`."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from scripts import check, release


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository at 1.2.0, which is released, with one fragment for the next."""
    for part in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{part}_NAME", "somebody")
        monkeypatch.setenv(f"GIT_{part}_EMAIL", "somebody@localhost")
    root = tmp_path / "tree"
    (root / "changelogs/fragments").mkdir(parents=True)
    (root / "galaxy.yml").write_text("name: fleet\nversion: 1.2.0\n")
    (root / "CHANGELOG.rst").write_text("v1.2.0\n")
    (root / "changelogs/changelog.yaml").write_text("releases:\n  1.2.0: {}\n  1.10.0: {}\n  0.9.0: {}\n")
    (root / "changelogs/fragments/1-a.yml").write_text("bugfixes: [a]\n")
    release.git("init", "--quiet", root=root)
    release.git("add", "--all", root=root)
    release.git("commit", "--quiet", "--message", "as it is", root=root)
    release.git("tag", "v2.5.0", root=root)
    return root


def test_a_clean_tree_with_fragments_and_a_newer_version_is_released(tree: Path) -> None:
    assert release.refusals("1.11.0", tree) == []


@pytest.mark.parametrize("version", ["", "1.2", "v1.11.0", "1.11.0-rc1", "1.11.0 "])
def test_a_version_is_three_numbers(tree: Path, version: str) -> None:
    (found,) = release.refusals(version, tree)
    assert found.startswith("VERSION=") and "1.2.0" in found


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("1.10.0", "not newer than 1.10.0"),
        ("1.9.9", "not newer than 1.10.0"),  # by numbers, not by letters
        ("0.1.0", "older than 1.2.0"),
        ("2.5.0", "tag v2.5.0"),
    ],
)
def test_a_version_that_is_not_newer_is_refused(tree: Path, version: str, why: str) -> None:
    assert any(why in line for line in release.refusals(version, tree))


def test_a_dirty_tree_is_refused(tree: Path) -> None:
    (tree / "new").touch()
    assert any("not committed" in line for line in release.refusals("1.11.0", tree))


def test_a_release_without_fragments_is_refused(tree: Path) -> None:
    release.git("rm", "--quiet", "changelogs/fragments/1-a.yml", root=tree)
    release.git("commit", "--quiet", "--message", "none", root=tree)
    (tree / "changelogs/fragments").mkdir(exist_ok=True)
    assert any("changelogs/fragments is empty" in line for line in release.refusals("1.11.0", tree))


def test_a_release_is_one_commit_with_a_tag(tree: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    (copy / "changelogs").mkdir(parents=True)
    (copy / "galaxy.yml").write_text("name: fleet\nversion: 1.11.0\n")
    (copy / "CHANGELOG.rst").write_text("v1.11.0\n")
    (copy / "changelogs/changelog.yaml").write_text("releases:\n  1.11.0: {}\n")
    release.record(copy, "1.11.0", tree)
    assert release.git("status", "--porcelain", root=tree) == ""
    assert release.git("describe", root=tree) == "v1.11.0"
    assert "fragments/1-a.yml" not in release.git("ls-files", root=tree)
    assert "v1.11.0" in (tree / "CHANGELOG.rst").read_text()


def test_checksums_cover_all_files_and_not_themselves(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_bytes(b"a")
    release.checksums(tmp_path)
    release.checksums(tmp_path)
    assert (tmp_path / "SHA256SUMS").read_text() == f"{hashlib.sha256(b'a').hexdigest()}  a.whl\n"


def test_a_package_has_a_readme_whose_links_work_anywhere_and_no_inventory_but_the_example(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(
        "[a](docs/drift.md#undo) ![b](docs/images/x.png) [c](https://example.com) [d](#e)"
    )
    (tmp_path / "galaxy.yml").write_text(
        "repository: https://forge.example/fleet\nbuild_ignore:\n  - inventory\n  - lab\n"
    )
    check.stage(tmp_path, "v1.2.0")
    readme = (tmp_path / "README.md").read_text()
    assert "](https://forge.example/fleet/blob/v1.2.0/docs/drift.md#undo)" in readme
    assert "](https://forge.example/fleet/raw/v1.2.0/docs/images/x.png)" in readme
    assert "](https://example.com)" in readme and "](#e)" in readme
    assert (tmp_path / "galaxy.yml").read_text().endswith("build_ignore:\n  - lab\n")
    assert check.shipped(Path("inventory/example/pair/hosts.yml")) and not check.shipped(
        Path("inventory/mine/hosts.yml")
    )
