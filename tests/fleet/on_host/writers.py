"""Follows the lock of this host and prints its writers in order, as one JSON list: `writers.py STOP LIMIT_S`.

Ends when the file STOP is there. Runs as root, stdlib only. A writer has the lock for much longer than one period.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path

LOCK = Path("/run/gb10-fleet/lock")
PERIOD_S = 0.02


def main(stop: Path, limit_s: float) -> None:
    stop.unlink(missing_ok=True)
    end = time.monotonic() + limit_s
    seen: list[str] = []
    last = now()  # of a run before
    print("armed", flush=True)
    while not stop.exists() and time.monotonic() < end:
        name = now()
        if name not in (None, last):
            last = name
            seen.append(name)
        time.sleep(PERIOD_S)
    print(json.dumps(seen), flush=True)


def now() -> str | None:
    """None in the moment between the lock and the name."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        return str(json.loads(LOCK.read_text())["run"])
    return None


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
