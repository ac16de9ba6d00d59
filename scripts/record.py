"""`python -m scripts.record FILE.cast COMMAND...`: runs a command in a terminal of its own, and records what it shows.

The file is an asciicast of version 2, which asciinema and its player show: a header, then `[seconds, "o", text]` lines.
"""

from __future__ import annotations

import argparse
import codecs
import fcntl
import json
import os
import pty
import shlex
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

COLUMNS, ROWS = 120, 36
HERE = "~/gb10-fleet"  # for the folder of the checkout, which is nobody else's
IDLE_LIMIT_S = 2.0  # a player waits no longer, however long nothing happened


def record(command: Sequence[str], file: TextIO, title: str, clock: Callable[[], float] = time.monotonic) -> int:
    """Exit status of the command. What it shows goes to our own output as well."""
    header = {
        "version": 2, "width": COLUMNS, "height": ROWS, "timestamp": int(time.time()), "title": title,
        "idle_time_limit": IDLE_LIMIT_S, "env": {"TERM": "xterm-256color"},
    }  # fmt: skip
    file.write(json.dumps(header) + "\n")
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    started = clock()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    )
    os.close(theirs)
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")  # a letter may come in two pieces
    while text := _read(ours):
        if shown := decoder.decode(text).replace(str(Path.cwd()), HERE):
            file.write(json.dumps([round(clock() - started, 3), "o", shown], ensure_ascii=False) + "\n")
            sys.stdout.write(shown)
            sys.stdout.flush()
    os.close(ours)
    return child.wait()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says EIO where the other end has been closed
        return b""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.record", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args(argv)
    if not args.command:
        parser.error("say which command to record")
    with args.file.open("w", encoding="utf-8") as file:
        return record(args.command, file, shlex.join(args.command))


if __name__ == "__main__":
    sys.exit(main())
