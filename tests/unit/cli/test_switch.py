"""`gb10 switch`: both recorded states of a CRS812, its plan, and what goes back where the hosts prove nothing."""

from __future__ import annotations

import json
import re
import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from typer.testing import CliRunner

from gb10_fleet import cli
from gb10_fleet.playbook import Order, Outcome, Report
from gb10_fleet.rollout import locks
from gb10_fleet.switch import applying, routeros, settings
from gb10_fleet.switch import cli as switch_cli
from lab import routeros as lab
from tests.support.attacker import tally
from tests.support.proofs import facts

CLI = CliRunner()
ACCOUNTS = {"gb10": "read-secret", "gb10-apply": "write-secret"}
HOSTS = ("spark-a", "spark-b", "spark-c")
MTU_FAULT = ("spark-a enp1s0f0np0 to 192.168.100.11", "ping_too_big")


class World:
    """A fleet of three on a stand-in, and what its hosts say and prove."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, stand: lab.Stand, port: int) -> None:
        self.folder, self.stand, self.orders = folder, stand, list[Order]()
        self.outcome = Outcome.done
        self.row: dict[str, Any] = {
            "topology": "switch", "ports": None, "mtu": None, "password": "", "apply_password": "", "consent": True,
            "switch": {
                "model": "crs812", "address": "127.0.0.1", "port": port, "plain": True,
                "user": "gb10", "password_file": str(self.secret("read", "read-secret")),
                "apply_user": "gb10-apply", "apply_password_file": str(self.secret("apply", "write-secret")),
            },
        }  # fmt: skip
        self.services: list[dict[str, str]] = []
        self.proofs: list[set[tuple[str, str]]] = []
        self.risen, self.marked, self.heard, self.slept = 0, 0, list[str](), list[float]()
        (folder / "hosts.yml").write_text("---\nall: {children: {sparks: {hosts: {spark-a: }}}}\n")
        monkeypatch.setattr(settings, "run", self.run)
        monkeypatch.setattr(applying, "run", self.run)
        monkeypatch.setattr(switch_cli, "time", SimpleNamespace(sleep=self.slept.append))
        monkeypatch.setattr(applying, "LINK_S", 0.2)
        monkeypatch.setattr(applying, "POLL_S", 0.02)

    def secret(self, name: str, text: str) -> Path:
        file = self.folder / name
        file.write_text(f"{text}\n")
        file.chmod(0o600)
        return file

    def run(self, order: Order, quiet: bool = False) -> tuple[Outcome, Report]:
        self.orders.append(order)
        report = Report(asks=order.asks)
        if order.playbook == "gb10.fleet.validate":
            report.evidence = str(self.prove())
            return Outcome.done, report
        columns = {"name": list(HOSTS), **{key: [value] * len(HOSTS) for key, value in self.row.items()}}
        file = Path(order.variables["gb10_switch_file"])
        file.write_text(json.dumps(columns))
        if self.outcome is Outcome.done:
            for number, host in enumerate(HOSTS, 1):
                report.answers[settings.READ][host] = self.said(host, number, order.variables)
                report.answers[settings.LLDP][host] = {"stdout_lines": self.heard}
        return self.outcome, report

    def said(self, host: str, number: int, variables: Any) -> dict[str, Any]:
        content = facts(host)
        for place, link in enumerate(content["interfaces"]):
            content["interfaces"][place] = {**link, "mac": f"4C:bb:47:{number:02d}:00:{place + 1:02d}"}
        for one in (*content["rails"], *content["interfaces"]):
            one["mtu"] = 9000
        twins = ("enp1s0f0np0", "enP2p1s0f0np0")
        samples = []
        for time in range(variables.get("gb10_switch_samples", 1)):
            counters = {
                "out_of_sequence": 5 + time * self.risen,
                "np_cnp_sent": 3 + time * self.marked,
                "symbol_error": time,
            }
            rails = [{"netdev": name, "rate_gbps": 200.0, "counters": counters} for name in twins]
            samples.append({"at_s": 100.0 + 10 * time, "rails": rails})
        return {"ansible_facts": {"gb10_spark": content}, "health": {"samples": samples}, "services": self.services}

    def prove(self) -> Path:
        found = self.proofs.pop(0) if self.proofs else set()
        reasons = [{"where": where, "what": what, "text": "", "way_out": ""} for where, what in found]
        other = {"id": "ssh_password", "severity": "error", "fact": "", "way_out": "", "accepted": None}
        reasons.append({"where": "spark-b", "what": "ssh_password", "text": "", "way_out": ""})
        document = {"clusters": [{"reasons": reasons}], "hosts": {host: {"findings": [other]} for host in HOSTS}}
        (self.folder / "evidence.json").write_text(json.dumps(document))
        return self.folder

    def gb10(self, *words: str) -> Any:
        return CLI.invoke(cli.app, ["switch", *words, "-i", str(self.folder)])

    def checked(self, *words: str) -> tuple[dict[str, Any], set[tuple[str, str]]]:
        document = json.loads(self.gb10("check", "--json", *words).stdout)
        return document, {(one["where"], one["id"]) for one in document["verdicts"]}


@pytest.fixture
def state() -> str:
    return "crs812-before"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, state: str) -> Iterator[World]:
    stand = lab.stand(state, ACCOUNTS, writers=frozenset({"gb10-apply"}))
    with lab.Server(stand) as server:
        yield World(monkeypatch, tmp_path, stand, server.port)


def traffic(packets: int, dropped: int, queue: int = 0) -> Any:
    """Between two readings each port sends so much and drops so much."""

    def go(stand: lab.Stand) -> None:
        for row in stand.tables["/interface/ethernet"]:
            if "tx-unicast" in row:
                row["tx-unicast"] = str(int(row["tx-unicast"]) + packets)
                row["tx-drop"] = str(int(row.get("tx-drop", 0)) + dropped)
                row[f"tx-queue{queue}-packet"] = str(int(row.get(f"tx-queue{queue}-packet", 0)) + packets)

    return go


def test_the_playbook_asks_inventory_and_hosts(tmp_path: Path) -> None:
    """A real run, on this machine as the host; it has no rails."""
    own = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
    variables = {"fabric_topology": "switch", "gb10_switch": {"model": "crs804"}, "fabric_mtu": 4200}
    inventory = {"sparks": {"hosts": {"spark-a": own}, "vars": variables}}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(inventory))
    fleet, outcome, report = settings.read(Order("", [str(tmp_path)]))
    assert outcome is Outcome.done, report.messages
    assert (fleet.hosts, fleet.mtu, fleet.gbps, fleet.switch.model) == (("spark-a",), 4200, 200, "crs804")
    assert not fleet.consent and fleet.rails == ()


# -- check -------------------------------------------------------------------------------------------------------------


def test_the_switch_behind_a_hang_is_found(world: World) -> None:
    document, found = world.checked()
    assert document["switch"]["name"] == "crs812-lab" and document["outcome"] == "failed"
    assert [row["hosts"] for row in document["ports"]] == [["spark-a p0"], ["spark-b p0"], ["spark-c p0"]]
    ports = ("qsfp56-1-1", "qsfp56-2-1", "qsfp56-dd-1-1")
    assert {(port, "small_mtu") for port in ports} | {(port, "no_pause") for port in ports} <= found
    assert {port for port, what in found if what == "slow_port"} == {"qsfp56-2-1"}
    # Of millions of lost packets those of the first port are no share worth the name, and all of them are history.
    assert {port for port, what in found if what == "dropped_before"} == {"qsfp56-2-1", "qsfp56-dd-1-1"}
    assert ("crs812-lab", "no_load") in found and not [port for port, what in found if what == "drops"]


@pytest.mark.parametrize("state", ["crs812-after"])
def test_after_the_repair_pause_is_on_and_the_mtu_still_small(world: World) -> None:
    _, found = world.checked()
    assert {what for _, what in found} == {"small_mtu", "slow_port", "dropped_before", "no_load"}
    assert {port for port, what in found if what == "slow_port"} == {"qsfp56-1-1"}


@pytest.mark.parametrize(
    ("rx", "agreed", "what"),
    [("auto", "true", ""), ("auto", "false", "no_pause"), ("auto", None, "unknown"), ("off", "true", "no_pause")],
)
def test_pause_that_both_ends_negotiate_is_what_they_agreed_on(
    world: World, rx: str, agreed: str | None, what: str
) -> None:
    """RouterOS has on, off and auto, and `monitor` says what came of it."""
    said = {"rx-flow-control": rx, "tx-flow-control": "auto", **({"agreed": agreed} if agreed else {})}
    world.stand.port("qsfp56-1-1").update(said)
    document, found = world.checked()
    assert {one for port, one in found if port == "qsfp56-1-1"} & {"no_pause", "unknown"} == ({what} if what else set())
    assert document["ports"][0]["pause"] is {"": True, "no_pause": False, "unknown": None}[what]


@pytest.mark.parametrize(
    ("packets", "dropped", "expected"),
    [(2_000_000, 19, False), (2_000_000, 21, True), (999_999, 999, False), (10**12, 10**6, False)],
)
def test_losses_count_by_their_share_and_only_under_load(
    world: World, packets: int, dropped: int, expected: bool
) -> None:
    world.stand.after_print = traffic(packets, dropped)
    _, found = world.checked()
    assert (("qsfp56-1-1", "drops") in found) is expected
    assert (("crs812-lab", "no_load") in found) is (packets < 1_000_000)


def test_counters_that_began_anew_are_unknown(world: World) -> None:
    world.stand.after_print = lambda stand: stand.port("qsfp56-1-1").update({"tx-unicast": "7"})
    document, found = world.checked()
    assert ("qsfp56-1-1", "unknown") in found and document["ports"][0]["sent"] is None


def test_pfc_of_a_class_that_nothing_is_sent_in_protects_nothing(world: World) -> None:
    profiles = "/interface/ethernet/switch/qos/priority-flow-control"
    world.stand.tables[profiles] = [{".id": "*1", "name": "pfc-tc3", "traffic-class": "3", "rx": "true", "tx": "true"}]
    for row in world.stand.tables["/interface/ethernet/switch/qos/port"]:
        row.update({"pfc": "pfc-tc3", "trust-l3": "keep"})
    world.stand.after_print = traffic(5_000_000, 0)
    _, found = world.checked()
    assert ("qsfp56-1-1", "pfc_of_another_class") in found and ("qsfp56-1-1", "no_pause") not in found
    world.stand.after_print = traffic(5_000_000, 0, queue=3)
    _, found = world.checked()
    assert ("qsfp56-1-1", "pfc_of_another_class") not in found


def test_what_the_cpu_bridges_is_named_a_spark_as_an_error_and_a_nas_as_a_warning(world: World) -> None:
    for row in world.stand.tables["/interface/bridge/port"]:
        row["hw-offload"] = "false" if row["interface"] in ("ether2", "qsfp56-1-1") else "true"
    document, _ = world.checked()
    slow = {one["where"]: one["severity"] for one in document["verdicts"] if one["id"] == "in_software"}
    assert slow == {"qsfp56-1-1": "error", "ether2": "warn"}


def test_a_spark_that_the_switch_has_not_learned_is_found_by_lldp_or_named(world: World) -> None:
    hosts = "/interface/bridge/host"
    world.stand.tables[hosts] = [row for row in world.stand.tables[hosts] if ":01:00:" not in row["mac-address"]]
    _, found = world.checked()
    assert ("spark-a enp1s0f0np0", "unknown_port") in found
    world.stand.tables["/ip/neighbor"] = [{"interface": "qsfp56-1-1,bridge", "identity": "spark-a"}]
    document, found = world.checked()
    assert document["ports"][0]["hosts"] == ["spark-a p0"] and ("spark-a enp1s0f0np0", "unknown_port") not in found


def test_two_hosts_behind_one_port_are_said(world: World) -> None:
    for row in world.stand.tables["/interface/bridge/host"]:
        row["on-interface"] = "qsfp56-dd-1-1"
    _, found = world.checked()
    assert ("qsfp56-dd-1-1", "shared_port") in found


def test_a_host_with_the_mac_of_another_takes_no_port(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The port of a sound Spark was an error, and plan and apply left it as it was."""
    plain = world.said

    def said(host: str, number: int, variables: Any) -> dict[str, Any]:
        return plain(host, 2 if host == "spark-a" else number, variables)  # spark-a says what spark-b says

    monkeypatch.setattr(world, "said", said)
    document, found = world.checked()
    won = ("qsfp56-2-1", "shared_port") in found
    tally("a host speaks for another one behind the switch", 1, int(won))
    assert not won and ("spark-b enp1s0f0np0", "same_mac") in found
    assert [port["hosts"] for port in document["ports"]] == [["spark-c p0"]]
    # Whom the switch hears at one port alone is there, whatever others say.
    world.stand.tables["/ip/neighbor"] = [{"interface": "qsfp56-2-1", "identity": "spark-b"}]
    document, found = world.checked()
    assert [port["hosts"] for port in document["ports"]] == [["spark-b p0"], ["spark-c p0"]]
    assert ("spark-a enp1s0f0np0", "same_mac") in found and ("spark-b enp1s0f0np0", "same_mac") not in found


