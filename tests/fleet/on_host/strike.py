"""Waits for the engine to run on this host and kills it: `strike.py DELAY_S CHILDREN LIMIT_S`; prints what it did.

The delay counts from the first engine that is seen, the one that only looks included. If none runs when it is over,
the next one dies as soon as it is there. CHILDREN is 1 to kill what the engine has started as well (apt, dpkg, nmcli),
0 for the engine alone. Runs as root, stdlib only.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path

ENGINE = ["-I", "-S", "-c"]  # and what it reads of standard input then


def main(delay_s: float, children: bool, limit_s: float) -> None:
    end = time.monotonic() + limit_s
    print("armed", flush=True)
    while not engines() and time.monotonic() < end:
        time.sleep(0.005)
    seen = time.monotonic()
    time.sleep(max(0.0, min(delay_s, end - seen)))
    while time.monotonic() < end:
        for pid in engines():
            # What the engine is about: the same moment of two runs is seldom the same work.
            below = descendants(pid)
            at = [" ".join(words(child))[:120] for child in below]
            victims = [pid, *(below if children else [])]
            names = [" ".join(words(victim)[:3]) for victim in victims]
            for victim in victims:
                with contextlib.suppress(ProcessLookupError):  # it ended meanwhile, which is as good a moment as any
                    os.kill(victim, signal.SIGKILL)
            print(json.dumps({"killed": names, "at": at, "after_s": round(time.monotonic() - seen, 3)}))
            return
        time.sleep(0.002)
    print(json.dumps({"killed": [], "at": [], "after_s": None}))


def engines() -> list[int]:
    numbers = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [number for number in numbers if words(number)[1:4] == ENGINE and "opening.py" in words(number)[-1]]


def words(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return []


def descendants(pid: int) -> list[int]:
    try:
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [*children, *(grandchild for child in children for grandchild in descendants(child))]


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2] == "1", float(sys.argv[3]))
