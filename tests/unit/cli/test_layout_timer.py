"""A layout by a timer: what is written, what is refused before that, and what systemd makes of it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gb10_fleet import layout_timer
from gb10_fleet.layout_timer import NEVER, Timer
from gb10_fleet.services import Refused

SYSTEMCTL = ["systemctl", "--user"]


class Systemd:
    """Notes what it is told, and takes every time but `nonsense`."""

    def __init__(self) -> None:
        self.told: list[list[str]] = []

    def __call__(self, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        self.told.append(list(argv))
        if argv[-1] == "2020-01-01":
            return subprocess.CompletedProcess(list(argv), 0, "Normalized form: 2020\n    Next elapse: never\n", "")
        return subprocess.CompletedProcess(list(argv), "nonsense" in argv, "", "no such calendar")


def timer(folder: Path, when: str = "Mon..Fri 07:00", name: str = "split", inventory: str = "inventory/mine") -> Timer:
    return Timer(name, when, (inventory,), None, folder, ("/opt/gb10",))


def test_it_runs_the_same_command_and_proves_it_also_where_that_failed(tmp_path: Path) -> None:
    systemd, units = Systemd(), tmp_path / "units"
    assert "Mon..Fri 07:00" in layout_timer.put(timer(tmp_path), [], units, SYSTEMCTL, systemd)
    service = (units / "gb10-layout-split.service").read_text()
    inventory = f'"-i" "{tmp_path}/inventory/mine"'
    assert f'ExecStart="/opt/gb10" "layout" "split" "--yes" "--by-timer" {inventory}\n' in service
    assert f'ExecStopPost="/opt/gb10" "validate" {inventory}\n' in service
    assert f"WorkingDirectory={tmp_path}\n" in service, "where ansible.cfg is"
    assert "OnCalendar=Mon..Fri 07:00\n" in (units / "gb10-layout-split.timer").read_text()
    assert systemd.told[1:] == [
        [*SYSTEMCTL, "daemon-reload"],
        [*SYSTEMCTL, "enable", "gb10-layout-split.timer"],
        [*SYSTEMCTL, "restart", "gb10-layout-split.timer"],
    ]


@pytest.mark.parametrize(
    ("lacking", "more", "says"),
    [
        (["spark-a"], {}, "set gb10_layouts_by_timer: true in the inventory for spark-a"),
        ([], {"when": "nonsense"}, "no time of systemd's calendar"),
        ([], {"when": "07:00\nOnBootSec=1"}, "no time of systemd's calendar"),
        ([], {"when": "2020-01-01"}, "--at '2020-01-01' never comes again"),
        ([], {"name": "a b"}, "cannot be named after"),
        ([], {"name": "../x"}, "cannot be named after"),
        ([], {"inventory": "in\nExecStart=/bin/x"}, "cannot stand in a unit"),
    ],
)
def test_nothing_is_written_of_what_is_refused(
    tmp_path: Path, lacking: list[str], more: dict[str, str], says: str
) -> None:
    units = tmp_path / "units"
    with pytest.raises(Refused, match=says):
        layout_timer.put(timer(tmp_path, **more), lacking, units, SYSTEMCTL, Systemd())
    assert not units.exists()


@pytest.mark.parametrize("end", ["\nExecStartPre=/bin/x", "\\", " "])
def test_a_folder_is_no_line_of_a_unit(tmp_path: Path, end: str) -> None:
    units = tmp_path / "units"
    asked = timer(Path(f"{tmp_path}/x{end}"), inventory="a,")
    with pytest.raises(Refused, match="cannot stand in a unit"):
        layout_timer.put(asked, [], units, SYSTEMCTL, Systemd())
    assert not units.exists()


def test_a_folder_that_takes_no_units_is_said_and_nothing_is_left_half_written(tmp_path: Path) -> None:
    units, systemd = tmp_path / "units", Systemd()
    units.write_text("no folder")
    with pytest.raises(Refused, match="units: File exists; the timer was not set"):
        layout_timer.put(timer(tmp_path), [], units, SYSTEMCTL, systemd)
    assert not [told for told in systemd.told if told[0] == "systemctl"]
    with pytest.raises(Refused, match="up to 200 letters"):
        layout_timer.put(timer(tmp_path, name="a" * 300), [], units, SYSTEMCTL, systemd)


def test_what_is_unprintable_is_shown_to_no_command(tmp_path: Path) -> None:
    systemd = Systemd()
    with pytest.raises(Refused, match="no time of systemd's calendar"):
        layout_timer.put(timer(tmp_path, "07:00\x00"), [], tmp_path / "units", SYSTEMCTL, systemd)
    assert systemd.told == []


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd on this machine")
@pytest.mark.parametrize("when", ["--help", "-h", "--version", "--iterations=3", " ", "@0", "2027-02-30"])
def test_systemd_proves_the_time_itself(tmp_path: Path, when: str) -> None:
    def run(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        assert argv[0] == "systemd-analyze", "refused before anything is started"
        return subprocess.run(list(argv), capture_output=True, text=True, check=False)

    with pytest.raises(Refused, match="--at"):
        layout_timer.put(timer(tmp_path, when), [], tmp_path / "units", SYSTEMCTL, run)


@pytest.mark.parametrize("when", ["Sat 08:00", NEVER])
@pytest.mark.parametrize("more", [{"inventories": ("inventory/other",)}, {"limit": "a"}])
def test_a_timer_of_another_inventory_or_limit_stays(tmp_path: Path, when: str, more: dict[str, Any]) -> None:
    systemd, units = Systemd(), tmp_path / "units"
    layout_timer.put(timer(tmp_path), [], units, SYSTEMCTL, systemd)
    before = {path: path.read_text() for path in units.iterdir()}
    systemd.told.clear()
    with pytest.raises(Refused, match=f"gb10-layout-split.timer is of .*{tmp_path}/inventory/mine.*--at never"):
        layout_timer.put(replace(timer(tmp_path, when), **more), [], units, SYSTEMCTL, systemd)
    assert {path: path.read_text() for path in units.iterdir()} == before and systemd.told == []


def test_a_unit_of_somebody_else_stays(tmp_path: Path) -> None:
    (tmp_path / "gb10-layout-split.timer").write_text("[Timer]\n")
    for when in ("07:00", NEVER):
        with pytest.raises(Refused, match="is of somebody else"):
            layout_timer.put(timer(tmp_path, when), [], tmp_path, SYSTEMCTL, Systemd())
    assert (tmp_path / "gb10-layout-split.timer").read_text() == "[Timer]\n"


def test_the_same_inventory_changes_its_own_from_any_folder(tmp_path: Path) -> None:
    systemd, units = Systemd(), tmp_path / "units"
    layout_timer.put(timer(tmp_path), [], units, SYSTEMCTL, systemd)
    layout_timer.put(timer(tmp_path, "Sat 08:00"), [], units, SYSTEMCTL, systemd)
    assert "OnCalendar=Sat 08:00\n" in (units / "gb10-layout-split.timer").read_text()
    elsewhere = timer(tmp_path / "inventory", NEVER, inventory="mine")
    assert "removed" in layout_timer.put(elsewhere, ["a"], units, SYSTEMCTL, systemd)


def test_never_takes_it_away_without_a_consent(tmp_path: Path) -> None:
    systemd, units = Systemd(), tmp_path / "units"
    assert "there is none" in layout_timer.put(timer(tmp_path, NEVER), ["a"], units, SYSTEMCTL, systemd)
    layout_timer.put(timer(tmp_path), [], units, SYSTEMCTL, systemd)
    assert "removed" in layout_timer.put(timer(tmp_path, NEVER), ["a"], units, SYSTEMCTL, systemd)
    assert list(units.iterdir()) == [] and [*SYSTEMCTL, "disable", "--now", "gb10-layout-split.timer"] in systemd.told


def test_what_means_something_to_systemd_means_itself(tmp_path: Path) -> None:
    text = timer(tmp_path, inventory='a%h $x "q" \\.yml').files()["gb10-layout-split.service"]
    assert '/a%%h $$x \\"q\\" \\\\.yml"' in text


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd on this machine")
def test_systemd_finds_both_units_sound(tmp_path: Path) -> None:
    program = ("/usr/bin/env", "true")
    for name, text in Timer("split", "07:00", ("x y",), "a,b", tmp_path, program).files().items():
        (tmp_path / name).write_text(text)
    verify = ["systemd-analyze", "verify", "--man=no", str(tmp_path / "gb10-layout-split.timer")]
    done = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert "gb10-layout" not in done.stderr, done.stderr
