"""`gb10 layout NAME --at WHEN`: a timer of systemd's on the machine with the inventory, which runs the same command.

A switch stops and starts over several hosts, and asks each of them: that needs the inventory, so no Spark can do it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import some, write

from gb10_fleet.services import Refused

CONSENT = "gb10_layouts_by_timer"
NEVER = "never"
Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}\Z")  # a file name with it has 255 characters at most
_UNPRINTABLE = re.compile(r"[^ -~]")
_OF = "# Of "
_IS_OVER = re.compile(r"Next elapse:.*never")

_SERVICE = """\
# Written by `gb10 layout {name} --at`; `gb10 layout {name} --at never` removes it.
{owner}
[Unit]
Description=Switch to the layout {name}
After=network-online.target

[Service]
Type=oneshot
WorkingDirectory={folder}
ExecStart={switch}
# The proof and its page, also where the switch failed.
ExecStopPost={proof}
TimeoutStopSec=infinity
"""
_TIMER = """\
# Written by `gb10 layout {name} --at`; `gb10 layout {name} --at never` removes it.
{owner}
[Unit]
Description=Switch to the layout {name}

[Timer]
OnCalendar={when}
# A switch that this machine has slept through is not made up for: another may have come since.
Persistent=false

[Install]
WantedBy=timers.target
"""


@dataclass(frozen=True)
class Timer:
    """A layout to switch to: when, of which inventories, from which folder."""

    name: str
    when: str
    inventories: tuple[str, ...]
    limit: str | None
    folder: Path
    program: tuple[str, ...] = (str(Path(sys.executable).with_name("gb10")),)  # of the same environment

    @property
    def stem(self) -> str:
        return f"gb10-layout-{self.name}"

    def files(self) -> dict[str, str]:
        """The units by their file names."""
        words = self._whose()
        switch, proof = ("layout", self.name, "--yes", "--by-timer", *words), ("validate", *words)
        return {
            f"{self.stem}.service": _SERVICE.format(
                name=self.name,
                owner=self.owner,
                folder=_plain(str(self.folder)).replace("%", "%%"),
                switch=_line([*self.program, *switch]),
                proof=_line([*self.program, *proof]),
            ),
            f"{self.stem}.timer": _TIMER.format(name=self.name, owner=self.owner, when=self.when),
        }

    @property
    def owner(self) -> str:
        """The line by which a unit is known as one of this inventory and limit: others may have the layout's name."""
        return _OF + _line(self._whose())

    def _whose(self) -> list[str]:
        places = (name if "," in name else str((self.folder / name).resolve()) for name in self.inventories)
        inventories = [word for place in places for word in ("-i", place)]
        return [*inventories, *(("--limit", self.limit) if self.limit else ())]


def _line(words: Sequence[str]) -> str:
    """As systemd reads a command: what would mean something to it means itself."""
    escaped = (re.sub(r'(["\\])', r"\\\1", _printable(word)).replace("%", "%%").replace("$", "$$") for word in words)
    return " ".join(f'"{word}"' for word in escaped)


def _printable(word: str) -> str:
    if _UNPRINTABLE.search(word):
        raise Refused(f"{word!a} cannot stand in a unit of systemd; choose a path of ASCII")
    return word


def _plain(folder: str) -> str:
    """As systemd reads a setting: no quotes, a blank at its end is cut off, and a backslash takes in the next line."""
    if folder.endswith(("\\", " ")):
        raise Refused(f"the folder {folder!a} cannot stand in a unit of systemd; choose one with another end")
    return _printable(folder)


def systemd(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(list(argv), capture_output=True, text=True, check=False)
    except OSError as error:
        raise Refused(f"{argv[0]}: {error.strerror}; a timer needs a machine with systemd") from None


def place(root: bool) -> tuple[Path, list[str]]:
    """Return where units of this user are, and how systemctl is told so."""
    if root:
        return Path("/etc/systemd/system"), ["systemctl"]
    configured = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(configured) / "systemd/user", ["systemctl", "--user"]


def no_consent(lacking: Sequence[str]) -> str:
    """Return what is said where hosts lack the consent."""
    return f"a switch without you needs your consent: set {CONSENT}: true in the inventory for {some(lacking)}"


def refuse(timer: Timer, run: Run) -> None:
    """Judge what needs no host: the name, the time, and the paths."""
    _refuse_name(timer)
    timer.files()
    _is_to_come(timer.when, run)


def _refuse_name(timer: Timer) -> None:
    if not _NAME.match(timer.name):
        raise Refused(f"a timer cannot be named after {timer.name!a}; use up to 200 letters, digits and _ . - for it")


def put(timer: Timer, lacking: Sequence[str], folder: Path, systemctl: Sequence[str], run: Run) -> str:
    """Write and start the timer, or remove it; returns what to tell. Refused before anything is written.

    `lacking`: the hosts without the consent.
    """
    _refuse_name(timer)
    units = {folder / name: text for name, text in timer.files().items()}
    _is_ours(timer, units)
    if timer.when == NEVER:
        if not any(path.exists() for path in units):
            return f"{timer.stem}.timer: there is none"
        _asked(run, [*systemctl, "disable", "--now", f"{timer.stem}.timer"])
        for path in units:
            path.unlink(missing_ok=True)
        _asked(run, [*systemctl, "daemon-reload"])
        return f"{timer.stem}.timer: removed"
    if lacking:
        raise Refused(no_consent(lacking))
    refuse(timer, run)
    _write(units, folder)
    _asked(run, [*systemctl, "daemon-reload"])
    _asked(run, [*systemctl, "enable", f"{timer.stem}.timer"])
    _asked(run, [*systemctl, "restart", f"{timer.stem}.timer"])
    return f"{timer.stem}.timer: {timer.when}, on this machine"


def _write(units: Mapping[Path, str], folder: Path) -> None:
    """Each whole or not at all: half of one would be somebody else's at the next try."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in units.items():
            write(path, text)
    except OSError as error:
        raise Refused(f"{error.filename or folder}: {error.strerror}; the timer was not set") from None


def _is_ours(timer: Timer, units: Iterable[Path]) -> None:
    """A unit that is there is of the same inventory and limit, or it stays as it is."""
    for path in units:
        lines = path.read_text(errors="replace").splitlines() if path.exists() else [timer.owner]
        if timer.owner not in lines:
            whose = next((line.removeprefix(_OF) for line in lines if line.startswith(_OF)), "somebody else")
            raise Refused(
                f"{timer.stem}.timer is of {whose}; remove that one first, with --at never or by hand in "
                f"{path.parent}, or give the layout another name"
            )


def _is_to_come(when: str, run: Run) -> None:
    calendar = None if _UNPRINTABLE.search(when) else run(["systemd-analyze", "calendar", "--", when])
    if calendar is None or calendar.returncode:
        raise Refused(f"--at {when!a} is no time of systemd's calendar; write for example 'Mon..Fri 07:00'")
    if _IS_OVER.search(calendar.stdout):
        raise Refused(f"--at {when!a} never comes again; write for example 'Mon..Fri 07:00'")


def _asked(run: Run, argv: Sequence[str]) -> None:
    done = run(argv)
    if done.returncode:
        raise Refused(f"{' '.join(argv)}: {done.stderr.strip() or done.returncode}")
