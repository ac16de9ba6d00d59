"""The host set moves with consent only, in one transaction, and back; a dpkg killed in its middle loses nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.fleet.fleet import HERE, PYTHON, Fleet
from tests.support.rig import Play, differences

pytestmark = [pytest.mark.lab, pytest.mark.long]

REFERENCE, FLOOR = "ubuntu24.04-580.142-6.17.0-1014", "ubuntu24.04-580.178.04-6.17.0-1032"
CONSENT = {"driver_allow_move": True}
SOURCES = "/etc/apt/sources.list.d/dgx.sources"
SOURCE = "/etc/apt/sources.list.d/security.sources"
# Name, version, and whether it is on hold.
PACKAGES = "dpkg-query -W -f '${Package} ${Version} ${db:Status-Want} ${db:Status-Status}\\n'"


@pytest.fixture
def host(fleet: Fleet) -> Iterator[str]:
    """A host that has the first set, and whose archive offers the other one as well."""
    name = fleet.hosts[0]
    fleet.clear(name)
    fleet.shell(name, f"sed 's/^Suites: .*/Suites: offer-security/' {SOURCES} >{SOURCE}; apt-get -qq update")
    yield name
    undone = fleet.engine(name, "undo", consents=CONSENT)
    fleet.shell(name, f"rm {SOURCE}; apt-get -qq update")
    assert undone["error"] is None, undone["error"]


def to(fleet: Fleet, host: str, host_set: str, *args: str, allow: bool = True) -> Play:
    said = {"driver_host_set": host_set, "driver_allow_move": allow}
    return fleet.site("-e", json.dumps(said), "--limit", host, *args, playbook="tests/fleet/driver.yml")


def packages(fleet: Fleet, host: str) -> dict[str, list[str]]:
    """{package: version, hold or install} of the driver and its kernels."""
    rows = [line.split() for line in fleet.shell(host, PACKAGES).splitlines()]
    return {
        name: [version, want]
        for name, version, want, status in rows
        if status == "installed" and ("nvidia" in name) and "egl" not in name
    }


def transactions(fleet: Fleet, host: str) -> int:
    return int(fleet.shell(host, "grep -c ^Start-Date /var/log/apt/history.log || true"))


def assert_moved(found: dict[str, list[str]]) -> None:
    assert {want for _version, want in found.values()} == {"hold"}
    driver = {name: version for name, (version, _want) in found.items() if "-580" in name and "linux" not in name}
    assert {version for name, version in driver.items() if name != "nvidia-firmware-580-580.142"} == {
        "580.178.04-0ubuntu0.24.04.1"
    }
    assert found["linux-modules-nvidia-580-open-6.17.0-1032-nvidia"][0] == "6.17.0-1032.32+1"
    assert found["linux-modules-nvidia-fs-6.17.0-1032-nvidia"][0] == "6.17.0-1032.32", "GPUDirect Storage comes along"
    assert "linux-image-6.17.0-1014-nvidia" in found, "the old kernel stays to fall back to"
    assert "linux-modules-nvidia-580-open-6.17.0-1014-nvidia" not in found, "built for the driver that is gone"


def test_a_move_needs_consent_is_one_transaction_and_can_be_undone(fleet: Fleet, host: str) -> None:
    before = fleet.snapshot(host)
    refused = to(fleet, host, FLOOR, allow=False)
    assert refused.rc != 0 and "driver_allow_move" in refused.output
    foretold = to(fleet, host, FLOOR, "--check")
    assert (foretold.rc, foretold.changed) == (0, 1)
    assert differences(before, fleet.snapshot(host)) == []

    count = transactions(fleet, host)
    assert to(fleet, host, FLOOR).rc == 0
    assert transactions(fleet, host) == count + 1
    assert_moved(packages(fleet, host))
    again = to(fleet, host, FLOOR, allow=False)
    assert (again.rc, again.changed) == (0, 0)

    assert fleet.engine(host, "undo", consents={})["error"]["message"].count("driver_allow_move: true") == 1
    assert fleet.engine(host, "undo", consents=CONSENT)["error"] is None
    assert differences(before, fleet.snapshot(host)) == []


def test_back_to_the_older_set_leaves_no_newer_kernel(fleet: Fleet, host: str) -> None:
    assert to(fleet, host, FLOOR).rc == 0
    assert to(fleet, host, REFERENCE).rc == 0
    found = packages(fleet, host)
    assert found["nvidia-driver-580-open"] == ["580.142-0ubuntu0.24.04.1", "hold"]
    assert [name for name in found if "1032" in name] == []
    assert fleet.shell(host, "ls /boot/vmlinuz-*-nvidia").split() == ["/boot/vmlinuz-6.17.0-1014-nvidia"]


def test_of_two_builds_of_the_modules_the_one_for_the_driver_comes(fleet: Fleet, host: str) -> None:
    """The archive also offers the modules of the older kernel rebuilt for the newer driver, with a higher suffix."""
    assert to(fleet, host, FLOOR).rc == 0
    fleet.shell(
        host, f"sed 's/^Suites: .*/Suites: offer-security offer-minor/' {SOURCES} >{SOURCE}; apt-get -qq update"
    )
    offered = fleet.shell(host, "apt-cache madison linux-modules-nvidia-580-open-6.17.0-1014-nvidia")
    assert "6.17.0-1014.14+2" in offered, "else this proves nothing"
    moved = to(fleet, host, REFERENCE)
    assert moved.rc == 0, moved.output
    found = packages(fleet, host)
    assert found["linux-modules-nvidia-580-open-6.17.0-1014-nvidia"] == ["6.17.0-1014.14+1", "hold"]
    assert found["nvidia-kernel-common-580"][0] == "580.142-0ubuntu0.24.04.1"


@pytest.mark.parametrize("moment", [("--unpack", "half-installed"), ("--configure", "half-configured")], ids=" ".join)
def test_a_killed_dpkg_is_gone_on_with(fleet: Fleet, host: str, moment: tuple[str, str]) -> None:
    before = fleet.snapshot(host)
    source = (HERE / "on_host/kill_dpkg.py").read_bytes()
    fleet.root(host, PYTHON, "-c", source.decode(), *moment, program=source)
    assert to(fleet, host, FLOOR).rc != 0
    assert moment[1] in fleet.shell(host, "cat /run/gb10-killed; rm /run/gb10-killed")
    assert fleet.shell(host, "dpkg --audit") != ""

    assert to(fleet, host, FLOOR).rc == 0
    assert_moved(packages(fleet, host))
    assert to(fleet, host, FLOOR).changed == 0
    assert fleet.engine(host, "undo", consents=CONSENT)["error"] is None
    assert differences(before, fleet.snapshot(host)) == []


def test_what_dpkg_put_beside_other_modules_is_refused_and_a_named_set_repairs_it(fleet: Fleet, host: str) -> None:
    """No pin and no hold stops `dpkg -i`."""
    assert to(fleet, host, REFERENCE).rc == 0
    fleet.shell(
        host,
        "cd $(mktemp -d); chmod 777 .; apt-get -qq download"
        " nvidia-firmware-580-580.178.04=580.178.04-0ubuntu0.24.04.1 $(dpkg-query -W -f '${Package} ${Version}\\n'"
        " | awk '$2 ~ /^580.142-/ && !/firmware/ {print $1 \"=580.178.04-0ubuntu0.24.04.1\"}') 2>/dev/null;"
        " dpkg -i ./*.deb >/dev/null 2>&1 || true; ! apt-get check >/dev/null 2>&1",
    )
    refused = to(fleet, host, "installed")
    assert refused.rc != 0 and "stands beside kernel 6.17.0-1014" in refused.output
    assert to(fleet, host, REFERENCE).rc == 0
    assert packages(fleet, host)["nvidia-kernel-common-580"] == ["580.142-0ubuntu0.24.04.1", "hold"]
    fleet.shell(host, "apt-get check && apt-get -y purge nvidia-firmware-580-580.178.04 --allow-change-held-packages")


def test_a_failed_download_changes_nothing(fleet: Fleet, host: str) -> None:
    """The lists know the set, and the archive is gone."""
    fleet.shell(host, f"sed -i 's/:8180/:1/' {SOURCE} && rm -f /var/cache/apt/archives/*.deb")
    fleet.shell(host, "cd /var/lib/apt/lists && for f in *8180*security*; do mv $f $(echo $f | sed s/8180/1/); done")
    before = packages(fleet, host)
    failed = to(fleet, host, FLOOR)
    assert failed.rc != 0
    assert {name: row[0] for name, row in packages(fleet, host).items()} == {
        name: row[0] for name, row in before.items()
    }
