"""The third ring: real machines of the lab, real apt, systemd, NetworkManager, Docker and kernel RDMA."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.support.lab_pair import Pair


@pytest.fixture(scope="session")
def pair() -> Any:
    if os.geteuid() != 0:
        pytest.skip("the lab needs root")
    lab = Pair()
    lab.lab("up", "pair")
    yield lab
    lab.lab("down", "pair")
