"""Properties are judged by what they find, never by how long a busy machine took to look."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("gb10", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gb10")
