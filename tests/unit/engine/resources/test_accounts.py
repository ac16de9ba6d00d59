"""Accounts: what speaks against a number, who is not locked out, and files in which their owners have a hand."""

from __future__ import annotations

import base64
import os
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.engine.converge import converge
from ansible_collections.gb10.fleet.plugins.module_utils.engine.engine import parse_documents
from ansible_collections.gb10.fleet.plugins.module_utils.engine.undo import undo
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Completed, HostError

from tests.support.attacker import tally
from tests.support.fake_host import RUN

if TYPE_CHECKING:
    from tests.support.fake_host import FakeHost

ROOT = f"root:x:{os.getuid()}:{os.getgid()}::/root:/bin/sh\n"
PEOPLE: dict[str, Any] = {"account_group": "people", "gid": 5001}
ALICE: dict[str, Any] = {"account": "alice", "uid": 5002, "group": "people", "groups": ["video"]}
GONE: dict[str, Any] = {"account": "alice", "state": "absent"}
KEY, OTHER = "ssh-ed25519 AAAAC3Nzone", "ssh-ed25519 AAAAC3Nzother"


@pytest.fixture(autouse=True)
def _nobody_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUDO_USER", raising=False)


def standing(host: FakeHost, groups: str = "people:x:5001:\nvideo:x:44:alice\n", uid: int = 5002) -> None:
    """Alice is there."""
    host.file("/etc/passwd", f"{ROOT}alice:x:{uid}:5001::/home/alice:/bin/bash\n")
    host.file("/etc/group", f"root:x:{os.getgid()}:\n{groups}")


def mine(host: FakeHost) -> None:
    """Alice is who runs the tests, so that a file can be given to her."""
    host.file("/etc/passwd", f"{ROOT}alice:x:{os.getuid()}:{os.getgid()}::/home/alice:/bin/bash\n")
    host.path("/home/alice").mkdir(parents=True)


def test_debians_programs_make_it(host: FakeHost) -> None:
    host.file("/etc/group", f"root:x:{os.getgid()}:\nvideo:x:44:\n")
    host.on("sh -c", "")

    def groupadd(argv: list[str], stdin: str | None) -> str:
        host.file("/etc/group", f"root:x:{os.getgid()}:\nvideo:x:44:\npeople:x:5001:\n")
        return ""

    def useradd(argv: list[str], stdin: str | None) -> str:
        standing(host)
        return ""

    host.on("groupadd", groupadd)
    host.on("useradd", useradd)
    made = host.both([PEOPLE, ALICE])
    assert [(each["resource"], each["action"], each["detail"]) for each in made.changes] == [
        ("account_group:people", "create", "gid 5001"),
        ("account:alice", "create", "uid 5002"),
    ]
    (called,) = [" ".join(call) for call in host.calls if call[0] == "useradd"]
    numbers, place = "--gid people --shell /bin/bash --groups video --uid 5002", "--create-home --home-dir /home/alice"
    assert called == f"useradd {numbers} {place} alice"
    assert host.converge([PEOPLE, ALICE]).changes == []


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ("bob:x:5002:0::/home/bob:/bin/sh\n", "uid 5002 is bob's on this host"),
        ("", r"files of another owner have uid 5002 on this host: /srv/a, /srv/b\. They would become alice's"),
    ],
)
def test_a_number_of_somebody_else_is_named_before_anything_changes(host: FakeHost, others: str, said: str) -> None:
    host.file("/etc/passwd", ROOT + others)
    host.file("/etc/group", "people:x:5001:\nvideo:x:44:\n")
    host.on("sh -c", "/srv/a\n/srv/b\n")
    with pytest.raises(HostError, match=said):
        host.converge([ALICE])
    (looked,) = [" ".join(call[4:]) for call in host.calls if call[0] == "sh"]
    left_out = "-path /var/lib/docker -o -path /var/lib/containerd -o -path /home/alice"
    assert looked == f"find / -xdev ( {left_out} ) -prune -o -uid 5002 -print"


def test_a_search_that_does_not_end_gives_no_number_away(host: FakeHost) -> None:
    host.file("/etc/group", "people:x:5001:\nvideo:x:44:\n")
    host.on("sh -c", Completed(("sh",), 124, stderr="sh did not end within 300 s"))
    with pytest.raises(HostError, match="did not end within 300 s"):
        host.converge([ALICE])


