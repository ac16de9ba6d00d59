"""`gb10 up` at a terminal on two virtual Sparks that nobody has touched: with rails and Docker; killed once.

Five kills are in tests/fleet/test_up.py: on an emulated machine each costs ten minutes.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from gb10_fleet.up.cli import STEPS
from tests.fleet.owner import DISK, KEYS, MEMORY, PASSWORD, SET_UP, Owner
from tests.fleet.typist import PREPARE
from tests.support.lab_pair import Pair

pytestmark = [pytest.mark.lab, pytest.mark.long]

# The simulated image has 20 MB.
DOCKERS_DISK = """
systemctl stop docker.service docker.socket
mount -t tmpfs -o size=100g tmpfs /var/lib/docker
systemctl start docker.service
"""


class OwnerOfPair(Owner):
    limit_s = 3600  # emulated, and beside other tests

    def shell(self, host: str, script: str) -> str:
        return self.rig.ssh(host, f"sudo sh -euc {shlex.quote(script)}", timeout=600)


@pytest.fixture
def owner(pair: Pair, tmp_path: Path) -> Iterator[OwnerOfPair]:
    """Of fresh machines: what the other tests of the pair have left on theirs is no beginning."""
    pair.lab("down", "pair")
    pair.lab("up", "pair")
    made = OwnerOfPair(pair, tmp_path)
    for host in pair.hosts:
        made.shell(host, PREPARE + MEMORY + DISK + DOCKERS_DISK)
    yield made
    pair.lab("down", "pair")
    pair.lab("up", "pair")


def test_a_pair_is_set_up_though_it_was_killed(owner: OwnerOfPair, pair: Pair) -> None:
    addresses = [pair.address(host) for host in pair.hosts]
    status, screen = owner.up(*addresses, until=STEPS["Give the rails"])
    assert owner.asked == [KEYS, PASSWORD, SET_UP] and status != 0, screen
    status, screen = owner.up()
    assert owner.asked == [PASSWORD] and status == 0 and "How to use " in screen, screen
    assert owner.tool_call(pair.hosts[0]) == {"name": "weather", "arguments": '{"city": "Paris"}'}
    status, screen = owner.up()
    assert status == 0 and "Nothing to do" in screen, screen
