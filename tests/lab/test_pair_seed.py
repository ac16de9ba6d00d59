"""Two virtual Sparks from the carton to the proof, hands off: a stick in each, `gb10 seed` and `gb10 enrol`.

Real: cloud-init's search for the stick, the first start, SSH, and ib_write_bw over Soft-RoCE. The wizard is a stand-in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.blank_pair import BlankPair
from tests.support.lab_pair import ONLY_FABRIC, Pair
from tests.support.seeded import Owner, ended

pytestmark = [pytest.mark.lab, pytest.mark.long]

ROLES = [*json.loads(ONLY_FABRIC[1])["gb10_roles"], "accounts"]


@pytest.fixture
def blanks(pair: Pair) -> Iterator[BlankPair]:
    """Afterwards the lab's pair stands there again, fresh."""
    yield BlankPair()
    pair.lab("down", "pair")
    pair.lab("up", "pair")


def test_from_cartons_to_the_proof(pair: Pair, blanks: BlankPair, tmp_path: Path) -> None:
    """Strangers with the right names are refused; what comes from the carton is set up and proven."""
    owner = Owner(pair, tmp_path)
    first, second = pair.hosts
    owner.write_inventory({first: blanks.hosts[0].nics[0].mac}, gb10_roles=ROLES)  # the other by its socket's name
    said = ended(owner.gb10("seed", "--out", owner.seeds), 0, blanks.consoles)
    prints = dict(re.findall(r"^(\S+)  \S+  (SHA256:\S+)$", said, re.M))

    said = ended(owner.gb10("enrol", owner.seeds, "--minutes", "0.1"), 4, blanks.consoles)  # the lab's own answer
    for host in pair.hosts:
        assert re.search(f"^{host}: refused: .*: a stranger, or", said, re.M), said

    blanks.off()
    waiting = owner.gb10("enrol", owner.seeds, "--minutes", "20")
    blanks.boot(owner.seeds)
    said = ended(waiting, 0, blanks.consoles, limit_s=2400)
    assert f"{first}, {second}: gb10 site: done" in said and "its first start had an error" not in said
    evidence = json.loads((tmp_path / "evidence/latest/evidence.json").read_text())
    assert evidence["verdict"] == "healthy"
    assert all(evidence["hosts"][host]["bandwidth"] for host in pair.hosts)
    for host in pair.hosts:
        assert owner.look(host) == [host, "Europe/Berlin", "5001", prints[host], "exec-condition", "1"]