def test_an_account_keeps_its_number(host: FakeHost) -> None:
    standing(host, uid=1003)
    with pytest.raises(HostError, match=r"account:alice has uid 1003 on this host, and the inventory says 5002\."):
        host.converge([ALICE])
    standing(host, groups="people:x:1009:\n")
    with pytest.raises(HostError, match="account_group:people has gid 1009 on this host"):
        host.converge([PEOPLE])


def test_a_group_that_is_nowhere_is_named(host: FakeHost) -> None:
    standing(host, groups="people:x:5001:\n")
    with pytest.raises(HostError, match="this host has no group video; declare it"):
        host.converge([ALICE])


def test_a_group_that_is_not_named_is_left_and_null_leaves_all(host: FakeHost) -> None:
    standing(host, groups="people:x:5001:\nvideo:x:44:alice\nsudo:x:27:alice\n")

    def usermod(argv: list[str], stdin: str | None) -> str:
        standing(host)
        return ""

    host.on("usermod", usermod)
    assert host.both([{**ALICE, "groups": None}]).changes == []
    (change,) = host.both([ALICE]).changes
    assert change["detail"] == "groups sudo,video -> video"


@pytest.mark.parametrize("way", ["sudo", "su"])
def test_who_has_come_loses_no_group_and_is_not_removed(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    if way == "sudo":
        monkeypatch.setenv("SUDO_USER", "alice")
    else:
        host.file("/proc/self/loginuid", "5002")
    standing(host, groups="people:x:5001:\nvideo:x:44:alice\nsudo:x:27:alice\n")
    host.on("ps", "")
    with pytest.raises(HostError, match="Ansible comes by this account, and it would leave the groups sudo"):
        host.converge([ALICE])
    with pytest.raises(HostError, match="Ansible comes by this account; come by another one to remove it"):
        host.converge([GONE])


def test_who_works_is_not_removed(host: FakeHost) -> None:
    standing(host)
    host.on("ps -o pid= -U alice", " 71\n 72\n")
    with pytest.raises(HostError, match=r"its processes 71, 72 run; end them \(`loginctl terminate-user alice`\)"):
        host.converge([GONE])


def test_a_removal_leaves_the_home(host: FakeHost) -> None:
    standing(host)
    host.on("ps", Completed(("ps",), 1))

    def userdel(argv: list[str], stdin: str | None) -> str:
        assert argv == ["userdel", "alice"], "no --remove"
        host.file("/etc/passwd", ROOT)
        return ""

    host.on("userdel", userdel)
    (change,) = host.both([GONE]).changes
    assert change["detail"] == "uid 5002; /home/alice stays"


@pytest.mark.parametrize("way", ["undo", "orphans"])
def test_what_was_taken_from_a_person_stays_taken(host: FakeHost, way: str) -> None:
    """By an undo, or when the entry leaves the list, a lost key and the account of who left came back."""
    standing(host, groups="people:x:5001:\nvideo:x:44:alice\nsudo:x:27:alice\n")
    host.file("/etc/passwd", host.path("/etc/passwd").read_text() + "bob:x:5003:5003::/home/bob:/bin/sh\n")
    host.file("/etc/group", host.path("/etc/group").read_text() + "bob:x:5003:\n")

    def usermod(argv: list[str], stdin: str | None) -> str:
        host.file("/etc/group", host.path("/etc/group").read_text().replace("sudo:x:27:alice", "sudo:x:27:"))
        return ""

    def userdel(argv: list[str], stdin: str | None) -> str:
        for name in ("passwd", "group"):
            lines = host.path(f"/etc/{name}").read_text().splitlines(keepends=True)
            host.file(f"/etc/{name}", "".join(line for line in lines if not line.startswith("bob:")))
        return ""

    host.on("ps", Completed(("ps",), 1))
    host.on("usermod", usermod)
    host.on("userdel", userdel)
    bob = [{"account": "bob", "state": "absent"}, {"account_group": "bob", "state": "absent"}]
    assert len(host.both([ALICE, *bob]).changes) == 3
    before = [host.path(f"/etc/{name}").read_text() for name in ("passwd", "group")]
    changes = taken_back(host, way)
    won = len(changes)
    tally("what was taken from a person comes back", 3, won)
    assert not won, changes
    assert [host.path(f"/etc/{name}").read_text() for name in ("passwd", "group")] == before


@pytest.mark.parametrize("way", ["undo", "orphans"])
def test_a_key_that_was_taken_out_opens_nothing_after_the_way_back(host: FakeHost, way: str) -> None:
    mine(host)
    file = host.file("/home/alice/.ssh/authorized_keys", f'from="10.0.0.7",restrict {OTHER} hers\n')
    host.both([key(), key(OTHER, state="absent")])
    taken_back(host, way)
    won = int(file.exists() and OTHER in file.read_text())
    tally("what was taken from a person comes back", 1, won)
    assert not won and not file.exists()


def taken_back(host: FakeHost, way: str) -> list[Any]:
    if way == "undo":
        return list(undo(host.system, RUN, None, {}, check_mode=False).changes)
    nothing = parse_documents([("demo", [])], {})
    return list(converge(nothing, host.system, RUN, check_mode=False, removes=("demo",)).changes)


# ---------------------------------------------------------------------------------------------------------------- keys


def key(line: str = KEY, **more: Any) -> dict[str, Any]:
    return {"account_key": f"alice {line}", **more}


def test_a_key_comes_beside_the_others_and_goes_alone(host: FakeHost) -> None:
    mine(host)
    file = host.file("/home/alice/.ssh/authorized_keys", f'# mine\nfrom="10.0.0.0/8" {OTHER} hers', 0o640)
    host.both([key()])
    assert file.read_text() == f'# mine\nfrom="10.0.0.0/8" {OTHER} hers\n{KEY}\n'
    assert file.stat().st_mode & 0o777 == 0o640
    host.both([key(), key(OTHER, state="absent")])
    assert file.read_text() == f"# mine\n{KEY}\n"


def test_a_folder_is_made_for_the_first_key(host: FakeHost) -> None:
    mine(host)
    host.both([key()])
    folder = host.path("/home/alice/.ssh")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "authorized_keys").stat().st_mode & 0o777 == 0o600
    host.both([key(state="absent")])
    assert not (folder / "authorized_keys").exists()


