"""Long-lived processes of the lab: started detached, recorded in a file, ended by that record only.

A record is the PID together with the process's start time (field 22 of /proc/PID/stat, in clock ticks since boot) and
this machine's boot id, so that a PID which was given to somebody else is never signalled.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from lab.shell import LabError, boot_id


def start(argv: Sequence[str], record: Path, log: Path, cwd: Path | None = None) -> int:
    with log.open("ab") as output:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=cwd, start_new_session=True
        )
    record.write_text(json.dumps({"pid": process.pid, "ticks": _ticks(process.pid), "boot": boot_id()}))
    return process.pid


def pid(record: Path) -> int | None:
    """The recorded process's PID if that very process still lives."""
    try:
        known = json.loads(record.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    if known["boot"] != boot_id() or _ticks(known["pid"]) != known["ticks"]:
        return None
    return int(known["pid"])


def stop(record: Path, sig: signal.Signals = signal.SIGTERM, patience: float = 20.0) -> bool:
    """Ends the recorded process: asks by the signal, insists with SIGKILL; says whether there was one."""
    alive = pid(record)
    if alive is not None:
        os.kill(alive, sig)
        if not gone(record, patience):
            os.kill(alive, signal.SIGKILL)
            if not gone(record, 5):
                raise LabError(f"process {alive} ({record.stem}) does not end, even by SIGKILL")
    record.unlink(missing_ok=True)
    return alive is not None


def gone(record: Path, patience: float) -> bool:
    until = time.monotonic() + patience
    while pid(record) is not None:
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def _ticks(number: int) -> int | None:
    """Start time of a process; None for one that is gone or only waits to be reaped."""
    try:
        stat = Path(f"/proc/{number}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()  # the name before it may hold blanks and brackets
    return None if fields[0] == "Z" else int(fields[19])
