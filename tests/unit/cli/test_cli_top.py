"""`gb10 status --hosts` and `gb10 top`: what they print, and how they end."""

from __future__ import annotations

import io
import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import limits
from ansible_collections.gb10.fleet.plugins.plugin_utils.health.rows import row
from rich.console import Console
from typer.testing import CliRunner

from gb10_fleet import cli, passwords, playbook, top
from tests.support.attacker import tally
from tests.support.health import NOW, gpu
from tests.support.looks import look, served
from tests.support.variables import told

CLI = CliRunner()
HOSTS: dict[str, Any] = {
    "spark-a": {"looks": [look(NOW - 1, served(900, at_s=NOW - 1)), look(NOW, served(990))], "silent": None},
    "spark-b": {"looks": [look(NOW, gpu=gpu(208, 4.5, 0, temperature_c=97.0))], "silent": None},
}


def answered(monkeypatch: pytest.MonkeyPatch, hosts: dict[str, Any]) -> None:
    """The next run of the playbook gives these; with a pipe it writes them there."""

    def runner(**call: Any) -> SimpleNamespace:
        variables = told(Path(call["private_data_dir"], "variables.yml"))
        if pipe := variables.get("gb10_glance_pipe"):
            with Path(pipe).open("wb") as lines:
                for host, said in hosts.items():
                    for each in said["looks"] or [None]:
                        line = {"host": host, "look": each} if each else {"host": host, "silent": said["silent"]}
                        lines.write(json.dumps(line).encode() + b"\n")
        else:
            data = {"resolved_action": "gb10.fleet.glance", "host": "spark-a", "res": {"hosts": hosts}}
            call["event_handler"]({"event": "runner_on_ok", "event_data": data})
        counts = dict.fromkeys(hosts, 1)
        call["event_handler"]({"event": "playbook_on_stats", "event_data": {"ok": counts}})
        return SimpleNamespace(rc=0)

    monkeypatch.setattr(top, "run", lambda order, quiet=False: playbook.run(order, quiet=quiet, runner=runner))


def test_top_asks_for_one_password_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(passwords, "typed", {})
    monkeypatch.setattr("getpass.getpass", lambda question: asked.append(question) or "secret")
    answered(monkeypatch, HOSTS)
    result = CLI.invoke(cli.app, ["top", "-kK", "-i", "a,", "--every", "2"])
    assert result.exit_code == 0 and "spark-b" in result.output, result.output
    assert asked == ["Password for SSH and sudo: "]
    assert passwords.typed == {passwords.CONNECTION: "secret", passwords.BECOME: "secret"}


def test_the_fleet_alone_where_no_rollout_has_begun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answered(monkeypatch, HOSTS)
    result = CLI.invoke(cli.app, ["status", "--hosts", "-i", "a,", "--state", str(tmp_path)])
    lines = result.output.splitlines()
    assert result.exit_code == 0, result.output
    assert lines[0].split() == ["host", "GPU", "clock", "power", "util", "memory", "rails", "services"]
    assert lines[1].split("  ")[0] == "spark-a"
    assert lines[1].endswith("vllm: ready, 1 running, 90 tok/s, TTFT 0.50 s")
    assert lines[2].split() == ["spark-b", "97", "°C", "208", "MHz", "4", "W", "0", "%", "11/121", "GiB", "1/1", "-"]
    assert lines[3].startswith("    warn: gpu_hot: ")
    assert "rollout" not in result.output, "nobody asked for one"


@pytest.mark.parametrize(("busy", "lock", "marked"), [(96, None, True), (5, None, False), (96, 600.0, False)])
def test_a_low_clock_under_load_is_marked_at_the_first_look(busy: float, lock: float | None, marked: bool) -> None:
    said = look(NOW, gpu=gpu(507, 30, busy))
    said["reading"]["clock_lock_mhz"] = lock
    one = row("spark-a", [said], None, limits.rules())
    assert bool(one.clock_low) is marked
    assert ("507 MHz low" in next(itertools.islice(top.lines([one]), 1, None))) is marked


