"""A host in memory for each test of a resource."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Completed

from tests.support.fake_host import FakeHost, failed


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


@pytest.fixture
def fail() -> Callable[..., Completed]:
    return failed
