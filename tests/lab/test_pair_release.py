"""A pair goes from one release to the next with `gb10 rollout`, and back: in one wave, and one reboot after the other.

Simulated are the boards, their firmware and fwupd, and which kernel a boot takes. apt, the boots and the rails are
real.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.fleet import boards
from tests.fleet.boards import AFTER, APRIL, BACK, BEFORE, JULY, SEEN
from tests.fleet.rollouts import Gb10, states
from tests.support.lab_pair import Pair

pytestmark = [pytest.mark.lab, pytest.mark.long]

BOARDS = {"spark-a": "nvidia", "spark-b": "asus"}
ROLES = ("kernel_parameters", "driver", "page_cache", "fabric")


def root(pair: Pair, host: str, script: str) -> str:
    text = base64.b64encode(f"set -e\n{script}".encode()).decode()
    return pair.ssh(host, f"echo {text} | base64 -d | sudo sh", timeout=600)


def seen(pair: Pair) -> set[str]:
    return {root(pair, host, SEEN).strip() for host in pair.hosts}


@pytest.fixture
def gb10(pair: Pair, tmp_path: Path) -> Gb10:
    said = tmp_path / "said.json"
    said.write_text(json.dumps({"gb10_roles": ROLES, "reboot_wait": 600}))
    words = ("-e", f"@{said}")
    fleet = SimpleNamespace(inventory=pair.inventory, hosts=pair.hosts, words=words, ansible=pair.ansible)
    return Gb10(fleet, tmp_path)  # type: ignore[arg-type]


def test_a_pair_goes_to_the_next_release_and_back(pair: Pair, gb10: Gb10) -> None:
    for host, board in BOARDS.items():
        root(pair, host, boards.become(board, APRIL, JULY))
        root(pair, host, boards.offers(JULY))
    assert seen(pair) == {BEFORE}

    status, report = gb10.run(gb10.rollout("site", "--to", "OTA2607", "--firmware"))
    assert status == 0 and states(report) == dict.fromkeys(pair.hosts, "done"), report
    assert len(report["waves"]) == 1, "a cluster is never split"
    assert seen(pair) == {AFTER}
    boards.judge(report, BOARDS.__getitem__)

    status, report = gb10.run(gb10.rollback(report["run"]))
    assert status == 0, report
    assert seen(pair) == {BACK}


def test_the_hosts_are_left_as_they_were(pair: Pair) -> None:
    for host in pair.hosts:
        root(pair, host, boards.LEAVE)
    pair.reboot()
