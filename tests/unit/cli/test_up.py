"""`gb10 up` from its first question to its end, with made-up Sparks: what it asks, refuses, writes and runs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from gb10_fleet import home, options, passwords
from gb10_fleet.cli import app
from gb10_fleet.discover import asking, host_keys, machines, password, places
from gb10_fleet.discover.asking import Answer
from gb10_fleet.discover.places import Place
from gb10_fleet.ending import by_name
from gb10_fleet.playbook import Order, Outcome, Report
from gb10_fleet.rollout import locks
from gb10_fleet.up import cli, search, written
from gb10_fleet.up.people import Person, Stop
from tests.support.attacker import tally
from tests.support.discovered import key
from tests.support.proofs import facts

CLI = CliRunner()
A, B = "spark-a", "spark-b"
ADDRESSES = {A: "192.0.2.11", B: "192.0.2.12"}
SERVED = "the-model-that-answers"
LACKS = {name: ["fabric_allow_activation"] for name in (A, B)}


@dataclass
class World:
    """The Sparks, and what Ansible says of each run; `typed` are the answers at the terminal, in turn."""

    hosts: Sequence[str] = (A, B)
    typed: list[str] = field(default_factory=list)
    cables: bool = True
    cache: list[str] = field(default_factory=list)  # models in that of the user
    home: str = "/home/you"
    listeners: Mapping[str, Any] = field(default_factory=dict)
    sudo: str = ""  # the password that it wants
    site: list[tuple[Outcome, Report]] = field(default_factory=list)  # of the runs that change something
    wait: Sequence[str] = (A, B)  # hosts whose rails wait for a consent
    small: Sequence[str] = ()  # hosts that say of themselves that they have no memory
    left: int = 3  # changes that a check finds, before the first run is through
    stopped: str = ""  # what is, because somebody said so
    says: Mapping[str, str] = field(default_factory=dict)  # host names that are not those of the inventory
    orders: list[Order] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def run(self, order: Order, **_: Any) -> tuple[Outcome, Report]:
        self.orders.append(order)
        if self.sudo and passwords.typed.get(passwords.BECOME) != self.sudo:
            return Outcome.failed, Report(messages={A: ["Missing sudo password"]})
        if order.playbook == "gb10.fleet.look":
            return Outcome.done, self._look(order)
        if order.check:
            return self._check(order)
        folder = home.evidence() / "latest"
        outcome, report = self.site.pop(0) if self.site else (Outcome.done, Report(evidence=str(folder)))
        if outcome is Outcome.done:
            self.left = 0
            self._prove()
        return outcome, report

    def _look(self, order: Order) -> Report:
        report = Report(asks=order.asks)
        for name in self.hosts:
            own = facts(name) | ({"memory_bytes": 1} if name in self.small else {})
            report.answers["gb10.fleet.spark_facts"][name] = {"ansible_facts": {"gb10_spark": own}}
            cache = {"path": f"{self.home}/.cache/huggingface", "models": self.cache}
            containers = [{"name": "ollama", "image": "ollama:1"}]
            said = {"containers": containers, "listeners": self.listeners.get(name, []), "cache": cache}
            report.answers["gb10.fleet.in_use"][name] = said
        if self.cables and len(self.hosts) == 2:
            for name, other in ((A, B), (B, A)):
                heard = [{"netdev": "n", "port": "p1", "host": other, "there_netdev": "n", "there_port": "p1"}]
                report.answers["gb10.fleet.rail_neighbours"][name] = {"heard": heard}
        return report

    def _check(self, order: Order) -> tuple[Outcome, Report]:
        (folder,) = order.inventories
        sparks = yaml.safe_load(Path(folder, "hosts.yml").read_text())["all"]["children"]["sparks"]
        pair = sparks.get("children", {}).get("pair1", {"hosts": {}})["hosts"]
        waiting = [name for name in self.wait if name in pair and "fabric_allow_activation" not in pair[name]]
        if lacks := {name: LACKS[name] for name in waiting}:
            return Outcome.refused, Report(lacks=lacks)
        rows = [
            {"role": "docker", "resource": f"package:p{number}", "action": "install"} for number in range(self.left)
        ]
        wish = {"host": A, "id": "stopped_by_wish", "fact": self.stopped, "way_out": "`gb10 start SERVICE` ends it"}
        findings = [wish | {"severity": "info", "accepted": None}] if self.stopped else []
        return Outcome.done, Report(changes=dict.fromkeys(self.hosts, rows), findings=findings)

    def _prove(self) -> None:
        file = home.evidence() / "latest/evidence.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        own = re.findall(r" vllm_model: (\S+)", (home.inventory() / "hosts.yml").read_text())
        api = {"host": self.hosts[0], "url": "http://127.0.0.1:8000", "gateway": None, "login": "you@192.0.2.11"}
        served = {"service": "vllm", "verdict": "serving", "served_models": [SERVED, *own], "api": api}
        proof = {"verdict": "healthy", "hosts": {name: {} for name in self.hosts}}
        file.write_text(json.dumps({**proof, "clusters": [{"services": [served]}]}))

    def find(self, where: Sequence[Place], *_: Any, members: machines.Members, **__: Any) -> search.Found:
        answers = [
            Answer(Place(address), {"ssh-ed25519": key(n)}, facts(self.says.get(name, name)) | {"boot_id": name}, True)
            for n, (name, address) in enumerate(ADDRESSES.items())
            if name in self.hosts
        ]
        sparks = machines.judge([], answers, members).sparks
        return search.Found(sparks, {spark.place: spark.keys for spark in sparks})

    @property
    def changed(self) -> list[Order]:
        return [order for order in self.orders if order.playbook == "gb10.fleet.site" and not order.check]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    made = World()
    for name in ("CONFIG", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    monkeypatch.delenv("ANSIBLE_INVENTORY", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(passwords, "typed", {})
    monkeypatch.setattr(cli, "run", made.run)
    monkeypatch.setattr(search, "find", made.find)

    def ask(self: Person, question: str, way_out: str) -> str:
        if self.quiet or self.yes or not made.typed:
            raise Stop(f"{question} {way_out}", Outcome.refused)
        made.asked.append(question)
        return made.typed.pop(0)

    monkeypatch.setattr(Person, "ask", ask)
    monkeypatch.setattr(Person, "secret", ask)
    return made


def up(*words: str) -> Any:
    return CLI.invoke(app, ["up", *words])


def inventory() -> dict[str, Any]:
    said: dict[str, Any] = yaml.safe_load((home.inventory() / "hosts.yml").read_text())
    return dict(said["all"]["children"]["sparks"])


def test_a_consent_is_written_for_the_hosts_that_the_screen_names(world: World) -> None:
    world.typed, world.wait = ["2"], [B]
    done = up()
    assert done.exit_code == 0 and re.search(rf"May restart +{B}: ", done.output), done.output
    assert [name for name, own in inventory()["children"]["pair1"]["hosts"].items() if len(own) > 1] == [B]
    assert "fabric_allow_activation" not in inventory()["vars"]


def test_a_pair_is_found_asked_for_written_run_and_proven(world: World) -> None:
    world.typed = ["2"]
    done = up(*ADDRESSES.values())
    assert done.exit_code == 0, done.output
    assert f"a pair, {A} p1 to {B} p1" in done.output and "Left alone   spark-a: container ollama" in done.output
    assert f"May restart  {A}, {B}" in done.output and f"How to use {SERVED} (service vllm on {A}):" in done.output
    keys = home.inventory() / "known_hosts.txt"
    tunnel = "-N -o ExitOnForwardFailure=yes -L 127.0.0.1:8000:127.0.0.1:8000 you@192.0.2.11"
    assert f"ssh -o UserKnownHostsFile={keys} {tunnel}" in done.output
    assert "\nfrom openai import" in done.output, "a pasted line of Python begins without a margin"
    assert "gb10 stop vllm\n" in done.output and f"Found        {A} ({ADDRESSES[A]}): " in done.output
    assert done.output.count("(what we would take)") == 1
    (question,) = world.asked
    assert "model 1, 2 or 3 and allow fabric_allow_activation" in question
    pair = inventory()["children"]["pair1"]
    assert list(pair["hosts"]) == [A, B] and pair["vars"]["fabric_ports"] == ["p1"]
    assert all(own["fabric_allow_activation"] is True for own in pair["hosts"].values())
    assert "fabric_allow_activation" not in inventory()["vars"]
    assert [order.inventories for order in world.changed] == [[str(home.inventory())]]
    assert pair["vars"]["vllm_model"]


def test_what_was_undone_is_set_up_again_only_if_somebody_says_so(world: World) -> None:
    world.typed = ["1"]
    assert up(*ADDRESSES.values()).exit_code == 0
    world.left = 3
    world.typed = ["n"]
    done = up()
    assert done.exit_code == 4 and "3 steps" in done.output and len(world.changed) == 1, done.output
    world.typed = ["y"]
    assert up().exit_code == 0 and len(world.changed) == 2


def test_another_model_whose_run_was_cut_goes_on_without_that_question(world: World) -> None:
    """What is left is of the model that was asked for, and no hand of anybody."""
    world.typed = ["1"]
    assert up(*ADDRESSES.values()).exit_code == 0
    world.left, world.typed = 3, ["y"]
    world.site = [(Outcome.failed, Report(messages={A: ["pull_failed: the cable was cut"]}))]
    assert up("--model", "Qwen/Qwen3-4B-Instruct-2507").exit_code == 2
    done = up()
    assert done.exit_code == 0 and "Going on" in done.output and len(world.asked) == 2, done.output


def test_run_again_there_is_nothing_to_do(world: World) -> None:
    world.typed = ["1"]
    assert up(*ADDRESSES.values()).exit_code == 0
    for words in ([], list(ADDRESSES.values()), ["--json"]):
        done = up(*words)
        assert done.exit_code == 0 and "Nothing to do" in done.output and "How to use " in done.output, done.output
    assert len(world.changed) == 1 and len(world.asked) == 1
    world.stopped = "gb10-vllm.service: stopped by you until 17:59 UTC"
    done = up()
    assert done.exit_code == 0 and f"But {A}: {world.stopped}; `gb10 start" in done.output, done.output


def test_a_run_that_was_cut_off_goes_on_without_a_question(world: World) -> None:
    world.typed = ["1"]
    world.site = [(Outcome.failed, Report(messages={A: ["pull_failed: the cable was cut"]}))]
    done = up(*ADDRESSES.values())
    assert done.exit_code == 2 and "pull_failed" in done.output and "goes on where it stopped" in done.output
    done = up()
    assert done.exit_code == 0 and "Going on" in done.output and "How to use " in done.output
    assert len(world.asked) == 1


def test_a_host_that_does_not_say_who_serves_there_is_left_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(order: Order, **_: Any) -> tuple[Outcome, Report]:
        outcome, report = world.run(order)
        report.answers["gb10.fleet.in_use"].pop(B, None)
        return outcome, report

    monkeypatch.setattr(cli, "run", run)
    done = up(*ADDRESSES.values())
    assert done.exit_code == Outcome.unreachable and f"{B}: no answer. Nothing was changed" in done.output


@pytest.mark.parametrize("playbook", ["gb10.fleet.look", "gb10.fleet.site"])
def test_an_interrupted_look_or_check_is_the_end(world: World, monkeypatch: pytest.MonkeyPatch, playbook: str) -> None:
    """It runs nothing again, asks nothing, and accuses no host of silence."""

    def run(order: Order, **_: Any) -> tuple[Outcome, Report]:
        outcome, report = world.run(order)
        if order.playbook != playbook:
            return outcome, report
        said = report.messages or {A: ["Missing sudo password"]}
        return Outcome.interrupted, Report(canceled=True, errors=["ended on the way"], messages=said)

    monkeypatch.setattr(cli, "run", run)
    done = up(*ADDRESSES.values())
    assert done.exit_code == Outcome.interrupted and "no answer" not in done.output, done.output
    assert [order.playbook for order in world.orders].count(playbook) == 1 and world.asked == []
    assert "ended on the way" in done.output and not home.inventory().exists()


def test_nothing_is_set_up_beside_a_rollout(world: World) -> None:
    world.typed = ["1"]
    with locks.held(home.inventory() / ".gb10"):
        result, before = up(), [*world.orders]
        assert up("--check", *ADDRESSES.values()).exit_code == Outcome.done
    assert result.exit_code == Outcome.refused and "another gb10 is at work" in result.output and not world.changed
    assert not before, "a password was asked for in vain"
    assert up().exit_code == Outcome.done and world.changed


def test_two_that_set_up_at_once_are_one_too_many(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each took the network and the copies of the other one for its own, and both failed."""
    seen: list[bool] = []

    def run(order: Order, **_: Any) -> tuple[Outcome, Report]:
        if order.playbook == "gb10.fleet.site" and not order.check:
            with pytest.raises(locks.Busy, match="another gb10 is at work on this fleet: run gb10 up, process"):
                locks.refuse(home.inventory() / ".gb10")
            seen.append(True)
        return world.run(order)

    monkeypatch.setattr(cli, "run", run)
    world.typed = ["1"]
    assert up(*ADDRESSES.values()).exit_code == Outcome.done and seen == [True]
    locks.refuse(home.inventory() / ".gb10")


