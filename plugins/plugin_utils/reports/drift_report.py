# SPDX-License-Identifier: GPL-3.0-or-later
"""From what the hosts replied to one scan to a document, a table and files.

`judge` and `build` decide and do no I/O; `write` puts the files in place. The shape of the document is described in
schemas/drift.schema.json.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.reading.stop_requests import ShownWish
from ansible_collections.gb10.fleet.plugins.module_utils.system.consent import give
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import NO_CONTACT, Finding, from_failure
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import output
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.stop_requests import is_asleep, said_of
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.scan import SSH_FAILED, Reply
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports.changes import columns

SCHEMA_VERSION = 1
CLEAN, DRIFT, UNFINISHED, NO_MANIFEST, SILENT = _STATES = ("clean", "drift", "unfinished", "no_manifest", "silent")
TO_CONVERGE = (DRIFT, UNFINISHED, NO_MANIFEST)
# Why a host is silent. The first three are findings of the doctor as well.
REASONS = ("unreachable", "host_key", "no_sudo", "permission", "timeout", "garbled", "error")
NOT_REACHED = NO_CONTACT | {"timeout"}  # Ansible's word for these: unreachable
DOCUMENT, LIMIT, SILENT_HOSTS = "drift.json", "drifted.txt", "silent.txt"
TABLE_LINES = 200  # what a person may still read; drift.json has the rest

OVERRIDDEN = "overridden"  # the action of module_utils/engine/next_boot.py
Record = dict[str, Any]


# -- one host ----------------------------------------------------------------------------------------------------------


def judge(
    reply: Reply,
    answer: Mapping[str, Any] | None,
    timeout_s: float,
    cluster: str,
    consented: Callable[[str], bool] = lambda _name: False,
    size: int = 0,
    others: bool = True,
) -> Record:
    """Return what is known of a host after its reply; `answer` is the engine's, None where there was none in it.

    `cluster` is what a --limit names to have this host with all that it works with; `consented`: whether the inventory
    of the host gives a consent; `size` and `others` as for `from_failure`.
    """
    if answer is None:
        return _no_answer(reply, timeout_s, cluster, size, others)
    try:
        if answer["error"]:
            return silent("error", str(answer["error"]["message"]), "repair what it names, then scan again")
        if not answer["known"]:
            return _record(NO_MANIFEST)
        changes: dict[str, list[Record]] = {}
        for item in [*answer["changes"], *answer["pending"]]:
            changes.setdefault(str(item["role"]), []).append(_difference(item, consented))
        orphans = [{key: str(item[key]) for key in ("role", "resource")} for item in answer["orphans"]]
        wished = [{key: str(item[key]) for key in ShownWish.__annotations__} for item in answer.get("wishes", [])]
        state = DRIFT if changes else CLEAN if answer["recorded"] else UNFINISHED
    except (KeyError, TypeError, AttributeError) as error:
        return garbled(f"the answer is not as documented: {error!r}", cluster)
    return _record(state, changes, orphans, wishes=wished)


def silent(reason: str, text: str, way_out: str) -> Record:
    """The record of a host of which nothing is known, and why."""
    return _record(SILENT, silence={"reason": reason, "text": text, "way_out": way_out})


def _record(
    state: str,
    changes: Mapping[str, Any] | None = None,
    orphans: Sequence[Record] = (),
    silence: Mapping[str, str] | None = None,
    wishes: Sequence[Record] = (),
) -> Record:
    return {
        "state": state,
        "changes": dict(changes or {}),
        "orphans": list(orphans),
        "wishes": list(wishes),
        "silence": silence,
    }


def _difference(item: Mapping[str, Any], consented: Callable[[str], bool]) -> Record:
    """One resource that differs. Drift that needs a consent to be repaired comes as pending; it is no less drift.

    The scan sends the host no consents, so one that is set is not asked for here.
    """
    consent = item.get("consent")
    consent = None if consent and consented(consent) else consent
    asks = f"the repair needs your consent: {give(consent)}" if consent else None
    detail = "; ".join(filter(None, (str(item.get("detail") or ""), asks)))
    return {"resource": str(item["resource"]), "action": str(item["action"]), "detail": detail, "consent": consent}


def garbled(text: str, cluster: str) -> Record:
    """The record of a host whose answer nobody can use."""
    command = f"`ansible-playbook gb10.fleet.doctor --limit {shlex.quote(cluster)} -vvv`"
    return silent("garbled", text, f"run {command}; it shows all of what the host says")


def _no_answer(reply: Reply, timeout_s: float, cluster: str, size: int, others: bool) -> Record:
    said = " ".join(reply.stderr.split())[-300:]
    if reply.status is None:
        text = f"no answer within {timeout_s:g} s" + (f": {said}" if said else "")
        return silent("timeout", text, "look whether the host is overloaded or hangs; a longer timeout_s waits for it")
    failure, answered = f"{reply.stdout}\n{reply.stderr}", reply.status != SSH_FAILED
    finding: Finding = from_failure(reply.host, failure, answered, cluster, size, others)
    if finding.id in REASONS:
        return silent(finding.id, finding.fact, finding.way_out)
    if reply.status == 0:
        return garbled(f"there is no answer in what the host printed: {_tail(reply.stdout)}", cluster)
    text = f"the command ended with status {reply.status}: {said or _tail(reply.stdout)}"
    return silent("error", text, finding.way_out)


def _tail(text: str) -> str:
    return " ".join(text.split())[-200:] or "nothing"


# -- the document ------------------------------------------------------------------------------------------------------


def build(records: Mapping[str, Record], clusters: Mapping[str, str], now: datetime, seconds: float) -> Record:
    """The document of one scan. `clusters` names the cluster of each host that is in one."""
    by_state = {state: [host for host, record in records.items() if record["state"] == state] for state in _STATES}
    drifted = [host for host, record in records.items() if record["state"] in TO_CONVERGE]
    converge = _whole_clusters(drifted, by_state[SILENT], records, clusters)
    return {
        "schema_version": SCHEMA_VERSION,
        "created": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "seconds": round(seconds, 2),
        "clean": len(by_state[CLEAN]),
        "drifted": drifted,
        "silent": by_state[SILENT],
        "converge": converge,
        "hosts": dict(records),
    }


def _whole_clusters(
    drifted: Sequence[str], silent_hosts: Sequence[str], hosts: Mapping[str, Any], clusters: Mapping[str, str]
) -> list[str]:
    """The hosts to converge: doctor refuses a part of a cluster, and one unreachable host would stop them all."""
    own = {host: ("cluster", clusters[host]) if host in clusters else ("host", host) for host in hosts}
    wanted = {own[host] for host in drifted} - {own[host] for host in silent_hosts}
    return [host for host in hosts if own[host] in wanted]


# -- for people --------------------------------------------------------------------------------------------------------


def table(document: Mapping[str, Any]) -> str:
    """Return what differs and who is silent, one line each, and what to do next."""
    rows = {host: [*_rows(host, record)] for host, record in document["hosts"].items()}
    shown, more = output.shares({host: own for host, own in rows.items() if own}, TABLE_LINES)
    lines = columns(row for own in shown.values() for row in own)
    lines += [f"... and {more} lines more, in {DOCUMENT}"] if more else []
    return "\n".join([_summary(document), *lines, *_advice(document)])


def summary(document: Mapping[str, Any]) -> str:
    """The table without its lines, which the hosts themselves say."""
    return "; ".join([_summary(document), *_advice(document)])


def result(host: str, record: Mapping[str, Any]) -> Record:
    """Return what Ansible is told of one host: ok, failed or unreachable, and why."""
    away = record["silence"] is not None and record["silence"]["reason"] in NOT_REACHED
    said: Record = {
        "changed": False,
        "failed": record["state"] != CLEAN and not away,
        "state": record["state"],
        "msg": "\n".join(columns(_rows(host, record))) or f"{host}: clean",
    }
    return {**said, "unreachable": True} if away else said


def _rows(host: str, record: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    if record["silence"]:
        silence = record["silence"]
        yield host, SILENT, silence["reason"], f"{silence['text']}; {silence['way_out']}"
    elif record["state"] == NO_MANIFEST:
        yield host, "-", "never set up", "gb10-fleet has not run here, or was undone; gb10 site -i INVENTORY sets it up"
    elif record["state"] == UNFINISHED:
        yield host, "-", "unfinished", "the last run was interrupted; run gb10.fleet.site to its end"
    for role, changes in record["changes"].items():
        for change in changes:
            yield host, role, change["resource"], ": ".join(filter(None, (change["action"], change["detail"])))
    for wish in record["wishes"]:
        yield (
            host,
            "-",
            wish["unit"],
            f"{said_of(wish)} (no drift); `gb10 start` starts it{' now' if is_asleep(wish) else ''}",
        )
    for orphan in record["orphans"]:
        yield (
            host,
            orphan["role"],
            orphan["resource"],
            "orphan: the role no longer declares it, and it may stay (no drift); -e gb10_orphans=remove removes it",
        )


def _summary(document: Mapping[str, Any]) -> str:
    total, drifted, silent_hosts = (len(document[key]) for key in ("hosts", "drifted", "silent"))
    return f"{output.host_count(total)}: {document['clean']} clean, {drifted} drifted, {silent_hosts} silent"


def _advice(document: Mapping[str, Any]) -> Iterator[str]:
    if left_out := [host for host in document["drifted"] if host not in set(document["converge"])]:
        hosts = ", ".join(left_out)
        yield f"not in {LIMIT}, for a host of the same cluster is silent: {hosts}; repair that one, then scan again"
    repaired = [host for host in document["converge"] if _repaired(document["hosts"][host])]
    if repaired:
        yield "to repair it: gb10 site --drifted -i INVENTORY"
    if failed := next((host for host, record in document["hosts"].items() if _has_failed(record)), ""):
        yield f"why a unit failed: gb10 why {failed} -i INVENTORY"
    listed = [changes for record in document["hosts"].values() for changes in record["changes"].values()]
    if any(change["action"] == OVERRIDDEN for changes in listed for change in changes):
        yield f"what is {OVERRIDDEN} no run repairs: the file that is named is not ours"
    if not document["drifted"]:
        found = "no host that answered drifted" if document["silent"] else "nothing drifted"
        yield f"{found}, so {LIMIT} is not written"


def _has_failed(record: Mapping[str, Any]) -> bool:
    """Return whether a unit that should run has ended by a fault. One that somebody stopped is inactive."""
    changes = [change for changes in record["changes"].values() for change in changes]
    starts = [each for each in changes if each["resource"].startswith("unit:") and each["action"] == "start"]
    return any(each["detail"].startswith(("failed ", "activating ")) for each in starts)


def _repaired(record: Mapping[str, Any]) -> bool:
    """Return whether a run has something to do there."""
    changes = [change for changes in record["changes"].values() for change in changes]
    return record["state"] in TO_CONVERGE and (not changes or any(change["action"] != OVERRIDDEN for change in changes))


def stats(document: Mapping[str, Any]) -> Record:
    """Return what a task returns for AWX to keep as artifacts of the job, as the module set_stats would."""
    found = {key: document[key] for key in ("created", "clean", "drifted", "silent", "converge")}
    return {"data": {"gb10_drift": found}, "per_host": False, "aggregate": False}


# -- files -------------------------------------------------------------------------------------------------------------


def write(document: Mapping[str, Any], directory: Path) -> Path | None:
    """Each file whole or not at all. Returns the limit file; None if no host is to be converged.

    A list without hosts is removed, not emptied: `--limit` with an empty file means every host.
    """
    directory.mkdir(parents=True, exist_ok=True)
    output.write(directory / DOCUMENT, json.dumps(document, indent=1) + "\n")
    for name, hosts in ((LIMIT, document["converge"]), (SILENT_HOSTS, document["silent"])):
        if hosts:
            output.write(directory / name, "".join(f"{host}\n" for host in hosts))
        else:
            (directory / name).unlink(missing_ok=True)
    return directory / LIMIT if document["converge"] else None