def test_the_wall_stands_beside_the_gpu_where_a_plug_says_it() -> None:
    said = look(NOW, gpu=gpu(2400, 31, 5))
    with_plug = row("spark-a", [said], None, limits.rules(), {"wall_w": 61.6})
    assert with_plug.as_dict()["wall_w"] == 61.6
    assert "31 W, wall 62 W" in "\n".join(top.lines([with_plug]))
    assert "wall" not in "\n".join(top.lines([row("spark-a", [said], None, limits.rules(), {})]))
    silent = row("spark-a", [], "no route", limits.rules(), {"wall_w": 3.0})
    assert "-, wall 3 W" in "\n".join(top.lines([silent])), "it draws little, so perhaps it has halted"


def test_a_silent_host_is_no_success(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answered(monkeypatch, {**HOSTS, "spark-c": {"looks": [], "silent": "no route"}})
    result = CLI.invoke(cli.app, ["status", "--hosts", "-i", "a,", "--state", str(tmp_path)])
    assert result.exit_code == 3 and "silent: no route" in result.output
    assert "nobody answers: gb10 doctor -i a,\n" in result.output
    document = json.loads(CLI.invoke(cli.app, ["status", "--hosts", "-i", "a,", "--json"]).output)
    assert document["outcome"] == "unreachable"
    a, b, c = document["hosts"]
    assert a["services"][0]["tokens_per_s"] == 90
    assert [finding["id"] for finding in b["findings"]] == ["gpu_hot"]
    assert c["silent"] == "no route" and c["temperature_c"] is None


def test_who_has_a_host_for_himself_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    answered(monkeypatch, {**HOSTS, "spark-a": {**HOSTS["spark-a"], "reserved": "ada until 2026-12-24"}})
    lines = CLI.invoke(cli.app, ["top", "-i", "a,"]).output.splitlines()
    assert lines[2] == "    reserved: ada until 2026-12-24"
    one = top.Fleet(2.0).take({"host": "spark-a", "look": look(NOW), "reserved": "ada until 2026-12-24"})
    assert one.reserved == "ada until 2026-12-24"


def test_top_without_a_terminal_looks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    answered(monkeypatch, HOSTS)
    result = CLI.invoke(cli.app, ["top", "-i", "a,"])
    assert result.exit_code == 0, result.output
    assert [line.split()[0] for line in result.output.splitlines()] == ["host", "spark-a", "spark-b", "warn:", "why,"]
    assert result.output.splitlines()[-1] == "why, and how to fix it: gb10 why HOST -i a,"
    document = json.loads(CLI.invoke(cli.app, ["top", "-i", "a,", "--json"]).output)
    assert [row["host"] for row in document["hosts"]] == ["spark-a", "spark-b"]
    answered(monkeypatch, {"spark-c": {"looks": [], "silent": "no route"}})
    assert CLI.invoke(cli.app, ["top", "-i", "a,"]).exit_code == 3


def test_top_goes_on_without_a_terminal_where_a_pace_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    answered(monkeypatch, {**HOSTS, "spark-c": {"looks": [], "silent": "no route"}})
    live = ["top", "-i", "a,", "--every", "2"]
    result = CLI.invoke(cli.app, live)
    assert result.exit_code == 0, result.output
    looks = [line.split() for line in result.output.splitlines() if not line.startswith(" ")]
    hosts = [look[2] for look in looks]
    assert [look[:2] for look in looks[:3]] == [["2026-11-23", "07:59:59"], *[["2026-11-23", "08:00:00"]] * 2]
    assert hosts == ["spark-a", "spark-a", "spark-b", "spark-c"]
    assert "90 tok/s" in result.output
    rows = [json.loads(line) for line in CLI.invoke(cli.app, [*live, "--json"]).output.splitlines()]
    assert [row["host"] for row in rows] == hosts
    assert rows[1]["services"][0]["tokens_per_s"] == 90


def test_a_window_shows_the_last_look_of_each_host() -> None:
    fleet = top.Fleet(every_s=2)
    for host, said in HOSTS.items():
        for each in said["looks"]:
            fleet.take({"host": host, "look": each})
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(fleet.draw(console))
    text = console.export_text()
    assert text.count("spark-a") == 1 and "90 tok/s" in text
    assert "spark-b: warn: gpu_hot" in text
    narrow = Console(width=40, record=True, file=io.StringIO())
    narrow.print(fleet.draw(narrow))
    shown = narrow.export_text()
    (finding,) = fleet.rows["spark-b"].findings
    assert finding.fact in " ".join(shown.split()) and "gb10 why HOST" in shown, "nothing is cut"
    fleet.take({"host": "spark-a", "silent": "gone"})
    assert fleet.rows["spark-a"].silent == "gone"


def test_a_hosts_own_clock_makes_nobody_keep_more_of_it() -> None:
    """One that stands still, and a host that says much: neither decides how many looks there are."""
    heard_s = 0.0
    fleet = top.Fleet(every_s=2, clock=lambda: heard_s)
    for _ in range(2 * top.KEPT_S):
        fleet.take({"host": "spark-a", "look": look(NOW)})
    assert len(fleet._looks["spark-a"]) == top.KEPT_S
    heard_s = top.KEPT_S + 1.0
    fleet.take({"host": "spark-a", "look": look(NOW)})
    assert len(fleet._looks["spark-a"]) == 1


def test_what_is_kept_of_a_host_has_a_bound_in_bytes_too() -> None:
    """A look of 128 KiB takes 2 MiB of memory, and 960 of them are kept for 4 minutes."""
    fleet, size = top.Fleet(every_s=0.5, clock=lambda: 0.0), 2**17
    for _ in range(3 * top.KEPT_BYTES // size):
        fleet.take({"host": "spark-a", "look": look(NOW), "bytes": size})
    kept = len(fleet._looks["spark-a"]) * size
    tally("a host fills the memory of gb10 top", 1, int(kept > top.KEPT_BYTES))
    assert kept == top.KEPT_BYTES
    fleet.take({"host": "spark-a", "look": look(NOW), "bytes": 2 * top.KEPT_BYTES})
    assert len(fleet._looks["spark-a"]) == 1, "the last one is shown"


def test_one_host_crowds_no_other_out_of_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = top.Fleet(every_s=2)
    for number in range(3):
        fleet.take({"host": f"spark-{number}", "look": look(NOW)})
    monkeypatch.setattr(
        top, "_more", lambda one: [("x" * 200, "warn")] * 40 if one.host == "spark-0" else [("is hot", "warn")]
    )
    console = Console(width=80, height=24, record=True, file=io.StringIO())
    console.print(fleet.draw(console))
    said = console.export_text()
    lost = [host for host in ("spark-1", "spark-2") if f"{host}: is hot" not in said]
    tally("a host's own lines crowd those of the others out", 2, len(lost))
    assert not lost and said.splitlines()[-1].startswith("and ")


def test_a_window_ends_with_how_much_does_not_fit() -> None:
    fleet = top.Fleet(every_s=2)
    hot = look(NOW, gpu=gpu(208, 4.5, 0, temperature_c=97.0))
    for number in range(12):
        fleet.take({"host": f"spark-{number:02}", "look": hot})
    for height, more in ((24, True), (60, False)):
        console = Console(width=80, height=height, record=True, file=io.StringIO())
        console.print(fleet.draw(console))
        lines = console.export_text().splitlines()
        assert len(lines) <= height
        findings = [line for line in lines if ": warn: gpu_hot" in line]
        hint = lines.index("why, and how to fix it: gb10 why HOST")
        assert lines[hint + 1] == findings[0]
        assert (lines[-1].strip() == f"and {12 - len(findings)} more") is more
        assert (len(findings) == 12) is not more and findings
    small = Console(width=80, height=10, record=True, file=io.StringIO())
    small.print(fleet.draw(small))
    assert small.export_text().splitlines()[-1] == "and 12 more", "a table that fills the screen"
