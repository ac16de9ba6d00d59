"""The parts of `gb10 up` that decide: clusters by cables, proposals, inventory, screen; and whose port it is."""

from __future__ import annotations

import io
import json
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from ansible_collections.gb10.fleet.plugins.module_utils.reading import in_use
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Completed
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render import Rendered
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog, schema
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import answers, host
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import transfer

from gb10_fleet import home
from gb10_fleet.discover.places import Place
from gb10_fleet.inventory_lines import Template
from gb10_fleet.playbook import SECOND, Report
from gb10_fleet.up import cli, offers, people, screen, written
from gb10_fleet.up.cables import Cluster, WrongCables, clusters
from gb10_fleet.up.written import Fleet, Host
from scripts.gates import ROOT
from tests.support.attacker import tally
from tests.support.proofs import facts

GIB = 2**30
A, B, C = "spark-a", "spark-b", "spark-c"
Heard = dict[str, list[dict[str, str]]]


def said(*ends: str) -> Heard:
    """`spark-a p0 spark-b p0`: the first end has heard the other one."""
    heard: Heard = {}
    for one, port, other, there in (each.split() for each in ends):
        heard.setdefault(one, []).append({"port": port, "host": other, "there_port": there})
    return heard


def cables(*joined: str) -> Heard:
    """Both ends have heard each other."""
    return said(*joined, *(f"{other} {there} {one} {port}" for one, port, other, there in map(str.split, joined)))


# -- cables


def test_a_pair_by_either_port_or_both() -> None:
    (pair,) = clusters([A, B], cables(f"{B} p1 {A} p1"))
    assert (pair.topology, pair.ports, pair.words) == ("pair", ("p1",), f"{A}, {B}: a pair, {A} p1 to {B} p1")
    (both,) = clusters([A, B], cables(f"{A} p0 {B} p0", f"{A} p1 {B} p1"))
    assert both.ports == ("p0", "p1")


def test_a_ring_in_the_order_of_its_cables() -> None:
    (ring,) = clusters([A, B, C], cables(f"{A} p1 {C} p0", f"{C} p1 {B} p0", f"{B} p1 {A} p0"))
    assert (ring.topology, ring.hosts) == ("ring", (A, C, B))


def test_whoever_hears_several_is_on_a_switch() -> None:
    (switch,) = clusters([A, B, C], cables(f"{A} p0 {B} p0", f"{A} p0 {C} p0", f"{B} p0 {C} p0"))
    assert (switch.topology, switch.ports, switch.hosts) == ("switch", ("p0",), (A, B, C))


def test_without_a_cable_each_serves_alone_and_strangers_do_not_count() -> None:
    found = clusters([A, B], said(f"{A} p0 somebody p0"))
    assert [one.topology for one in found] == ["none", "none"]
    pair, single = clusters([A, B, C], cables(f"{A} p0 {B} p0"))
    assert (pair.hosts, single.hosts) == ((A, B), (C,))


@pytest.mark.parametrize(
    ("joined", "said"),
    [
        ([f"{A} p0 {B} p1"], f"At {B}, move it from p1 to p0"),
        ([f"{A} p1 {B} p0", f"{B} p1 {C} p0"], "2 cables"),
    ],
)
def test_cables_of_which_nothing_can_be_made(joined: list[str], said: str) -> None:
    with pytest.raises(WrongCables, match=said):
        clusters([A, B, C] if C in str(joined) else [A, B], cables(*joined))


@pytest.mark.parametrize(
    "claim", [[f"{A} p1 {B} p1"], [f"{A} p0 {B} p0", f"{A} p1 {C} p1"]], ids=["to one", "to two that are no cluster"]
)
def test_a_cable_of_which_one_end_knows_nothing_joins_nobody(claim: list[str]) -> None:
    """One host alone said that others are at its cables, and they were set up to serve their model with it."""
    won = 0
    for heard in (said(*claim), {**said(*claim), B: said(f"{B} p1 {C} p1")[B], C: said(f"{C} p1 {B} p1")[C]}):
        try:
            won += any(A in one.hosts and len(one.hosts) > 1 for one in clusters([A, B, C], heard))
        except WrongCables as error:
            assert str(error).startswith(f"only {A} says")
    tally("a host joins another one by a cable that it alone knows of", 2, won)
    assert not won


# -- models