def test_a_no_and_a_check_write_nothing(world: World) -> None:
    for typed, words, status in ((["n"], [], 4), ([""], [], 4), (["4", "y", "n"], [], 4), ([], ["--check"], 0)):
        world.typed = typed
        done = up(*ADDRESSES.values(), *words)
        assert done.exit_code == status and "othing was changed" in done.output, done.output
    assert not home.inventory().exists() and world.changed == []


def test_a_user_may_stand_before_the_address(world: World) -> None:
    world.typed = ["1"]
    assert up(*(f"owner@{address}" for address in ADDRESSES.values())).exit_code == 0
    assert "ansible_user: owner" in yaml.safe_dump(inventory())
    for two in (["one@192.0.2.11", "two@192.0.2.12"], ["one@192.0.2.11", "-u", "two"]):
        refused = up(*two)
        assert refused.exit_code == 2 and "one user logs in to all Sparks" in " ".join(refused.output.split())


def test_yes_is_no_consent(world: World) -> None:
    done = up(*ADDRESSES.values(), "--yes", "--json")
    assert done.exit_code == 4 and "--allow fabric_allow_activation" in json.loads(done.stdout)["error"]
    assert world.changed == []
    done = up(*ADDRESSES.values(), "--yes", "--json", "--allow", "fabric_allow_activation")
    said = json.loads(done.stdout)
    assert done.exit_code == 0 and said["outcome"] == "done" and said["evidence"] == str(home.evidence() / "latest")
    assert said["clusters"] == [{"hosts": [A, B], "topology": "pair", "cables": [f"{A} p1 to {B} p1"]}]
    assert {"minutes", "tools", "disk_left_gib", "verdict"} <= said["models"][0].keys()


