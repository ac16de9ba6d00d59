"""Whatever apt is offered and however it is asked, the host set stays; everything else moves on.

Real apt and dpkg on copies of a lab host: as the role `driver` wants it; the same without its holds, which `dpkg -i`
and `--allow-change-held-packages` take away until the next run; and with the usual `apt-mark hold` of the driver alone.
The table is printed: `pytest -s`. `make test` fills two fields of each row and column, `make test-all` the rest, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pytest

from lab.image import Image
from lab.shell import STATE
from tests.fleet.fleet import Fleet
from tests.fleet.upgrades import outcome, sandbox
from tests.fleet.upgrades.offers import BY_HAND, OFFERS, VERBS, Offer
from tests.fleet.upgrades.outcome import READ, Host
from tests.fleet.upgrades.sandbox import Sandbox

pytestmark = pytest.mark.lab

OURS, UNHELD, PLAIN = "ours", "ours without holds", "plain hold"
COLUMNS = (OURS, UNHELD, PLAIN)
ROWS = (*OFFERS, BY_HAND)
EXPLICIT = "explicit install"
WORKERS = 2


@dataclass(frozen=True)
class Cell:
    offer: Offer
    verb: str
    column: str
    before: Host
    after: Host
    output: str
    # Of our column: what the next run of the role says, and the host after it.
    run: dict[str, Any] | None = None
    unchanged: Host | None = None

    @property
    def word(self) -> str:
        return outcome.word(self.before, self.after)

    @property
    def name(self) -> str:
        return f"{self.column}: {self.offer.name}, {self.verb}"


def read(root: Sandbox) -> Host:
    return outcome.parse(root.must(READ))


def gate(root: Sandbox) -> tuple[str, ...]:
    """The identifiers of the verdicts."""
    return tuple(verdict["id"] for verdict in root.gate()["verdicts"])


def offered(column: Sandbox, offer: Offer) -> Sandbox:
    """The column's host with the offer in sight."""
    root = column.over(f"{column.upper.name}-{ROWS.index(offer)}")
    suites = " ".join(f"offer-{name}" for name in offer.suite.split())
    root.must(f"""
{offer.before}
source=/etc/apt/sources.list.d
sed 's/^Suites: .*/Suites: {suites}/' $source/dgx.sources >$source/offer.sources
apt-get -qq update
{offer.after}""")
    return root


def fill(host: Sandbox, offer: Offer, verb: str, column: str, before: Host) -> Cell:
    root = host.over(f"{host.upper.name}-{list(VERBS).index(verb)}")
    try:
        command = VERBS[verb] or f"apt-get -y {offer.explicit}"
        output = root.run(f"{command}\n{READ}").stdout
        cell = Cell(offer, verb, column, before, outcome.parse(output), output)
        return cell if column != OURS else replace(cell, run=root.converge("driver"), unchanged=read(root))
    finally:
        root.drop()


def first(row: int, verb: str) -> bool:
    """Whether `make test` has this field: the verb that names the offer, and one of the others in turn."""
    others = [it for it in VERBS if it != EXPLICIT]
    return verb in (EXPLICIT, others[row % len(others)])


class Matrix(NamedTuple):
    fields: frozenset[tuple[str, str]]  # names of offers and verbs that are filled
    cells: list[Cell]
    verdicts: dict[str, tuple[str, ...]]  # by offer: what the gate says of our host that has it in sight


@pytest.fixture(scope="module", params=[True, pytest.param(False, marks=pytest.mark.long)], ids=["first", "rest"])
def matrix(fleet: Fleet, request: pytest.FixtureRequest) -> Iterator[Matrix]:
    """The first fields of the table, or all others."""
    wanted = [(offer, verb) for row, offer in enumerate(ROWS) for verb in VERBS if first(row, verb) is request.param]
    image = Image.load(STATE / "hosts" / fleet.hosts[-1] / "image.json")
    with sandbox.fresh(image) as fresh, ThreadPoolExecutor(WORKERS) as pool:
        fresh.must("apt-get -qq update")
        before = read(fresh)
        ours, plain = fresh.over("ours"), fresh.over("plain")
        said = ours.converge("driver")
        assert not said["error"] and not said["refused"], said
        ours.put_files("coherence")
        plain.must("apt-mark hold nvidia-driver-580-open")
        unheld = ours.over("unheld")
        unheld.must("apt-mark showhold | xargs apt-mark unhold")
        places = [(name, offer) for offer in ROWS for name in COLUMNS]
        bases = dict(zip(COLUMNS, (ours, unheld, plain), strict=True))
        hosts = dict(zip(places, pool.map(lambda place: offered(bases[place[0]], place[1]), places), strict=True))
        verdicts = {offer.name: pool.submit(gate, hosts[OURS, offer]) for offer in ROWS}
        jobs = [
            pool.submit(fill, host, offer, verb, column, before)
            for (column, offer), host in hosts.items()
            for row, verb in wanted
            if row is offer
        ]
        fields = frozenset((offer.name, verb) for offer, verb in wanted)
        filled = Matrix(fields, [job.result() for job in jobs], {name: job.result() for name, job in verdicts.items()})
        print(f"\n{table(filled.cells)}")
        yield filled


