"""Three Sparks in a ring: two cables exchanged at one host are found out before anything changes, and named."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from lab.network import NAMESPACE
from lab.topology import PORTS, topology
from tests.rig import ROOT, Rig

pytestmark = [pytest.mark.lab, pytest.mark.long]

ONLY_FABRIC = ("-e", '{"gb10_roles": ["fabric"]}')


class Ring(Rig):
    """A fresh ring of three; other machines of the lab end first."""

    inventory = ROOT / "inventory/lab/ring3"
    hosts = ("spark-a", "spark-b", "spark-c")

    def plug(self, host: str, places: dict[str, str]) -> None:
        """Put the cable of one port of a host into another one of it: `{port: port whose cable it gets}`."""
        plan = topology("ring3")
        (own,) = (item for item in plan.hosts if item.name == host)
        for nic in own.nics:
            segment = plan.segment_of(host, places[nic.port]) if nic.port else None
            if segment:
                subprocess.run(["ip", "-n", NAMESPACE, "link", "set", nic.outer, "master", segment.bridge], check=True)


@pytest.fixture(scope="module")
def ring() -> Iterator[Ring]:
    if os.geteuid() != 0:
        pytest.skip("the lab needs root")
    rig = Ring()
    rig.lab("down")
    rig.lab("up", "ring3")
    yield rig
    rig.lab("down")


class TestRing:
    def test_two_cables_exchanged_are_named_before_anything_changes(self, ring: Ring) -> None:
        straight = dict(zip(PORTS, PORTS, strict=True))
        crossed = dict(zip(PORTS, reversed(PORTS), strict=True))
        ring.plug("spark-b", crossed)
        run = ring.play(*ONLY_FABRIC)
        ring.plug("spark-b", straight)
        assert run.rc != 0
        assert run.changed == 0
        assert "spark-a p1: the cable leads to spark-b p1, and should lead to spark-b p0" in run.output
        assert "at spark-b, move that end of the cable from p1 to p0" in run.output
        for host in ring.hosts:
            assert "gb10-" not in ring.ssh(host, "nmcli --get-values NAME connection show")

    def test_the_ring_is_given_its_addresses_and_proven(self, ring: Ring) -> None:
        run = ring.play(*ONLY_FABRIC)
        assert run.rc == 0
        again = ring.play(*ONLY_FABRIC)
        assert again.rc == 0
        assert again.changed == 0

    def test_cables_exchanged_later_are_named_by_the_proof(self, ring: Ring) -> None:
        ring.plug("spark-b", dict(zip(PORTS, reversed(PORTS), strict=True)))
        run = ring.play(*ONLY_FABRIC, playbook="playbooks/validate.yml")
        ring.plug("spark-b", dict(zip(PORTS, PORTS, strict=True)))
        assert run.rc != 0
        assert "wrong_cable" in run.output and "at spark-b, move that end of the cable from p1 to p0" in run.output
        assert ring.play(*ONLY_FABRIC, playbook="playbooks/validate.yml").rc == 0
