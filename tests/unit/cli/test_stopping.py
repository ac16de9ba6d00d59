"""A signal that comes at any moment, also while somebody waits for it, ends the wait and nothing hangs."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

from gb10_fleet import stopping
from gb10_fleet.stopping import Stop
from tests.support.proofs import ROOT

# The alarm comes thousands of times, wherever the main thread is at that moment. An Event hangs within a moment.
OFTEN = """
import signal, sys, time
from gb10_fleet.stopping import Stop
stop = Stop()
signal.signal(signal.SIGALRM, lambda *_: stop.set())
signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
end = time.monotonic() + 1.0
while time.monotonic() < end:
    stop._set = False
    stop.wait(0.00001)
print("through")
"""


def test_it_may_be_set_whatever_the_main_thread_does() -> None:
    done = subprocess.run([sys.executable, "-c", OFTEN], capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout == "through\n", done.stderr


def test_a_wait_ends_with_it_and_else_with_its_time() -> None:
    stop = Stop()
    assert not stop.wait(0) and not stop.is_set()
    before = signal.signal(signal.SIGALRM, lambda *_: stop.set())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        began = time.monotonic()
        assert stop.wait(30) and stop.is_set() and stop.wait(30)
        assert time.monotonic() - began < 20
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_playbook_that_only_reads_is_known_by_its_head() -> None:
    """Else its end by Ctrl-C would say that something was applied; `notify` tells people, and has no host."""
    heads = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "playbooks").glob("*.yml")}
    says = ("---\n# Read-only.", "---\n# Touches no host.")
    reads = {f"gb10.fleet.{name}" for name, text in heads.items() if text.startswith(says)}
    assert reads - {"gb10.fleet.notify"} == stopping.READING
