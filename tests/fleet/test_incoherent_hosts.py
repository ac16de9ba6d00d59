"""The eight incoherences of test_coherence.py on a real host of the lab, named by the module and by `gb10 doctor`.

Both only tell: nothing is repaired by being looked at.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.vendor.packages import suites
from tests.fleet.fleet import Fleet
from tests.support.coherence import SEEDS
from tests.support.rig import ROOT

pytestmark = [pytest.mark.lab, pytest.mark.long]

DEBS = "/var/tmp/gb10-coherence"  # the packages of the host set as they stood
HOST_SET = [
    f"{package.name}={package.version}"
    for package in suites()["base"]
    if re.match(r"(lib)?nvidia-.*580|nvidia-modprobe|xserver|linux-", package.name)
]
# What is loaded, and what lies in the tree of the kernel that a container shares with this machine, changes at boot.
AFTER_A_BOOT = ("module_newer",)
BOOT = "systemctl restart lab-gpu"

KEEP = f"""
mkdir -p {DEBS}
cd {DEBS}
apt-get -qq download {" ".join(HOST_SET)}
dpkg-query -W -f '${{Package}}\\n' | sort >names
"""
RESTORE = f"""
rm -f /etc/apt/preferences.d/9-x /etc/apt/sources.list.d/offer.sources /tmp/*.deb
extra=$(dpkg-query -W -f '${{Package}}\\n' | sort | comm -13 {DEBS}/names -)
test -z "$extra" || dpkg --force-depends --purge $extra
dpkg --force-depends --force-downgrade -i {DEBS}/*.deb
apt-get -qq check
{BOOT}
"""


def gate(fleet: Fleet, host: str) -> tuple[bool, set[str]]:
    """What the module says: whether all is well, and the identifiers of its verdicts."""
    play = fleet.play("--limit", host, playbook="tests/fleet/gate.yml", show=False)
    said = re.search(r"GATE (True|False) ([a-z0-9_ ]+)", play.output)
    assert play.rc == 0 and said, play.output
    return said[1] == "True", set(said[2].split())


def doctor(fleet: Fleet, host: str) -> set[str]:
    """The verdicts that `gb10 doctor` names. Of a host that it refuses it lists what blocks, and there the reason."""
    program = Path(sys.executable).with_name("gb10")
    options = ["--json", "-i", str(fleet.inventory), "--limit", host, "--", "-e", '{"gb10_roles": ["driver"]}']
    done = subprocess.run(
        [str(program), "doctor", *options], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    said = json.loads(done.stdout)
    assert said["findings"] or not said["messages"], done.stdout
    return {verdict for verdict in SEEDS for f in said["findings"] if verdict == f["id"] or verdict in f["way_out"]}


@pytest.fixture(scope="module")
def held(fleet: Fleet) -> Iterator[str]:
    """A host that the role `driver` has been on."""
    host = fleet.hosts[-1]
    fleet.clear(host)
    done = fleet.play("--limit", host, "-e", '{"gb10_roles": ["driver"]}', "--tags", "host")
    assert done.rc == 0, done.output
    fleet.shell(host, KEEP)
    yield host
    fleet.clear(host)
    fleet.shell(host, f"rm -r {DEBS}")


@pytest.fixture
def host(fleet: Fleet, held: str) -> Iterator[str]:
    yield held
    fleet.shell(held, RESTORE)
    fleet.prepare(held)
    documents = [item for item in fleet.documents(held) if item["role"] == "driver"]
    assert fleet.converge(held, documents)["error"] is None
    assert gate(fleet, held) == (True, {"coherent"})


def test_a_host_that_is_right_is_coherent(fleet: Fleet, held: str) -> None:
    assert gate(fleet, held) == (True, {"coherent"})
    assert doctor(fleet, held) == set()


def test_there_are_eight() -> None:
    assert len(SEEDS) == 8


@pytest.mark.parametrize("verdict", SEEDS)
def test_module_and_doctor_name_it(fleet: Fleet, host: str, verdict: str) -> None:
    fleet.shell(host, SEEDS[verdict] + (f"\n{BOOT}" if verdict in AFTER_A_BOOT else ""))
    before = fleet.snapshot(host)
    coherent, verdicts = gate(fleet, host)
    findings = doctor(fleet, host)
    print(f"{verdict}: gate {sorted(verdicts)}; doctor {sorted(findings)}")
    assert not coherent
    assert verdict in verdicts
    assert verdict in findings
    assert fleet.snapshot(host) == before
