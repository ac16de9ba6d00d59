"""The benchmarks' own arithmetic: a wrong ratio would look like a fast engine."""

from __future__ import annotations

import re
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.fabric import gid_report, gids

from benchmarks import cli, desired, report
from benchmarks import gids as gid_tables
from benchmarks.meter import Cost
from benchmarks.report import Results, Run
from tests.support.kinds import EXAMPLES
from tests.support.proofs import facts
from tests.support.rig import ROOT


def run(way: str, hosts: int, wall: float, controller: float = 1.0, kind: report.Kind = "no change") -> Run:
    return Run(way, hosts, kind, Cost(wall, controller, hosts * 0.1, 100.0))


class TestReport:
    def test_medians_not_means(self) -> None:
        results = Results([run("ours", 10, wall) for wall in (1.0, 2.0, 30.0)])
        assert results.of("ours", 10, "wall_s") == 2.0

    def test_a_bar_holds_on_its_own_side_only(self) -> None:
        assert report.Bar("x", 2.2, "at most", 2.2).holds
        assert not report.Bar("x", 2.3, "at most", 2.2).holds
        assert report.Bar("x", 40, "at least", 40).holds
        assert not report.Bar("x", 39, "at least", 40).holds

    def test_what_was_not_measured_has_no_bar(self) -> None:
        assert [bar.name for bar in report.bars(Results([run("ours", 10, 2.0)]))] == ["CPU on each host, N=10, s"]

    def test_every_goal_is_judged_from_a_whole_session(self) -> None:
        ways = {"ours": 2.0, "floor": 1.0, "drift": 1.5, "pyinfra": 8.0, "idiomatic": 100.0}
        runs = [run(way, hosts, wall, wall) for way, wall in ways.items() for hosts in (10, 30, 60)]
        runs += [run("drift-dead", 30, 10.0), run("ps-dead", 30, 14.0)]
        runs += [run("ours", 10, 3.0, kind="first"), run("pyinfra", 10, 12.0, kind="first")]
        found = {bar.name: bar for bar in report.bars(Results(runs))}
        assert found["site.yml / floor, wall, N=10"].value == 2.0 and found["site.yml / floor, wall, N=10"].holds
        assert not found["site.yml / floor, wall, N=30"].holds, "1.8 is the bar there"
        assert found["drift scan / floor, wall, N=60"].value == 1.5
        assert not found["drift scan / floor, wall, N=60"].holds
        assert found["site.yml / pyinfra, wall, N=10"].value == 0.25
        assert found["idiomatic / site.yml, wall, N=10"].value == 50
        assert found["first converge: pyinfra / site.yml, wall, N=10"].value == 4
        assert found["controller CPU of one more host, s"].value == 0
        assert "controller memory, N=60, MB" in found
        assert found["two of 30 dead: gb10 ps / gb10 drift, wall"].value == 1.4
        assert not found["two of 30 dead: gb10 ps / gb10 drift, wall"].holds

    def test_a_miss_is_shown(self) -> None:
        shown = report.bar_table([report.Bar("a", 3, "at most", 2), report.Bar("b", 1, "at most", 2)])
        assert [line.split("|")[4].strip() for line in shown.splitlines()[2:]] == ["MISS", "PASS"]

    def test_the_first_converge_does_not_mix_with_the_others(self) -> None:
        results = Results([run("ours", 10, 1.0), run("ours", 10, 9.0, kind="first")])
        assert results.of("ours", 10, "wall_s") == 1.0
        assert "| 10, first |" in report.table(results)

    def test_the_plot_is_well_formed_and_names_every_way(self) -> None:
        runs = [run(way, hosts, hosts / 10, hosts / 20) for way in report.COLOURS for hosts in (1, 10, 60)]
        picture = report.plot(Results(runs))
        root = ET.fromstring(picture)  # noqa: S314  (our own)
        names = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
        assert set(report.COLOURS) <= set(names)

    def test_labels_do_not_lie_on_each_other(self) -> None:
        placed = report._apart({"a": 100.0, "b": 101.0, "c": 50.0})
        assert placed == {"c": 50.0, "a": 100.0, "b": 114.0}


# Of every kind that a role of the benchmarks has.
RESOURCES: list[dict[str, Any]] = [row for found in EXAMPLES.values() for row in found.get("benchmark", [])]
INSTALLED = ["nvidia-driver-580", "nvidia-container-toolkit", "vim", "nvidia-utils-580"]


