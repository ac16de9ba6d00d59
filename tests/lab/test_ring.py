"""Three Sparks in a ring: two cables exchanged at one host are found out before anything changes, and named."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping

import pytest

from lab.network import NAMESPACE
from lab.topology import topology
from tests.support.lab_pair import NOTHING_RUNS, ONLY_FABRIC
from tests.support.rig import ROOT, Rig

pytestmark = [pytest.mark.lab, pytest.mark.long]

End = tuple[str, str]  # host and port
A1, B0, B1, C0 = ("spark-a", "p1"), ("spark-b", "p0"), ("spark-b", "p1"), ("spark-c", "p0")


def exchanged(one: End, other: End) -> dict[End, End]:
    return {one: other, other: one}


def leads(end: End, there: End, target: End) -> str:
    return f"{' '.join(end)}: the cable leads to {' '.join(there)}, and should lead to {' '.join(target)}"


class Ring(Rig):
    """A fresh ring of three; other machines of the lab end first."""

    inventory = ROOT / "inventory/lab/ring3"
    hosts = ("spark-a", "spark-b", "spark-c")

    def rewire(self, moved: Mapping[End, End] | None = None) -> None:
        """Put the cable of one end into another one, `{end: end whose cable it gets}`; all other ends as planned."""
        plan = topology("ring3")
        for host in plan.hosts:
            for nic in host.nics:
                if nic.port is None:
                    continue
                end = (host.name, nic.port)
                segment = plan.segment_of(*(moved or {}).get(end, end))
                if segment:
                    command = ["ip", "-n", NAMESPACE, "link", "set", nic.outer, "master", segment.bridge]
                    subprocess.run(command, check=True)


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
    @pytest.mark.parametrize(
        ("ends", "says"),
        [
            pytest.param(
                (B0, B1),
                [leads(A1, B1, B0), "at spark-b, move that end of the cable from p1 to p0"],
                id="at one host",
            ),
            pytest.param(
                (B0, C0),
                [
                    leads(A1, C0, B0),
                    leads(B1, B0, C0),  # its own other port
                    "pull that cable out of spark-c p0 and put it into spark-b p0",
                    "pull that cable out of spark-b p0 and put it into spark-c p0",
                ],
                id="at two hosts",
            ),
        ],
    )
    def test_two_exchanged_cables_are_named_before_anything_changes(
        self, ring: Ring, ends: tuple[End, End], says: list[str]
    ) -> None:
        ring.rewire(exchanged(*ends))
        run = ring.play(*ONLY_FABRIC)
        ring.rewire()
        assert run.rc != 0
        assert run.changed == 0
        for words in says:
            assert words in run.output
        for host in ring.hosts:
            assert "gb10-" not in ring.ssh(host, "nmcli --get-values NAME connection show")

    def test_the_ring_is_given_its_addresses_and_proven(self, ring: Ring) -> None:
        run = ring.play(*ONLY_FABRIC)
        assert run.rc == 0
        (cluster,) = ring.evidence()["clusters"]
        assert {cable["verdict"] for cable in cluster["cabling"]} == {"as_planned"}
        between = {frozenset((pairing["server"]["host"], pairing["client"]["host"])) for pairing in cluster["pairings"]}
        assert (len(cluster["pairings"]), len(between)) == (3, 3)
        again = ring.play(*ONLY_FABRIC)
        assert again.rc == 0
        assert again.changed == 0

    def test_cables_exchanged_later_are_named_by_the_proof(self, ring: Ring) -> None:
        ring.rewire(exchanged(B0, B1))
        run = ring.play(*ONLY_FABRIC, playbook="playbooks/validate.yml")
        ring.rewire()
        assert run.rc != 0
        assert "wrong_cable" in run.output and "at spark-b, move that end of the cable from p1 to p0" in run.output
        for host in ring.hosts:
            ring.ssh(host, NOTHING_RUNS)
        again = ring.play(*ONLY_FABRIC)
        assert (again.rc, again.changed) == (0, 0)
