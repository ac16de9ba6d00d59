"""Holds and preferences, by what apt makes of them."""

from __future__ import annotations

from testinfra.host import Host

testinfra_hosts = ["ansible://sparks?sudo=true"]


def test_the_driver_is_held_on_its_branch(host: Host) -> None:
    held = host.check_output("apt-mark showhold").split()
    assert "nvidia-driver-580-open" in held
    assert not [name for name in held if "container" in name], "the toolkit must still get its security fixes"


def test_apt_offers_no_other_branch(host: Host) -> None:
    candidate = host.check_output("apt-cache policy nvidia-driver-580-open").split("Candidate:")[1].split()[0]
    assert candidate.startswith("580.")


def test_apt_can_read_the_preferences(host: Host) -> None:
    assert host.run("apt-cache policy").stderr == ""