def test_weights_that_the_user_has_are_taken_from_there(world: World) -> None:
    world.cache, world.typed = ["openai/gpt-oss-120b"], ["y"]
    done = up(*ADDRESSES.values(), "--model", "openai/gpt-oss-120b")
    assert f"Weights      {A}: openai/gpt-oss-120b: copied from /home/you/.cache/huggingface" in done.output
    hosts = inventory()["children"]["pair1"]["hosts"]
    assert {own["vllm_cache_source"] for own in hosts.values()} == {"/home/you/.cache/huggingface"}
    world.typed = ["y"]
    assert up("--model", "Qwen/Qwen3-30B-A3B").exit_code == 0
    assert "vllm_cache_source" not in str(inventory())


def test_a_path_that_a_host_says_is_no_template(world: World) -> None:
    world.cache, world.typed = ["openai/gpt-oss-120b"], ["y"]
    world.home = "/home/{{ lookup('pipe', 'id') }}"
    assert up(*ADDRESSES.values(), "--model", "openai/gpt-oss-120b").exit_code == 0
    assert "lookup" not in str(inventory())


def test_without_cables_each_serves_alone_and_nothing_restarts(world: World) -> None:
    world.cables, world.typed = False, ["1"]
    done = up(*ADDRESSES.values())
    assert done.exit_code == 0 and "May restart  nothing" in done.output
    assert inventory()["hosts"][A]["fabric_topology"] == "none"