@pytest.mark.parametrize("name", [".ssh", ".ssh/authorized_keys"])
def test_no_link_of_the_owner_is_followed(host: FakeHost, name: str) -> None:
    mine(host)
    secret = host.file("/etc/ssh/keys/authorized_keys", f"{OTHER}\n")
    link = host.path(f"/home/alice/{name}")
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(secret.parent if name == ".ssh" else secret)
    if name == ".ssh" and os.geteuid() == 0:
        os.chown(link, 1234, 1234, follow_symlinks=False)  # what root has made is root's word
    if name == ".ssh" and os.geteuid() != 0:
        pytest.skip("who runs the tests is root of this host, and his link is trusted")
    with pytest.raises(HostError):
        host.converge([key()])
    assert secret.read_text() == f"{OTHER}\n"


def test_a_file_of_the_owner_is_read_up_to_a_bound_and_only_if_it_is_his_alone(host: FakeHost) -> None:
    mine(host)
    file = host.file("/home/alice/.ssh/authorized_keys", f"{OTHER}\n" * 50000)
    with pytest.raises(HostError, match="is larger than 1 MiB"):
        host.converge([key()])
    file.unlink()
    file.hardlink_to(host.file("/etc/secret", "root's\n"))
    with pytest.raises(HostError, match="is a hard link to another file"):
        host.converge([key()])


@pytest.mark.parametrize("end", ["\x0b", "\x0c", "\r", "\x1c", "\x85", "\u2028"])
def test_a_comment_of_a_key_becomes_no_key(host: FakeHost, end: str) -> None:
    """A line ends where sshd ends it: what somebody has put behind another end would open the account."""
    mine(host)
    line = f"{OTHER} who@there{end}ssh-ed25519 AAAAC3Nzevil"
    host.file("/home/alice/.ssh/authorized_keys", f"{line}\n")
    host.both([key()])
    written = host.path("/home/alice/.ssh/authorized_keys").read_bytes().decode()
    tally("a comment of a key becomes a key", 1, int(written != f"{line}\n{KEY}\n"))
    assert written == f"{line}\n{KEY}\n"


def test_a_key_before_a_nul_is_one(host: FakeHost) -> None:
    mine(host)
    host.file("/home/alice/.ssh/authorized_keys", f"{KEY}\0x\n{OTHER}\n")
    host.both([key(state="absent")])
    assert host.path("/home/alice/.ssh/authorized_keys").read_text() == f"{OTHER}\n"