class TestDesired:
    def test_every_resource_lands_somewhere(self) -> None:
        state = desired.gather(RESOURCES, INSTALLED)
        assert state.files == [desired.File("/etc/x.conf", "it's %s\n", "0600")]
        assert state.holds == ["nvidia-driver-580", "nvidia-utils-580"]
        assert state.packages == {"b": "1.0", "a": "2.0"}
        assert state.units == [desired.Unit("x.path", True, True)]
        assert state.expected == ["/run/made"]
        assert state.absent == ["/etc/not-there.conf"]

    def test_a_unit_whose_file_shall_go_is_not_asked_for(self) -> None:
        stopped = {"unit": "x.service", "enabled": False, "state": "stopped"}
        gone = {"file": "/etc/systemd/system/x.service", "state": "absent"}
        assert desired.gather([stopped, gone], []).units == []
        assert desired.gather([stopped], []).units == [desired.Unit("x.service", False, False)]

    @pytest.mark.parametrize("entry", RESOURCES, ids=lambda entry: next(iter(entry)))
    def test_no_way_leaves_out_a_kind_that_another_one_has(self, entry: dict[str, Any]) -> None:
        """The floor checks it, and so the playbook of stock modules and pyinfra are told of it."""
        nothing, state = desired.gather([], INSTALLED), desired.gather([entry], INSTALLED)
        assert set(desired.floor(state).split("\n")) - set(desired.floor(nothing).split("\n"))
        told = desired.as_variables(state) != desired.as_variables(nothing)
        assert told == (entry.get("state") != "expected"), "somebody else writes that, in every way"

    def test_what_is_told_is_used(self) -> None:
        folder = ROOT / "benchmarks"
        for way in ("idiomatic.yml", "pyinfra_deploy.py"):
            text = (folder / way).read_text()
            assert [name for name in desired.as_variables(desired.gather([], [])) if name not in text] == [], way

    def test_every_kind_of_the_roles_that_are_measured_has_an_example(self) -> None:
        for role in desired.ROLES:
            text = (ROOT / f"roles/{role}/desired.yml").read_text()
            for kind, found in EXAMPLES.items():
                if re.search(rf"^ +(- )?{kind}: ", text, re.MULTILINE) and (role, kind) != ("fabric", "nm_profile"):
                    assert found.get("benchmark"), f"{role} has a {kind}, of which the benchmarks must know"

    @pytest.mark.parametrize("entry", [{"nm_profile": "x"}, {"file": "/etc/j", "merge_json": {}}])
    def test_what_the_rivals_would_not_do_is_refused(self, entry: dict[str, object]) -> None:
        with pytest.raises(ValueError, match="teach them"):
            desired.gather([entry], INSTALLED)

    def test_our_own_documents_are_understood(self) -> None:
        known = facts()
        packages: dict[str, str] = known["packages"]
        state = desired.of_host("spark-01", {"fabric_topology": "none"}, known, packages)
        assert {"nvidia-driver-580-open"} <= set(state.holds) <= set(packages)
        assert state.files and state.sysctls and state.packages and state.units

    def test_the_floor_is_sound_shell_and_notices_a_difference(self, tmp_path: Path) -> None:
        there = tmp_path / "x.conf"
        there.write_text("it's\n")
        resources = [{"file": str(there), "content": "it's\n"}, *(r for r in RESOURCES if "file" not in r)]
        script = desired.floor(desired.gather(resources, INSTALLED))
        assert subprocess.run(["sh", "-n"], input=script, text=True, check=False).returncode == 0
        contents = script[: script.index("test ")]  # the rest asks a real host
        assert subprocess.run(["sh"], input=contents, text=True, check=False).returncode == 0
        there.write_text("other\n")
        assert subprocess.run(["sh"], input=contents, text=True, check=False, capture_output=True).returncode != 0


class TestRecaps:
    @pytest.mark.parametrize(
        ("text", "some"),
        [
            ("spark-01    : ok=3    changed=0    unreachable=0\n", False),
            ("spark-01    : ok=3    changed=2    unreachable=0\n", True),
            ("    Grand total            33      -         -       33\n", False),
            ("    Grand total            33      4         -       29\n", True),
        ],
    )
    def test_a_run_that_changed_something_is_noticed(self, tmp_path: Path, text: str, some: bool) -> None:
        log = tmp_path / "log"
        log.write_text(text)
        assert bool(cli.changed(log)) is some


def test_both_ways_to_read_gid_tables_find_the_same(tmp_path: Path) -> None:
    gid_tables.build(tmp_path, used=5, slots=12)
    result = gid_report.describe(gids.read_hcas(gids.Sysfs(str(tmp_path))))
    ours = [
        f"{gid['device']} {gid['port']} {gid['index']} {gid['gid']} v{gid['roce_version']} {gid['netdev']}"
        for gid in result["gids"]
    ]
    assert len(ours) == 4 * 5
    assert sorted(ours) == sorted(gid_tables.classic_lines(tmp_path))


def test_a_way_that_misses_a_gid_is_no_way(tmp_path: Path) -> None:
    gid_tables.build(tmp_path, used=5, slots=12)
    with pytest.raises(ValueError, match="ours found 20 GIDs of 21"):
        gid_tables.median_ms(gid_tables.ours, tmp_path, 1, 21)