def test_a_host_that_says_of_itself_that_it_has_no_memory_is_named(world: World) -> None:
    world.small = [B]
    done = up(*ADDRESSES.values())
    tally("a host says a figure, and gb10 up ends without its name", 1, int(f"{B}: says" not in done.output))
    assert done.exit_code == Outcome.refused and f"{B}: says that it has less than 1 GiB of memory" in done.output


def test_who_serves_by_hand_has_to_leave_first(world: World) -> None:
    world.listeners = {B: [{"port": 8000, "who": "docker-proxy (process 12 of root)"}]}
    done = up(*ADDRESSES.values())
    assert done.exit_code == 4 and "spark-b: port 8000 is taken by docker-proxy" in done.output
    assert "container ollama (ollama:1)" in done.output and "stops nothing of yours" in done.output


@pytest.mark.parametrize(
    ("model", "said"),
    [("zai-org/GLM-5", "does not fit"), ("nobody/knows-it", "nobody/knows-it"), ("/not/there", "/not/there")],
)
def test_a_model_that_does_not_go_is_refused(world: World, model: str, said: str) -> None:
    done = up(*ADDRESSES.values(), "--model", model)
    assert done.exit_code == 4 and said in done.output, done.output
    assert not home.inventory().exists()


def test_the_password_of_sudo_is_asked_for_once_and_again_where_it_is_wrong(world: World) -> None:
    world.sudo, world.typed = "right", ["wrong", "right", "1"]
    done = up(*ADDRESSES.values())
    assert done.exit_code == 0, done.output
    assert [question.startswith("Not the right password") for question in world.asked] == [False, True, False]
    passwords.typed.clear()
    world.typed = ["wrong"] * 4
    assert up().exit_code == 4


