"""Properties are judged by what they find, never by how long a busy machine took to look."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support import starter

settings.register_profile("gb10", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gb10")


@pytest.fixture(scope="module", autouse=True)
def _no_starter_is_left() -> Iterator[None]:
    """The next file may look at the children of this process."""
    yield
    starter.end()
