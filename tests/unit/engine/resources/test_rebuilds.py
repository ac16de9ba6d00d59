"""Of the rebuilds of one kernel's modules, the one that was built for the driver of the same transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources import rebuilds
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError

from tests.support.apt import RealApt

if TYPE_CHECKING:
    from tests.support.fake_host import FakeHost

MODULES, META, COMMON = (
    "linux-modules-nvidia-580-open-6.17.0-1014-nvidia",
    "linux-modules-meta",
    "nvidia-kernel-common-580",
)


def stanza(name: str, version: str, depends: str) -> str:
    return f"Package: {name}\nVersion: {version}\nDepends: {depends}\nDescription: x\n y\n\n"


def built(version: str, driver: str) -> str:
    """As Canonical's modules: they take one driver's userland only."""
    return stanza(MODULES, version, f"linux-image-6.17.0-1014-nvidia, {COMMON} (>= {driver}), {COMMON} (<= {driver}-1)")


SHOWN = (
    built("6.17.0-1014.14+1", "580.142")
    + built("6.17.0-1014.14+3", "580.159.03")
    + built("6.17.0-1014.14", "580.126.09")
    + stanza(META, "6.17.0-1014.14+1000", f"{MODULES} (= 6.17.0-1014.14+1)")
    + stanza(META, "6.17.0-1014.14+1001", f"{MODULES} (= 6.17.0-1014.14+3)")
    + stanza(META, "6.17.0-1014.140", f"{MODULES} (= 6.17.0-1014.140)")
)
WANTED = {META: "6.17.0-1014.14*", MODULES: "6.17.0-1014.14*"}


@pytest.mark.parametrize(
    ("driver", "modules", "meta"),
    [
        ("580.142-0ubuntu0.24.04.1", "6.17.0-1014.14+1", "6.17.0-1014.14+1000"),
        ("580.159.03-0ubuntu0.24.04.1", "6.17.0-1014.14+3", "6.17.0-1014.14+1001"),
    ],
)
def test_the_rebuild_for_the_driver_is_chosen_and_not_the_highest(driver: str, modules: str, meta: str) -> None:
    assert rebuilds.choose({COMMON: driver, **WANTED}, rebuilds.parse(SHOWN)) == {MODULES: modules, META: meta}


def test_without_a_driver_in_the_transaction_the_newest_that_goes_together_is_taken() -> None:
    chosen = rebuilds.choose(WANTED, rebuilds.parse(SHOWN))
    assert chosen == {MODULES: "6.17.0-1014.14+3", META: "6.17.0-1014.14+1001"}


def test_where_no_rebuild_fits_it_says_what_each_needs() -> None:
    with pytest.raises(
        rebuilds.NoneFits, match=rf"14\+3 needs {COMMON} \(<= 580\.159\.03-1\); .*14\+1 needs"
    ) as caught:
        rebuilds.choose({COMMON: "580.178.04-0ubuntu0.24.04.1", **WANTED}, rebuilds.parse(SHOWN))
    assert caught.value.name == MODULES or caught.value.name == META


def test_what_is_offered_nowhere_is_left_to_apt() -> None:
    assert rebuilds.choose({"other": "1.*", COMMON: "580.1-1"}, rebuilds.parse(SHOWN)) == {}


@pytest.mark.parametrize(
    ("relation", "version", "met"),
    [
        ("aa (>= 2)", "2-0", True), ("aa (>> 2)", "2-0", False), ("aa (<< 2)", "2~1", True), ("aa (= 1:2)", "2", False),
        ("aa (<= 2)", "2.1", False), ("aa", "1", True), ("aa:any (>= 2)", "1", False), ("aa (>= 2) | bb", "1", True),
        ("bb (>= 2)", "1", True),
    ],
)  # fmt: skip
def test_relations(relation: str, version: str, met: bool) -> None:
    groups = rebuilds.parse(stanza("x", "1", relation))["x"]["1"]
    assert rebuilds.fits(groups, {"aa": version}) == met


CONSENT = {"driver_allow_move": True}


def document(driver: str) -> list[dict[str, Any]]:
    versions = {COMMON: driver, MODULES: "6.17.0-1014.14*"}
    return [{"package": name, "version": each, "consent": "driver_allow_move"} for name, each in versions.items()]


@pytest.fixture
def apt(host: FakeHost) -> RealApt:
    offers = {
        COMMON: ["580.159.03-1", "580.142-0"],
        MODULES: ["6.17.0-1014.14+3", "6.17.0-1014.14+1"],
    }
    apt = RealApt(host, offers)
    host.on("apt-cache show", SHOWN)
    return apt


def test_a_move_names_the_rebuild_that_fits(host: FakeHost, apt: RealApt) -> None:
    host.converge(document("580.142-0"), **CONSENT)
    assert apt.packages == {COMMON: "580.142-0", MODULES: "6.17.0-1014.14+1"}
    assert all(f"{MODULES}=6.17.0-1014.14+1" in line for line in host.commands("apt-get install"))


def test_another_driver_on_the_same_kernel_brings_its_own_modules(host: FakeHost, apt: RealApt) -> None:
    """The installed build starts as wanted, and was made for the driver that goes."""
    host.converge(document("580.142-0"), **CONSENT)
    apt.depends[MODULES] = f"{COMMON} (>= 580.142), {COMMON} (<= 580.142-1)"
    apt.write()
    outcome = host.both(document("580.159.03-1"), **CONSENT)
    assert [change["action"] for change in outcome.changes] == ["exchange", "exchange"]
    assert apt.packages == {COMMON: "580.159.03-1", MODULES: "6.17.0-1014.14+3"}


def test_where_no_rebuild_fits_nothing_changes(host: FakeHost, apt: RealApt) -> None:
    apt.offers[COMMON].append("580.178.04-0")
    with pytest.raises(
        HostError, match=f"package:{MODULES}: no offered version fits the rest of the move: 6.17.0-1014"
    ):
        host.converge(document("580.178.04-0"), **CONSENT)
    assert apt.packages == {}