@pytest.mark.parametrize(
    ("report", "wanted"),
    [
        (Report(messages={A: ["you@192.0.2.11: Permission denied (publickey,password)."]}), ["SSH", "sudo"]),
        (Report(findings=[{"id": "permission", "fact": "the host does not let us in"}]), ["SSH", "sudo"]),
        (Report(findings=[{"id": "no_sudo", "fact": "sudo wants a password"}]), ["sudo"]),
        (Report(messages={A: ["connect to host 192.0.2.11 port 22: No route to host"]}), []),
    ],
)
def test_a_host_that_lets_nobody_in_is_one_that_wants_a_password(report: Report, wanted: list[str]) -> None:
    names = {passwords.CONNECTION: "SSH", passwords.BECOME: "sudo"}
    assert [names[each] for each in cli._wanted_passwords(report)] == wanted


def test_a_gated_model_asks_for_a_token_and_keeps_it_to_itself(world: World) -> None:
    gated = Report(messages={A: [f"{A}: unauthorized: the hub does not give out x (403); accept the licence"]})
    world.typed, world.site = ["1", "hf_secret"], [(Outcome.failed, gated)]
    done = up(*ADDRESSES.values())
    assert done.exit_code == 0 and "hf_secret" not in done.output, done.output
    file = home.inventory() / "group_vars/sparks/hub.yml"
    assert file.stat().st_mode & 0o777 == 0o600 and "hf_secret" in file.read_text()
    assert len(world.changed) == 2


def test_another_model_and_a_new_spark_are_asked_for_again(world: World) -> None:
    world.hosts, world.typed = (A,), ["3"]
    assert up(ADDRESSES[A]).exit_code == 0
    assert "gpt-oss-120b" not in inventory()["hosts"][A]["vllm_model"]
    world.typed, world.left = ["y"], 3
    done = up("--model", "openai/gpt-oss-120b")
    assert done.exit_code == 0 and "Your fleet has spark-a" in done.output
    world.hosts, world.typed = (A, B), ["1"]  # as the table has it
    done = up(ADDRESSES[B])
    assert done.exit_code == 0, done.output
    pair = inventory()["children"]["pair1"]
    assert list(pair["hosts"]) == [A, B] and "gpt-oss-120b" in pair["vars"]["vllm_model"]


def test_who_serves_already_stays_the_first_host(world: World) -> None:
    world.hosts, world.typed = (B,), ["1"]
    assert up(ADDRESSES[B]).exit_code == 0
    world.hosts, world.typed = (A, B), ["y"]
    assert up(ADDRESSES[A]).exit_code == 0
    assert list(inventory()["children"]["pair1"]["hosts"]) == [B, A]


def test_whoever_is_in_the_inventory_keeps_its_name(world: World) -> None:
    world.cables, world.typed = False, ["1"]
    assert up(*ADDRESSES.values()).exit_code == 0
    world.says, world.typed = {A: B}, ["y"]
    done = up("--model", "Qwen/Qwen3-30B-A3B")
    assert done.exit_code == 0, done.output
    assert {name: own["ansible_host"] for name, own in inventory()["hosts"].items()} == ADDRESSES


