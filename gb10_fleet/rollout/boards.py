"""Which board was behind a name when a run worked there, and whether it is that one still.

What a run did lies on the disk of a board. `gb10 replace` and `gb10 enrol` write down who has a name; where they have
not, nobody knows, and the name counts as before.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gb10_fleet.home import resolved
from gb10_fleet.playbook import Outcome
from gb10_fleet.rollout.journal import Journal, JournalError, Record, hosts_of, place
from gb10_fleet.rollout.waves import Refused
from gb10_fleet.rollout.written import Board

if TYPE_CHECKING:
    from gb10_fleet.enrol.judging import Known


def known(inventories: Sequence[str]) -> dict[str, Known]:
    """Return who has each name now, as far as it was written down."""
    from gb10_fleet.enrol import written  # here, for `gb10 status` needs none of it

    try:
        return written.ledger(place(inventories))
    except written.NotWritable as error:
        raise Refused(str(error)) from None


def noted(inventories: Sequence[str], hosts: Collection[str]) -> dict[str, Board | None]:
    """Return what a run keeps of the boards on which it is about to work."""
    now = known(inventories)
    return {name: {"machine": now[name].machine, "macs": [*now[name].macs]} if name in now else None for name in hosts}


def another(then: Board | None, now: Known | None) -> bool:
    """Tell whether it is another board, or the same one set up anew: that has the work of nobody either."""
    if now is None:
        return False
    if then is None:
        return now.replaced
    anew = None not in (then["machine"], now.machine) and then["machine"] != now.machine
    return anew or bool(then["macs"] and now.macs and not {*then["macs"]} & {*now.macs})


def others(journal: Journal, record: Mapping[str, Any], now: Mapping[str, Known]) -> list[str]:
    """Return the hosts of a run that are another board `now`; of a rollback, since the run that it takes back."""
    back = record["kind"] == "rollback"
    then = journal.boards(record["of"] if back else record["run"])
    hosts = [host["host"] for host in hosts_of(record) if host["started"] or back]
    return [name for name in hosts if another(then.get(name), now.get(name))]


def without(record: Record, names: Collection[str]) -> Record:
    """Return the record as if the run had not begun on these hosts."""
    fresh: Record = {"state": "planned", "reason": None, "started": None, "ended": None, "changes": []}
    waves = [
        {**wave, "hosts": [{**host, **fresh} if host["host"] in names else host for host in wave["hosts"]]}
        for wave in record["waves"]
    ]
    return {**record, "waves": waves}


def to_open(journal: Journal, record: Record) -> tuple[Record, list[str]]:
    """Return the record of a run as a resume goes on with it, and the hosts where that begins anew: other boards."""
    names = others(journal, record, known(record["order"]["inventories"]))
    if names and record["kind"] == "rollback":
        raise Refused(
            f"{names[0]} is another board now, and {record['of']} did nothing there: "
            f"begin a new one, which leaves it out: gb10 rollback {record['of']}"
        )
    return without(record, names), names


def reopen(journal: Journal, record: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Have the waves of these hosts begin anew. Returns a line for each."""
    if names:
        journal.reopen(record["run"], names)
    of = {host["host"]: host["cluster"] for host in hosts_of(record)}
    return [
        f"{name} is another board now: its wave begins again for {f'cluster {of[name]}' if of[name] else 'it'}"
        for name in names
    ]


def open_run(inventories: Sequence[str], host: str) -> tuple[str, str] | None:
    """Return the latest run, where it is not done and has this host, and the command that goes on with it."""
    mine = resolved(inventories)
    try:
        with Journal(place(inventories)) as journal:
            record = journal.record(None, mine)
    except (JournalError, sqlite3.Error):
        return None
    if record["outcome"] == Outcome.done.name or host not in {one["host"] for one in hosts_of(record)}:
        return None
    back = f"gb10 rollback {record['of']} -i INVENTORY leaves {host} out"
    on = f"gb10 resume {record['run']} -i INVENTORY works on the new board, too"
    return record["run"], back if record["kind"] == "rollback" else on


def to_take_back(journal: Journal, record: Record) -> tuple[Record, list[Record], list[str]]:
    """Return a record without the units in which another board is, those of before it, and a line for each such board.

    A cluster is down together, so it is left out as a whole. Of an earlier run counts what it did on today's boards.
    """
    now = known(record["order"]["inventories"])
    names = others(journal, record, now)
    of = {host["host"]: host["cluster"] for host in hosts_of(record)}
    clusters = {of[name] for name in names} - {None}
    left = without(record, {*names, *(name for name, cluster in of.items() if cluster in clusters)})
    if names and not any(host["started"] for host in hosts_of(left)):
        raise Refused(f"{', '.join(names)}: another board now, and {record['run']} did nothing there")
    earlier = [without(one, others(journal, one, now)) for one in journal.earlier(record)]
    return (
        left,
        earlier,
        [
            f"left out: {f'{of[name]}: ' if of[name] else ''}{name} is another board now; "
            "put the inventory back as it was, and roll it out there"
            for name in names
        ],
    )
