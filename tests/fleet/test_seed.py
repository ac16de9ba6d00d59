"""From blank images with seeds to the proof, hands off: Debian's cloud-init, `gb10 seed` and `gb10 enrol`.

Nobody logs in to a host between its first start and the proof. Real: the first start by systemd, cloud-init, SSH, the
roles. A wire between the two is their cable, and no RDMA flows: ib_write_bw is a stand-in. So is the wizard.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.fleet import Fleet
from tests.support.blank import Blanks
from tests.support.seeded import Owner, ended

pytestmark = [pytest.mark.lab, pytest.mark.long]


@pytest.fixture
def blanks(fleet: Fleet) -> Iterator[Blanks]:
    found = Blanks(fleet.hosts)
    found.cable()
    yield found
    found.end()
    fleet.lab("up", "fleet", "--hosts", str(found.fleet))
    for host in fleet.hosts:
        fleet.prepare(host)


def test_from_cartons_to_the_proof(fleet: Fleet, blanks: Blanks, tmp_path: Path) -> None:
    """Strangers with the right names are refused, the seeded ones set up and proven, a new installation is noticed."""
    owner = Owner(fleet, tmp_path)
    first, second = fleet.hosts
    owner.write_inventory({first: blanks.hosts[0].nics[0].mac})  # the other one by the name of its socket
    said = ended(owner.gb10("seed", "--out", owner.seeds), 0, blanks.consoles)
    prints = dict(re.findall(r"^(\S+)  \S+  (SHA256:\S+)$", said, re.M))
    enrol = ("enrol", owner.seeds)

    said = ended(owner.gb10(*enrol, "--minutes", "0.1"), 4, blanks.consoles)  # the lab's own hosts answer
    for host in fleet.hosts:
        assert re.search(f"^{host}: refused: .*: a stranger, or", said, re.M), said
    assert not (owner.inventory / "host_vars").exists()

    for host in fleet.hosts:
        blanks.off(host)
    waiting = owner.gb10(*enrol, "--minutes", "9")
    for host in fleet.hosts:
        blanks.boot(host, owner.seeds / host)
    said = ended(waiting, 0, blanks.consoles)
    assert f"{first}, {second}: gb10 site: done" in said and "its first start had an error" not in said
    assert json.loads((tmp_path / "evidence/latest/evidence.json").read_text())["verdict"] == "healthy"
    for host in fleet.hosts:
        assert owner.look(host) == [host, "Europe/Berlin", "5001", prints[host], "exec-condition", "1"]

    blanks.off(second)
    blanks.boot(second, owner.seeds / second)
    said = ended(owner.gb10(*enrol, "--no-site", "--minutes", "3"), 0, blanks.consoles)
    assert re.search(f"^{second}: there: .*; set up anew since", said, re.M), said
    assert not re.search(f"^{first}: .*set up anew since", said, re.M), said