@pytest.mark.parametrize("hosts", [1, 2])
def test_three_models_that_fit_take_tools_and_are_fast_enough(hosts: int) -> None:
    found = offers.best([offers.Room([121.63 * GIB] * hosts, [(2000, 2000, True)])])
    assert len({one.model for one in found}) == offers.MOST
    limits = catalog.load("models")["fit"]
    for one in found:
        assert not one.refusal and "tools: yes" in one.line and "Mbit/s" in one.line, one.line
        assert one.plan.max_model_len >= limits["offer_context"]["value"]


def test_a_small_disk_leaves_the_small_models_and_says_why_of_another() -> None:
    room = offers.Room([121.63 * GIB], [(60, 60, True)])
    assert all(one.weights < 60 for one in offers.best([room]))
    assert "GiB more of disk" in offers.offer("openai/gpt-oss-120b", [room]).refusal
    assert offers.best([offers.Room([4 * GIB], [(2000, 2000, True)])]) == []


def test_the_room_is_that_of_the_disks_which_hold_image_and_models() -> None:
    def disk(mount: str, gib: int) -> dict[str, object]:
        return {"mount": mount, "size_bytes": 1, "free_bytes": gib * GIB}

    one = {**facts(), "disks": [disk("/", 50), disk("/boot", 1)]}
    two = {**facts(), "disks": [disk("/", 70), disk("/var/lib/docker", 31), disk("/var/lib", 5)]}
    image = catalog.load("software")["vllm_image_disk"]["value"]
    assert offers.room([one, two]).disks == [(50, 50, True), (31, 70, False)]
    assert offers.room([one, two]).left(15) == [50 - image - 15, min(31 - image, 70 - 15)]
    assert offers.room([{**facts(), "disks": []}]).left(15) == []


# -- the inventory


def fleet() -> written.Fleet:
    pair = Cluster((A, B), "pair", ("p1",))
    hosts = [written.Host(A, Place("192.0.2.11")), written.Host(B, Place("192.0.2.12", 2222)), written.Host(C, None)]
    evidence = {"gb10_evidence_directory": "/e"}
    return written.Fleet(
        hosts, [pair, Cluster((C,))], "nvidia", evidence, [{"vllm_model": "x/y"}, {"vllm_model": "x/y"}]
    ).allowing({"fabric_allow_activation": [A]})


def test_the_inventory_is_an_ordinary_one_and_is_read_back(tmp_path: Path) -> None:
    file = written.write(fleet(), tmp_path, {Place("192.0.2.11"): {"ssh-ed25519": "AAAA"}})
    sparks = yaml.safe_load(file.read_text())["all"]["children"]["sparks"]
    pair = sparks["children"]["pair1"]
    assert pair["hosts"] == {
        A: {"ansible_host": "192.0.2.11", "fabric_allow_activation": True},
        B: {"ansible_host": "192.0.2.12", "ansible_port": 2222},
    }
    assert pair["vars"] == {
        "gb10_cluster": "pair1",
        "fabric_topology": "pair",
        "fabric_ports": ["p1"],
        "vllm_model": "x/y",
    }
    assert sparks["hosts"][C]["ansible_connection"] == "local" and sparks["vars"]["gb10_evidence_directory"] == "/e"
    assert (tmp_path / "known_hosts.txt").read_text() == "192.0.2.11 ssh-ed25519 AAAA\n"
    known = written.read(tmp_path)
    assert known and known.model == "x/y" and known.user == "nvidia"
    assert {host.name: host.place for host in known.hosts} == {host.name: host.place for host in fleet().hosts}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hosts.yml", "known_hosts.txt"]


def test_what_somebody_has_edited_is_not_written_over(tmp_path: Path) -> None:
    written.refuse_edited(tmp_path)
    file = written.write(fleet(), tmp_path, {})
    written.refuse_edited(tmp_path)
    file.write_text(file.read_text().replace("x/y", "x/z"))
    with pytest.raises(written.Edited, match="was edited"):
        written.refuse_edited(tmp_path)
    for broken in (
        "all: [",
        "all: {children: {sparks: }}",
        "all: {children: {sparks: {children: {pair1: {vars: {}}}}}}",
    ):
        file.write_text(broken)
        with pytest.raises(written.Edited, match="cannot be read"):
            written.read(tmp_path)


