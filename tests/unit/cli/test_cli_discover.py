"""`gb10 discover`: places, host keys that several machines have, the inventory, and a real sshd where there is one."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from configparser import ConfigParser
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
import zeroconf
from typer.testing import CliRunner

from gb10_fleet.discover import asking, host_keys, machines, places
from gb10_fleet.discover import cli as discover_cli
from gb10_fleet.discover.asking import Answer
from gb10_fleet.discover.places import Place
from gb10_fleet.playbook import Outcome, _environment
from scripts.gates import ROOT
from tests.support.answers import EMPTY
from tests.support.attacker import tally
from tests.support.discovered import fake, key
from tests.support.proofs import facts

CLI = CliRunner()
BIN = Path(sys.executable).parent
NOW = datetime(2026, 11, 21, 1, 30, tzinfo=UTC)


def spark(address: str, number: int, *, keys: int | None = None, interface: str = "enP7s7", **more: Any) -> Answer:
    """What the Spark of this number says at an address; `keys`: those of another one."""
    said = {**facts(f"spark-{number}"), "boot_id": f"boot-{number}", "root": False, **more}
    said["ssh"] = {**said["ssh"], "interface": interface}
    return Answer(Place(address), {"ssh-ed25519": key(keys or number)}, said, asking.is_spark(said))


def found(*answers: Answer, asked: tuple[Place, ...] = ()) -> machines.Discovery:
    return machines.judge([*asked, *(answer.place for answer in answers)], answers)


# -- where to look -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["192.0.2.11"], ["192.0.2.11"]),
        (["spark-1a2b.local", "spark-1a2b.local"], ["spark-1a2b.local"]),
        (["192.0.2.11:2222"], ["192.0.2.11:2222"]),
        (["192.0.2.254-255"], ["192.0.2.254", "192.0.2.255"]),
        (["192.0.2.8/30"], ["192.0.2.9", "192.0.2.10"]),
        (["192.0.2.8/30:2222"], ["192.0.2.9:2222", "192.0.2.10:2222"]),
        (["2001:db8::1"], ["2001:db8::1"]),
        (["[2001:db8::1]:2222"], ["[2001:db8::1]:2222"]),
    ],
)
def test_places(words: list[str], expected: list[str]) -> None:
    assert [str(place) for place in places.places(words)] == expected


@pytest.mark.parametrize(
    "word",
    [
        "-oProxyCommand=touch", "spark a", "spark\na", "{{ lookup('pipe', 'id') }}", "192.0.2.300", "192.0.2.20-11",
        "192.0.2.1-999", "192.0.2.0/8", "192.0.2.11:0", "192.0.2.11:70000", "", ":22", "@/nowhere", "$(id)", "a;b",
        "spark-", "user@spark-a",
    ],
)  # fmt: skip
def test_what_is_no_place_is_refused(word: str) -> None:
    with pytest.raises(places.BadPlace):
        places.places([word])


def test_a_file_has_one_place_for_each_line(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("# the first rack\n192.0.2.11\n\nspark-b  # on the shelf\n")
    assert [str(place) for place in places.places([f"@{tmp_path / 'list'}"])] == ["192.0.2.11", "spark-b"]


def test_who_was_asked_for_by_a_network_may_be_silent() -> None:
    asked = (*places.places(["192.0.2.8/30"]), *places.places(["192.0.2.99"]))
    assert [str(place) for place in found(asked=asked).silent] == ["192.0.2.99"]


# -- keys --------------------------------------------------------------------------------------------------------------


def test_machines_with_keys_of_their_own_are_no_duplicates() -> None:
    assert found(*(spark(f"192.0.2.{number}", number) for number in range(1, 51))).duplicates == []


def test_all_duplicates_of_fifty_hosts_are_found() -> None:
    shared = {3: 1, 17: 1, 40: 39}
    answers = [spark(f"192.0.2.{number}", number, keys=shared.get(number)) for number in range(1, 51)]
    duplicates = found(*answers).duplicates
    assert [[*one.machines] for one in duplicates] == [
        ["spark-1 (192.0.2.1)", "spark-3 (192.0.2.3)", "spark-17 (192.0.2.17)"],
        ["spark-39 (192.0.2.39)", "spark-40 (192.0.2.40)"],
    ]
    assert duplicates[0].fingerprint == host_keys.fingerprint(key(1))


def test_three_keys_on_the_same_machines_are_one_duplicate() -> None:
    answers = [spark(f"192.0.2.{number}", number) for number in (1, 2)]
    same = {kind: key(9, kind) for kind in ("ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256")}
    assert len(found(*(Answer(one.place, same, one.facts, one.spark) for one in answers)).duplicates) == 1


def test_one_machine_at_two_addresses_is_one_host_managed_outside_of_the_fabric() -> None:
    result = found(spark("192.168.100.10", 1, interface="enp1s0f0np0"), spark("192.0.2.11", 1))
    assert result.duplicates == []
    (machine,) = result.sparks
    assert (str(machine.place), [str(place) for place in machine.also]) == ("192.0.2.11", ["192.168.100.10"])


def test_who_hands_a_connection_on_to_a_spark_is_not_the_way_to_it() -> None:
    """A stranger has the lower address, and who answers there is the Spark itself, with its own key."""
    (machine,) = found(spark("192.0.2.5", 1), spark("192.0.2.11", 1)).sparks
    tally(
        "a stranger who hands on connections becomes the address of a Spark", 1, int(str(machine.place) != "192.0.2.11")
    )
    assert (str(machine.place), [str(place) for place in machine.also]) == ("192.0.2.11", ["192.0.2.5"])


def test_a_host_that_says_the_boot_id_of_another_one_does_not_take_its_place() -> None:
    result = found(spark("192.0.2.11", 6, boot_id="boot-1", hostname="spark-1"), spark("192.0.2.12", 1))
    tally("a host says the boot id of another one, and takes its place", 1, int(len(result.sparks) != 2))
    assert {str(one.place): one.keys["ssh-ed25519"] for one in result.sparks} == {
        "192.0.2.11": key(6), "192.0.2.12": key(1),
    }  # fmt: skip


def test_a_host_that_lets_nobody_in_may_be_another_machine_with_the_same_key() -> None:
    locked = Answer(Place("192.0.2.12"), {"ssh-ed25519": key(1)}, silence="permission")
    (duplicate,) = found(spark("192.0.2.11", 1), locked).duplicates
    assert duplicate.machines == ("spark-1 (192.0.2.11)", "192.0.2.12")


def test_a_stranger_that_shows_the_key_of_a_spark_is_no_second_one() -> None:
    """Anybody may announce himself and show a public key; whom a person has named is judged all the same."""
    stranger = Answer(Place("192.0.2.12", named=False), {"ssh-ed25519": key(1)}, silence="permission")
    result = found(spark("192.0.2.11", 1), stranger)
    tally("a stranger shows the key of a Spark, and ends the search", 1, len(result.duplicates))
    assert result.duplicates == [] and [one.name for one in result.sparks] == ["spark-1"]


def test_only_the_key_that_a_person_compares_is_believed(tmp_path: Path) -> None:
    """ssh-keyscan asks for no proof: a stranger shows the Ed25519 key of a Spark, and an RSA key of its own."""
    said = {"ssh-rsa": key(6, "ssh-rsa"), "ssh-ed25519": key(11), "ecdsa-sha2-nistp256": key(7, "ecdsa-sha2-nistp256")}
    lines = "".join(f"192.0.2.11 {kind} {text}\n" for kind, text in said.items())
    (tmp_path / "said").write_text(f"{lines}192.0.2.12 ssh-rsa {key(8, 'ssh-rsa')}\n")
    keyscan = str(fake(tmp_path, "keyscan", f"cat {tmp_path}/said"))
    spark_a, old = Place("192.0.2.11"), Place("192.0.2.12")
    keys = host_keys.keys_of([spark_a, old], keyscan)
    believed = [*host_keys.known_hosts_lines({spark_a: keys[spark_a]})]
    tally("a stranger shows the key of a Spark, and proves another one", 1, int(len(believed) != 1))
    assert believed == [f"192.0.2.11 ssh-ed25519 {key(11)}\n"] and [*keys[old]] == ["ssh-rsa"]


def test_who_nobody_has_vouched_for_gets_nothing_that_ssh_would_forward(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        "Host *\nForwardAgent yes\nForwardX11 yes\nTunnel yes\nPermitLocalCommand yes\nLocalCommand touch /x\n"
        "RemoteForward 2222 localhost:22\nDynamicForward 1080\nGSSAPIDelegateCredentials yes\n"
    )
    words = [word for name, value in host_keys.ssh_options(tmp_path).items() for word in ("-o", f"{name}={value}")]
    said = subprocess.check_output(["ssh", "-G", "-F", config, *words, "192.0.2.11"], text=True).splitlines()
    given = {"forwardagent yes", "forwardx11 yes", "tunnel true", "permitlocalcommand yes", "clearallforwardings no"}
    given.add("gssapidelegatecredentials yes")
    tally("a stranger gets what ssh forwards to all hosts", 1, int(bool(given & set(said))))
    assert not given & set(said)


def test_no_run_gives_the_hosts_what_ssh_would_forward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root of one host used the agent of the operator on all others, for as long as a run had its connection."""
    monkeypatch.delenv("ANSIBLE_SSH_EXTRA_ARGS", raising=False)
    config = tmp_path / "config"
    config.write_text(
        "Host *\nForwardAgent yes\nForwardX11 yes\nTunnel yes\nPermitLocalCommand yes\n"
        "GSSAPIDelegateCredentials yes\nRemoteForward 2222 localhost:22\n"
    )
    checkout = ConfigParser(interpolation=None)
    checkout.read(ROOT / "ansible.cfg")
    given = {"forwardagent yes", "forwardx11 yes", "tunnel true", "permitlocalcommand yes"}
    given |= {"gssapidelegatecredentials yes", "clearallforwardings no"}
    monkeypatch.chdir(tmp_path)
    for words in (_environment(quiet=True)["ANSIBLE_SSH_EXTRA_ARGS"], checkout["ssh_connection"]["ssh_extra_args"]):
        said = subprocess.check_output(["ssh", "-G", "-F", config, *words.split(), "192.0.2.11"], text=True)
        tally("a host gets what ssh forwards to all hosts", 1, int(bool(given & {*said.splitlines()})))
        assert not given & {*said.splitlines()}