def test_a_command_that_the_account_may_not_give_leaves_unknown_and_no_clean_bill(world: World) -> None:
    world.stand.denied = frozenset({"/interface/ethernet", "/interface/ethernet/switch/qos/port"})
    assert "not enough permissions" in world.gb10("check").stdout
    world.stand.denied = frozenset({"/interface/ethernet/switch/qos/port"})
    document, found = world.checked()
    assert ("crs812-lab", "unknown") in found and ("qsfp56-1-1", "unknown") in found
    assert document["ports"][0]["pfc"] is None and ("qsfp56-1-1", "no_pause") not in found


def test_counters_of_hosts_that_rise_are_said_with_their_rate(world: World) -> None:
    world.risen = 50
    result = world.gb10("check")
    assert (
        "spark-a enp1s0f0np0: warn: resends: its error counters rose: out_of_sequence by 50 (5 a second)"
        in result.stdout
    )


def test_packets_that_were_marked_instead_of_dropped_are_information(world: World) -> None:
    world.marked = 7
    document, _ = world.checked()
    (first, *_) = [one for one in document["verdicts"] if one["id"] == "marked"]
    assert (first["severity"], document["rails"][0]["risen"]) == ("info", {"np_cnp_sent": 7})


def test_a_host_without_an_answer_is_said(world: World) -> None:
    world.outcome = Outcome.unreachable
    assert world.gb10("check").exit_code == Outcome.unreachable


