# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The signs by which causes are ranked: ids of findings, and what the timeline shows around its last trouble. Pure.

unclean_boot, unclean_again    one boot, or several, ended without a shutdown
silent_end, end_<kind>         shortly before the last such end the journal had no fault, or one of that kind
end_serving                    vLLM's unit ran when the last such boot ended
kernel_changed, firmware_changed, driver_changed    shortly before the last trouble
service_<verdict>, service_failed                   what vLLM's unit gave as its reason
log_xid                        any Xid
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.finding import Finding
from ansible_collections.gb10.fleet.plugins.plugin_utils.health.patient import DAY_S, Patient
from ansible_collections.gb10.fleet.plugins.plugin_utils.health.timeline import (
    APT,
    CHANGES,
    LAST_LINE,
    SERVICE,
    UNCLEAN,
    Entry,
)

_DRIVER, _KERNEL = re.compile(r"\bnvidia-(driver|kernel)\S*|\blibnvidia-\S+"), re.compile(r"\blinux-(image|modules)\S*")
_SERVING = re.compile(r"gb10-vllm|vllm", re.IGNORECASE)


def of(patient: Patient, findings: Sequence[Finding], entries: Sequence[Entry]) -> dict[str, str]:
    """Each sign with what shows it."""
    signs = {finding.id: finding.fact for finding in findings}
    xids = [fact for id_, fact in signs.items() if id_.startswith("xid_")]
    if xids:
        signs["log_xid"] = xids[-1]
    recent = [entry for entry in entries if patient.recent(entry.at_s)]
    ends = [entry for entry in recent if entry.kind == UNCLEAN]
    if len(ends) > 1:
        signs["unclean_again"] = f"{len(ends)} boots ended without a shutdown"
    if ends:
        signs.update(_before_end(patient, ends[-1], recent))
    for entry in recent:
        if entry.kind == SERVICE:
            signs[f"service_{entry.key}"] = signs["service_failed"] = entry.text
    trouble = _last_trouble(patient, recent, findings)
    if trouble is not None:
        signs.update(_changes(patient, trouble, entries))
    return signs


def _before_end(patient: Patient, end: Entry, entries: Sequence[Entry]) -> Mapping[str, str]:
    span = float(patient.limit("before_end_s"))
    before = [entry for entry in entries if 0 <= end.at_s - entry.at_s <= span]
    faults = {f"end_{entry.kind}": entry.text for entry in before if entry.kind in patient.rules.events}
    found = faults or {"silent_end": f"the journal has no fault in the last {span:.0f} s of boot {end.key}"}
    lines = [entry.text for entry in before if entry.kind == LAST_LINE and _SERVING.search(entry.text)]
    return {**found, **({"end_serving": lines[-1]} if lines else {})}


def _last_trouble(patient: Patient, entries: Sequence[Entry], findings: Sequence[Finding]) -> float | None:
    """When: now, where a finding is of this very moment; else the last fault of the timeline."""
    faults = [entry.at_s for entry in entries if entry.kind in (UNCLEAN, SERVICE) or entry.kind in patient.rules.events]
    told = {"unclean_boot", *(finding.id for finding in findings if finding.id.startswith(("xid_", "log_")))}
    if any(finding.id not in told and finding.severity != "info" for finding in findings):
        return patient.reading["at_s"]
    return max(faults, default=None)


def _changes(patient: Patient, trouble_s: float, entries: Sequence[Entry]) -> dict[str, str]:
    span = float(patient.limit("change_days")) * DAY_S
    near = [entry for entry in entries if 0 <= trouble_s - entry.at_s <= span]
    found = {entry.kind: entry.text for entry in near if entry.kind in CHANGES.values()}
    for entry in near:
        if entry.kind == APT and _DRIVER.search(entry.text):
            found.setdefault("driver_changed", entry.text)
        if entry.kind == APT and _KERNEL.search(entry.text):
            found.setdefault("kernel_changed", entry.text)
    return found
