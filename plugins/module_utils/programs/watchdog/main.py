# SPDX-License-Identifier: GPL-3.0-or-later
"""gb10-watchdog: looks at every service of this host, and restarts one whose engine hangs, once.

A timer of systemd starts it. The head of a cluster decides for all: when its unit stops it tells the others, whose
containers end, and its own model starts when all of them are there again. What was seen is kept before anything is
restarted. The role `watchdog` installs this folder as a program: standard library only.
"""

from __future__ import annotations

import contextlib
import json
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
    held,
    verdict,
)
from ansible_collections.gb10.fleet.plugins.module_utils.reading.counters import (
    LARGEST,
    Counters,
    Service,
    ask,
    services,
)
from ansible_collections.gb10.fleet.plugins.module_utils.reading.gpu import argv as argv_of_gpu
from ansible_collections.gb10.fleet.plugins.module_utils.reading.gpu import row, values
from ansible_collections.gb10.fleet.plugins.module_utils.reading.unit_status import READY
from ansible_collections.gb10.fleet.plugins.module_utils.system.saying import say
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import run_command
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import document

CONFIG = "/etc/gb10-fleet/watchdog.json"
STATE = "/var/lib/gb10-watchdog"
RUN = "/run/gb10-watchdog"  # what is seen while that has no room: a full disk must not keep an engine hanging
DEADLINE_S = 5.0  # of a server that is asked
COMMAND_S = 20.0  # of a command that gathers evidence
MOST_RESTARTS = 20  # that are remembered
FIELDS = ("power.draw", "clocks.sm", "utilization.gpu")
GPU = tuple(argv_of_gpu(FIELDS))
BOOT = "/proc/sys/kernel/random/boot_id"
# What a person wants to see of a hang; UNIT stands for the service's. Each is optional.
EVIDENCE = {
    "journal.txt": ("journalctl", "--no-pager", "--lines=500", "--unit=UNIT"),
    "kernel.txt": ("journalctl", "--no-pager", "--lines=200", "--dmesg"),
    "gpu.txt": ("nvidia-smi", "-q"),
    "processes.txt": ("ps", "-eLo", "pid,tid,stat,wchan:32,etimes,time,comm"),
}

Run = Callable[[Sequence[str], float], "tuple[int, str]"]


class Gpu(NamedTuple):
    """None is unknown."""

    power_w: float | None = None
    clock_mhz: float | None = None
    busy_percent: float | None = None


class State(NamedTuple):
    """What one look leaves to the next. `stalled`: what stands still whatever the GPU does."""

    still: Still | None = None
    restarts: Sequence[float] = ()
    verdict: str = FINE
    stalled: Still | None = None
    vetoed_s: float | None = None  # since when that stood still of which a veto was said


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
        say(line)
    return 0


def patrol(config: dict[str, Any], world: World) -> list[str]:
    """One look at every service that this host has the API of. Returns what to say."""
    rules = Rules(*(config["rules"][name] for name in Rules._fields))
    mine = [one for one in services(world.root) if one.port is not None]
    wanted = [one for one in mine if not config["services"] or one.name in config["services"]]
    gpu = _gpu(world) if wanted else Gpu()
    said = []
    for service in wanted:
        try:
            line = _one(service, gpu, rules, int(config["kept"]), world)
        except OSError as error:  # neither place takes what was seen: a restart could come again and again
            line = f"{service.unit} is not watched: {STATE} and {RUN} cannot be written ({error.strerror or error})"
        said += [line] if line else []
    return said


def _one(service: Service, gpu: Gpu, rules: Rules, kept: int, world: World) -> str:
    places = [world.root / folder.lstrip("/") / f"{service.name}.json" for folder in (STATE, RUN)]
    boot = _text(world.root / BOOT.lstrip("/"))
    old = _recalled(places, boot)
    look, restarts = _look(service, gpu, world), old.restarts
    still = follow(old.still, look, rules)
    stalled = follow(old.stalled, look._replace(power_w=0.0, clock_mhz=None, busy_percent=None), rules)
    found = verdict(still, restarts, world.now(), rules, old.verdict)
    line, vetoed_s = "", old.vetoed_s
    if still is None and stalled and stalled.last_s - stalled.since_s >= rules.after_s and stalled.since_s != vetoed_s:
        line = _veto(service, stalled, look, rules)
        vetoed_s = stalled.since_s if line else vetoed_s
    if found == HUNG and still:
        evidence = _keep(service, still, look, kept, world)
        restarts = [*restarts, world.now()][-MOST_RESTARTS:]
        # Before the restart: whatever becomes of this process, there is no second one.
        _remember(places, boot, State(None, restarts, found))
        code, said = world.run(("systemctl", "restart", "--no-block", service.unit), COMMAND_S)
        line = f"{service.unit} {_seen(still, look)}: restarted once; {evidence}"
        return line if not code else f"{line}; systemctl failed: {said.strip()[:200]}"
    if found == OPEN and old.verdict != OPEN and still:
        line = (
            f"{service.unit} {_seen(still, look)} again, within {rules.breaker_s / 3600:g} h of a restart: it is left"
            f" alone; look at it, and restart it by hand (`systemctl restart {service.unit}`)"
        )
    _remember(places, boot, State(still, restarts, found, stalled, vetoed_s))
    return line