@pytest.mark.parametrize(("count", "network"), [(3, "192.168.96.0/21"), (4, "192.168.96.0/21"), (8, "192.168.96.0/20")])
def test_a_ring_gets_a_network_that_is_large_enough(count: int, network: str) -> None:
    names = [f"s{number}" for number in range(count)]
    hosts = [written.Host(name, Place(name)) for name in names]
    said = yaml.safe_load(written.Fleet(hosts, [Cluster(tuple(names), "ring", ("p0", "p1"))]).text())
    assert said["all"]["children"]["sparks"]["children"]["ring1"]["vars"]["fabric_network"] == network


# -- the screen


def test_what_waits_for_a_consent_is_asked_for_by_name() -> None:
    report = Report()
    for name, action in ((A, "doctor"), (A, "plan"), (B, "host_state")):
        result = {"lacks": ["docker_allow_restart", "fabric_replace_foreign"], "msg": "refused"}
        data = {"resolved_action": f"gb10.fleet.{action}", "host": name, "res": result}
        report.take({"event": "runner_on_failed", "event_data": data})
    found = screen.lacking(report)
    assert found == {"docker_allow_restart": [A, B], "fabric_replace_foreign": [A, B]}
    found = {"docker_allow_restart": [A]}
    shown = "\n".join(screen.lines([], [], {A: ["container ollama (ollama)"]}, screen.Preview({}, found), []))
    assert f"May restart  {A}: restart or upgrade a Docker that runs" in shown and "(docker_allow_restart)" in shown
    assert f"Left alone   {A}: container ollama" in shown
    assert "allow docker_allow_restart" in screen.question([], ["docker_allow_restart"])


def test_changes_are_counted_and_packages_named() -> None:
    rows = [{"resource": "package:perftest"}, {"resource": "file:/a"}, {"resource": "file:/a"}, {"resource": "unit:x"}]
    shown = "\n".join(screen.lines([], [], {}, screen.Preview({A: rows, B: rows}), []))
    assert f"Changes      {A}, {B}: 1 package, 1 file, 1 systemd unit; packages: perftest" in shown
    assert "May restart  nothing" in shown


def test_a_model_that_serves_and_is_exchanged_is_no_nothing() -> None:
    units = ("gb10-vllm.service", "gb10-clock-lock.service")
    rows = [{"resource": f"unit:{unit}", "action": "restart"} for unit in units]
    shown = "\n".join(screen.lines([], [], {}, screen.Preview({A: rows, B: rows}), []))
    assert f"Restarts     {A}, {B}: gb10-vllm.service: its requests are cut" in shown
    assert "May restart  nothing else that runs now" in shown
    assert "clock-lock" not in shown, "it answers no requests"


def test_what_is_below_its_security_floor_is_one_line_with_a_command() -> None:
    """The default versions have them, so each new owner met four lines before the choice of a model."""
    old = [f"{name} is 1.0, below 2.0 (CVE-1, 2026-01-01)" for name in ("NVIDIA driver", "Docker", "vLLM")]
    warnings = [{"host": host, "id": "security_floor", "fact": fact} for host in (A, B) for fact in old]
    warnings.append({"host": B, "id": "disk_full", "fact": "/ has 11.0 GiB free"})
    shown = [*screen.lines([], [], {}, screen.Preview(warnings=warnings), [])]
    said = [number for number, line in enumerate(shown) if line.startswith("Warning")]
    assert [shown[number] for number in said] == [
        f"Warning      {B}: / has 11.0 GiB free",
        f"Warning      {A}, {B}: published vulnerabilities in NVIDIA driver, Docker, vLLM",
    ]
    assert "`gb10 doctor`" in shown[said[-1] + 1] and "CVE" not in "".join(shown)


