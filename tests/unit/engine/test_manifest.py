"""The manifest as a value and as a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources import dependencies
from ansible_collections.gb10.fleet.plugins.module_utils.system import manifest as manifests
from ansible_collections.gb10.fleet.plugins.module_utils.system.manifest import (
    Claim,
    Entry,
    Manifest,
    Owner,
    Unfinished,
)
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import TEMPORARY_PREFIX, HostError, System

from tests.support.fake_host import FakeHost

NOW, LATER = Owner("0.2.0", "2026-11-21T05:00:00Z"), Owner("0.3.0", "2027-01-01T00:00:00Z")


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


@pytest.fixture
def system(host: FakeHost) -> System:
    return host.system


def claim(name: str, *roles: str, **attributes: Any) -> Claim:
    return Claim(f"file:{name}", roles or ("demo",), {"file": name, **attributes})


def declared(known: Manifest, *claims: Claim, sent: tuple[str, ...] = ("demo",), owner: Owner = NOW) -> Manifest:
    new = {claim.label: {"was": claim.label} for claim in claims if claim.label not in known.resources}
    return manifests.declare(known, claims, sent, new, owner)


FULL = Manifest(
    {
        "package:docker-ce": Entry(
            {"docker": NOW, "other": LATER},
            {"package": "docker-ce", "version": "29.1"},
            {"version": None},
            {"version": "29.1"},
            ("containerd", "runc"),
            (),
            ("exchange",),
            0,
            orphan=False,
            came="R1",
        ),
        "file:/etc/é\u2028": Entry(
            {"docker": NOW}, {"file": "/x"}, {}, None, (), ("/etc/a", "/etc"), (), 1, orphan=True
        ),
    },
    Unfinished("me", "2026-11-21T05:00:00Z", ("bash",), ("file:/x",)),
)


def test_what_is_written_is_what_is_read(system: System) -> None:
    for manifest in (FULL, FULL._replace(unfinished=None), FULL._replace(unfinished=Unfinished("a", "b", None, ()))):
        manifests.save(system, manifest)
        assert manifests.load(system) == manifest


def test_only_root_reads_it(system: System) -> None:
    manifests.save(system, FULL)
    assert system.path(manifests.MANIFEST).stat().st_mode & 0o777 == 0o600
    assert system.path(manifests.STATE_DIRECTORY).stat().st_mode & 0o777 == 0o700


def test_a_directory_that_others_may_read_is_closed(system: System) -> None:
    system.path(manifests.STATE_DIRECTORY).mkdir(mode=0o755)
    manifests.save(system, FULL)
    assert system.path(manifests.STATE_DIRECTORY).stat().st_mode & 0o777 == 0o700


def test_the_last_entry_takes_file_and_directory_along(system: System) -> None:
    manifests.save(system, FULL)
    directory = system.path(manifests.STATE_DIRECTORY)
    (directory / "owed-restarts.json").write_text("{}")
    (directory / f"{TEMPORARY_PREFIX}manifest.json").write_text("{")
    manifests.save(system, Manifest())
    assert not directory.exists()
    assert manifests.load(system) == Manifest()


def test_what_somebody_else_keeps_there_stays(system: System) -> None:
    manifests.save(system, FULL)
    (system.path(manifests.STATE_DIRECTORY) / "theirs").write_text("")
    manifests.save(system, Manifest())
    assert system.names(manifests.STATE_DIRECTORY) == ["theirs"]


def damaged() -> list[Any]:
    whole = json.loads(manifests.serialise(FULL))
    entry = whole["resources"]["package:docker-ce"]
    cases: list[Any] = ["", "{", "[]", "null", "1", '"x"', "[" * 100_000]
    nothing: list[Any] = [None, [], {"a": None}, {"a": {}}, {"a": [1]}]
    cases += [{**whole, "resources": wrong} for wrong in nothing]
    cases += [{key: value for key, value in whole.items() if key != gone} for gone in whole]
    # Of no field are all of these the right type.
    wrongs: list[Any] = [[1], "x", 7.5, {"a": 1}]
    for key in entry.keys() - {"order", "orphan"}:
        mapping = key in ("declared", "before", "left")
        for wrong in wrongs[:3] if mapping else wrongs[:1] + wrongs[2:] if key == "came" else wrongs:
            cases.append({**whole, "resources": {"package:x": {**entry, key: wrong}}})
    runs: list[Any] = ["x", [], {"run": "x"}, {**whole["unfinished"], "run": 1}]
    cases += [{**whole, "unfinished": wrong} for wrong in runs]
    return [case if isinstance(case, str) else json.dumps(case) for case in cases]


@pytest.mark.parametrize("text", damaged())
def test_a_damaged_one_is_refused_with_the_way_out(text: str, system: System) -> None:
    system.private_directory(manifests.STATE_DIRECTORY)
    system.path(manifests.MANIFEST).write_text(text)
    with pytest.raises(HostError, match=r"manifest.json is damaged .*: bring it back from a backup"):
        manifests.load(system)
    assert system.path(manifests.MANIFEST).read_text() == text


def test_invalid_utf8_is_damage(system: System) -> None:
    system.private_directory(manifests.STATE_DIRECTORY)
    system.path(manifests.MANIFEST).write_bytes(b'{"format": 1, "x": "\xff"}')
    with pytest.raises(HostError, match="it is not UTF-8"):
        manifests.load(system)


@pytest.mark.parametrize("version", [0, 2, "1", None, [1]])
def test_one_of_another_format_is_refused(version: Any) -> None:
    text = json.dumps({**json.loads(manifests.serialise(FULL)), "format": version})
    with pytest.raises(HostError, match="run the version that wrote it, or a later one"):
        manifests.parse(text)


def test_what_the_file_system_refuses_is_said(system: System) -> None:
    system.private_directory(manifests.STATE_DIRECTORY)
    system.path(manifests.MANIFEST).mkdir()
    with pytest.raises(HostError, match=r"manifest\.json cannot be read: Is a directory"):
        manifests.load(system)
    with pytest.raises(HostError, match=r"manifest.json cannot be written: .*; make room"):
        manifests.save(system, FULL)


# -------------------------------------------------------------------------------------------------------- declarations


def test_how_things_stood_before_is_never_overwritten() -> None:
    first = declared(Manifest(), claim("/a", content="1"))
    again = declared(first, claim("/a", content="2"), owner=LATER)
    entry = again.resources["file:/a"]
    assert entry.before == {"was": "file:/a"}
    assert entry.declared["content"] == "2"
    assert entry.roles == {"demo": LATER}


def test_the_same_again_changes_nothing_not_even_the_version() -> None:
    first = declared(Manifest(), claim("/a"), claim("/b"))
    assert declared(first, claim("/a"), claim("/b"), owner=LATER) == first


def test_later_resources_come_later() -> None:
    first = declared(Manifest(), claim("/b"))
    both = declared(first, claim("/a"), claim("/b"), claim("/c"))
    assert [label for label, _ in sorted(both.resources.items(), key=lambda item: item[1].order)] == [
        "file:/b",
        "file:/a",
        "file:/c",
    ]


def test_orphans_are_judged_by_the_roles_that_were_sent() -> None:
    known = declared(
        Manifest(), claim("/a"), claim("/b", "demo", "other"), claim("/c", "other"), sent=("demo", "other")
    )
    assert manifests.orphans(known, [], ("demo",)) == [("demo", "file:/a")]
    assert manifests.orphans(known, [claim("/a")], ("demo",)) == []
    assert manifests.orphans(known, [], ("third",)) == []
    left = declared(known, sent=("demo",))
    assert left.resources["file:/a"].orphan
    assert left.resources["file:/b"].roles == {"other": NOW}
    assert not left.resources["file:/b"].orphan
    assert left.resources["file:/c"] == known.resources["file:/c"]
    back = declared(left, claim("/a"), claim("/b"))
    assert not back.resources["file:/a"].orphan
    assert back.resources["file:/b"].roles.keys() == {"demo", "other"}


def test_a_run_that_follows_a_killed_one_keeps_what_that_knew() -> None:
    killed = manifests.begun(declared(Manifest(), claim("/a")), "first", "1", ["bash"], ["file:/x"])
    second = manifests.begun(killed, "second", "2", ["bash", "half"], ["file:/a"])
    assert second.unfinished == Unfinished("second", "2", ("bash",), ("file:/x", "file:/a"))


def test_a_run_has_ended_when_nothing_waits_for_its_end() -> None:
    begun = manifests.begun(declared(Manifest(), claim("/a"), claim("/b")), "me", "now", None, ["file:/a", "file:/b"])
    half = manifests.amended(begun, {"file:/a": {"left": {}}})
    assert manifests.ended(half).unfinished == Unfinished("me", "now", None, ("file:/b",))
    assert manifests.ended(manifests.amended(half, {"file:/b": {"left": {}}})).unfinished is None
    # Nobody will ever end the run of what nobody declares.
    assert manifests.ended(manifests.amended(half, {"file:/b": {"orphan": True}})).unfinished is None


def test_differences_name_contents_and_show_the_rest() -> None:
    left = {"type": "file", "mode": "0644", "content": "secret"}
    assert manifests.differences(left, left) == ""
    assert manifests.differences(left, {**left, "mode": "0600", "content": "x"}) == "mode 0644 -> 0600, content"
    assert manifests.differences(left, {}) == "type file -> absent, mode 0644 -> absent, content"


STATUS = """Package: docker-ce
Depends: containerd.io (>= 1.7), libc6 (>= 2.34), iptables | nftables
Pre-Depends: init-helper

Package: containerd.io
Architecture: arm64
Provides: runc (= 1), containerd
Depends: libseccomp2:any

Package: libseccomp2

Package: iptables

Package: nftables

Package: perftest
Depends: runc, libibverbs1

Package: libibverbs1
Architecture: armhf

Package: vim
Depends: vim-runtime

Package: vim-runtime
"""


def test_only_what_ours_needs_has_come_along() -> None:
    installed = [
        "docker-ce",
        "containerd.io",
        "libseccomp2",
        "iptables",
        "perftest",
        "libibverbs1:armhf",
        "vim",
        "libc6",
    ]
    found = dependencies.brought_along(STATUS, installed, ["libc6"], ["docker-ce", "perftest"])
    assert found == {
        "docker-ce": ["containerd.io", "iptables", "libseccomp2"],
        "perftest": ["containerd.io", "libibverbs1:armhf", "libseccomp2"],
    }
    assert dependencies.brought_along(STATUS, installed, installed, ["docker-ce"]) == {}
