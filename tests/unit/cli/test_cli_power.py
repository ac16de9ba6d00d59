"""`gb10 power`: whom it refuses, what it asks, and what it runs in which order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from typer.testing import CliRunner

from gb10_fleet import cli, power_cli, retire_cli
from gb10_fleet.playbook import Order, Outcome, Report
from gb10_fleet.rollout import locks
from gb10_fleet.seed import cli as seed_cli
from lab import plugs
from tests.support.attacker import tally

CLI = CliRunner()


class World:
    """Three hosts: two of a cluster behind plugs of their own, and one without a plug."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, ports: dict[str, int]) -> None:
        self.folder, self.orders, self.outcomes = folder, list[Order](), dict[str, Outcome]()
        self.plugs: dict[str, Any] = {
            name: {"kind": "shelly", "address": "127.0.0.1", "port": port, "secret": plugs.PASSWORD}
            for name, port in ports.items()
        } | {"spark-c": {}}
        self.reserved, self.cluster = "", {"spark-a": "pair", "spark-b": "pair"}
        self.unproven: set[str] | None = None  # hosts, by the evidence; None: there is none
        (folder / "hosts.yml").write_text("---\nall: {}\n")
        monkeypatch.setattr(seed_cli, "rows", self.rows)
        monkeypatch.setattr(power_cli, "run", self.run)

    def rows(self, order: Order) -> list[dict[str, Any]]:
        return [
            {"name": name, "cluster": self.cluster.get(name, ""), "reserved": self.reserved, "plug": plug}
            for name, plug in self.plugs.items()
        ]

    def run(self, order: Order, quiet: bool = False) -> tuple[Outcome, Report]:
        self.orders.append(order)
        report = Report()
        outcome = self.outcomes.get(order.playbook, Outcome.done)
        if outcome is not Outcome.done:
            if "spark-a" not in str(order.limit):
                return Outcome.done, report
            report.messages["spark-a"] = ["it does not halt"]
            counts = dict.fromkeys(("spark-a", "spark-b"), 1)
            report.stats = {"ok": counts, "failures": {"spark-a": 1}}
            if self.unproven is not None:
                report.evidence = str(self.folder)
                verdicts = {name: "failed" if name in self.unproven else "healthy" for name in counts}
                found = [{"hosts": [name], "verdict": word, "reasons": []} for name, word in verdicts.items()]
                Path(self.folder, "evidence.json").write_text(json.dumps({"clusters": found}))
        return outcome, report

    def gb10(self, *words: str, **more: Any) -> Any:
        return CLI.invoke(cli.app, ["power", *words, "-i", str(self.folder)], **more)

    @property
    def said(self) -> Any:
        return self.orders[0].variables["__power_order"]


@pytest.fixture
def outlet() -> plugs.Outlet:
    return plugs.Outlet()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, outlet: plugs.Outlet) -> Iterator[World]:
    with plugs.serving(plugs.Shelly, outlet) as (mine, _), plugs.serving(plugs.Shelly, plugs.Outlet()) as (other, _):
        yield World(monkeypatch, tmp_path, {"spark-a": mine, "spark-b": other})


def test_no_host_knows_the_secret_of_its_plug() -> None:
    assert "gb10_power_plug" not in retire_cli.secrets() and "vllm_api_key" in retire_cli.secrets()


def test_state_asks_every_plug_and_no_host(world: World) -> None:
    done = world.gb10("state")
    assert done.exit_code == 0 and not world.orders
    assert "spark-a: on, 42.5 W (shelly 127.0.0.1, outlet 0)" in done.output and "spark-c" not in done.output


def test_a_plug_that_does_not_answer_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.plugs["spark-b"]["port"] = 1
    done = world.gb10("state", "--json")
    found = json.loads(done.stdout)
    assert (done.exit_code, found["outcome"]) == (3, "unreachable")
    assert found["hosts"]["spark-a"]["on"] and "Connection refused" in found["hosts"]["spark-b"]["error"]
    assert plugs.PASSWORD not in done.output
    done = world.gb10("spark-b", "cycle", "--yes")
    assert done.exit_code == 3 and "Nothing was changed" in done.output and not world.orders


def test_state_is_written_for_prometheus(world: World, tmp_path: Path) -> None:
    file = tmp_path / "plugs.prom"
    assert world.gb10("state", "--metrics", str(file)).exit_code == 0
    assert 'gb10_wall_watts{host="spark-a"} 42.5\n' in file.read_text()