def test_host_keys_lie_beside_an_inventory_that_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of hosts took those of the folder in which somebody stood, in place of their own."""
    monkeypatch.chdir(tmp_path)
    keys = tmp_path / home.KNOWN_HOSTS
    for file in (keys, tmp_path / "hosts.yml"):
        file.touch()
    found = [home.host_keys([said]) for said in ("hosts.yml", str(tmp_path), "spark-a,")]
    assert found == [keys, keys, None]


def test_the_steps_that_are_told_are_tasks_that_there_are() -> None:
    tasks = "\n".join(path.read_text() for folder in ("playbooks", "roles") for path in (ROOT / folder).rglob("*.yml"))
    assert [name for name in cli.STEPS if f"- name: {name}" not in tasks] == []


# -- what somebody serves by hand


def test_containers_of_others_are_named_and_ours_are_not() -> None:
    rows = [{"Names": "my-vllm", "Image": "vllm:1"}, {"Names": "gb10-vllm", "Image": "ours"}, {"Image": "no name"}]
    done = Completed(("docker",), 0, "\n".join([*map(json.dumps, rows), "no JSON"]))
    assert in_use.containers(done) == [{"name": "my-vllm", "image": "vllm:1"}]
    assert in_use.containers(Completed(("docker",), 127)) == []


def test_the_models_of_the_user_are_named(tmp_path: Path) -> None:
    for name in ("models--openai--gpt-oss-120b", "models--a--b--c", "datasets--x--y", ".locks"):
        (tmp_path / ".cache/huggingface/hub" / name).mkdir(parents=True)
    path = f"{tmp_path}/.cache/huggingface"
    assert in_use.cache(str(tmp_path)) == {"path": path, "models": ["a/b--c", "openai/gpt-oss-120b"]}
    assert in_use.cache(f"{tmp_path}/nobody")["models"] == [] == in_use.cache("")["models"]


def test_who_listens_at_a_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as made:
        port = made.getsockname()[1]
        for name, place in (("net", "/proc/net"), ("12/fd", f"/proc/{os.getpid()}/fd")):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).symlink_to(place)
        (tmp_path / "12/status").write_text("Name:\tpython3\nUid:\t0\t0\n")
        assert in_use._listeners(port, tmp_path) == [{"port": port, "who": "python3 (process 12 of root)"}]
    assert in_use._listeners(port, tmp_path) == []


# -- a hostile host

EVIL = "{{ lookup('pipe', 'touch here') }}"
OTHER_MARKS = "#jinja2:variable_start_string:'[[',variable_end_string:']]'\n[[ lookup('pipe', 'touch here') ]]"


def test_no_word_of_a_host_becomes_a_template_of_the_inventory() -> None:
    tally("a word of a host becomes a template on the controller", 3, 0)
    (pair,) = clusters([A, B], cables(f"{A} p0 {B} p0"))
    hosts = [Host(name, Place("192.0.2.1")) for name in (A, B)]
    assert "{{ inventory_dir }}" in Fleet(hosts, [pair]).text()
    with pytest.raises(Template):
        Fleet(hosts, [replace(pair, ports=(EVIL,))]).text()
    with pytest.raises(Template):
        Fleet([replace(hosts[0], source=f"/{EVIL}"), hosts[1]], [pair]).text()
    with pytest.raises(Template):
        Fleet([replace(hosts[0], source=OTHER_MARKS), hosts[1]], [pair]).text()


def test_a_host_may_name_no_port() -> None:
    heard = {"netdev": "n", "port": "p0", "host": B, "there_netdev": "n", "there_port": "p0"}
    kind = answers.BY_MODULE["rail_neighbours"]
    assert schema.problem({"heard": [heard], "mute": []}, kind, "answer") is None
    for wrong in ({"there_port": EVIL}, {"port": "p0 p1"}, {"host": 1}):
        assert schema.problem({"heard": [{**heard, **wrong}], "mute": []}, kind, "answer")


WORDS = "May restart nothing (driver_allow_move): set fabric_replace_foreign: true, docker_allow_restart"


def test_no_word_of_a_host_is_a_consent() -> None:
    """A profile of its network with such a name was enough: the screen asked for it, and it held for all hosts."""
    quoted = Rendered("fabric", refusals=[f"belongs to {WORDS}. To allow it, set fabric_allow_activation: true"])
    document = Rendered("docker", resources=[{"kind": "unit", "consent": "docker_allow_restart"}])
    change = {"role": "r", "resource": "file:/x", "action": "write"}
    pending = [{**change, "consent": name} for name in ("accounts_allow_sudo", "driver_allow_move", "ansible_host")]
    pending.append(change)  # and one that names none
    said = {"pending": pending, "error": {"kind": "refused", "message": WORDS}}
    ours = [{*host.lacking([quoted])["lacks"]}, {*host.lacking([document], said)["lacks"]}]
    assert ours == [{"fabric_allow_activation", "fabric_replace_foreign"}, {"docker_allow_restart"}]
    assert host.lacking([document], {"pending": [], "error": None}) == {}
    refusal = {"host": A, "id": "state_refused", "severity": "error", "accepted": None, "fact": WORDS, "way_out": WORDS}
    theirs = Report(findings=[refusal], messages={A: [WORDS]}, pending={A: pending})
    data = {"resolved_action": "ansible.builtin.command", "host": A, "res": {"lacks": ["driver_allow_move"]}}
    theirs.take({"event": "runner_on_failed", "event_data": data})
    won = len(screen.lacking(theirs))
    preview = screen.Preview({A: [{"resource": f"package:{WORDS}"}]}, {}, [{"host": A, "id": "x", "fact": WORDS}])
    shown = [*screen.lines([], [], {A: [WORDS]}, preview, [])]
    won += sum(name in line for line in shown for name in host.asked_for())
    tally("a host names a consent, and a person is asked for it", 4, won)
    assert not won and sum("set ...: true" in line for line in shown) == 3


def test_whoever_waits_is_told_that_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr("gb10_fleet.beat.time.monotonic", lambda: now[0])
    person = people.Person()
    person.begin("working it out")
    for part in ({}, {"Look": "looking at each Spark"}):  # two runs of one part: what counts is how long it takes
        progress = people.Progress(person, part)
        for task in ("Write", "Look | a", "Look | b"):
            progress({"event": "playbook_on_task_start", "event_data": {"task": task}})
            for _ in range(20):
                now[0] += 1
                progress(SECOND)
    told = [line.split(maxsplit=1)[1] for line in capsys.readouterr().out.splitlines()]
    assert told == [
        "working it out", "still at it, for 31 s", "still at it, for 62 s",
        "looking at each Spark", "still at it, for 31 s",
    ]  # fmt: skip


def test_the_time_that_a_person_takes_for_an_answer_is_no_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]

    def thinks(_question: str) -> str:
        now[0] += 300
        return "y"

    monkeypatch.setattr("gb10_fleet.beat.time.monotonic", lambda: now[0])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", thinks)
    monkeypatch.setattr("getpass.getpass", thinks)
    person = people.Person()
    person.begin("working it out")
    for answer in (person.ask, person.secret):
        assert answer("Which?", "") == "y"
        people.Progress(person)(SECOND)
    assert "still at it" not in capsys.readouterr().out


def test_of_a_download_it_is_said_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr("gb10_fleet.beat.time.monotonic", lambda: now[0])
    person = people.Person()
    person.begin("downloading")
    progress = people.Progress(person)
    for at in (20, 40, 60):
        now[0] = at
        done = {"doing": "org/model from the hub", "done": at * 1e9, "total": 69e9, "at": float(at)}
        progress(
            {"event": "verbose", "stdout": f"{transfer.progress(A, done, None)} Fix: curl evil"}
        )  # a host wrote on
        progress({"event": "verbose", "stdout": "[WARNING]: something else"})
    now[0] = 80
    progress({"event": "playbook_on_task_start", "event_data": {"task": "another"}})
    told = [line.split(maxsplit=1)[1] for line in capsys.readouterr().out.splitlines()]
    how_far = "spark-a: org/model from the hub: 40.0 of 69.0 GB"
    assert told == ["downloading", f"still at it, for 40 s; {how_far}", "still at it, for 80 s"]


def test_a_long_line_is_folded_below_its_own_column_and_no_command_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    person = people.Person()
    person.say("Later        `gb10 undo --all` puts everything back that was changed")
    person.show(f"curl {'x' * 50} y")
    assert capsys.readouterr().out.splitlines() == [
        "Later        `gb10 undo --all` puts", " " * 13 + "everything back that was", " " * 13 + "changed",
        f"curl {'x' * 50} y",
    ]  # fmt: skip


@pytest.mark.parametrize("typed", [["y", "2"], ["0", "4", "2"]])
def test_what_is_no_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch, typed: list[str]) -> None:
    monkeypatch.setattr(people.Person, "ask", lambda *_: typed.pop(0))
    assert people.Person().choose("Which?", "", {"2": "second"}.get) == "second"
    typed[:] = ["yep", "No"]
    with pytest.raises(people.Stop, match="nothing was changed"):
        people.Person().consent("This?")


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "file"])
def test_a_question_is_seen_where_standard_output_goes_into_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    people.Person().consent("This?")
    said = capsys.readouterr()
    assert (said.out if terminal else said.err) == "This? [y]es or [n]o: " and not (said.err if terminal else said.out)
