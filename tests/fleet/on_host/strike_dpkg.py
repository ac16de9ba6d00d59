"""Wait for a dpkg that works on packages, and kill it, and not its apt, DELAY seconds later.

Says `armed`, and at the end `killed` or `missed`.
"""

import os
import signal
import sys
import time

DELAY_S, LIMIT_S = float(sys.argv[1]), 60.0


def at_work() -> "list[int]":
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:  # noqa: PTH123
                words = file.read().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"dpkg") and {b"--unpack", b"--configure", b"--recursive"} & set(words):
            found.append(int(name))
    return found


print("armed", flush=True)
deadline = time.monotonic() + LIMIT_S
while not at_work():
    if time.monotonic() > deadline:
        sys.exit("no dpkg came")
    time.sleep(0.005)
time.sleep(DELAY_S)
victims = at_work()
for victim in victims:
    os.kill(victim, signal.SIGKILL)
print("killed" if victims else "missed", flush=True)