def test_under_load_the_hosts_measure_between_two_readings(world: World) -> None:
    world.proofs = [{MTU_FAULT}]
    document, found = world.checked("--load")
    assert (MTU_FAULT[0], "not_proven") in found and document["outcome"] == "failed"
    playbooks = [order.playbook for order in world.orders]
    assert playbooks == ["gb10.fleet.switch", "gb10.fleet.validate", "gb10.fleet.switch"] and not world.slept
    assert world.orders[1].variables["gb10_roles"] == ["fabric"]


def test_without_a_switch_the_hosts_say_what_they_can(world: World) -> None:
    world.row["switch"] = {}
    world.heard = [r"enp1s0f0np0:crs\:812:qsfp56-1-1" + "\x1b[31m", "no sentence", *["a:b:c"] * 1000]
    document, found = world.checked()
    assert (document["switch"], document["outcome"]) == (None, "done")
    assert document["rails"][0]["lldp"] == r"crs:812 qsfp56-1-1\x1b[31m"
    assert found == {("gb10_switch", "unread")}


def test_an_account_that_the_switch_refuses_has_a_way_out(world: World) -> None:
    world.secret("read", "another-secret")
    result = world.gb10("check")
    assert "refuses the account gb10: " in result.stdout and "Fix: correct its name or password" in result.stdout
    result = world.gb10("plan")
    assert "Fix: correct its name or password" in result.stderr and "another-secret" not in result.output


