"""Two machines of a Spark's own architecture: nothing in the collection counts on x86-64, which all other tests run on.

QEMU emulates them where this machine is x86-64. The tests run in order, on a pair of their own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from tests.support.lab_pair import LEFT_BEHIND, PROFILE, RAIL, TRACES, Pair, rails_that_drifted
from tests.support.rig import differences

pytestmark = [pytest.mark.lab, pytest.mark.long]

LIMIT_S = 3600  # of a run: an emulated CPU of another kind, and a first image that may have to be built


@pytest.fixture(scope="module")
def arm64() -> Iterator[Pair]:
    """A fresh pair; other hosts of the lab end first, for they have another architecture."""
    if os.geteuid() != 0:
        pytest.skip("the lab needs root")
    pair = Pair()
    pair.lab("down")
    pair.lab("deps", "--arch", "arm64")
    pair.lab("up", "pair", "--arch", "arm64", timeout=LIMIT_S)
    yield pair
    pair.lab("down")


def test_the_machines_are_what_a_spark_says_of_itself(arm64: Pair) -> None:
    asked = "uname -m; dpkg --print-architecture; cat /sys/class/dmi/id/product_name; getconf PAGE_SIZE"
    for host in arm64.hosts:
        assert arm64.ssh(host, asked).split() == ["aarch64", "arm64", "NVIDIA_DGX_Spark", "4096"]
        arm64.before[host] = arm64.snapshot(host)


def test_the_first_run_ends_in_a_proven_serving_pair_with_no_architecture_accepted(arm64: Pair) -> None:
    assert "architecture" not in arm64.variables["gb10_accept"]
    assert arm64.play(timeout=LIMIT_S).rc == 0
    evidence = arm64.evidence()
    assert evidence["verdict"] == "healthy", evidence["verdict"]
    assert set(evidence["hosts"]) == set(arm64.hosts)


def test_both_rails_carried_what_the_proof_sent(arm64: Pair) -> None:
    evidence = arm64.evidence()
    (cluster,) = evidence["clusters"]
    assert [cable["verdict"] for cable in cluster["cabling"]] == ["as_planned"] * 2
    for host, said in evidence["hosts"].items():
        assert said["bandwidth"], f"{host}: nothing was measured"
        assert [result["fault"] for result in said["bandwidth"] if result["fault"]] == []


def test_the_second_run_changes_nothing(arm64: Pair) -> None:
    run = arm64.play(timeout=LIMIT_S)
    assert run.rc == 0
    assert {host: row["changed"] for host, row in run.recap.items() if row["changed"]} == {}


def test_a_drifted_rail_is_named_and_repaired_alone(arm64: Pair) -> None:
    arm64.ssh("spark-a", f"sudo ip link set {RAIL} mtu 1500")
    assert arm64.play(playbook="playbooks/drift.yml").rc != 0, "drift must not look like success"
    assert rails_that_drifted() == {"spark-a": [PROFILE]}
    repaired = arm64.play(playbook="playbooks/converge.yml", timeout=LIMIT_S)
    assert repaired.rc == 0
    assert repaired.recap["spark-a"]["changed"] > 0
    arm64.play(playbook="playbooks/drift.yml")
    assert rails_that_drifted() == {}


def test_undo_leads_back_to_the_day_before(arm64: Pair) -> None:
    consents = json.dumps({"fabric_allow_activation": True, "docker_allow_restart": True})
    asked = ("-e", "gb10_undo=all", "-e", consents)
    assert arm64.play(*asked, playbook="playbooks/undo.yml", timeout=LIMIT_S).rc == 0
    for host in arm64.hosts:
        rows = differences(arm64.before[host], arm64.snapshot(host))
        assert [row for row in rows if row.partition(":")[0] not in LEFT_BEHIND] == []
        traces = f"ls -d {TRACES} /var/lib/gb10-fleet/manifest.json 2>/dev/null || true"
        assert arm64.ssh(host, traces) == ""
