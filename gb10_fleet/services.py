"""What the hosts say of their services, and what a command makes of it. Pure; services_cli.py asks and prints."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.gb10.fleet.plugins.module_utils.reading.services import RUNS, Service
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import Finding
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import reserved
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import columns, counted
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.stop_requests import is_asleep, said_of
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports.usage import Usage, told_apart

if TYPE_CHECKING:
    from gb10_fleet.playbook import Report

# What the answer is known by: of each host its services; and of the inventory, by a task's step, its layouts.
MODULE, LAYOUTS = "gb10.fleet.glance", "layouts"
ASKS = {MODULE: "hosts", LAYOUTS: "msg"}


class Row(NamedTuple):
    host: str
    said: Service

    @property
    def runs(self) -> bool:
        return self.said["state"] in RUNS

    @property
    def wakes(self) -> bool:
        """Tell whether a request would start it."""
        wish = self.said["wish"]
        return wish is not None and is_asleep(wish)

    @property
    def rank(self) -> int:
        """Return its place in the cluster; requests go to the first."""
        return self.said.get("rank", 0)

    @property
    def answers(self) -> bool:
        """Tell whether it takes requests now, at an address and under a name that are known."""
        known = self.said.get("url") and self.said.get("served_name")
        return bool(known) and self.runs and self.rank == 0 and self.said["phase"] in (None, "ready")


class Refused(Exception):
    """A command that must not begin; the text names host or service, the fact and the way out."""


def answers_of(report: Report) -> dict[str, Mapping[str, Any]]:
    """What each host said. One that did not stands in the report then, as where each has a task of its own."""
    hosts = {host: said for result in report.answers[MODULE].values() for host, said in result["hosts"].items()}
    found = {host: said for host, said in hosts.items() if said["services"] is not None}
    for host, said in hosts.items():
        if said["silent"]:
            report.silent[host] = Finding(**said["silent"])
            report.messages[host] = [report.silent[host].fact]
        elif host not in found:
            report.messages[host] = [str(said["error"])]
    if hosts:
        counts = {"ok": found, "dark": report.silent, "failures": report.messages.keys() - report.silent.keys()}
        report.stats = {word: dict.fromkeys(names, 1) for word, names in counts.items()}
    return found


def inventory_of(report: Report) -> dict[str, Any]:
    """What the inventory says of the services, by what the playbook has read of it."""
    said = [json.loads(result["msg"]) for result in report.answers[LAYOUTS].values()]
    return dict(said[0]) if said else {}


def reach_of(report: Report) -> dict[str, Any]:
    """Return by host how it is reached, which services the inventory gives it, and the members of its cluster."""
    return dict(inventory_of(report).get("reach", {}))


def rows(answers: Mapping[str, Mapping[str, Any]], reach: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """Every service on every host, from the section services of gb10.fleet.spark_facts.

    A host may name anybody as a member of its cluster: those count that the inventory has there, by `reach`.
    """
    found = [Row(host, _joined(host, said, reach)) for host, answer in answers.items() for said in answer["services"]]
    return sorted(found, key=lambda row: (row.said["name"], row.host))


def _joined(host: str, said: Service, reach: Mapping[str, Mapping[str, Any]]) -> Service:
    mates = [host, *reach.get(host, {}).get("members", ())]
    return {**said, "members": [name for name in said["members"] if name in mates]}


def owners(reach: Mapping[str, Mapping[str, Any]]) -> dict[str, set[str]]:
    """Return by service the hosts that the inventory gives it to. `reach`: by host, what the inventory says."""
    found: dict[str, set[str]] = {}
    for host, said in reach.items():
        for name in said.get("services", ()):
            found.setdefault(name, set()).add(host)
    return found


def believed(found: Sequence[Row], owners: Mapping[str, Container[str]]) -> list[Row]:
    """Return the rows that count. Another host may claim a service: where one of its own is there, those alone do.

    A service that the inventory gives nobody any more is that of who has it.
    """
    own = {row.said["name"] for row in found if row.host in owners.get(row.said["name"], ())}
    return [row for row in found if row.said["name"] not in own or row.host in owners[row.said["name"]]]


def called(found: Sequence[Row], service: str, owners: Mapping[str, Container[str]]) -> list[Row]:
    """Return the rows of a service that count."""
    return believed([row for row in found if row.said["name"] == service], owners)


def chosen(
    found: Sequence[Row], service: str, asked: Sequence[str], silent: Sequence[str],
    owners: Mapping[str, Container[str]],
) -> tuple[list[Row], str]:  # fmt: skip
    """Return the hosts of a service, and why others of it are to stay as they are; empty where there are none.

    A cluster that lacks one of its own stays, for half of it serves nothing: a host speaks of its own cluster alone, so
    it keeps no other one from a stop. Refused where nothing is left.
    """
    mine = called(found, service, owners)
    if not mine and silent:
        raise silence(silent, found)
    if not mine:
        known = ", ".join(dict.fromkeys(row.said["name"] for row in found)) or "none yet"
        raise Refused(
            f"no service is called {service} on {', '.join(asked)}; there are {known}. `gb10 site` brings what the "
            "inventory has new"
        )
    whole = mine
    while lacking := [row for row in whole if {*row.said["members"]} - {row.host for row in whole}]:
        whole = [row for row in whole if row not in lacking]
    stays = [row for row in mine if row not in whole]
    missing = {member for row in stays for member in row.said["members"]} - {row.host for row in mine}
    lost = [host for host in silent if host in missing]
    if lost and not whole:
        raise silence(lost, mine)
    names = ", ".join(lost or sorted(missing))
    if not whole:
        raise Refused(f"{service} is served by {names} as well, and this run leaves that out; widen --limit")
    why = "no answer from" if lost else "this run does not find it on"
    return whole, f"{service} on {', '.join(row.host for row in stays)} stays as it is: {why} {names}" if stays else ""


def silence(lost: Sequence[str], found: Sequence[Row]) -> Refused:
    """Return the refusal for want of an answer. To leave a cluster out helps where another one is left of `found`."""
    others = any(row.host not in lost and not {*row.said["members"]} & {*lost} for row in found)
    way_out = "repair it, or leave its whole cluster out with --limit" if others else "repair it first"
    return Refused(f"{', '.join(lost)}: no answer, so nothing was changed; {way_out}")


def where(mine: Sequence[Row]) -> str:
    """The hosts of a service for a question; of more than one server also how many there are."""
    hosts = ", ".join(row.host for row in mine)
    servers = {frozenset(row.said["members"]) or frozenset((row.host,)) for row in mine}
    if len(servers) == 1:
        return hosts
    alone = sum(len(server) == 1 for server in servers)
    counts = [(len(servers) - alone, "cluster"), (alone, "single host")]
    return f"{' and '.join(counted(count, what) for count, what in counts if count)} ({hosts})"


def table(found: Sequence[Row], now: datetime) -> Iterator[str]:
    """One line for each service on a host."""
    if not found:
        yield "no service: `gb10 up` puts one on the hosts, or `gb10 site`"
        return
    head = ("SERVICE", "HOST", "STATE", "SINCE", "MODEL", "PORT", "MEMORY", "STOPPED BY")
    yield from columns([head, *(_line(row, now) for row in found)])


def _line(row: Row, now: datetime) -> tuple[str, ...]:
    service = row.said
    gib = service["memory_gib"]
    return (
        service["name"],
        row.host,
        service["phase"] or service["state"],
        _ago(service["since"], now),
        service["model"] or "-",
        str(service["port"] or "-"),
        f"{gib:.0f} GiB" if gib else "-",
        said_of(service["wish"]).removeprefix("stopped by ") if service["wish"] else "-",
    )


def reservations(reach: Mapping[str, Mapping[str, Any]], now: datetime) -> dict[str, str]:
    """Return by host for whom it is reserved now; of one that says it wrongly, how it is written."""
    found = {}
    for host, said in reach.items():
        try:
            found[host] = reserved.now_for(said.get("reserved"), now)
        except reserved.WrongReservation as error:
            found[host] = str(error)
    return {host: text for host, text in found.items() if text}


def usages(found: Sequence[Row], reach: Mapping[str, Mapping[str, Any]]) -> list[Usage]:
    """Return how to use each service that answers; `reach`: by host, what the inventory says."""
    known = [(row, reach.get(row.host, {})) for row in found if row.answers]
    return told_apart((said.get("cluster", row.host), _usage(row, said)) for row, said in known)


def _usage(row: Row, reach: Mapping[str, Any]) -> Usage:
    said: Mapping[str, Any] = row.said
    return Usage(
        service=said["name"],
        host=row.host,
        model=said["served_name"],
        url=said["url"],
        shared=reach.get("gateway") or "",
        login=reach.get("login", row.host),
        ssh_port=reach.get("ssh_port", 22),
        needs_key=reach.get("needs_key", False),
        tools=said["tools"],
    )


def _ago(since: int | None, now: datetime) -> str:
    """`3 h 12 min`; of a unit that was never up, nothing."""
    if not since:
        return "-"
    minutes = max(0, int(now.timestamp() - since) // 60)
    days, hours = minutes // 1440, minutes // 60 % 24
    return f"{days} d {hours} h" if days else f"{hours} h {minutes % 60} min" if hours else f"{minutes} min"


def document(found: Sequence[Row], silent: Sequence[str], now: datetime) -> dict[str, Any]:
    """For programs."""
    return {
        "schema_version": 1,
        "read": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "silent": list(silent),
        "services": [{"host": row.host, **row.said} for row in found],
    }


def without_service(mine: Sequence[Row], bound_s: float) -> str:
    """Return how long a change of a service leaves it without an answer, once its files are on the hosts.

    The load alone.
    """
    known = [row.said["load_s"] for row in mine if row.said["load_s"] is not None]
    if known:
        return f"{max(known):.0f} s without service: the load alone, as long as the last one took"
    return (
        f"up to {bound_s:.0f} s without service: no load of it is known, so this is the bound of"
        " vllm_ready_timeout; most loads take less"
    )