def test_a_cycle_has_the_cluster_drained_and_the_proof_before_requests(world: World) -> None:
    done = world.gb10("spark-a", "cycle", "--yes", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["hosts"]["spark-a"]["on"]
    assert [order.playbook.rpartition(".")[2] for order in world.orders] == ["power", "power_prove", "rejoin"]
    assert {order.limit for order in world.orders} == {"spark-a,spark-b"}
    assert world.said == {
        "hosts": ["spark-a"], "cuts": True, "restores": True, "hard": False, "sharing": {"spark-a": ["spark-a"]},
        "off_s": catalog.load("plugs")["off_s"]["value"],
    }  # fmt: skip
    assert plugs.PASSWORD not in str(world.orders)


def test_of_a_host_that_hangs_nothing_is_drained(world: World) -> None:
    done = world.gb10("spark-a", "cycle", "--hard", "--yes")
    assert world.orders[0].playbook == "gb10.fleet.power_now" and world.said["hard"]
    assert "what is not on disk is lost" in done.output


def test_off_leaves_it_off_and_proves_nothing(world: World) -> None:
    done = world.gb10("spark-a", "off", "--yes")
    assert [order.playbook for order in world.orders] == ["gb10.fleet.power"]
    assert (world.said["cuts"], world.said["restores"]) == (True, False)
    assert "spark-b: the model of the cluster stops there, too" in done.output
    assert "stays off until: gb10 power spark-a on" in done.output


def test_a_failure_is_the_end_and_its_reason_is_told(world: World) -> None:
    world.outcomes["gb10.fleet.power"] = Outcome.failed
    done = world.gb10("spark-a", "cycle", "--yes", "--json")
    assert (done.exit_code, len(world.orders)) == (2, 1)
    assert "it does not halt" in json.loads(done.stdout)["error"]
    world.outcomes = {"gb10.fleet.power_prove": Outcome.failed}
    assert world.gb10("spark-a", "on", "--yes").exit_code == 2
    assert world.orders[-1].playbook == "gb10.fleet.power_prove", "routers send nothing to what is not proven"


@pytest.mark.parametrize("failing", ["power", "power_prove"])
def test_one_host_keeps_no_other_cluster_from_its_requests(world: World, failing: str) -> None:
    """The other one was stopped and out of the routers, and stayed so."""
    world.cluster, world.outcomes = {}, {f"gb10.fleet.{failing}": Outcome.failed}
    done = world.gb10("spark-a", "spark-b", "cycle", "--yes")
    assert done.exit_code == 2
    assert [order.limit for order in world.orders if order.playbook == "gb10.fleet.rejoin"] == ["spark-b"]
    world.orders, world.outcomes = [], {"gb10.fleet.power": Outcome.refused}
    assert world.gb10("spark-a", "spark-b", "cycle", "--yes").exit_code == 4
    assert len(world.orders) == 1, "nothing has changed"


@pytest.mark.parametrize(
    ("unproven", "rejoins"),
    [({"spark-b"}, ["spark-a"]), ({"spark-a"}, ["spark-b"]), ({"spark-a", "spark-b"}, [])],
)
def test_the_evidence_says_who_gets_no_requests(world: World, unproven: set[str], rejoins: list[str]) -> None:
    """The proof fails in a task for all hosts, and Ansible counts that for the first of them, whoever is unhealthy."""
    world.cluster, world.outcomes = {}, {"gb10.fleet.power_prove": Outcome.failed}
    world.unproven = unproven
    assert world.gb10("spark-a", "spark-b", "cycle", "--yes").exit_code == 2
    found = [order.limit for order in world.orders if order.playbook == "gb10.fleet.rejoin"]
    tally("a failed proof, told of another host", 1, found != rejoins)
    assert found == rejoins


def test_nobody_is_there_to_ask(world: World, outlet: plugs.Outlet) -> None:
    done = world.gb10("spark-a", "off")
    assert done.exit_code == 4 and "Cut the power of spark-a?" in done.output and "say --yes" in done.output
    assert not world.orders and not outlet.orders


def test_a_check_changes_nothing_and_asks_nothing(world: World) -> None:
    done = world.gb10("spark-a", "cycle", "--check")
    assert done.exit_code == 0 and "nothing was changed" in done.output
    assert [(order.playbook, order.check) for order in world.orders] == [("gb10.fleet.power", True)]


def test_half_of_a_plug_is_refused_and_both_are_not(world: World) -> None:
    world.plugs["spark-b"] = world.plugs["spark-a"]
    done = world.gb10("spark-a", "off", "--yes")
    assert done.exit_code == 4 and not world.orders
    assert "gb10 power spark-a spark-b off" in done.output
    assert world.gb10("spark-a", "spark-b", "off", "--yes").exit_code == 0
    assert world.said["sharing"] == {name: ["spark-a", "spark-b"] for name in ("spark-a", "spark-b")}


def test_who_is_refused(world: World, outlet: plugs.Outlet) -> None:
    assert "spark-c has no gb10_power_plug" in world.gb10("spark-c", "off", "--yes").output
    assert "spark-d is not among spark-a" in world.gb10("spark-d", "off", "--yes").output
    world.reserved = "ada until 2999-12-24"
    assert "spark-a is reserved: ada until 2999-12-24" in world.gb10("spark-a", "off", "--yes").output
    assert world.gb10("spark-a", "state").exit_code == 0, "to look is no work"
    world.reserved = ""
    with locks.held(world.folder / ".gb10"):
        for words in (("--yes",), ("--check",)):
            done = world.gb10("spark-a", "cycle", *words)
            assert done.exit_code == 4 and "at work on this fleet" in done.output
    outlet.on = False
    assert "its plug is off: gb10 power spark-a on" in world.gb10("spark-a", "cycle", "--yes").output
    world.plugs["spark-b"]["kind"] = "tasmota"
    done = world.gb10("spark-a", "on", "--yes")
    assert done.exit_code == 4 and "spark-b: gb10_power_plug.kind" in done.output
    assert not world.orders and not outlet.orders


@pytest.mark.parametrize(
    "words", [("off",), ("spark-a", "on", "--hard"), ("spark-a", "off", "--metrics", "x"), ("a", "b")]
)
def test_wrong_words(world: World, words: tuple[str, ...]) -> None:
    done = world.gb10(*words, "--yes")
    assert done.exit_code == 2 and "Value error" not in done.output
    assert not world.orders
    assert "error" in json.loads(world.gb10(*words, "--json").stdout)


def test_another_limit_would_leave_the_plug_alone_and_say_done(world: World) -> None:
    argv = ["power", "spark-a", "off", "--yes", "-i", str(world.folder), "--", "--limit", "spark-c"]
    done = CLI.invoke(cli.app, argv)
    assert done.exit_code == 2 and "name the hosts before" in done.output and not world.orders
