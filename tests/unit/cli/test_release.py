"""`gb10 release` of a fleet: three published machines and one that says nothing."""

from __future__ import annotations

import json
import operator
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from typer.testing import CliRunner

from gb10_fleet import cli, release, release_plan
from tests.support.attacker import tally
from tests.support.release_machines import RECIPES, invented, machine, simulated

OWN = [{"file": "x", "sha256": recipe.name, "content": dict(recipe.content)} for recipe in RECIPES]
SILENT = {
    "recipes": [], "broken_recipes": ["spark-ota-1.json"], "packages": {}, "held": [], "pinned_by_us": False,
    "board_vendor": None, "firmware": None, "fwupd": None, "connectx": [], "kernel": None, "driver": None,
    "command_line": [], "reboot_required": False, "disks": [],
}  # fmt: skip
ANSWERS = {
    "spark-a": {"release": machine("a", recipes=OWN), "cluster": "pair1"},
    "spark-b": {"release": machine("b"), "cluster": "pair1"},
    "spark-d": {"release": SILENT, "cluster": ""},
}


def test_who_has_what_what_is_next_and_what_blocks_it() -> None:
    found = release.judged(ANSWERS)
    assert found["newest"]["name"] == "OTA2607"
    assert {host: said["state"] for host, said in found["hosts"].items()} == {
        "spark-a": "current", "spark-b": "waiting_for_firmware", "spark-d": "unknown",
    }  # fmt: skip
    assert found["hosts"]["spark-b"]["next"] == "OTA2607", "known from the recipes of the other host"
    assert found["hosts"]["spark-b"]["blocks"] != []
    assert list(found["mixed_firmware"]) == ["pair1"]
    assert found["hosts"]["spark-a"]["recipes"] == {recipe.name: recipe.name for recipe in RECIPES}


def test_the_table() -> None:
    lines = list(release.table(release.judged(ANSWERS)))
    assert lines[0].split() == ["host", "release", "state", "next", "set"]
    assert lines[1].split() == ["spark-a", "OTA2607", "(July", "2026)", "current", "-", "-"]
    text = "\n".join(lines)
    assert "    blocked: no firmware offered for the board of ASUSTeK COMPUTER INC.: EC, EC Unfused, SOCFW" in text
    assert "still brings 580.159.03" in text
    assert "    recipe that cannot be read: spark-ota-1.json" in text
    assert "pair1: mixed firmware" in text
    assert lines[-3] == "newest release that these hosts know: OTA2607 (2026-07-15)"
    newer = "the catalog knows a newer one: OTA26.09.2 (2026-09-14), known bad: "
    assert lines[-2].startswith(newer) and "slow_on_7.6" in lines[-2]
    assert lines[-1] == "what a move to it takes: gb10 release plan; what each state means: docs/releases.md"
    current = list(release.table(release.judged({"spark-a": ANSWERS["spark-a"]})))
    assert current[-1] == lines[-2], "where nothing is to be done, nothing is said of it"
    assert "7.5.0" not in text, "a stamp is no release"


def test_no_host_answered() -> None:
    assert list(release.table(release.judged({}))) == []


NOTHING = {"installs": {}, "removes": [], "error": "", "download_bytes": 0, "disk_bytes": 0}
JULY = {
    "release": "OTA2607", "set": "ubuntu24.04-580.159.03-6.17.0-1022", "set_move": NOTHING, "rest": NOTHING,
    "offers_back": True, "lists_age_s": 3 * 86400,
}  # fmt: skip
KNOWN = release_plan.known(catalog.load("releases"), {})


def plan(answers: dict[str, Any]) -> tuple[dict[str, Any], str]:
    asked = release.question("newest", [], {})
    found, lines = release.answered(answers, asked)
    return found, "\n".join(lines)