def test_a_plan_that_ctrl_c_ends_says_that_nothing_was_changed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(switch_cli, "time", SimpleNamespace(sleep=interrupt))
    for act in ("plan", "check"):
        result = world.gb10(act)
        assert (result.exit_code, result.stderr) == (Outcome.interrupted, "interrupted; nothing was changed\n")


def test_a_switch_that_does_not_answer_costs_no_host_its_word(world: World) -> None:
    world.row["switch"]["port"] = 1
    result = world.gb10("check")
    assert result.exit_code == Outcome.unreachable
    assert "127.0.0.1: warn: unread: 127.0.0.1:1 as gb10: Connection refused" in result.stdout
    assert "spark-a  enp1s0f0np0    p0    200   9000  yes" in result.stdout


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"topology": "pair"}, "no host has fabric_topology: switch"),
        ({"switch": {"model": "crs999"}}, "gb10_switch.model is 'crs999'; there are crs812"),
        ({"switch": {"model": "crs812", "pasword": "x"}}, "gb10_switch.pasword is unknown"),
        ({"switch": {"model": "crs812", "plain": "yes"}}, "gb10_switch.plain is 'yes'; write true or false"),
        ({"switch": {"model": "crs812", "speed_gbps": 50}}, "gb10_switch.speed_gbps is 50"),
        ({"switch": {"model": "crs812", "port": 70000}}, "gb10_switch.port is 70000"),
        ({"switch": {"model": "crs812", "certificate": "12"}}, "no SHA-256 fingerprint"),
        ({"switch": {"model": "crs812", "user": "gb10"}}, "gb10_switch.user has no password"),
        ({"switch": {"model": "crs812", "user": "gb10", "password_file": "/nowhere"}}, "/nowhere: No such file"),
        ({"switch": "crs812"}, "gb10_switch is no dictionary; write the keys model, address"),
        ({"switch": {"model": "crs812", "user": ""}}, "gb10_switch.user is empty"),
        ({"password": 12345}, "gb10_switch_password is no text; write it in quotes"),
        ({"apply_password": ["x"]}, "gb10_switch_apply_password is no text"),
        ({"mtu": "many"}, "fabric_mtu is 'many'; write a number"),
    ],
)
def test_wrong_settings_are_refused_by_name(world: World, change: dict[str, Any], says: str) -> None:
    world.row.update(change)
    result = world.gb10("check")
    assert result.exit_code == Outcome.refused and says in result.stderr
    assert world.stand.heard == []