def test_an_edited_inventory_is_run_and_not_written_over(world: World) -> None:
    world.typed = ["1"]
    assert up(*ADDRESSES.values()).exit_code == 0
    file = home.inventory() / "hosts.yml"
    file.write_text(file.read_text() + "# mine\n")
    assert up().exit_code == 0
    done = up("--model", "openai/gpt-oss-120b")
    assert done.exit_code == 4 and "was edited" in done.output and file.read_text().endswith("# mine\n")


def test_an_unreachable_host_has_its_fix(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.typed = ["1"]
    assert up(*ADDRESSES.values()).exit_code == 0
    way_out = "check power: ansible spark-b -i INVENTORY -m raw -a true"
    lost = {
        "id": "unreachable",
        "severity": "error",
        "host": B,
        "fact": "no answer",
        "way_out": way_out,
        "accepted": None,
    }
    monkeypatch.setattr(cli, "run", lambda order, **_: (Outcome.unreachable, Report(findings=[lost])))
    done = up()
    assert done.exit_code == 3 and "spark-b: unreachable: no answer" in done.output
    # Ansible itself finds no inventory of ours.
    assert f"Fix: check power: ansible spark-b -i {home.inventory()} -m raw" in " ".join(done.output.split())


# -- where the inventory is


def test_a_command_without_i_takes_the_projects_inventory_then_ours(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(typer.BadParameter, match="gb10 up"):
        options.there([])
    world.typed = ["1"]
    assert up(*ADDRESSES.values()).exit_code == 0
    mine = str(home.inventory())
    assert options.there([]) == [mine]
    assert by_name(Order("", [mine]), "gb10 status -i INVENTORY") == "gb10 status"
    assert by_name(Order("", ["other"]), "gb10 status -i INVENTORY") == "gb10 status -i other"
    monkeypatch.setattr(passwords, "typed", {passwords.CONNECTION: "a", passwords.BECOME: "a"})
    assert by_name(Order("", [mine]), "ansible a -i INVENTORY -m raw") == f"ansible a -i {mine} -kK -m raw"
    assert by_name(Order("", [mine]), "gb10 status -i INVENTORY") == "gb10 status -kK"
    Path("project").mkdir()
    Path("ansible.cfg").write_text("[defaults]\ninventory = project\n")
    assert options.there([]) == ["project"]
    monkeypatch.setenv("ANSIBLE_INVENTORY", "a,b")
    assert options.there([]) == ["a,b"]


# -- finding and logging in


Scripted = Callable[[list[str]], Person]


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """A person at a terminal who types these."""

    def make(typed: list[str]) -> Person:
        monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
        monkeypatch.setattr("builtins.input", lambda _: typed.pop(0))
        monkeypatch.setattr("getpass.getpass", lambda _: typed.pop(0))
        return Person()

    return make


@dataclass
class Network:
    """SSH servers by address: what opens them is a key (None) or a password."""

    hosts: Mapping[str, str | None]
    sent: list[tuple[str, str]] = field(default_factory=list)  # passwords, and where they went
    refused: str = "Permission denied"

    def answer(self, place: Place, *, opened: bool) -> Answer:
        number = int(place.address.rpartition(".")[2])
        said = facts(f"spark-{number}") | {"boot_id": f"boot-{number}"}
        keys = {"ssh-ed25519": key(number)}
        return Answer(place, keys, said, True) if opened else Answer(place, keys, silence=self.refused)

    def keys_of(self, asked: Sequence[Place]) -> dict[Place, Any]:
        return {place: self.answer(place, opened=True).keys for place in asked if place.address in self.hosts}

    def ask(self, keys: Mapping[Place, Any], *_: Any) -> list[Answer]:
        return [self.answer(place, opened=self.hosts[place.address] is None) for place in keys]

    def ask_with_password(self, keys: Mapping[Place, Any], *_: Any) -> list[Answer]:
        secret = passwords.typed[passwords.CONNECTION]
        self.sent += [(place.address, secret) for place in keys]
        return [self.answer(place, opened=self.hosts[place.address] == secret) for place in keys]


def find(
    network: Network, who: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *where: str, **more: Any
) -> search.Found:
    monkeypatch.setattr(host_keys, "keys_of", network.keys_of)
    monkeypatch.setattr(asking, "ask", network.ask)
    monkeypatch.setattr(password, "ask", network.ask_with_password)
    monkeypatch.setattr(places, "browse", lambda _: [Place(one, named=False) for one in network.hosts])
    monkeypatch.setattr(search, "_USER_KNOWN_HOSTS", tmp_path / "known")
    monkeypatch.setattr(passwords, "typed", {})
    fingerprints = more.pop("fingerprints", frozenset())
    return search.find(
        [Place(one) for one in where], "nvidia", fingerprints, tmp_path / "earlier", 1, (), who, local=False,
        members=machines.Members(),
    )  # fmt: skip


def test_new_host_keys_and_one_password_are_two_questions(
    person: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Network({"192.0.2.11": "secret", "192.0.2.12": "secret"})
    who = person(["y", "secret"])
    found = find(network, who, tmp_path, monkeypatch, *network.hosts)
    assert [spark.name for spark in found.sparks] == ["spark-11", "spark-12"] and len(who.asked) == 2
    assert passwords.typed == {passwords.CONNECTION: "secret", passwords.BECOME: "secret"}


def test_a_password_goes_only_to_those_that_were_said_yes_to(
    person: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Network({"192.0.2.11": "secret", "192.0.2.50": "secret"})
    found = find(network, person(["1", "secret"]), tmp_path, monkeypatch)
    assert [spark.name for spark in found.sparks] == ["spark-11"] and network.sent == [("192.0.2.11", "secret")]
    with pytest.raises(Stop, match="nothing was changed"):
        find(network, person(["n"]), tmp_path, monkeypatch)


def test_a_key_that_is_known_asks_nothing_and_another_one_ends_it(
    person: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Network({"192.0.2.11": None})
    (tmp_path / "known").write_text(f"192.0.2.11 ssh-ed25519 {key(11)}\n")
    who = person([])
    assert len(find(network, who, tmp_path, monkeypatch, *network.hosts).sparks) == 1 and who.asked == []
    (tmp_path / "known").write_text(f"192.0.2.11 ssh-ed25519 {key(12)}\n")
    with pytest.raises(Stop, match="its host key is not the one"):
        find(network, person(["y"]), tmp_path, monkeypatch, *network.hosts)


@pytest.mark.parametrize("whose", ["*", "192.0.2.11"])
@pytest.mark.parametrize("said", [frozenset(), frozenset({host_keys.fingerprint(key(11))})])
def test_a_key_that_was_revoked_is_no_key(
    whose: str, said: frozenset[str], person: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, who = Network({"192.0.2.11": "secret"}), person(["y", "secret"])
    (tmp_path / "known").write_text(
        f"@revoked {whose} ssh-ed25519 {key(11)}\n192.0.2.11 ssh-ed25519 {key(11)}\n@revoked * ssh-rsa {key(3)}\n"
    )
    with pytest.raises(Stop, match="its host key was revoked"):
        find(network, who, tmp_path, monkeypatch, *network.hosts, fingerprints=said)
    assert who.asked == [] and network.sent == []
    (tmp_path / "known").write_text(f"@revoked {whose} ssh-ed25519 {key(12)}\n192.0.2.11 ssh-ed25519 {key(11)}\n")
    network.hosts["192.0.2.11"] = None
    assert len(find(network, who, tmp_path, monkeypatch, *network.hosts).sparks) == 1


def test_a_stranger_at_an_address_that_somebody_else_had_ends_nothing(
    person: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    network = Network({"192.0.2.11": None, "192.0.2.66": None})
    (tmp_path / "known").write_text(f"192.0.2.11 ssh-ed25519 {key(11)}\n192.0.2.66 ssh-ed25519 {key(7)}\n")
    sparks = find(network, person([]), tmp_path, monkeypatch).sparks
    tally("a stranger who announces a used address ends gb10 up", 1, int([one.name for one in sparks] != ["spark-11"]))
    assert [one.name for one in sparks] == ["spark-11"]
    assert "Left out: 192.0.2.66: its host key is not the one" in capsys.readouterr().out


def test_a_fingerprint_on_the_command_line_is_a_yes_for_that_key(
    person: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, who = Network({"192.0.2.11": None}), person([])
    found = find(network, who, tmp_path, monkeypatch, fingerprints=frozenset({host_keys.fingerprint(key(11))}))
    assert len(found.sparks) == 1 and who.asked == []


def test_three_wrong_passwords_are_enough(
    person: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    network = Network({"192.0.2.11": "secret"})
    with pytest.raises(Stop, match="not let in") as stop:
        find(network, who := person(["y", "a", "b", "c"]), tmp_path, monkeypatch, *network.hosts)
    assert stop.value.outcome is Outcome.unreachable and len(network.sent) == search.TRIES
    assert "wrong password, or wrong user" in capsys.readouterr().out and len(who.asked) == 1 + search.TRIES


def test_who_may_not_sudo_is_told_so_and_not_asked_again(
    person: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Network({"192.0.2.11": "secret"}, refused="sudo was refused: you is not in the sudoers file.; add -K")
    with pytest.raises(Stop, match=r"192\.0\.2\.11: this user may not use sudo\. .*gb10 up -u USER"):
        find(network, person(["y", "a"]), tmp_path, monkeypatch, *network.hosts)


@pytest.mark.parametrize(("names", "clusters", "said"), [((A,), 1, False), ((A, B), 1, True), ((A, B), 2, False)])
def test_sparks_that_serve_alone_hear_nothing_of_cables(
    names: tuple[str, ...], clusters: int, said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = written.Fleet([written.Host(name, None) for name in names], [], None, {}, [{}] * clusters)  # as it is read
    progress = cli._progress(Person(), fleet)
    for task in ("Fetch | Take it over the fabric", "Prove | Wait until the model answers"):
        progress({"event": "playbook_on_task_start", "event_data": {"task": task}})
    out = capsys.readouterr().out
    assert ("cable" in out) is said and "waiting for the model" in out


def test_the_last_lines_name_what_the_run_was_let_in_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "typed", {})
    assert passwords.options() == ""
    passwords.typed[passwords.BECOME] = "x"
    assert passwords.options() == " -K"
    passwords.typed[passwords.CONNECTION] = "x"
    assert passwords.options() == " -kK"
    passwords.typed[passwords.CONNECTION] = "y"
    assert passwords.options() == " -k -K", "-kK would ask for one that opens both"


def test_a_host_that_fails_for_another_reason_asks_for_no_other_password(
    person: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Network({"192.0.2.11": "secret"})
    monkeypatch.setattr(
        network, "answer", lambda place, opened: Answer(place, {"ssh-ed25519": key(11)}, silence="timed out after 60 s")
    )
    with pytest.raises(Stop, match="not let in"):
        find(network, person(["y", "secret"]), tmp_path, monkeypatch, *network.hosts)
    assert len(network.sent) == 1


def test_who_is_silent_or_has_the_key_of_another_is_named(
    person: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Network({"192.0.2.11": None})
    with pytest.raises(Stop, match=r"192\.0\.2\.99: no answer over SSH"):
        find(network, person([]), tmp_path, monkeypatch, "192.0.2.11", "192.0.2.99")
    with pytest.raises(Stop, match=r"spark-x\.invalid: no address has this name"):
        find(network, person([]), tmp_path, monkeypatch, "192.0.2.11", "spark-x.invalid")
    twin = Network({"192.0.2.11": None, "192.0.2.12": None})
    monkeypatch.setattr(
        twin,
        "answer",
        lambda place, opened: Answer(place, {"ssh-ed25519": key(1)}, facts("s") | {"boot_id": place.address}, True),
    )
    with pytest.raises(Stop, match="one and the same SSH host key"):
        find(twin, person([]), tmp_path, monkeypatch, *twin.hosts)


def test_a_spark_finds_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, person: Scripted) -> None:
    own = Answer(search.HERE, {"ssh-ed25519": key(1)}, facts(A), True)
    monkeypatch.setattr(search, "_own", lambda: own)
    monkeypatch.setattr(asking, "ask", lambda *_: [])
    found = search.find([], None, frozenset(), tmp_path, 1, (), person([]), local=True, members=machines.Members())
    assert [spark.place for spark in found.sparks] == [search.HERE] and found.keys == {}


def test_nobody_is_asked_where_nobody_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    """The reason is the user's own word, where he said one: he may well sit at a terminal."""
    for who, why in (
        (Person(yes=True), "With --yes nothing is asked"),
        (Person(quiet=True), "With --json nothing is asked"),
        (Person(yes=True, quiet=True), "With --json nothing is asked"),
        (Person(), "Nobody is there to ask"),
    ):
        with pytest.raises(Stop, match=re.escape(f"Go? {why}: say --fingerprint. Nothing was changed")):
            who.ask("Go?", "say --fingerprint")