@pytest.fixture
def cells(matrix: Matrix) -> list[Cell]:
    return matrix.cells


def table(cells: list[Cell]) -> str:
    """Offer x verb, the columns' words in each cell. `*`: the unrelated updates did not arrive."""

    def text(cell: Cell) -> str:
        return cell.word + ("*" if VERBS[cell.verb] and not cell.after.updated else "")

    words = {(cell.offer.name, cell.verb, cell.column): text(cell) for cell in cells}
    rows = [[" | ".join(COLUMNS), *VERBS]]
    rows += [
        [offer.name, *(" | ".join(words.get((offer.name, verb, column), "-") for column in COLUMNS) for verb in VERBS)]
        for offer in ROWS
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def of(cells: list[Cell], *columns: str) -> list[Cell]:
    return [cell for cell in cells if cell.column in columns]


def by_apt(cells: list[Cell], *columns: str) -> list[Cell]:
    """Without what was installed past apt; our column if none is named."""
    return [cell for cell in of(cells, *(columns or (OURS,))) if cell.offer is not BY_HAND]


def test_the_table_is_as_large_as_it_should_be(matrix: Matrix) -> None:
    assert len(ROWS) >= 12
    assert {offer for offer, _verb in matrix.fields} == {offer.name for offer in ROWS}
    assert {verb for _offer, verb in matrix.fields} >= {*VERBS} - {EXPLICIT}
    assert len(matrix.fields) in {len(ROWS) * 2, len(ROWS) * (len(VERBS) - 2)}  # the first of `make test`, and the rest
    assert len(matrix.cells) == len(COLUMNS) * len(matrix.fields)


def test_no_package_of_another_branch_or_flavour_is_installed(cells: list[Cell]) -> None:
    ours = [*of(cells, OURS), *by_apt(cells, UNHELD)]
    assert {cell.name: cell.after.foreign for cell in ours if cell.after.foreign} == {}


def test_no_bootable_kernel_is_without_its_module(cells: list[Cell]) -> None:
    ours = [*of(cells, OURS), *by_apt(cells, UNHELD)]
    assert {cell.name: cell.after.bare_kernels for cell in ours if cell.after.bare_kernels} == {}


def test_the_host_set_stays_as_it_is(cells: list[Cell]) -> None:
    """Even where its holds are gone: pins and holds stop apt each for itself."""
    assert {cell.name: cell.word for cell in by_apt(cells, OURS, UNHELD) if cell.word != "kept"} == {}


def test_everything_else_moves_on(matrix: Matrix, cells: list[Cell]) -> None:
    """What has nothing to do with the driver, and the container toolkit, whose fixes must come."""
    assert [cell.name for cell in by_apt(cells) if VERBS[cell.verb] and not cell.after.updated] == []
    toolkit = {cell.verb: cell.after.packages for cell in by_apt(cells) if cell.offer.suite == "toolkit"}
    verbs = [verb for offer in ROWS if offer.suite == "toolkit" for name, verb in matrix.fields if name == offer.name]
    assert {verb: found["libnvidia-container1"] for verb, found in toolkit.items()} == dict.fromkeys(verbs, "1.20.0-1")


def test_the_next_run_completes_the_holds(cells: list[Cell]) -> None:
    refused = {cell.name: cell.run for cell in by_apt(cells) if cell.run and (cell.run["error"] or cell.run["refused"])}
    assert refused == {}
    assert {
        cell.name: cell.unchanged.unheld for cell in by_apt(cells) if cell.unchanged and cell.unchanged.unheld
    } == {}


def test_the_gate_tells_what_is_wrong_and_nothing_else(matrix: Matrix) -> None:
    """With our pins an offer in sight is no danger, so it is not told; what is void or does not fit together is."""
    said = {name: set(verdicts) for name, verdicts in matrix.verdicts.items() if verdicts != ("coherent",)}
    assert said.pop("beside an invalid pin") == {"invalid_pin"}
    assert {"next_kernel_other_module", "hold_lost"} <= said.pop(BY_HAND.name)
    assert said == {}


def test_what_dpkg_installed_is_not_taken_for_the_set(cells: list[Cell]) -> None:
    """Nothing stops `dpkg -i`; but the next run does not make a set of what it brought."""
    for cell in (cell for cell in of(cells, OURS) if cell.offer is BY_HAND):
        assert cell.word == "MIXED", cell.output
        assert cell.run and cell.unchanged
        assert cell.run["refused"] or outcome.word(cell.before, cell.unchanged) == "kept", (cell.name, cell.run)


def test_plain_hold_fails_in_the_ways_that_are_known(cells: list[Cell]) -> None:
    """So that the table says something: the offers do bite."""
    plain = of(cells, PLAIN)
    closed = {"CLOSED"} if any(cell.verb == EXPLICIT for cell in plain) else set()  # nothing else brings that flavour
    assert {"MIXED", "NO MODULE"} | closed <= {cell.word for cell in plain}
    assert [cell for cell in plain if cell.after.foreign]
    assert [cell for cell in plain if cell.after.bare_kernels]
