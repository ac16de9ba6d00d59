"""What an operator would look for after the host roles. Runs against real Sparks as well:

pytest molecule/host/tests --hosts='ansible://sparks?sudo=true' --ansible-inventory=inventory/mine
"""

from __future__ import annotations

import json

from testinfra.host import Host

testinfra_hosts = ["ansible://sparks?sudo=true"]


def test_the_driver_is_held_on_its_branch(host: Host) -> None:
    held = host.check_output("apt-mark showhold").split()
    assert "nvidia-driver-580-open" in held
    assert not [name for name in held if "container" in name], "the toolkit must still get its security fixes"


def test_apt_offers_no_other_branch(host: Host) -> None:
    candidate = host.check_output("apt-cache policy nvidia-driver-580-open").split("Candidate:")[1].split()[0]
    assert candidate.startswith("580.")


def test_the_container_toolkit_is_there(host: Host) -> None:
    assert host.package("nvidia-container-toolkit").is_installed


def test_arp_answers_only_on_the_interface_that_owns_the_address(host: Host) -> None:
    assert host.sysctl("net.ipv4.conf.all.arp_ignore") == 1
    assert host.sysctl("net.ipv4.conf.all.arp_announce") == 2


def test_page_cache_scripts_are_roots_own(host: Host) -> None:
    for name in ("gb10-drop-caches", "gb10-memory-gate"):
        script = host.file(f"/usr/local/sbin/{name}")
        assert script.user == "root" and script.mode == 0o755


def test_the_manifest_is_roots_own_and_knows_every_role(host: Host) -> None:
    assert host.file("/var/lib/gb10-fleet").mode == 0o700
    manifest = host.file("/var/lib/gb10-fleet/manifest.json")
    assert manifest.user == "root" and manifest.mode == 0o600
    content = json.loads(manifest.content_string)
    roles = {role for entry in content["resources"].values() for role in entry["roles"]}
    assert {"kernel_parameters", "driver", "container_toolkit", "page_cache"} <= roles
    assert content["unfinished"] is None, "the last run was cut short"


def test_every_unit_of_ours_is_sound(host: Host) -> None:
    units = host.check_output("find /etc/systemd/system -maxdepth 1 -name 'gb10-*'").split()
    assert units
    for unit in units:
        assert host.run("systemd-analyze verify %s", unit).rc == 0, unit