def test_the_plan_of_a_fleet() -> None:
    found, text = plan({host: {**answer, "rehearsal": JULY} for host, answer in ANSWERS.items()})
    assert found["to"]["name"] == "OTA2607"
    assert {host: said["state"] for host, said in found["hosts"].items()} == {
        "spark-a": "current", "spark-b": "waiting_for_firmware", "spark-d": "unknown",
    }  # fmt: skip
    lines = text.splitlines()
    assert lines[0] == "to OTA2607 (2026-07-15); nothing was changed"
    assert lines[1].split() == ["host", "state", "packages", "firmware", "download", "time", "reboots", "set"]
    assert "    stays torn: firmware SOCFW stays SBP:R:2.152.15, wanted 2.155.11: fwupd offers none" in lines
    assert "    apt's lists are 3 days old: newer packages are not in them" in lines


def test_a_release_that_one_host_invents_changes_the_plan_of_nobody_else() -> None:
    """All others were behind it, and apt had been asked about another one."""
    found = []
    for hosts in invented("9999-01-01"):
        answers = {name: {"release": host, "cluster": "", "rehearsal": simulated()} for name, host in hosts.items()}
        found.append([release.judged(answers), release_plan.planned(answers, "newest", KNOWN)])
    alone, beside = found
    assert all(document["hosts"].pop("evil") for document in beside)
    tally("a host invents a release, and others are judged by it", 2, sum(map(operator.ne, alone, beside)))
    assert beside == alone and alone[1]["hosts"]["b"]["state"] != "unknown"


def test_a_release_that_there_is_not_is_told_which_there_are() -> None:
    answers = {host: {**answer, "rehearsal": JULY} for host, answer in ANSWERS.items()}
    _, lines = release.answered(answers, release.question("99", [], {}))
    text = "\n".join(lines)
    assert "no release is called 99; there are OTA0.1, " in text and ", OTA2607, " in text and ", and newest" in text
    assert "name one with --to" not in text


def test_packages_and_the_way_back_are_named() -> None:
    installs = {f"package-{number}": "2" for number in range(8)}
    moved = {**JULY, "set_move": {**NOTHING, "installs": installs, "removes": ["linux-image-old"]}}
    _, text = plan({"spark-a": {**ANSWERS["spark-a"], "rehearsal": moved}})
    assert "packages: package-0 2, package-1 2, package-2 2, package-3 2, package-4 2, package-5 2, and 2 more" in text
    assert "removed: linux-image-old" in text and "way back: the set: gb10 rollback RUN" in text


def test_a_release_is_asked_for_by_name_with_its_sets() -> None:
    asked = release.question("April 2026", [], {}).variables["gb10_release_plan"]
    assert asked["to"] == "OTA2604" and asked["releases"]["OTA2604"] in asked["sets"]
    assert release.question("newest", [], {}).variables["gb10_release_plan"]["to"] == "newest"


@pytest.mark.parametrize(
    ("to", "near"),
    [("OTA26007", "OTA2607"), ("OTA9999", ""), ("july 2026", "July 2026"), ("newes", "newest"), ("OTA2404", "OTA2604")],
)
def test_a_release_that_no_host_can_have_is_refused_before_any_is_asked(
    monkeypatch: pytest.MonkeyPatch, to: str, near: str
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(cli, "run", lambda order, **_: asked.append(order))
    result = CliRunner().invoke(cli.app, ["release", "plan", "-i", "a,", "--to", to, "--json"])
    assert (result.exit_code, asked) == (2, [])
    error = json.loads(result.output)["error"]
    assert error.startswith(f"--to: no release is called {to}; there are OTA0.1, ") and ", OTA2607, " in error
    assert f"The nearest is {near}" in error if near else "nearest" not in error


@pytest.mark.parametrize("to", ["newest", "OTA2607", "April 2026", "OTA2612", "OTA26.09.3", "December 2026", "OTA2606"])
def test_a_release_that_only_hosts_may_know_is_asked_for(to: str) -> None:
    assert release.wanted(to) == to