def test_a_key_that_is_taken_out_opens_nothing_in_another_spelling_or_file(host: FakeHost) -> None:
    """sshd took both: another name of an RSA key's type, and any key in the second of its files."""
    mine(host)
    rsa = "AAAAB3Nzone"
    first = host.file("/home/alice/.ssh/authorized_keys", f"rsa-sha2-512 {rsa} hers\n{OTHER}\n")
    second = host.file("/home/alice/.ssh/authorized_keys2", f"ssh-rsa {rsa}\n")
    host.both([key(f"ssh-rsa {rsa}", state="absent")])
    won = int(rsa in first.read_text()) + int(second.exists())
    tally("a key that is taken back stays in another spelling", 2, won)
    assert not won and first.read_text() == f"{OTHER}\n"


def blob(*parts: bytes) -> str:
    return base64.b64encode(b"".join(struct.pack(">I", len(each)) + each for each in parts)).decode()


E, N, ED25519 = b"\1\0\1", b"\0" + b"\xc5" * 256, b"\x36" * 32
SAME = {
    "the type in short": (blob(b"ssh-ed25519", ED25519), blob(b"ED25519", ED25519)),
    "of any size": (blob(b"ssh-ed25519", ED25519), blob(b"eD25519", ED25519)),
    "another type of RSA": (blob(b"ssh-rsa", E, N), blob(b"rsa-sha2-512", E, N)),
    "a zero before the exponent": (blob(b"ssh-rsa", E, N), blob(b"ssh-rsa", b"\0" + E, N)),
    "zeros before the modulus": (blob(b"ssh-rsa", E, N), blob(b"rsa", E, b"\0" * 9 + N)),
    **{f"{space!r} within": (blob(b"ssh-rsa", E, N), space.join(blob(b"ssh-rsa", E, N))) for space in "\r\f\v"},
}


@pytest.mark.parametrize("said", sorted(SAME))
def test_a_revoked_key_is_known_as_openssh_knows_it(host: FakeHost, tmp_path: Path, said: str) -> None:
    """Who has a session can write the key once more; sshd compares what the text means."""
    mine(host)
    revoked, written = SAME[said]
    name = "ssh-rsa" if revoked.startswith("AAAAB3") else "ssh-ed25519"
    (tmp_path / "key.pub").write_bytes(f"{name} {revoked}\n{name} {written}\n".encode())
    shown = subprocess.run(["ssh-keygen", "-l", "-f", tmp_path / "key.pub"], capture_output=True, text=True, check=True)
    prints = [line.split()[1] for line in shown.stdout.splitlines()]
    assert len(prints) == 2 and prints[0] == prints[1], "for OpenSSH these are two keys: this proves nothing"
    file = host.file("/home/alice/.ssh/authorized_keys", f"{OTHER}\n")
    file.write_bytes(f'{OTHER}\nfrom="*" {name} {written} x\n'.encode())
    host.both([key(f"{name} {revoked}", state="absent")])
    won = int(file.read_text() != f"{OTHER}\n")
    tally("a key that is taken back stays in another spelling", 1, won)
    assert not won


@pytest.mark.parametrize(
    "line",
    [
        blob(b"ssh-ed25519", ED25519[:-1] + b"\x37"),
        blob(b"ssh-ed25519", ED25519, b""),
        blob(b"ssh-ed25519", ED25519)[:-4],
        blob(b"ssh-ed25519", ED25519)[:20] + "-" + blob(b"ssh-ed25519", ED25519)[20:],
        blob(b"ssh-ed25519"),
        "A" * 80_000,
    ],
)
def test_another_key_stays(host: FakeHost, line: str) -> None:
    mine(host)
    text = f"{OTHER}\nssh-ed25519 {line} x\n  # ssh-ed25519 {blob(b'ssh-ed25519', ED25519)} mine\n"
    file = host.file("/home/alice/.ssh/authorized_keys", text)
    host.both([key(f"ssh-ed25519 {blob(b'ssh-ed25519', ED25519)}", state="absent")])
    assert file.read_text() == text


def test_the_last_key_of_who_has_come_stays(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    mine(host)
    monkeypatch.setenv("SUDO_USER", "alice")
    host.file("/home/alice/.ssh/authorized_keys", f"# mine\n{OTHER}\n")
    with pytest.raises(HostError, match="Ansible comes by this account, and no key would be left"):
        host.converge([key(OTHER, state="absent")])
    host.both([key(), key(OTHER, state="absent")])


def test_a_key_of_nobody_is_refused(host: FakeHost) -> None:
    with pytest.raises(HostError, match="this host has no such account"):
        host.converge([key()])
