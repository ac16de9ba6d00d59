"""The second ring: containers of the lab with a systemd, apt, NetworkManager and SSH of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.fleet.fleet import Fleet


@pytest.fixture(scope="session")
def fleet() -> Iterator[Fleet]:
    if os.geteuid() != 0:
        pytest.skip("the lab needs root")
    containers = Fleet()
    containers.up()
    yield containers
    containers.down()


@pytest.fixture(scope="module")
def converged(fleet: Fleet) -> Fleet:
    """Every host as site.yml and the extra document want it."""
    assert fleet.site().rc == 0
    return fleet


@pytest.fixture(scope="module")
def cleared(fleet: Fleet) -> Fleet:
    """Nothing of ours is on any host, whatever tests of other modules have left there."""
    for host in fleet.hosts:
        fleet.clear(host)
    return fleet
