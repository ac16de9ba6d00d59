# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The signs by which causes are ranked: ids of findings, and what the timeline shows around its last trouble. Pure.

unclean_boot, unclean_again    one boot, or several, ended without a shutdown
silent_end, end_<kind>         shortly before the last such end the journal had no fault, or one of that kind
end_serving                    vLLM's unit ran when the last such boot ended
kernel_changed, firmware_changed, driver_changed    shortly before what the cause is about
service_<verdict>, service_failed                   what vLLM's unit gave as its reason
log_xid                        any Xid
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ansible_collections.gb10.fleet.plugins.module_utils.checks.patient import Patient
from ansible_collections.gb10.fleet.plugins.module_utils.checks.timeline import (
    APT,
    CHANGES,
    LAST_LINE,
    SERVICE,
    UNCLEAN,
    Entry,
)
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import Finding

_DRIVER, _KERNEL = re.compile(r"\bnvidia-(driver|kernel)\S*|\blibnvidia-\S+"), re.compile(r"\blinux-(image|modules)\S*")
_UNIT = re.compile(r"\bgb10-vllm(-[a-z0-9-]*[a-z0-9])?\b")
_SERVING = re.compile(r"gb10-vllm|vllm", re.IGNORECASE)


@dataclass(frozen=True)
class Sign:
    """`at_s`: when it was last so. `unit`: of the service that it is about, where it is about one."""

    text: str
    at_s: float
    unit: str = ""


@dataclass(frozen=True)
class Signs:
    """By name; and the changes of kernel, driver and firmware, each of which may be long before a fault or after it."""

    found: Mapping[str, Sign]
    changes: Sequence[Entry]

    def before(self, name: str, fault_s: float, within_s: float) -> Sign | None:
        """The last change of that kind shortly before a fault."""
        near = [one for one in self.changes if one.kind == name and 0 <= fault_s - one.at_s <= within_s]
        return Sign(near[-1].text, near[-1].at_s) if near else None


def of(patient: Patient, findings: Sequence[Finding], entries: Sequence[Entry]) -> Signs:
    recent = [entry for entry in entries if patient.recent(entry.at_s)]
    found = {finding.id: _of_finding(patient, finding, recent) for finding in findings}
    xids = [sign for id_, sign in found.items() if id_.startswith("xid_")]
    if xids:
        found["log_xid"] = xids[-1]
    ends = [entry for entry in recent if entry.kind == UNCLEAN]
    if len(ends) > 1:
        found["unclean_again"] = Sign(f"{len(ends)} boots ended without a shutdown", ends[-1].at_s)
    if ends:
        found.update(_before_end(patient, ends[-1], recent))
    for entry in recent:
        if entry.kind == SERVICE:
            found[f"service_{entry.key}"] = found["service_failed"] = Sign(entry.text, entry.at_s, _unit(entry.text))
    return Signs(found, [change for entry in entries for change in _changes(entry)])


def _of_finding(patient: Patient, finding: Finding, entries: Sequence[Entry]) -> Sign:
    return Sign(finding.fact, _last(patient, finding.id, entries), _unit(finding.way_out))


def _unit(text: str) -> str:
    """The first unit of a service that is named."""
    found = _UNIT.search(text)
    return found[0] if found else ""


def _last(patient: Patient, id_: str, entries: Sequence[Entry]) -> float:
    """When a finding was last true: now, or where the timeline has it."""
    kind, _, key = id_.partition("_")
    times = [
        entry.at_s
        for entry in entries
        if (id_ == "unclean_boot" and entry.kind == UNCLEAN)
        or (kind == "xid" and (entry.kind, entry.key) == (kind, key))
        or (kind == "log" and entry.kind == key)
    ]
    return max(times, default=patient.reading["at_s"])


def _before_end(patient: Patient, end: Entry, entries: Sequence[Entry]) -> Mapping[str, Sign]:
    span = float(patient.limit("before_end_s"))
    before = [entry for entry in entries if 0 <= end.at_s - entry.at_s <= span]
    found = {f"end_{entry.kind}": Sign(entry.text, end.at_s) for entry in before if entry.kind in patient.rules.events}
    if not found:
        quiet = f"the journal has no fault in the last {span:.0f} s of boot {end.key}"
        found["silent_end"] = Sign(quiet, end.at_s)
    lines = [entry.text for entry in before if entry.kind == LAST_LINE and _SERVING.search(entry.text)]
    if lines:
        found["end_serving"] = Sign(lines[-1], end.at_s)
    return found


def _changes(entry: Entry) -> Iterator[Entry]:
    """What an entry changed, by the names of signs."""
    if entry.kind in CHANGES.values():
        yield entry
    if entry.kind == APT and _DRIVER.search(entry.text):
        yield replace(entry, kind=CHANGES["driver"])
    if entry.kind == APT and _KERNEL.search(entry.text):
        yield replace(entry, kind=CHANGES["kernel"])
