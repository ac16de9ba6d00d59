# SPDX-License-Identifier: GPL-3.0-or-later
"""Says that somebody works on this host: until its end, alerts of the host and of its cluster wait.

    gb10-planned begin WHAT [--seen]   until its end, for an hour at most; --seen: wait until Prometheus knows
    gb10-planned end WHAT              what it has left may be seen for some minutes more
    gb10-planned show                  what is planned now, and until when

WHAT is a word, as `reboot`; each has an end of its own, and the last one counts. What is forgotten ends by itself. The
role monitoring installs it: standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

SETTINGS = Path("/etc/gb10-fleet/metrics.json")
FOLDER = Path("/var/lib/gb10-metrics/planned")
_WHAT = re.compile(r"[a-z][a-z0-9-]{0,39}\Z")
_TIME = re.compile(r"[0-9]{1,12}\Z")
_SCRAPE_S = 2.0


def collect() -> None:
    """Write the metric now. Where that fails, the timer's next run does it."""
    argv = ["systemctl", "start", "gb10-metrics-now.service"]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(argv, check=False, timeout=60, stderr=subprocess.DEVNULL)


def begin(folder: Path, what: str, settings: dict[str, Any], now_s: float) -> None:
    for file, until_s in ends(folder).items():
        if not now_s < until_s < now_s + 2 * settings["planned"]["s"]:  # over, or of a clock that was wrong
            (folder / file).unlink(missing_ok=True)
    _write(folder / what, now_s + settings["planned"]["s"])


def end(folder: Path, what: str, settings: dict[str, Any], now_s: float) -> None:
    known = ends(folder).get(what)
    if known is not None:
        _write(folder / what, min(known, now_s + settings["planned"]["after_s"]))


def ends(folder: Path) -> dict[str, int]:
    """When each ends. What is no time is nothing."""
    found = {}
    for file in folder.iterdir():
        text = file.read_text(encoding="ascii", errors="replace").strip() if _WHAT.match(file.name) else ""
        if _TIME.match(text):
            found[file.name] = int(text)
    return found


def unseen_s(folder: Path, settings: dict[str, Any], now_s: float) -> float:
    """How long until Prometheus has asked since the first word of work that keeps alerts waiting for long enough."""
    whole_s, asks_s = settings["planned"]["s"], settings["every_s"]["now"] + _SCRAPE_S
    begun = [until_s - whole_s for until_s in ends(folder).values() if until_s - now_s > whole_s / 2]
    return float(max(0, min([now_s, *begun]) + asks_s - now_s))


def _write(path: Path, until_s: float) -> None:
    """Whole or not at all: a boot may follow."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(f"{until_s:.0f}\n", encoding="ascii")
    new.replace(path)


def main(argv: Sequence[str], tell: Callable[[], None] = collect, wait: Callable[[float], None] = time.sleep) -> int:
    options = _options(argv)
    try:
        settings, now_s = json.loads(SETTINGS.read_text(encoding="utf-8")), time.time()
        if options.verb == "show":
            sys.stdout.write(json.dumps({name: at for name, at in ends(FOLDER).items() if at > now_s}) + "\n")
            return 0
        (begin if options.verb == "begin" else end)(FOLDER, options.what, settings, now_s)
    except OSError as error:
        sys.stderr.write(f"gb10-planned: {error.filename}: {error.strerror}; alerts do not wait for this work\n")
        return 1
    tell()
    if options.verb == "begin":
        tell()  # the first may have joined a run that had read before
        if options.seen:
            wait(unseen_s(FOLDER, settings, time.time()))
    return 0


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gb10-planned", description=(__doc__ or "").partition("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("begin", "end"):
        one = verbs.add_parser(verb)
        one.add_argument("what", type=_word)
        if verb == "begin":
            one.add_argument("--seen", action="store_true")
    verbs.add_parser("show")
    return parser.parse_args(argv)


def _word(text: str) -> str:
    if not _WHAT.match(text):
        raise argparse.ArgumentTypeError("a word of small letters, digits and - is expected, as reboot")
    return text


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