def test_a_folder_that_cannot_be_written_is_named_before_anything_changes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def held(folder: Path) -> Any:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(locks, "held", held)
    result = world.gb10("apply", "--yes")
    assert result.exit_code == Outcome.failed and "Permission denied; this user must be able to write" in result.stderr
    assert world.stand.heard == []


def test_a_password_that_others_may_read_is_not_used_and_one_of_a_vault_comes_first(world: World) -> None:
    file = Path(world.row["switch"]["password_file"])
    file.chmod(0o640)
    result = world.gb10("check")
    assert result.exit_code == Outcome.refused and f"run: chmod 600 {file}" in result.stderr
    world.row["password"] = "read-secret"  # noqa: S105 - of the stand-in
    assert "crs812-lab" in world.gb10("check").stdout
    world.row["password"] = "geh\u00e4im"  # noqa: S105
    result = world.gb10("check")
    assert result.exit_code == Outcome.refused and "not ASCII" in result.stderr and "geh" not in result.output
    assert "read-secret" not in repr(settings.Account("gb10", "read-secret"))


# -- plan --------------------------------------------------------------------------------------------------------------


def test_the_plan_names_ports_and_its_way_back_restores_them(world: World) -> None:
    document = json.loads(world.gb10("plan", "--json").stdout)
    commands = dict(re.findall(r'name="([^"]+)"\] (.+)', "\n".join(document["commands"])))
    jumbo, pause = "l2mtu=9216 mtu=9000", "rx-flow-control=on tx-flow-control=on"
    assert commands == {
        "qsfp56-1-1": f"{jumbo} {pause}",
        "qsfp56-2-1": f"{jumbo} {pause} advertise=200G-baseCR4 fec-mode=fec91",
        "qsfp56-dd-1-1": f"{jumbo} {pause}",
    }
    assert (
        'name="qsfp56-2-1"] l2mtu=1584 mtu=1500 rx-flow-control=off tx-flow-control=off advertise=100G-baseCR4'
        in (document["back"][1])
    )
    assert not re.search(r"\*[0-9A-F]", " ".join(document["commands"] + document["back"]))


