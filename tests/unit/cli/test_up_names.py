"""Names in the inventory of `gb10 up`: certificates, keys and variables go by them, so who has one keeps it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gb10_fleet.discover import asking, host_keys
from gb10_fleet.discover.asking import Answer
from gb10_fleet.discover.places import Place
from gb10_fleet.home import KNOWN_HOSTS
from gb10_fleet.up import search, written
from gb10_fleet.up.cables import Cluster
from gb10_fleet.up.people import Person, Stop
from tests.support.attacker import tally
from tests.support.discovered import key
from tests.support.proofs import facts

A, B, C = "192.0.2.11", "192.0.2.12", "192.0.2.13"
NUMBERS = {A: 1, B: 2, C: 3}
PRINTS = frozenset(host_keys.fingerprint(key(number)) for number in NUMBERS.values())


@dataclass
class Network:
    """Who answers at each address: the number of its key, its host name, and the address that it has itself."""

    folder: Path
    at: dict[str, tuple[int, str, str]] = field(default_factory=dict)

    def keys_of(self, asked: Sequence[Place]) -> dict[Place, dict[str, str]]:
        return {place: {"ssh-ed25519": key(self.at[place.address][0])} for place in asked if place.address in self.at}

    def ask(self, keys: Mapping[Place, Any], *_: Any) -> list[Answer]:
        found = []
        for place, own_keys in keys.items():
            number, hostname, own = self.at[place.address]
            said = facts(hostname) | {"boot_id": f"boot-{number}", "hostname": hostname}
            found.append(Answer(place, own_keys, {**said, "ssh": {**said["ssh"], "local_address": own}}, True))
        return found

    def up(self, *new: str, prints: frozenset[str] = PRINTS) -> dict[str, str]:
        """As the command finds hosts and writes them; returns their names by address."""
        known = written.read(self.folder)
        hosts = {host.place: host.name for host in known.hosts if host.place} if known else {}
        found = search.find(
            [*hosts, *map(Place, new)], None, prints, self.folder / KNOWN_HOSTS, 1, (), Person(yes=True),
            local=False, members=search.members_of(self.folder, hosts),
        )  # fmt: skip
        names = {spark.place.address: spark.name for spark in found.sparks}
        alone = [Cluster((name,)) for name in names.values()]
        fleet = written.Fleet([written.Host(spark.name, spark.place) for spark in found.sparks], alone)
        written.write(fleet, self.folder, found.keys)
        return names


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Network:
    made = Network(tmp_path / "inventory", {A: (1, "spark-a", A), B: (2, "spark-b", B)})
    monkeypatch.setattr(host_keys, "keys_of", made.keys_of)
    monkeypatch.setattr(asking, "ask", made.ask)
    monkeypatch.setattr(search, "_USER_KNOWN_HOSTS", tmp_path / "known")
    return made


def share(network: Network, *names: str) -> None:
    lines = "".join(f"    {name}: {{gateway_certificate_text: a private key}}\n" for name in names)
    (network.folder / "share.yml").write_text(f"all:\n  hosts:\n{lines}")


def test_a_host_that_says_the_name_of_another_one_takes_none_away(network: Network) -> None:
    """Both were called by their addresses then: the honest one lost its certificate, address and variables."""
    before = network.up(A, B)
    network.at |= {A: (1, "spark-b", A), C: (3, "spark-c", C)}
    after = network.up(C)
    tally("a host says the name of another one, which loses its own", 1, int(after[B] != "spark-b"))
    assert after == {**before, C: "spark-c"} == {A: "spark-a", B: "spark-b", C: "spark-c"}


def test_no_host_gets_the_private_key_of_another_one_by_its_name(network: Network) -> None:
    """First it hands on connections, so that both are called by an address of its choice. Later it says that name."""
    lower = "192.0.2.5"
    network.at |= {A: (1, "spark-b", A), lower: (2, "spark-b", B)}
    before = network.up(lower, A, B)
    share(network, *before.values())
    network.at = {A: (1, before[B], A), B: (2, "spark-b", B), C: (3, "spark-c", C)}
    after = network.up(C)
    tally("a host gets what the inventory has for another one", 1, int(after[A] == before[B]))
    assert after == {**before, C: "spark-c"}
    assert before == {A: "spark-192-0-2-11", B: "spark-192-0-2-12"}, "named by the place where it is managed"


def test_a_new_host_gets_no_name_that_a_source_of_the_inventory_has(
    network: Network, capsys: pytest.CaptureFixture[str]
) -> None:
    network.up(A, B)
    share(network, "shared-1")
    for file in ("host_vars/alone.yml", "host_vars/dotted.lan/main.yml", "group_vars/group/x.yml"):
        (network.folder / file).parent.mkdir(parents=True, exist_ok=True)
        (network.folder / file).write_text("gb10_reserved: ada\n")
    (network.folder / "more.yml").write_text("all:\n  children:\n    racks:\n      hosts:\n        many-[1:3]:\n")
    names = ("spark-b", "SPARK-B", "shared-1", "alone", "dotted.lan", "group", "many-2", "racks")
    wins = 0
    for name in names:
        network.at[C] = (3, name, C)
        found = search.find(
            [Place(C)], None, PRINTS, network.folder / KNOWN_HOSTS, 1, (), Person(yes=True), local=False,
            members=search.members_of(network.folder, {}),
        )  # fmt: skip
        wins += found.sparks[0].name != "spark-192-0-2-13"
        assert f"says that it is {name}, a name that the inventory has" in capsys.readouterr().out
    tally("a new host says a name that the inventory has variables for", len(names), wins)
    assert not wins


def test_a_name_by_an_address_is_had_once(network: Network) -> None:
    """Another host was managed there before, and still has that name."""
    network.at[A] = (1, "localhost", A)
    assert network.up(A)[A] == "spark-192-0-2-11"
    network.at = {C: (1, "localhost", C)}
    assert network.up(C) == {C: "spark-192-0-2-11"}
    network.at[A] = (2, "all", A)
    assert network.up(A) == {C: "spark-192-0-2-11", A: "spark-192-0-2-11-2"}


def test_a_fingerprint_is_not_the_place_of_another_host(network: Network) -> None:
    """It was meant for the new host, which answers at the address of one in the inventory as well."""
    network.up(A, B)
    network.at |= {B: (3, "spark-b", B), C: (3, "spark-c", C)}
    wins = 0
    with pytest.raises(Stop, match=rf"{B}: its host key is not the one in .*set up anew, or another machine"):
        wins = len(network.up(C))
    tally("a host that was vouched for takes the place of another one", 1, wins)


def test_a_host_with_another_address_keeps_its_name(network: Network, capsys: pytest.CaptureFixture[str]) -> None:
    network.up(A, B)
    network.at = {A: (1, "spark-a", A), C: (2, "spark-b", C)}
    assert network.up(C) == {A: "spark-a", C: "spark-b"}
    assert f"spark-b was at {B}; its host key answers at {C} now" in capsys.readouterr().out
    assert f"{C} ssh-ed25519 {key(2)}\n" in (network.folder / KNOWN_HOSTS).read_text()
    network.at[C] = (3, "spark-b", C)
    with pytest.raises(Stop, match="its host key is not the one"):
        network.up()
    del network.at[C]
    with pytest.raises(Stop, match="no answer over SSH"):
        network.up()


def test_a_board_that_was_set_up_anew_keeps_its_name(network: Network) -> None:
    network.up(A, B)
    network.at[B] = (3, "dgx", B)
    with pytest.raises(Stop, match="ssh-keygen -R"):
        network.up(prints=frozenset())
    keys = network.folder / KNOWN_HOSTS
    keys.write_text("".join(line for line in keys.read_text().splitlines(keepends=True) if B not in line))
    assert network.up() == {A: "spark-a", B: "spark-b"}


def test_no_host_drops_out_of_the_inventory_without_a_word(network: Network) -> None:
    """Its place hands on to another host of the fleet, and its old key was taken away."""
    network.up(A, B)
    network.at[B] = (1, "spark-a", A)
    keys = network.folder / KNOWN_HOSTS
    keys.write_text("".join(line for line in keys.read_text().splitlines(keepends=True) if B not in line))
    before = (network.folder / written.FILE).read_text()
    with pytest.raises(Stop, match=rf"spark-b \({B}\): in the inventory, and nobody has answered there as this host"):
        network.up()
    assert (network.folder / written.FILE).read_text() == before
