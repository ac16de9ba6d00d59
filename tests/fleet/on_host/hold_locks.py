"""Hold apt's and dpkg's locks for a while, as somebody else's apt does: SECONDS, after the line `armed`."""

import fcntl
import sys
import time

LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/apt/lists/lock", "/var/cache/apt/archives/lock")

files = [open(path, "w") for path in LOCKS]  # noqa: PTH123, SIM115 - open as long as this runs
for file in files:
    fcntl.lockf(file, fcntl.LOCK_EX)
print("armed", flush=True)
time.sleep(float(sys.argv[1]))
