# SPDX-License-Identifier: GPL-3.0-or-later
"""gb10-host-guard: reboots a host that no longer does anything but wait for memory, once its reason is on the disk.

systemd's own watchdog guards it: while all is well it is told so at each look, and where this process itself no longer
gets to run, the same watchdog reboots the host. `may-arm` is asked before each start; it says no where the reboots of a
day are spent, so no defect makes a host boot for ever. The role `watchdog` installs it: standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, Callable, NamedTuple

from ansible_collections.gb10.fleet.plugins.module_utils.reading.guard_reason import FOLDER as STATE
from ansible_collections.gb10.fleet.plugins.module_utils.reading.guard_reason import LAST
from ansible_collections.gb10.fleet.plugins.module_utils.reading.memory import parse_pressure
from ansible_collections.gb10.fleet.plugins.module_utils.system.lock import BOOT_ID, writing_now
from ansible_collections.gb10.fleet.plugins.module_utils.system.saying import say
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import System
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import Unknown

CONFIG = "/etc/gb10-fleet/host-guard.json"
REASON, STARTS = "reason.json", "starts.json"
PRESSURE = "/proc/pressure/memory"
DAY_S = 86400.0
REPORT, REBOOT = "report", "reboot"
FINE, SINCE, WEDGED = "fine", "since", "wedged"  # what a look comes to
_LOCK_ALL = 3  # MCL_CURRENT | MCL_FUTURE of mlockall(2)
_MOST_STARTS = 50


class Rules(NamedTuple):
    """`full_percent`: of the last 10 s in which all tasks waited for memory, and so long `sustained_s`."""

    full_percent: float
    sustained_s: float
    every_s: float
    per_day: int


class World(NamedTuple):
    """All that a test replaces. `tell` speaks to systemd; `wait` returns whether the end was asked for."""

    root: Path
    tell: Callable[[str], None]
    wait: Callable[[float], bool]
    monotonic: Callable[[], float]
    now: Callable[[], float]
    say: Callable[[str], None]


def main() -> int:
    config = json.loads(Path(CONFIG).read_text(encoding="utf-8"))
    rules = Rules(*(config["rules"][name] for name in Rules._fields))
    if sys.argv[1:] == ["may-arm"]:
        return 0 if config["mode"] == REPORT or may_arm(Path("/"), rules, time.time()) else 1
    # A stop is only taken where it is waited for: a handler could want a lock that this very process holds.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    with contextlib.suppress(OSError, AttributeError):  # a page of its own that has to come from the disk may not come
        ctypes.CDLL(None).mlockall(_LOCK_ALL)
    watch(config["mode"], rules, World(Path("/"), _tell, _stopped, time.monotonic, time.time, say))
    return 0


def may_arm(root: Path, rules: Rules, now_s: float) -> bool:
    """Note a start, and say whether it may come to a reboot: each start that did not end in good order has cost one.

    Where it may not, nothing else of this program runs in this boot: what the last one left is kept here.
    """
    _keep_the_last(root)
    starts = [each for each in _starts(root) if now_s - each["at_s"] < DAY_S]
    spent = sum(not each["ended"] for each in starts)
    if spent >= rules.per_day:
        say(f"not armed: {spent} starts within a day did not end in good order, as after a reboot by this guard")
        return False
    _write(root, STARTS, {"starts": [*starts, {"at_s": now_s, "ended": False}][-_MOST_STARTS:]})
    return True


def watch(mode: str, rules: Rules, world: World) -> None:
    """Look until the end is asked for."""
    world.tell("READY=1")  # from here on systemd's watchdog guards it
    _keep_the_last(world.root)  # a guard that only reports is not asked whether it may
    since: float | None = None
    told = FINE
    while True:
        full, found = None, FINE
        with contextlib.suppress(OSError, Unknown, KeyError):  # what cannot be read is no pressure
            full = parse_pressure((world.root / PRESSURE.lstrip("/")).read_text())["full"]["avg10"]
        if full is not None and full >= rules.full_percent:
            since = world.monotonic() if since is None else since
            found = WEDGED if world.monotonic() - since >= rules.sustained_s else SINCE
        else:
            since = None
        told = _act(mode, found, told, full, rules, world)
        if world.wait(rules.every_s):
            break
    if mode == REBOOT:  # a start that only reports was not noted
        _end_in_good_order(world.root)


def _act(mode: str, found: str, told: str, full: float | None, rules: Rules, world: World) -> str:
    """Keep the reason while it lasts, before anything is done; and let systemd act only once it is on the disk."""
    if found == FINE:
        if told != FINE:
            with contextlib.suppress(OSError):
                (world.root / STATE.lstrip("/") / REASON).unlink(missing_ok=True)
            world.say("the host comes to work again")
        world.tell("WATCHDOG=1")
        return found
    reason = (
        f"for {rules.sustained_s:g} s all tasks waited for memory" if found == WEDGED else "all tasks wait for memory"
    )
    busy = writing_now(System(world.root))
    acts = mode == REBOOT and found == WEDGED and not busy
    kept = {"at_s": world.now(), "boot": _boot(world.root), "full_percent": full, "found": found, "reboots": acts}
    with contextlib.suppress(OSError):
        _write(world.root, REASON, kept)
    if told != found:
        left = f"; left alone while the run {busy} changes this host" if found == WEDGED and busy else ""
        world.say(f"{reason} (full avg10 {full:g} %, from {rules.full_percent:g} % on){left}")
    world.tell("WATCHDOG=trigger" if acts else "WATCHDOG=1")
    return found


def _stopped(seconds: float) -> bool:
    """Tell whether the end was asked for within so many seconds."""
    return signal.sigtimedwait({signal.SIGTERM}, seconds) is not None


def _keep_the_last(root: Path) -> None:
    """Of another boot the reason is history: it is kept under another name."""
    kept = _read(root, REASON)
    if kept and kept.get("boot") != _boot(root):
        folder = root / STATE.lstrip("/")
        with contextlib.suppress(OSError):
            (folder / REASON).replace(folder / LAST)


def _end_in_good_order(root: Path) -> None:
    """Where the disk is full this start stays spent: to fail here would reboot the host because of a stop."""
    starts = _starts(root)
    if starts:
        starts[-1]["ended"] = True
        with contextlib.suppress(OSError):
            _write(root, STARTS, {"starts": starts})


def _starts(root: Path) -> list[dict[str, Any]]:
    """Those that are noted, each as we note it."""
    found = _read(root, STARTS).get("starts")
    return [each for each in found if _is_start(each)] if isinstance(found, list) else []


def _is_start(said: Any) -> bool:
    return isinstance(said, dict) and isinstance(said.get("at_s"), (int, float)) and isinstance(said.get("ended"), bool)


def _boot(root: Path) -> str:
    return (root / BOOT_ID.lstrip("/")).read_text(encoding="ascii").strip()


def _read(root: Path, name: str) -> dict[str, Any]:
    """What a file of this program has; nothing where it is not there or damaged."""
    try:
        found = json.loads((root / STATE.lstrip("/") / name).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(root: Path, name: str, content: dict[str, Any]) -> None:
    """Write a file whole, and onto the disk: the next thing may be a reboot without a word."""
    path = root / STATE.lstrip("/") / name
    new = path.with_name(f".{name}.new")
    with new.open("w", encoding="utf-8") as file:
        file.write(json.dumps(content) + "\n")
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _tell(text: str) -> None:
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        # A word that is lost is said again at the next look; without any, systemd's watchdog acts.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door:
            door.sendto(text.encode("ascii"), address.replace("@", "\0", 1) if address[0] == "@" else address)


if __name__ == "__main__":
    raise SystemExit(main())