@pytest.mark.parametrize("place", ["here", "named", "home", "environment"])
def test_what_the_operator_says_of_ssh_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """The environment goes before a file, so ours alone would have taken a jump host away."""
    monkeypatch.delenv("ANSIBLE_SSH_EXTRA_ARGS", raising=False)
    monkeypatch.delenv("ANSIBLE_CONFIG", raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / {"here": "work/ansible.cfg", "home": ".ansible.cfg"}.get(place, "ansible.cfg")
    if place == "environment":
        monkeypatch.setenv("ANSIBLE_SSH_EXTRA_ARGS", "-J bastion -o ForwardAgent=yes")
    else:
        file.write_text("[ssh_connection]\nssh_extra_args = -J bastion -o ForwardAgent=yes\n")
    if place == "named":
        monkeypatch.setenv("ANSIBLE_CONFIG", str(tmp_path))
    words = _environment(quiet=True)["ANSIBLE_SSH_EXTRA_ARGS"].split()
    said = subprocess.check_output(["ssh", "-G", "-F", "none", *words, "192.0.2.11"], text=True).splitlines()
    assert {"proxyjump bastion", "forwardagent yes", "forwardx11 no", "permitlocalcommand no"} <= {*said}


def test_what_the_neighbours_share_is_not_ours_to_judge() -> None:
    router = [Answer(Place(f"192.0.2.{number}"), {"ssh-ed25519": key(7)}, silence="no") for number in (1, 2)]
    product = {"dmi_vendor": "Dell", "dmi_name": "XPS", "dmi_family": None, "dgx_release": None}
    laptops = [spark(f"192.0.2.{number}", number, keys=8, product=product) for number in (3, 4)]
    result = found(*router, *laptops, spark("192.0.2.11", 11))
    assert result.duplicates == [] and [str(place) for place in result.others] == ["192.0.2.3", "192.0.2.4"]
    assert [machine.name for machine in result.sparks] == ["spark-11"] and len(result.locked) == 2


@pytest.mark.parametrize(
    ("product", "said"),
    [
        ({"dmi_name": "NVIDIA_DGX_Spark"}, "NVIDIA DGX Spark, DGX OS 7.5.0"),
        ({"dmi_name": None, "dmi_family": "DGX Spark"}, "DGX Spark, DGX OS 7.5.0"),
        ({"dmi_name": None, "dmi_family": None}, "DGX Spark, DGX OS 7.5.0"),
        (
            {"dmi_name": None, "dmi_family": None, "dgx_release": None},
            "a machine whose firmware names no product, a system without a name",
        ),
    ],
)
def test_a_machine_is_named_by_what_names_it(product: dict[str, Any], said: str) -> None:
    """One of which DMI says nothing was "unknown", though /etc/dgx-release said what it is."""
    answer = spark("192.0.2.11", 11)
    facts = {**(answer.facts or {})}
    facts |= {"product": {**facts["product"], **product}, "os": {"id": None, "version_id": None, "pretty": None}}
    (machine,) = found(replace(answer, facts=facts)).sparks
    assert machine.product == said


def test_only_what_begins_like_a_key_is_one(tmp_path: Path) -> None:
    lines = [
        f"192.0.2.1 ssh-ed25519 {key(1)}", "192.0.2.1 ssh-rsa AAAA", "192.0.2.9 ssh-ed25519 AAAA", "# a banner",
        f"192.0.2.2 ssh-ed25519 {key(1, 'ssh-rsa')}", "192.0.2.2 ssh-ed25519 \x1b[2J",
    ]  # fmt: skip
    keyscan = fake(tmp_path, "ssh-keyscan", "cat >/dev/null; cat <<'END'\n" + "\n".join(lines) + "\nEND")
    asked = places.places(["192.0.2.1-2"])
    assert host_keys.keys_of(asked, str(keyscan)) == {Place("192.0.2.1"): {"ssh-ed25519": key(1)}}


def test_a_stranger_who_says_one_byte_hides_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ssh-keyscan of OpenSSH 9.2 waits for the rest of it for ever, and asks nobody else meanwhile."""
    monkeypatch.setattr(host_keys, "AT_ONCE", 2)  # so that somebody is beside the stranger
    monkeypatch.setattr(host_keys, "LATE_S", 4)
    waits = "case $names in *192.0.2.2*) exec sleep 60;; esac"
    says = f"for name in $names; do echo $name ssh-ed25519 {key(1)}; done"
    keyscan = fake(tmp_path, "ssh-keyscan", f"names=$(cat)\n{waits}\n{says}")
    asked = places.places(["192.0.2.1-4"])
    found = set(host_keys.keys_of(asked, str(keyscan)))
    hidden = set(asked) - found - {Place("192.0.2.2")}
    tally("a stranger holds up the scan of host keys", 1, int(bool(hidden)))
    assert found == set(asked) - {Place("192.0.2.2")}


def test_fingerprints_are_those_of_ssh_keygen(tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "id"], check=True)
    said = subprocess.check_output(["ssh-keygen", "-lf", tmp_path / "id.pub"], text=True).split()[1]
    assert host_keys.fingerprint((tmp_path / "id.pub").read_text().split()[1]) == said


# -- the inventory -----------------------------------------------------------------------------------------------------


def test_ansible_reads_the_inventory_and_ssh_its_keys(tmp_path: Path) -> None:
    file = tmp_path / "a folder" / "hosts.yml"
    machines.write(found(spark("192.0.2.11", 1), spark("192.0.2.12", 2)), file, "nvidia", NOW)
    listing = subprocess.run(
        [BIN / "ansible-inventory", "-i", file.parent, "--list"],
        capture_output=True, text=True, check=True, cwd=tmp_path,
        env={**os.environ, "ANSIBLE_INVENTORY_UNPARSED_FAILED": "1", "HOME": str(tmp_path)},
    )  # fmt: skip
    hosts = json.loads(listing.stdout)
    assert hosts["sparks"]["hosts"] == ["spark-1", "spark-2"] and "WARNING" not in listing.stderr
    assert hosts["_meta"]["hostvars"]["spark-1"]["ansible_host"] == "192.0.2.11"
    assert file.with_name("known_hosts.txt").read_text() == (
        f"192.0.2.11 ssh-ed25519 {key(1)}\n192.0.2.12 ssh-ed25519 {key(2)}\n"
    )
    rendered = subprocess.run(
        [BIN / "ansible", "all", "-i", file, "-l", "spark-1", "-m", "ansible.builtin.raw", "-a", "true", "-vvv"],
        capture_output=True, text=True, cwd=tmp_path, check=False, env={
            **os.environ, "HOME": str(tmp_path), "ANSIBLE_SSH_EXECUTABLE": str(fake(tmp_path, "ssh", SAY_OPTION)),
            "ANSIBLE_SSH_RETRIES": "0",
        },
    )  # fmt: skip
    assert rendered.returncode == 0, rendered.stdout
    assert (tmp_path / "said").read_text().split("\n")[0] == f"userknownhostsfile {file.with_name('known_hosts.txt')}"


# What ssh itself makes of the options that Ansible hands it.
SAY_OPTION = """here=${0%/*}; [ "$1" = -V ] && exec /usr/bin/ssh -V
/usr/bin/ssh -G "$@" | grep -i '^userknownhostsfile' >"$here/said"; exit 0"""


def test_hostile_names_do_not_get_into_the_inventory() -> None:
    hostile = spark("192.0.2.11", 1, hostname="{{ lookup('pipe', 'id') }}")
    product = {**(hostile.facts or {})["product"], "dmi_name": "a\n    evil: {ansible_host: x}", "dgx_release": None}
    said = {**(hostile.facts or {}), "product": {**product, "dmi_family": "DGX Spark"}}
    (machine,) = found(Answer(hostile.place, hostile.keys, said, True)).sparks
    assert machine.name == "spark-192-0-2-11"
    content = yaml.safe_load(machines.inventory([machine], None, NOW))
    assert content["all"]["children"]["sparks"]["hosts"] == {"spark-192-0-2-11": {"ansible_host": "192.0.2.11"}}


def test_two_machines_of_one_name_are_named_by_their_addresses() -> None:
    names = [one.name for one in found(*(spark(f"192.0.2.{n}", n, hostname="spark") for n in (1, 2))).sparks]
    assert names == ["spark-192-0-2-1", "spark-192-0-2-2"]


@pytest.mark.parametrize(
    "name",
    [
        *("sparks", "all", "ungrouped", "localhost", "Sparks", "192.0.2.99", "127.1", "2130706433", "0x7f.1"),
        *("pair1", "ring2", "Switch12"),
    ],
)
def test_no_machine_takes_a_name_that_means_something_else(name: str) -> None:
    """One called sparks took the variables of the group, and with them those of every other host."""
    machines = found(spark("192.0.2.11", 1, hostname=name), spark("192.0.2.12", 2, hostname="fine")).sparks
    assert [one.name for one in machines] == ["fine", "spark-192-0-2-11"]


def test_no_machine_takes_the_name_of_another_one() -> None:
    said = {1: "spark-192-0-2-2", 2: "all", 3: "Same", 4: "same"}
    names = [one.name for one in found(*(spark(f"192.0.2.{n}", n, hostname=said[n]) for n in said)).sparks]
    assert names == [f"spark-192-0-2-{n}" for n in said]


# -- the command, over a network that is made up -----------------------------------------------------------------------


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file of keys and one of facts for each address, and ssh-keyscan and ssh that know only these."""
    (tmp_path / "bin").mkdir()
    fake(tmp_path / "bin", "ssh-keyscan", f"while read -r name; do cat {tmp_path}/$name.keys 2>/dev/null; done; exit 1")
    fake(
        tmp_path / "bin",
        "ssh",
        'for word in "$@"; do case $word in [0-9]*.*.*.*) address=$word;; esac; done\n'
        'read -r size; head -c "${size:1}" >/dev/null\n'
        f'[ -e {tmp_path}/$address.json ] || {{ echo "me@$address: Permission denied (publickey)." >&2; exit 255; }}\n'
        f'echo "$@" >>{tmp_path}/argv; echo Welcome; cat {tmp_path}/$address.json',
    )
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(network: Path, number: int, *, keys: int | None = None, locked: bool = False) -> None:
    address = f"192.0.2.{number}"
    (network / f"{address}.keys").write_text(f"{address} ssh-ed25519 {key(keys or number)}\n")
    said = {**EMPTY, "facts": spark(address, number).facts}
    if not locked:
        (network / f"{address}.json").write_text(f"GB10-ANSWER:{json.dumps(said)}\n")


def run(*words: str) -> tuple[int, dict[str, Any]]:
    result = CLI.invoke(discover_cli.app, [*words, "--json"])
    return result.exit_code, json.loads(result.stdout)


def test_what_is_found_is_written_once(network: Path) -> None:
    put(network, 11)
    put(network, 12)
    status, answer = run("192.0.2.0/24", "-u", "nvidia")
    assert (status, answer["outcome"]) == (0, "done")
    assert [one["name"] for one in answer["sparks"]] == ["spark-11", "spark-12"] and answer["silent"] == []
    argv = (network / "argv").read_text()
    assert "StrictHostKeyChecking=yes" in argv and "-l nvidia" in argv and "ForwardAgent=no" in argv
    before = Path(answer["inventory"]).read_text()
    again = CLI.invoke(discover_cli.app, ["192.0.2.11"])
    assert again.exit_code == 2 and "--force" in again.output
    assert Path(answer["inventory"]).read_text() == before
    assert run("192.0.2.11", "--force")[0] == 0
    assert "spark-12" not in Path(answer["inventory"]).read_text()


def test_one_key_on_two_machines_is_refused_and_nothing_is_written(network: Path) -> None:
    put(network, 11)
    put(network, 12, keys=11)
    status, answer = run("192.0.2.11", "192.0.2.12", "-o", "mine/hosts.yml")
    assert (status, answer["outcome"], answer["inventory"]) == (Outcome.refused, "refused", None)
    assert answer["duplicates"][0]["machines"] == ["spark-11 (192.0.2.11)", "spark-12 (192.0.2.12)"]
    assert "ssh-keygen -A" in answer["way_out"] and not (network / "mine").exists()
    shown = CLI.invoke(discover_cli.app, ["192.0.2.11", "192.0.2.12"]).output
    assert "CVE-2026-24218" in shown and "Fix: on each of them" in shown


def test_who_is_named_and_does_not_answer_or_lets_nobody_in(network: Path) -> None:
    put(network, 11)
    put(network, 12, locked=True)
    status, answer = run("192.0.2.11", "192.0.2.12", "192.0.2.13")
    assert (status, answer["silent"]) == (Outcome.unreachable, ["192.0.2.13"])
    assert "does not let us in" in answer["locked"]["192.0.2.12"]
    assert [one["name"] for one in answer["sparks"]] == ["spark-11"]


def test_nobody_is_no_success(network: Path) -> None:
    assert run("192.0.2.0/30")[0] == Outcome.failed


def test_a_user_is_no_option(network: Path) -> None:
    put(network, 11)
    result = CLI.invoke(discover_cli.app, ["192.0.2.11", "--user=-oProxyCommand=x"])
    assert result.exit_code == 2 and not (network / "argv").exists()


# -- this machine itself, over a real sshd where there is one; a real multicast DNS ------------------------------------

# What is asked on a port is run here, if the host's key is the known one.
FAKE_KEYSCAN = """while read -r name; do for port in {ports}; do
  case "$*" in *"-p $port "*) echo "[$name]:$port {key}";; esac; done; done"""
FAKE_SSH = """for word in "$@"; do case $word in UserKnownHostsFile=*) known=${{word#*=}};; esac; command=$word; done
grep -qF "{key}" "$known" || {{ echo "Host key verification failed." >&2; exit 255; }}
SSH_CONNECTION="127.0.0.1 50000 127.0.0.1 22" exec /bin/sh -c "$command" """


@pytest.fixture
def ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Two ports of one machine, this one, and an ssh that logs in there with a key of its own."""
    for name in ("host", "mine"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    found = [_free_port(), _free_port()]
    options = {
        "HostKey": tmp_path / "host", "AuthorizedKeysFile": tmp_path / "mine.pub", "PidFile": "none", "UsePAM": "no",
        "StrictModes": "no", "PasswordAuthentication": "no", "ListenAddress": "127.0.0.1",
    }  # fmt: skip
    (tmp_path / "sshd_config").write_text("".join(f"{name} {value}\n" for name, value in options.items()))
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    # Where no service ever ran, sshd lacks its folder in /run.
    if program is None or subprocess.run([program, "-t", "-f", tmp_path / "sshd_config"], check=False).returncode:
        key_line = " ".join((tmp_path / "host.pub").read_text().split()[:2])
        words = f"{found[0]} {found[1]}"
        fake(tmp_path / "bin", "ssh-keyscan", FAKE_KEYSCAN.format(ports=words, key=key_line))
        fake(tmp_path / "bin", "ssh", FAKE_SSH.format(key=key_line))
        yield found
        return
    fake(tmp_path / "bin", "ssh", f'exec /usr/bin/ssh -F none -i {tmp_path}/mine -o IdentitiesOnly=yes "$@"')
    running = [
        subprocess.Popen([program, "-D", "-e", "-f", tmp_path / "sshd_config", "-p", str(port)], stderr=subprocess.PIPE)
        for port in found
    ]
    try:
        for port, process in zip(found, running, strict=True):
            _await(port, process)
        yield found
    finally:
        for process in running:
            process.terminate()
            process.wait()
            if process.stderr:
                process.stderr.close()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _await(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(200):
        if process.poll() is not None:
            said = process.stderr.read().decode() if process.stderr else ""
            pytest.fail(f"sshd does not start: {said.strip()}")
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    pytest.fail("sshd does not listen")


def test_a_real_host_says_who_it_is(ports: list[int]) -> None:
    """This machine is no Spark, but it says its boot id, and at two ports it is one machine with one key."""
    asked = places.places(f"127.0.0.1:{port}" for port in ports)
    keys = host_keys.keys_of(asked)
    assert set(keys) == set(asked)
    answers = asking.ask(keys, None)
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert [(answer.facts or {}).get("boot_id") for answer in answers] == [boot_id] * 2, answers
    as_spark = [Answer(one.place, one.keys, one.facts, True) for one in answers]
    result = machines.judge(asked, as_spark)
    assert len(result.sparks) == 1 and result.duplicates == []
    other = [as_spark[0], Answer(asked[1], keys[asked[1]], {**(answers[1].facts or {}), "boot_id": "another"}, True)]
    assert len(machines.judge(asked, other).duplicates) == 1


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"rails": 5}, "facts.rails is 5, and must be a list"),
        ({"boot_id": ["x"]}, "facts.boot_id is ['x'], and must be a text"),
        ({"product": {}}, "facts.product.dmi_vendor is missing"),
        ({"gpu": None}, "facts.gpu is None, and must be a mapping"),
    ],
)
def test_a_wrong_fact_is_called_by_its_name_and_the_others_go_on(
    network: Path, wrong: dict[str, Any], says: str
) -> None:
    put(network, 11)
    put(network, 12)
    said = {**EMPTY, "facts": {**(spark("192.0.2.12", 12).facts or {}), **wrong}}
    (network / "192.0.2.12.json").write_text(f"GB10-ANSWER:{json.dumps(said)}\n")
    sound, silent = (places.places([f"192.0.2.{number}"])[0] for number in (11, 12))
    answers = {answer.place: answer for answer in asking.ask(host_keys.keys_of([sound, silent]), None)}
    assert answers[sound].facts and not answers[sound].silence
    assert answers[silent].facts is None and answers[silent].silence.startswith(f"{says}; ")


def test_a_host_that_changes_its_key_after_the_scan_is_not_believed(ports: list[int]) -> None:
    (place,) = places.places([f"127.0.0.1:{ports[0]}"])
    (answer,) = asking.ask({place: {"ssh-ed25519": key(1)}}, None)
    assert answer.facts is None and "host key" in answer.silence


def test_multicast_dns_finds_who_announces_ssh() -> None:
    info = zeroconf.ServiceInfo(
        places.SERVICE, f"spark-1a2b.{places.SERVICE}", port=2222, addresses=[socket.inet_aton("127.0.0.1")],
        server="spark-1a2b.local.",
    )  # fmt: skip
    host = zeroconf.Zeroconf(interfaces=["127.0.0.1"], ip_version=zeroconf.IPVersion.V4Only)
    try:
        host.register_service(info)
        assert Place("127.0.0.1", 2222) in places.browse(2, ["127.0.0.1"])
    finally:
        host.close()


def test_a_name_that_is_none_of_the_service_ends_nothing() -> None:
    """A real announcement by a stranger, whose name the library refuses: who announces himself well is found."""
    bad = ["x._http._tcp.local", "x.example", "a\x01b._ssh._tcp.local", "x._SSH._TCP.local", "_tcp.local"]

    def wire(name: str) -> bytes:
        return b"".join(bytes([len(part)]) + part.encode() for part in name.split(".")) + b"\0"

    info = zeroconf.ServiceInfo(
        places.SERVICE, f"spark-1a2b.{places.SERVICE}", port=2222, addresses=[socket.inet_aton("127.0.0.1")],
        server="spark-1a2b.local.",
    )  # fmt: skip
    host = zeroconf.Zeroconf(interfaces=["127.0.0.1"], ip_version=zeroconf.IPVersion.V4Only)
    over = threading.Event()

    def announce() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
            while not over.wait(0.1):
                for name in bad:
                    pointer = wire("_ssh._tcp.local") + struct.pack("!HHIH", 12, 1, 4500, len(wire(name))) + wire(name)
                    stranger.sendto(struct.pack("!6H", 0, 0x8400, 0, 1, 0, 0) + pointer, ("224.0.0.251", 5353))

    caller = threading.Thread(target=announce)
    caller.start()
    try:
        host.register_service(info)
        found = places.browse(2, ["127.0.0.1"])
    finally:
        over.set()
        caller.join()
        host.close()
    tally("a name that ends the search of all", len(bad), int(Place("127.0.0.1", 2222) not in found))
    assert Place("127.0.0.1", 2222) in found


def test_a_stranger_who_announces_without_end_costs_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that never resolve, names with control characters, and one name with a thousand addresses."""
    asked: list[str] = []

    class Stranger:
        """In place of the network; a name of his takes as long as he is given."""

        def __init__(self, **_: Any) -> None:
            self.at_s = 0.0

        def get_service_info(self, _service: str, name: str, timeout: int) -> Any:
            asked.append(name)
            self.at_s += timeout / 1000
            if not name.startswith("0"):
                return None
            many = [f"192.0.2.{number % 250}" for number in range(1000)]
            return SimpleNamespace(parsed_addresses=lambda _version: many, port=22)

        def close(self) -> None:
            pass

    class Browser:
        def __init__(self, network: Any, service: str, handlers: Sequence[Any]) -> None:
            for number in range(100_000):
                handlers[0](network, service, f"{number:06}\x1b[2J.{service}", zeroconf.ServiceStateChange.Added)

        def cancel(self) -> None:
            pass

    stranger = Stranger()
    monkeypatch.setattr(zeroconf, "Zeroconf", lambda **_: stranger)
    monkeypatch.setattr(zeroconf, "ServiceBrowser", Browser)
    monkeypatch.setattr(places.time, "sleep", lambda _: None)
    monkeypatch.setattr(places.time, "monotonic", lambda: stranger.at_s)
    found = places.browse(1)
    tally("a stranger's announcements", 100_000, len(asked) > places.MOST_HEARD)
    assert len(found) <= places.MOST_ADDRESSES and stranger.at_s <= places.RESOLVING_S
    assert len(asked) <= places.MOST_HEARD


@pytest.mark.parametrize(
    ("address", "says"),
    [("nosuch.invalid", "this name is not known here"), ("127.0.0.1", "check power"), ("x" * 70, "not known here")],
)
def test_a_name_that_leads_nowhere_is_no_matter_of_power(address: str, says: str) -> None:
    assert says in discover_cli._no_answer(Place(address))