def test_a_breakout_is_forced_and_a_wanted_100_is_left_alone(world: World) -> None:
    world.stand.port("qsfp56-dd-1-1")["advertise"] = "50G-baseCR"
    assert "auto-negotiation=no speed=200G-baseCR4" in world.gb10("plan").stdout
    world.row["switch"]["speed_gbps"] = 100
    assert "advertise=" not in world.gb10("plan").stdout.partition("# and back:")[0]


def test_a_name_that_would_be_a_command_goes_into_none(world: World) -> None:
    evil = 'x"]; /system/reset-configuration; :put [find name="'
    for path in ("/interface/ethernet", "/interface/bridge/port", "/interface/bridge/host"):
        for row in world.stand.tables[path]:
            for key in ("name", "interface", "on-interface"):
                if row.get(key) == "qsfp56-1-1":
                    row[key] = evil
    world.stand.port("qsfp56-2-1")["advertise"] = "100G-baseCR4; /system/reboot"
    document = json.loads(world.gb10("plan", "--json").stdout)
    assert len(document["commands"]) == 1 and "/system" not in " ".join(document["commands"] + document["back"])
    assert "has a name that gb10 puts into no command" in " ".join(document["left"])


def test_a_port_that_leads_to_another_switch_is_left_alone(world: World) -> None:
    for row in world.stand.tables["/interface/bridge/host"]:
        if ":03:00:" in row["mac-address"]:
            row["on-interface"] = "ether2"
        elif row["on-interface"] == "qsfp56-1-1":
            row["on-interface"] = "qsfp56-2-1"
    out = world.gb10("plan").stdout
    assert "ether2 leads to another switch" in out and "qsfp56-2-1 leads to another switch" in out
    assert "/interface" not in out and "nothing to change" not in out


def test_a_switch_that_gb10_does_not_read_has_its_commands_from_the_catalog(world: World) -> None:
    world.row["switch"] = {"model": "sn3700-cumulus"}
    out = world.gb10("plan").stdout
    assert "nv set qos roce\n" in out and "nv unset qos roce\n" in out and "in place of PORT" in out
    world.row["switch"] = {}
    assert world.gb10("plan").exit_code == Outcome.refused


@pytest.mark.parametrize("name", sorted(catalog.load("switches")["switches"]))
def test_each_switch_of_the_catalog_can_be_named(world: World, name: str) -> None:
    world.row["switch"] = {"model": name}
    assert world.gb10("check").exit_code == Outcome.done


# -- apply -------------------------------------------------------------------------------------------------------------


