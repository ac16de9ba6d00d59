"""The account stands as Debian's own programs make it, and its key and its rule of sudo count."""

from __future__ import annotations

from testinfra.host import Host

testinfra_hosts = ["ansible://sparks?sudo=true"]


def test_the_account_has_its_numbers(host: Host) -> None:
    alice = host.user("alice")
    assert (alice.uid, alice.gid, alice.groups) == (5101, 5101, ["alice", "research"])
    assert host.run("getent shadow alice | cut -d: -f2").stdout.strip() == "!"  # no password


def test_its_key_is_its_own(host: Host) -> None:
    file = host.file("/home/alice/.ssh/authorized_keys")
    assert (file.user, file.group, file.mode) == ("alice", "alice", 0o600)
    assert file.content_string == "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIalice\n"
    assert host.file("/home/alice/.ssh").mode == 0o700


def test_it_may_become_root(host: Host) -> None:
    assert host.run("runuser -u alice -- sudo -n id -u").stdout.strip() == "0"
    assert host.run("visudo -c").rc == 0
