"""`gb10 up` at a terminal on two virtual Sparks that nobody has touched: rails, Docker, and five kills."""

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
PLACES = ("Apply the state", "Give the rails", "Fetch | Pull", "Close the cluster", "Prove | Wait")


class OwnerOfPair(Owner):
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


def test_a_pair_is_set_up_however_often_it_is_killed(owner: OwnerOfPair, pair: Pair) -> None:
    addresses = [pair.address(host) for host in pair.hosts]
    asked = []
    for place in PLACES:
        words = next(words for name, words in STEPS.items() if name.startswith(place))
        status, screen = owner.up(*addresses, until=words)
        asked.append(list(owner.asked))
        assert status != 0 and words in screen, screen
    assert asked[0] == [KEYS, PASSWORD, SET_UP] and all(one == [PASSWORD] for one in asked[1:]), asked
    status, screen = owner.up()
    assert status == 0 and "How to use " in screen, screen
    assert owner.tool_call(pair.hosts[0]) == {"name": "weather", "arguments": '{"city": "Paris"}'}
    status, screen = owner.up()
    assert status == 0 and "Nothing to do" in screen, screen
