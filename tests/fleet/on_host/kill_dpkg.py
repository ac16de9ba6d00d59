"""Kill apt and dpkg in the middle: SECONDS after the first dpkg of apt's that does ACTION (--unpack, --configure)."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path


def commands() -> dict[int, list[str]]:
    """The words of every apt-get and dpkg at work, by process."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = entry.read_text().split("\0")
            if words[0].rpartition("/")[2] in ("apt-get", "dpkg"):
                found[int(entry.parent.name)] = words
    return found


action, seconds = sys.argv[1], float(sys.argv[2])
end = time.monotonic() + 60
while not any("--status-fd" in words and action in words for words in commands().values()):
    if time.monotonic() > end:
        sys.exit(f"no dpkg {action} in a minute")
    time.sleep(0.005)
time.sleep(seconds)
for pid in commands():
    os.kill(pid, signal.SIGKILL)
print("killed")
