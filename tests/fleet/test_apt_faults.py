"""What apt's surroundings do to a run: each fault is survived or refused by name, and the next run converges.

Real apt and dpkg against a repository of our own. GB10_DPKG_KILLS (6) and GB10_LOCK_S (8) make it the campaign of
50 kills and a lock of 90 seconds.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.fleet.fleet import HERE, PYTHON, Fleet
from tests.fleet.mirror import PACKAGES, SERVER, SOURCES, VERSIONS, Mirror

pytestmark = pytest.mark.lab

KILLS = int(os.environ.get("GB10_DPKG_KILLS", "6"))
LOCK_S = float(os.environ.get("GB10_LOCK_S", "8"))


@pytest.fixture(scope="module")
def mirror(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirror]:
    for host in fleet.hosts:
        fleet.clear(host)
    mirror = Mirror(tmp_path_factory.mktemp("mirror"))
    yield mirror
    mirror.fault = ""
    for host in fleet.hosts:
        fleet.shell(host, "apt-mark unhold base-files >/dev/null")
        said = fleet.engine(host, "undo")
        assert said["error"] is None, f"{host}: undo: {said['error']}"
        fleet.shell(host, "apt-get update")
    mirror.end()


@pytest.fixture
def host(fleet: Fleet, mirror: Mirror) -> Iterator[str]:
    """A host with none of the packages on it; after the test the next run must bring it to where it should be."""
    host = fleet.hosts[0]
    fleet.shell(host, f"dpkg --purge {' '.join(PACKAGES)}; apt-get clean; rm -f {SOURCES}; apt-get update")
    yield host
    mirror.fault = ""
    converges(fleet, mirror, host)


def converges(fleet: Fleet, mirror: Mirror, host: str, version: str = "1.0") -> None:
    said = fleet.converge(host, mirror.document(version))
    assert said["error"] is None, said["error"]
    assert versions(fleet, host) == dict.fromkeys(PACKAGES, version)
    assert fleet.shell(host, "dpkg --audit") == ""
    assert fleet.converge(host, mirror.document(version))["changes"] == []


def versions(fleet: Fleet, host: str) -> dict[str, str]:
    shown = fleet.shell(host, "dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\\n' 'gb10-faults-*' || true")
    rows = (line.split() for line in shown.splitlines())
    return {row[0]: row[1] for row in rows if row[-1] == "installed"}


def refused(said: dict[str, Any], *words: str) -> None:
    assert said["error"] is not None, "nothing was refused"
    for word in words:
        assert word in said["error"]["message"], said["error"]["message"]


def armed(fleet: Fleet, host: str, seconds: float, program: bytes) -> subprocess.Popen[bytes]:
    """A program on the host that has said that it is ready."""
    child = fleet.start(host, PYTHON, "-", str(seconds), program=program)
    assert child.stdout is not None
    line = child.stdout.readline()
    assert line == b"armed\n", f"{host}: {line!r} {child.communicate(timeout=30)}"
    return child


def test_another_key_than_the_pinned_one_is_refused_before_anything_is_read(
    fleet: Fleet, mirror: Mirror, host: str
) -> None:
    before = fleet.snapshot(host)
    said = fleet.converge(host, mirror.document(fingerprint=mirror.other.fingerprint))
    refused(said, "resources[0].fingerprint", mirror.other.fingerprint, mirror.key.fingerprint)
    assert said["subprocesses"] == 0
    assert fleet.snapshot(host) == before


def test_a_key_that_came_along_with_the_right_one_is_refused(fleet: Fleet, mirror: Mirror, host: str) -> None:
    said = fleet.converge(host, mirror.document(content=mirror.key.public + mirror.other.public))
    refused(said, "resources[0].content", "not one armoured public key block")


@pytest.mark.parametrize(
    ("where", "fault"),
    [
        ({"suite": "foreign"}, "apt_key_unknown"),
        ({"suite": "expired"}, "apt_release_expired"),
        ({"url": "http://nowhere.invalid/apt"}, "apt_name_unresolved"),
        ({"url": f"http://{SERVER}:9/apt"}, "apt_mirror_unreachable"),
        ({"suite": "gone"}, "apt_not_on_mirror"),
    ],
    ids=["signed by another key", "expired Release", "no such name", "nobody listens", "no such suite"],
)
def test_a_source_that_is_no_good_is_named(
    fleet: Fleet, mirror: Mirror, host: str, where: dict[str, str], fault: str
) -> None:
    said = fleet.converge(host, mirror.document(**where))
    refused(said, "package:gb10-faults-a: no apt source offers 1.0", fault, "Fix: ")
    assert versions(fleet, host) == {}


@pytest.mark.parametrize(("fault", "name"), [("503", "apt_mirror_down"), ("half", "apt_file_damaged")])
def test_nothing_is_exchanged_before_everything_is_here(
    fleet: Fleet, mirror: Mirror, host: str, fault: str, name: str
) -> None:
    converges(fleet, mirror, host)
    mirror.fault = fault
    said = fleet.converge(host, mirror.document("2.0"))
    refused(said, "the download failed, and no package was changed", name)
    assert versions(fleet, host) == dict.fromkeys(PACKAGES, "1.0")
    assert fleet.shell(host, "dpkg --audit") == ""
    mirror.fault = ""
    converges(fleet, mirror, host, "2.0")


def test_a_full_disk_is_named_and_nothing_was_changed(fleet: Fleet, mirror: Mirror, host: str) -> None:
    converges(fleet, mirror, host)
    fleet.shell(host, "mount -t tmpfs -o size=256k none /var/cache/apt/archives; mkdir /var/cache/apt/archives/partial")
    try:
        said = fleet.converge(host, mirror.document("2.0"))
        assert versions(fleet, host) == dict.fromkeys(PACKAGES, "1.0")
    finally:
        fleet.shell(host, "umount /var/cache/apt/archives")
    refused(said, "no package was changed: disk_full")


def test_a_signed_by_conflict_is_named_before_anything_changes(fleet: Fleet, mirror: Mirror, host: str) -> None:
    rival = "/etc/apt/sources.list.d/a-vendor.sources"
    text = (
        f"Types: deb\\nURIs: {mirror.url}/\\nSuites: good\\nComponents: main\\nSigned-By: /usr/share/keyrings/x.gpg\\n"
    )
    converges(fleet, mirror, host)
    fleet.shell(host, f"printf '{text}' >{rival}")
    said = fleet.converge(host, mirror.document("2.0"))
    try:
        refused(said, "apt_sources_conflict", rival, SOURCES)
        assert said["changes"] == []
        facts = fleet.converge(host, [], facts={"paths": []})["facts"]
        assert [conflict["files"] for conflict in facts["apt_sources"]["conflicts"]] == [[rival, SOURCES]]
        done = fleet.shell(host, "apt-get update 2>&1 || true")
        assert "Conflicting values set for option Signed-By" in done, "what we call a conflict is none for apt"
    finally:
        fleet.shell(host, f"rm {rival}")


def test_somebody_elses_apt_is_waited_for(fleet: Fleet, mirror: Mirror, host: str) -> None:
    program = (HERE / "on_host/hold_locks.py").read_bytes()
    holder = armed(fleet, host, LOCK_S, program)
    started = time.monotonic()
    said = fleet.converge(host, mirror.document())
    assert said["error"] is None, said["error"]
    assert time.monotonic() - started > LOCK_S - 1, "the locks were not in the way"
    assert holder.wait(timeout=30) == 0
    assert versions(fleet, host) == dict.fromkeys(PACKAGES, "1.0")


def test_a_dpkg_that_is_killed_is_repaired_by_the_next_run(fleet: Fleet, mirror: Mirror) -> None:
    share, rest = divmod(KILLS, len(fleet.hosts))
    counts = [share + (number < rest) for number in range(len(fleet.hosts))]
    with ThreadPoolExecutor(max_workers=4) as pool:
        missed = list(pool.map(lambda pair: kills(fleet, mirror, *pair), zip(fleet.hosts, counts, strict=True)))
    print(f"{KILLS} kills of dpkg, {sum(missed)} more came too late: every next run converged")


def kills(fleet: Fleet, mirror: Mirror, host: str, wanted: int) -> int:
    """Move all packages to and fro, and kill dpkg on the way; returns how many kills came too late."""
    chance = random.Random(f"{host} 20261121")  # noqa: S311 - moments, not keys
    program = (HERE / "on_host/strike_dpkg.py").read_bytes()
    converges(fleet, mirror, host)
    fleet.shell(host, "apt-mark hold base-files >/dev/null")
    done = missed = turn = 0
    while done < wanted:
        turn += 1
        version = VERSIONS[turn % 2]
        delay = chance.uniform(0, 2 * len(PACKAGES) * 0.1)
        killer = armed(fleet, host, delay, program)
        said = fleet.converge(host, mirror.document(version))
        output, errors = killer.communicate(timeout=90)
        assert killer.returncode == 0, errors
        if output.strip() == b"killed":
            done += 1
            refused(said, "dpkg_killed")
        else:
            missed += 1
            assert missed <= 10 + wanted, "most kills hit nothing: the moments are chosen badly"
        converges(fleet, mirror, host, version)
        assert fleet.shell(host, "apt-mark showhold").split() == ["base-files"]
    return missed