def _veto(service: Service, stalled: Still, look: Look, rules: Rules) -> str:
    """Return why what looks like a hang is left alone; nothing where the GPU is not known."""
    if look.power_w is None or not look.power_w >= 0:
        return ""
    span = stalled.last_s - stalled.since_s
    why = f"takes {look.power_w:g} W, so it works"
    if held(look, rules):
        why = f"is busy at {look.clock_mhz:g} MHz, so its power of {look.power_w:g} W does not tell whether it works"
    return f"{service.unit}: no token came for {span:.0f} s, and that is no hang: the GPU {why}; it is left alone"


def _seen(still: Still, look: Look) -> str:
    span = still.last_s - still.since_s
    return f"hangs: {look.running:g} requests run, no token came for {span:.0f} s, and the GPU takes {look.power_w:g} W"


def _look(service: Service, gpu: Gpu, world: World) -> Look:
    status = document(_text(world.root / service.status.lstrip("/")))
    phase, life = status.get("phase"), f"{status.get('attempt')} {status.get('since')}"
    counters: Counters = {}
    if phase == READY:  # while it loads, nobody is asked
        with contextlib.suppress(OSError, ValueError):
            counters = world.ask(service, DEADLINE_S)
    running, tokens, prompts = (counters.get(name) for name in ("running", "generated_tokens", "prompt_tokens"))
    return Look(world.monotonic(), phase, life, running, tokens, prompts, *gpu)


def _gpu(world: World) -> Gpu:
    code, said = world.run(GPU, COMMAND_S)
    found, _reasons = values(row(said, FIELDS) if code == 0 else {})
    # What is no number is unknown, and no low power.
    return Gpu(found["power_w"], found["clock_mhz"], found["utilization_percent"])


def _recalled(places: Sequence[Path], boot: str) -> State:
    """What the last look left: the last of the places that are there has it, and restarts count from all."""
    found = [_read(path, boot) for path in places if path.exists()] or [State()]
    return found[-1]._replace(restarts=sorted({at_s for state in found for at_s in state.restarts}))


def _remember(places: Sequence[Path], boot: str, state: State) -> None:
    """In the first place; in the other one where that has no room. OSError where neither has."""
    lasting, meanwhile = places
    try:
        _write(lasting, boot, state)
    except OSError:
        _write(meanwhile, boot, state)
    else:
        meanwhile.unlink(missing_ok=True)


def _read(path: Path, boot: str) -> State:
    """What one place has. Of another boot only the restarts count; of a file that is damaged, nothing."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        restarts = [float(at_s) for at_s in kept["restarts"]]
        if kept["boot"] != boot:
            return State(None, restarts, str(kept["verdict"]))
        still, stalled, vetoed_s = _still(kept["still"]), _still(kept.get("stalled")), kept.get("vetoed_s")
        return State(still, restarts, str(kept["verdict"]), stalled, None if vetoed_s is None else float(vetoed_s))
    except (OSError, ValueError, OverflowError, KeyError, TypeError, RecursionError):
        return State()


def _still(kept: Any) -> Still | None:
    if kept is None:
        return None
    still = Still(*kept)
    return still._replace(since_s=float(still.since_s), last_s=float(still.last_s))


def _write(path: Path, boot: str, state: State) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_text(json.dumps({"boot": boot, **state._asdict()}) + "\n")
    new.replace(path)


def _keep(service: Service, still: Still, look: Look, kept: int, world: World) -> str:
    """The evidence, before the restart takes it away; returns where it is, or that there is none."""
    folder = world.root / STATE.lstrip("/") / "evidence"
    place = folder / f"{service.name}@{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(world.now()))}"
    texts = {"seen.json": json.dumps({"still": still._asdict(), "look": look._asdict()}, indent=1)}
    texts["status.json"] = _text(world.root / service.status.lstrip("/"))
    for name, argv in EVIDENCE.items():
        _code, texts[name] = world.run([service.unit.join(word.split("UNIT")) for word in argv], COMMAND_S)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.mkdir(mode=0o700, exist_ok=True)
        for name, text in texts.items():
            (place / name).write_text(text[-LARGEST:], encoding="utf-8", errors="replace")
            (place / name).chmod(0o600)
    except OSError as error:
        _remove([place])
        return f"what was seen could not be kept ({error.strerror or error})"
    _make_room(place, service, kept)
    return f"what was seen is in {place}"


def _make_room(newest: Path, service: Service, kept: int) -> None:
    """Of the oldest, more than `kept` are removed; what is of a time to come is of a clock that was wrong."""
    old = [path for path in newest.parent.iterdir() if path.name.startswith(f"{service.name}@") and path != newest]
    old.sort(key=lambda path: (path.name < newest.name, path.name))
    _remove(old[: max(0, len(old) - kept + 1)])


def _remove(places: Sequence[Path]) -> None:
    for place in places:
        with contextlib.suppress(OSError):
            for file in place.iterdir():
                file.unlink()
            place.rmdir()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _run(argv: Sequence[str], seconds: float) -> tuple[int, str]:
    """Exit status and output, its errors behind it, as run_command has them."""
    done = run_command(argv, None, seconds, {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"})
    return done.rc, done.stdout + done.stderr


if __name__ == "__main__":
    raise SystemExit(main())
