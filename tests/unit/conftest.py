"""Properties are judged by what they find, never by how long a busy machine took to look."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

# Under nohup it is ignored, and stays so in all that a test starts: a run that a test hangs up on would go on for ever.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

settings.register_profile("gb10", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gb10")