def test_each_port_is_set_by_its_own_id_and_proven_before_the_next(world: World) -> None:
    for row in world.stand.tables["/interface/ethernet"]:
        row[".id"] = f"*{int(row['.id'][1:], 16) + 64:X}"
    world.proofs = [{MTU_FAULT}, {MTU_FAULT}, {MTU_FAULT}, set()]
    result = world.gb10("apply", "--yes", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["ports"] == ["qsfp56-1-1", "qsfp56-2-1", "qsfp56-dd-1-1"]
    for name in ("qsfp56-1-1", "qsfp56-2-1", "qsfp56-dd-1-1"):
        port = world.stand.port(name)
        assert (port["l2mtu"], port["mtu"], port["rx-flow-control"]) == ("9216", "9000", "on")
    sets = [words for words in world.stand.heard if words[0].endswith("/set")]
    assert [words[1] for words in sets] == ["=.id=*54", "=.id=*58", "=.id=*44"]
    assert [order.playbook for order in world.orders].count("gb10.fleet.validate") == 4
    assert not list((world.folder / ".gb10/switch").glob("back-*"))
    assert "nothing to change" in world.gb10("apply", "--yes").stdout


@pytest.mark.parametrize(
    "proofs",
    [
        [set(), set(), {("spark-a p0", "degraded_cx7")}],
        [{MTU_FAULT}, {MTU_FAULT}, {MTU_FAULT}, {MTU_FAULT}],
        [{MTU_FAULT}, set(), {MTU_FAULT}],
    ],
)
def test_what_the_hosts_cannot_prove_goes_back(world: World, proofs: list[set[tuple[str, str]]]) -> None:
    before = json.dumps(world.stand.tables, sort_keys=True)
    count, world.proofs = len(proofs), list(proofs)
    result = world.gb10("apply", "--yes", "--json")
    document = json.loads(result.stdout)
    assert result.exit_code == Outcome.failed and document["ports"] == document["stuck"] == []
    assert document["returned"] == ["qsfp56-1-1", "qsfp56-2-1", "qsfp56-dd-1-1"][: count - 1][::-1]
    assert json.dumps(world.stand.tables, sort_keys=True) == before


def test_a_port_without_a_link_goes_back_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    before = json.dumps(world.stand.tables, sort_keys=True)
    monkeypatch.setattr(routeros.Session, "running", lambda self, name: False)
    assert "no link" in json.loads(world.gb10("apply", "--yes", "--json").stdout)["reason"]
    assert json.dumps(world.stand.tables, sort_keys=True) == before


def test_a_setting_that_the_switch_does_not_take_is_not_believed(world: World) -> None:
    world.stand.keeps = frozenset({"l2mtu"})
    document = json.loads(world.gb10("apply", "--yes", "--json").stdout)
    assert "qsfp56-1-1 did not take it: l2mtu is 1584 and not 9216" in document["reason"]
    assert document["returned"] == ["qsfp56-1-1"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_a_proof_takes_all_back(world: World, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    before = json.dumps(world.stand.tables, sort_keys=True)
    count: list[int] = []

    def prove() -> Path:
        count.append(1)
        if len(count) == 2:
            signal.raise_signal(number)
        return World.prove(world)

    monkeypatch.setattr(world, "prove", prove)
    result = world.gb10("apply", "--yes", "--json")
    assert (result.exit_code, json.loads(result.stdout)["outcome"]) == (130, "interrupted")
    assert len(count) == 2 and json.dumps(world.stand.tables, sort_keys=True) == before


def test_where_the_way_back_fails_a_person_gets_its_commands(world: World) -> None:
    world.proofs = [set(), {MTU_FAULT}]
    run = world.prove

    def prove() -> Path:
        if len(world.proofs) == 1:
            world.stand.writers = frozenset()
        return run()

    world.prove = prove  # type: ignore[method-assign]
    document = json.loads(world.gb10("apply", "--yes", "--json").stdout)
    assert document["returned"] == [] and 'name="qsfp56-1-1"] l2mtu=1584' in document["stuck"][0]
    (file,) = (world.folder / ".gb10/switch").glob("back-*.rsc")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and len(file.read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"consent": False}, "set gb10_switch_allow_apply: true in the inventory"),
        ({"services": [{"name": "vllm", "state": "active"}]}, "spark-a vllm"),
        ({"writer": None}, "gb10_switch.apply_user names no account"),
        ({"answer": False}, "say --yes"),
    ],
)
def test_nothing_changes_without_consent_account_and_quiet_hosts(
    world: World, change: dict[str, Any], says: str
) -> None:
    world.services = change.get("services", [])
    world.row["consent"] = change.get("consent", True)
    if "writer" in change:
        del world.row["switch"]["apply_user"]
    result = world.gb10("apply", *(["--yes"] if change.get("answer", True) else []))
    assert result.exit_code == Outcome.refused and says in result.stderr
    assert not [words for words in world.stand.heard if words[0].endswith("/set")]


def test_a_rollout_at_work_is_not_disturbed(world: World) -> None:
    with locks.held(world.folder / ".gb10"):
        assert world.gb10("apply", "--yes").exit_code == Outcome.refused


def test_no_secret_is_on_a_command_line_or_in_what_is_shown(world: World) -> None:
    said = world.gb10("apply", "--yes")
    told = said.output + json.dumps([dict(order.variables) for order in world.orders]) + str(world.stand.heard)
    assert "read-secret" not in told and "write-secret" not in told
