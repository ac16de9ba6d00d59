"""apt's sources from files, and their conflicts as apt 2.6 was measured to see them."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.reading import apt_sources
from ansible_collections.gb10.fleet.plugins.module_utils.reading.apt_sources import Source
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import System

A, B = "/etc/apt/keyrings/a.asc", "/etc/apt/keyrings/b.asc"
DGX = """\
# NVIDIA
Types: deb
URIs: https://repo.download.nvidia.com/baseos/ubuntu/noble/arm64/
Suites: noble noble-updates
Components: common dgx
Signed-By: /usr/share/keyrings/dgx_debian_prod.gpg

Enabled: no
Types: deb
URIs: https://off.example/
Suites: x
Components: y

# a key in the file
Types: deb-src
URIs: https://user:secret@src.example/a
Suites: ./
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mQINBFit2ioBEAD
 -----END PGP PUBLIC KEY BLOCK-----
"""


def host(tmp_path: Path, *files: tuple[str, str]) -> System:
    for name, text in files:
        path = tmp_path / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return System(tmp_path, privileged=True)


def lists(*lines: str) -> list[Source]:
    """Sources of one-line files, one for each line, in this order."""
    return [
        source
        for number, line in enumerate(lines)
        for source in apt_sources.parse_list(f"/etc/apt/sources.list.d/{number}.list", line, "arm64")
    ]


def test_stanzas() -> None:
    found = apt_sources.parse_deb822("/f.sources", DGX, "arm64")
    assert [(source.uri, source.suite, source.components) for source in found] == [
        ("https://repo.download.nvidia.com/baseos/ubuntu/noble/arm64/", "noble", ("common", "dgx")),
        ("https://repo.download.nvidia.com/baseos/ubuntu/noble/arm64/", "noble-updates", ("common", "dgx")),
        ("https://src.example/a", "./", ()),
    ]
    assert found[0].signed_by == "/usr/share/keyrings/dgx_debian_prod.gpg"
    assert apt_sources.shown(found[2]) == "a key in the file"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("https://user:secret@x.example/a", "https://x.example/a"),
        ("https://token@x.example/a", "https://x.example/a"),
        ("https://user:sec@ret@x.example/a", "https://x.example/a"),
        ("https://user:sec/ret@x.example/a", "https://x.example/a"),
        ("https://x.example/a?token=secret", "https://x.example/a"),
        ("https://u:p@x.example/a?token=secret@y", "https://x.example/a"),
        ("http://x.example:8080/@scope/a", "http://x.example:8080/@scope/a"),
        ("http://x.example/@scope/a", "http://x.example/@scope/a"),
        ("http://[2001:db8::1]:80/@scope/a", "http://[2001:db8::1]:80/@scope/a"),
        ("file:/srv/a@b", "file:/srv/a@b"),
    ],
)
def test_no_fact_holds_a_password(written: str, shown: str) -> None:
    (line,) = lists(f"deb [arch=arm64] {written} noble main")
    (stanza,) = apt_sources.parse_deb822("/f.sources", f"Types: deb\nURIs: {written}\nSuites: noble\n", "arm64")
    assert (line.uri, stanza.uri) == (shown, shown)


def test_lines() -> None:
    text = (
        "# deb http://comment.example/ x main\n"
        f"deb [arch=amd64,arm64 signed-by={A}] https://one.example/ noble main universe # why\n"
        "deb\thttps://two.example/$(ARCH) /\n"
        f"deb [ Signed-By={B} ] https://three.example/ noble main\n"
        "rpm https://no.example/ x y\n"
        "deb https://short.example/\n"
    )
    found = apt_sources.parse_list("/etc/apt/sources.list", text, "arm64")
    assert [(source.uri, source.suite, source.components, source.signed_by) for source in found] == [
        ("https://one.example/", "noble", ("main", "universe"), A),
        ("https://two.example/arm64", "/", (), ""),
        ("https://three.example/", "noble", ("main",), B),
    ]


def test_files_come_in_the_order_of_apt_and_backups_are_no_sources(tmp_path: Path) -> None:
    line = "deb https://{}.example/ x main\n"
    system = host(
        tmp_path,
        ("/etc/apt/sources.list", line.format("first")),
        ("/etc/apt/sources.list.d/b.list", line.format("third")),
        ("/etc/apt/sources.list.d/a.sources", "Types: deb\nURIs: https://second.example/\nSuites: x\n"),
        ("/etc/apt/sources.list.d/c.list.save", line.format("backup")),
        ("/etc/apt/sources.list.d/c~.list", line.format("backup")),
    )
    uris = [source.uri for source in apt_sources.read_sources(system)]
    assert uris == [f"https://{name}.example/" for name in ("first", "second", "third")]
    assert apt_sources.read_sources(host(tmp_path / "empty")) == []


U = "https://x.example/linux/u"


@pytest.mark.parametrize(
    ("first", "second", "conflict"),
    [
        (f"deb [signed-by={A}] {U} noble stable", f"deb [signed-by={B}] {U} noble stable", True),
        (f"deb [signed-by={A}] {U} noble stable", f"deb [signed-by={B}] {U}/ noble other", True),
        (f"deb [signed-by={A}] {U} noble stable", f"deb [signed-by={B}] http://x.example/linux/u noble stable", True),
        (f"deb [signed-by={A}] {U} noble stable", f"deb-src [signed-by={B}] {U} noble stable", True),
        (f"deb [signed-by={A}] https://x.example/$(ARCH) /", f"deb [signed-by={B}] https://x.example/arm64 /", True),
        (f"deb [signed-by={A}] https://u@x.example/a b c", f"deb [signed-by={B}] https://x.example/a b c", True),
        (f"deb [signed-by={A},{B}] {U} noble stable", f"deb [signed-by={B},{A}] {U} noble stable", True),
        (f"deb [signed-by={A}] {U} noble stable", f"deb {U} noble stable", True),
        (f"deb {U} noble stable", f"deb [signed-by={A}] {U} noble stable", False),
        (f"deb [signed-by={A}] {U} noble stable", f"deb [signed-by={A}] {U} noble other", False),
        (f"deb [signed-by={A}] {U} noble stable", f"deb [signed-by={B}] {U} jammy stable", False),
        (f"deb [signed-by={A}] https://x.example:443/a b c", f"deb [signed-by={B}] https://x.example/a b c", False),
        (f"deb [signed-by={A}] https://X.example/a b c", f"deb [signed-by={B}] https://x.example/a b c", False),
        (f"deb {U} noble stable", f"deb {U} noble stable", False),
    ],
)
def test_conflicts_are_those_that_apt_was_seen_to_refuse(first: str, second: str, conflict: bool) -> None:
    found = apt_sources.conflicts(lists(first, second))
    assert bool(found) == conflict
    if conflict:
        assert found[0]["files"] == ["/etc/apt/sources.list.d/0.list", "/etc/apt/sources.list.d/1.list"]


def test_a_conflict_is_told_with_its_files_and_keys() -> None:
    unsigned = f"deb {U} noble stable"
    found = apt_sources.conflicts(
        lists(unsigned, f"deb [signed-by={A}] {U} noble stable", f"deb [signed-by={B}] {U} noble x", unsigned)
    )
    assert len(found) == 1
    assert found[0]["signed_by"] == [A, B, "none"]
    told = apt_sources.told(found)
    assert f"{U} noble is defined by /etc/apt/sources.list.d/1.list (Signed-By: {A}) and" in told


PACKAGES = "Package: docker-ce\nVersion: 1\n\nPackage: docker-ce-cli\nVersion: 1\n"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("deb https://download.docker.com/linux/ubuntu noble stable",
         "download.docker.com_linux_ubuntu_dists_noble_stable_binary-arm64_Packages"),
        ("deb http://198.18.7.1:8180/apt/ base main", "198.18.7.1:8180_apt_dists_base_main_binary-amd64_Packages"),
        ("deb https://x.example/my_repo/~u noble main",
         "x.example_my%5frepo_%7eu_dists_noble_main_binary-arm64_Packages"),
        ("deb https://x.example/deb/$(ARCH) /", "x.example_deb_arm64_Packages"),
    ],
)  # fmt: skip
def test_what_a_list_of_a_source_offers(tmp_path: Path, source: str, name: str) -> None:
    system = host(tmp_path, (f"/var/lib/apt/lists/{name}", PACKAGES))
    names = ("docker-ce", "docker-ce-cli", "docker", "ce")
    assert apt_sources.offered(system, lists(source), names) == ["docker-ce", "docker-ce-cli"]
    assert apt_sources.offered(system, lists("deb https://other.example/ noble main"), names) == []
    assert apt_sources.offered(system, lists(source), ()) == []


def test_an_empty_list_and_no_list_offer_nothing(tmp_path: Path) -> None:
    source = lists("deb https://x.example/ noble main")
    system = host(tmp_path, ("/var/lib/apt/lists/x.example_dists_noble_main_binary-arm64_Packages", ""))
    assert apt_sources.offered(system, source, ["docker-ce"]) == []
    assert apt_sources.offered(host(tmp_path / "none"), source, ["docker-ce"]) == []


def test_a_key_in_the_file_is_a_digest_in_the_facts() -> None:
    path, _updates, embedded = (
        source.as_fact()["signed_by"] for source in apt_sources.parse_deb822("/f", DGX, "arm64")
    )
    assert path == "/usr/share/keyrings/dgx_debian_prod.gpg"
    assert len(embedded) == len("sha256:") + 64 and embedded.startswith("sha256:")
