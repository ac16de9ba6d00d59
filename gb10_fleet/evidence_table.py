"""One proof as a table for a terminal, or as aligned lines for a pipe. evidence.json is for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import columns, host_count, printable
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import evidence_files, evidence_page, judge
from rich.console import Console
from rich.markup import escape
from rich.table import Table

_COLOURS = {
    **dict.fromkeys(("healthy", "as_planned", "serving"), "green"),
    **dict.fromkeys(("incomplete", "unknown", "accepted", "warn", "virtual"), "yellow"),
    **dict.fromkeys(("api", "free", "changed"), "default"),
}


class Row(NamedTuple):
    """One judged thing: where it is, what it is, the verdict, and the figures or the way out."""

    cluster: str
    what: str
    verdict: str
    detail: str


def rows(evidence: Mapping[str, Any]) -> Iterator[Row]:
    """Yield what a reader wants first: each cluster, then what its verdict is made of."""
    for cluster in evidence["clusters"]:
        name = cluster["name"]
        yield Row(name, f"{host_count(len(cluster['hosts']))}, {cluster['topology']}", cluster["verdict"], "")
        for pairing in cluster["pairings"]:
            ends = (f"{pairing[end]['host']} {pairing[end]['port']}" for end in ("server", "client"))
            least = f"at least {pairing['least_gbps']:g} Gb/s wanted"
            yield Row(name, " to ".join(ends), pairing["verdict"], "; ".join((_detail(pairing), least)))
        for cable in cluster["cabling"]:
            yield Row(name, f"{cable['host']} {cable['port']}", cable["verdict"], _detail(cable))
        for served in judge.services_of(cluster):
            yield Row(name, judge.title_of_service(served) or "model", served["verdict"], _detail(served))
            for label, value in evidence_page.api_rows(served):
                yield Row(name, label, "api", value)
        for host in cluster["hosts"]:
            if facts := evidence["hosts"][host]["facts"]:
                yield Row(name, host, "free", _room(facts))
            for finding in evidence["hosts"][host]["findings"]:
                if finding.get("accepted"):
                    yield Row(name, f"{host}: {finding['id']}", "accepted", finding["accepted"])


def remarks(evidence: Mapping[str, Any]) -> Iterator[Row]:
    """Yield what the page says beside its verdicts: that hosts are no Sparks, warnings, and what has changed since."""
    if hosts := evidence_page.virtual(evidence):
        yield Row("", ", ".join(hosts), "virtual", "no real Sparks: their figures say nothing of a Spark")
    for warning in evidence_page.warnings_of(evidence):
        text = f"{warning['id']}: {warning['fact']}; {warning['way_out']}"
        yield Row(evidence["hosts"].get(warning["hosts"][0], {}).get("cluster", ""), warning["host"], "warn", text)
    if since := evidence["since"]:
        for line in since["changes"] or ["nothing has changed"]:
            yield Row("", f"since {since['created']}", "changed", line)


def _room(facts: Mapping[str, Any]) -> str:
    """Free memory and disks."""
    memory = facts.get("memory_available_bytes")
    free = [] if memory is None else [f"{memory / evidence_page.GIB:.1f} GiB of memory"]
    return "; ".join([*free, *(f"{disk['mount']} {evidence_page.free_disk(disk)}" for disk in facts["disks"])])


def reasons(evidence: Mapping[str, Any]) -> Iterator[Row]:
    """Why the verdict of each cluster is no better."""
    for cluster in evidence["clusters"]:
        for reason in cluster["reasons"]:
            yield Row(cluster["name"], reason["where"], reason["what"], _detail(reason))


def _detail(judged: Mapping[str, Any]) -> str:
    return "; ".join(filter(None, (judged.get("text"), judged.get("way_out"))))


def show(evidence: Mapping[str, Any], console: Console, page: Path) -> None:
    """Print it: a table on a terminal, aligned lines elsewhere."""
    found = [*rows(evidence), *remarks(evidence)]  # of what is no evidence, nothing is printed
    if not console.is_terminal:
        shown = {row[:3] for row in found}  # a port or cable that is at fault is its own reason
        whole = dict.fromkeys([*found, *(row for row in reasons(evidence) if row[:3] not in shown)])
        for line in columns([tuple(map(printable, row)) for row in whole]) if whole else ():
            print(line)
        return
    title, caption = (escape(printable(text)) for text in (f"{evidence['verdict']}, {evidence['created']}", str(page)))
    table = Table(title=title, caption=caption, title_justify="left")
    for column in ("cluster", "what", "verdict", "detail"):
        table.add_column(column, overflow="fold")
    for row in found:
        cluster, what, verdict, detail = (escape(printable(field)) for field in row)
        table.add_row(cluster, what, f"[{_COLOURS.get(row.verdict, 'red')}]{verdict}[/]", detail)
    console.print(table)
    for reason in evidence["reasons"]:
        for line in evidence_files.reason_lines(reason):
            console.print(printable(line), markup=False, highlight=False)
