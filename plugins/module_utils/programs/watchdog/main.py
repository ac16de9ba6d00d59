# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gb10-watchdog: looks at every service of this host, and restarts one whose engine hangs, once.

A timer of systemd starts it. The head of a cluster decides for all: when its unit stops it tells the others, whose
containers end, and its own model starts when all of them are there again. What was seen is kept before anything is
restarted. The role `watchdog` installs this folder as a program: standard library only.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable, NamedTuple

from ansible_collections.gb10.fleet.plugins.module_utils.checks.hang import (
    FINE,
    HUNG,
    OPEN,
    Look,
    Rules,
    Still,
    follow,
    verdict,
)
from ansible_collections.gb10.fleet.plugins.module_utils.reading.counters import (
    LARGEST,
    Counters,
    Service,
    ask,
    services,
)

CONFIG = "/etc/gb10-fleet/watchdog.json"
STATE = "/var/lib/gb10-watchdog"
RUN = "/run/gb10-watchdog"  # what is seen while that has no room: a full disk must not keep an engine hanging
DEADLINE_S = 5.0  # of a server that is asked
COMMAND_S = 20.0  # of a command that gathers evidence
MOST_RESTARTS = 20  # that are remembered
GPU = ("nvidia-smi", "--query-gpu=power.draw", "--format=csv,noheader,nounits")
_WATTS = re.compile(r"\s*([0-9]{1,6}(?:\.[0-9]{1,9})?)(?:\s|\Z)")  # anything else is unknown, and no low power
BOOT = "/proc/sys/kernel/random/boot_id"
# What a person wants to see of a hang; UNIT stands for the service's. Each is optional.
EVIDENCE = {
    "journal.txt": ("journalctl", "--no-pager", "--lines=500", "--unit=UNIT"),
    "kernel.txt": ("journalctl", "--no-pager", "--lines=200", "--dmesg"),
    "gpu.txt": ("nvidia-smi", "-q"),
    "processes.txt": ("ps", "-eLo", "pid,tid,stat,wchan:32,etimes,time,comm"),
}

Run = Callable[[Sequence[str], float], "tuple[int, str]"]


class World(NamedTuple):
    """All that a test replaces."""

    root: Path
    run: Run
    ask: Callable[[Service, float], Counters]
    monotonic: Callable[[], float]
    now: Callable[[], float]


def main() -> int:
    world = World(Path("/"), _run, ask, time.monotonic, time.time)
    for line in patrol(json.loads(Path(CONFIG).read_text(encoding="utf-8")), world):
        print(line, flush=True)
    return 0


def patrol(config: dict[str, Any], world: World) -> list[str]:
    """One look at every service that this host has the API of. Returns what to say."""
    rules = Rules(*(config["rules"][name] for name in Rules._fields))
    mine = [one for one in services(world.root) if one.port is not None]
    wanted = [one for one in mine if not config["services"] or one.name in config["services"]]
    power = _power(world) if wanted else None
    said = []
    for service in wanted:
        try:
            line = _one(service, power, rules, int(config["kept"]), world)
        except OSError as error:  # neither place takes what was seen: a restart could come again and again
            line = f"{service.unit} is not watched: {STATE} and {RUN} cannot be written ({error.strerror or error})"
        said += [line] if line else []
    return said


def _one(service: Service, power: float | None, rules: Rules, kept: int, world: World) -> str:
    places = [world.root / folder.lstrip("/") / f"{service.name}.json" for folder in (STATE, RUN)]
    boot = _text(world.root / BOOT.lstrip("/"))
    still, restarts, before = _recalled(places, boot)
    look = _look(service, power, world)
    still = follow(still, look, rules)
    found = verdict(still, restarts, world.now(), rules, before)
    line = ""
    if found == HUNG and still:
        evidence = _keep(service, still, look, kept, world)
        restarts = [*restarts, world.now()][-MOST_RESTARTS:]
        # Before the restart: whatever becomes of this process, there is no second one.
        _remember(places, boot, None, restarts, found)
        code, said = world.run(("systemctl", "restart", "--no-block", service.unit), COMMAND_S)
        line = f"{service.unit} {_seen(still, look)}: restarted once; {evidence}"
        return line if not code else f"{line}; systemctl failed: {said.strip()[:200]}"
    if found == OPEN and before != OPEN and still:
        line = (
            f"{service.unit} {_seen(still, look)} again, within {rules.breaker_s / 3600:g} h of a restart: it is left"
            f" alone; look at it, and restart it by hand (`systemctl restart {service.unit}`)"
        )
    _remember(places, boot, still, restarts, found)
    return line


def _seen(still: Still, look: Look) -> str:
    span = still.last_s - still.since_s
    return f"hangs: {look.running:g} requests run, no token came for {span:.0f} s, and the GPU takes {look.power_w:g} W"


def _look(service: Service, power: float | None, world: World) -> Look:
    try:
        status = json.loads(_text(world.root / service.status.lstrip("/")) or "{}")
        phase, life = status.get("phase"), f"{status.get('attempt')} {status.get('since')}"
    except (ValueError, AttributeError, RecursionError):
        phase, life = None, ""
    counters: Counters = {}
    if phase == "ready":  # while it loads, nobody is asked
        with contextlib.suppress(OSError, ValueError):
            counters = world.ask(service, DEADLINE_S)
    running, tokens, prompts = (counters.get(name) for name in ("running", "generated_tokens", "prompt_tokens"))
    return Look(world.monotonic(), phase, life, running, tokens, prompts, power)


def _power(world: World) -> float | None:
    code, said = world.run(GPU, COMMAND_S)
    found = _WATTS.match(said) if code == 0 else None
    return float(found[1]) if found else None


def _recalled(places: Sequence[Path], boot: str) -> tuple[Still | None, list[float], str]:
    """What the last look left: the last of the places that are there has it, and restarts count from all."""
    found = [_read(path, boot) for path in places if path.exists()] or [(None, [], FINE)]
    return found[-1][0], sorted({at_s for _still, restarts, _verdict in found for at_s in restarts}), found[-1][2]


def _remember(places: Sequence[Path], boot: str, still: Still | None, restarts: Sequence[float], found: str) -> None:
    """In the first place; in the other one where that has no room. OSError where neither has."""
    lasting, meanwhile = places
    try:
        _write(lasting, boot, still, restarts, found)
    except OSError:
        _write(meanwhile, boot, still, restarts, found)
    else:
        meanwhile.unlink(missing_ok=True)


def _read(path: Path, boot: str) -> tuple[Still | None, list[float], str]:
    """What one place has. Of another boot only the restarts count; of a file that is damaged, nothing."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        restarts = [float(at_s) for at_s in kept["restarts"]]
        same = kept["still"] is not None and kept["boot"] == boot
        still = Still(*kept["still"]) if same else None
        if still:
            still = still._replace(since_s=float(still.since_s), last_s=float(still.last_s))
        return still, restarts, str(kept["verdict"])
    except (OSError, ValueError, OverflowError, KeyError, TypeError, RecursionError):
        return None, [], FINE


def _write(path: Path, boot: str, still: Still | None, restarts: Sequence[float], found: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_text(json.dumps({"boot": boot, "still": still, "restarts": list(restarts), "verdict": found}) + "\n")
    new.replace(path)


def _keep(service: Service, still: Still, look: Look, kept: int, world: World) -> str:
    """The evidence, before the restart takes it away; returns where it is, or that there is none."""
    folder = world.root / STATE.lstrip("/") / "evidence"
    place = folder / f"{service.name}@{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(world.now()))}"
    try:
        _make_room(folder, service, kept)
        place.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        return f"what was seen could not be kept ({error.strerror or error})"
    texts = {"seen.json": json.dumps({"still": still._asdict(), "look": look._asdict()}, indent=1)}
    texts["status.json"] = _text(world.root / service.status.lstrip("/"))
    for name, argv in EVIDENCE.items():
        _code, texts[name] = world.run([service.unit.join(word.split("UNIT")) for word in argv], COMMAND_S)
    for name, text in texts.items():
        with contextlib.suppress(OSError):
            (place / name).write_text(text[-LARGEST:], encoding="utf-8", errors="replace")
            (place / name).chmod(0o600)
    return f"what was seen is in {place}"


def _make_room(folder: Path, service: Service, kept: int) -> None:
    """Of the oldest, more than `kept` are removed."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    old = sorted(path for path in folder.iterdir() if path.name.startswith(f"{service.name}@"))
    for path in old[: max(0, len(old) - kept + 1)]:
        for file in path.iterdir():
            file.unlink()
        path.rmdir()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _run(argv: Sequence[str], seconds: float) -> tuple[int, str]:
    """Exit status and output; 124 if its time ran out, 127 if there is no such command."""
    try:
        done = subprocess.run(
            list(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds,
            check=False, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return 124, f"{argv[0]} did not end within {seconds:g} s"
    except OSError as error:
        return 127, f"{argv[0]}: {error.strerror}"
    return done.returncode, done.stdout.decode("utf-8", "replace")


if __name__ == "__main__":
    sys.exit(main())
