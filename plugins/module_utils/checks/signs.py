# SPDX-License-Identifier: GPL-3.0-or-later
"""The signs by which causes are ranked: ids of findings, and what the timeline shows around its last trouble. Pure.

unclean_boot, unclean_again    one boot, or several, ended without a shutdown
silent_end, end_<kind>         shortly before the last such end the journal had no fault, or one of that kind
end_serving                    vLLM's unit ran when the last such boot ended
disk_lost_power, disk_kept_power    whether the SSD counts losses of power, as many as such boots or none at all
kernel_changed, firmware_changed, driver_changed    shortly before what the cause is about
service_<verdict>, service_failed                   what vLLM's unit gave as its reason
log_xid                        any Xid
display_thread                 a thread of the display is named in an Xid of the GPU's system processor
gpu_back                       the GPU answers, and its Xids are of a former boot
heat_throttled, power_brake    why the driver slows the GPU
rail_loss                      packets are lost on a rail, more than a sound fabric loses
start_hung                     in place of engine_hung, while a service starts
guard_rebooted, guard_saw      the host guard ended the last such boot, or saw it stand still for want of memory
pcie_<place>                   in place of log_pcie_error, where it is the SSD, the GPU or a card, and no ConnectX-7
no_space                       in place of disk_full, where nothing is left, or a service failed for it
disk_hot                       in place of disk_worn, where a disk is too hot and nothing else
untold_kill                    in place of log_oom_kill, where no journal tells what was killed, or why
own_limit                      in place of log_oom_kill, where each process was at the limit of its own group

A finding that is information is no sign.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ansible_collections.gb10.fleet.plugins.module_utils.checks.gpu_checks import braked
from ansible_collections.gb10.fleet.plugins.module_utils.checks.line_checks import pci_place
from ansible_collections.gb10.fleet.plugins.module_utils.checks.part_checks import loses_packets, only_hot
from ansible_collections.gb10.fleet.plugins.module_utils.checks.patient import Patient
from ansible_collections.gb10.fleet.plugins.module_utils.checks.timeline import (
    APT,
    CHANGES,
    CLEAN,
    GUARD,
    LAST_LINE,
    MOVES,
    SERVICE,
    UNCLEAN,
    Entry,
    few,
)
from ansible_collections.gb10.fleet.plugins.module_utils.reading import unit_names as units
from ansible_collections.gb10.fleet.plugins.module_utils.reading.kernel_log import SERVES
from ansible_collections.gb10.fleet.plugins.module_utils.reading.unit_status import READY
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import Finding

_DRIVER, _KERNEL = re.compile(r"\bnvidia-(driver|kernel)\S*|\blibnvidia-\S+"), re.compile(r"\blinux-(image|modules)\S*")
_GSP = ("119", "120")  # Xids of the GPU's system processor
_NAME = re.compile(r"\bname=([^,]{1,40}),")
ADAPTER = "ConnectX-7"
_UNIT = re.compile(r"\bgb10-vllm(-[a-z0-9-]*[a-z0-9])?\b")
DRIVER_MEMORY = "driver_memory"
_SERVING = re.compile(r"gb10-vllm|vllm", re.IGNORECASE)


@dataclass(frozen=True)
class Sign:
    """`at_s`: when it was last so. `unit`: of the service that it is about, where it is about one.

    `began_s`: when it was first so, where a line of the journal tells it.
    """

    text: str
    at_s: float
    unit: str = ""
    began_s: float | None = None


@dataclass(frozen=True)
class Signs:
    """By name; and the changes of kernel, driver and firmware, each of which may be long before a fault or after it.

    `served`: when each unit of a service began to serve.
    """

    found: Mapping[str, Sign]
    changes: Sequence[Entry]
    served: Mapping[str, Sequence[float]]

    def before(self, name: str, fault_s: float, within_s: float, unit: str = "") -> Sign | None:
        """The last change of that kind shortly before a fault. What a `unit` served after is not why it failed."""
        well_s = max((at_s for at_s in self.served.get(unit, ()) if at_s <= fault_s), default=0.0)
        near = [
            one
            for one in self.changes
            if one.kind == name and one.at_s >= well_s and 0 <= fault_s - one.at_s <= within_s
        ]
        return Sign(near[-1].text, near[-1].at_s) if near else None


def of(patient: Patient, findings: Sequence[Finding], entries: Sequence[Entry]) -> Signs:
    recent = [entry for entry in entries if patient.recent(entry.at_s)]
    times = _times(recent)
    found = {finding.id: _of_finding(patient, finding, times) for finding in findings if finding.severity != "info"}
    found.update(_told(patient, found))
    if "engine_hung" in found and _starts(patient):
        found["start_hung"] = found.pop("engine_hung")
    if "log_oom_kill" in found and patient.reading["events"] is None:
        found["untold_kill"] = found.pop("log_oom_kill")
    if "log_oom_kill" in found and _own_limits(patient):
        found["own_limit"] = found.pop("log_oom_kill")
    if "log_pcie_error" in found and (place := _other_place(patient)):
        found[f"pcie_{place}"] = found.pop("log_pcie_error")
    if "disk_worn" in found and only_hot(patient):
        found["disk_hot"] = found.pop("disk_worn")
    xids = [sign for id_, sign in found.items() if id_.startswith("xid_")]
    if xids:
        found["log_xid"] = xids[-1]
    ends = [entry for entry in recent if entry.kind == UNCLEAN]
    if len(ends) > 1:
        found["unclean_again"] = Sign(f"{len(ends)} boots ended without a shutdown", ends[-1].at_s)
    if ends:
        found.update(_before_end(patient, ends[-1], recent, found))
        found.update(_of_disks(patient, ends))
    cleans = [entry.at_s for entry in recent if entry.kind == CLEAN]
    for entry in recent:
        if entry.kind == SERVICE and not _at_clean_end(patient, entry, cleans) and not _serves(patient, entry):
            found["service_failed"] = Sign(entry.text, entry.at_s, _unit(entry.text))
            if not (entry.key == "rail_down" and patient.linked):
                found[f"service_{entry.key}"] = found["service_failed"]
    if "disk_full" in found and ("service_disk_full" in found or _nothing_left(findings)):
        found["no_space"] = found.pop("disk_full")
    served: dict[str, list[float]] = {}
    for event in patient.events:
        if event["kind"] == SERVES:
            served.setdefault(units.long_name(event.get("service", units.SHORT)), []).append(event["last_s"])
    return Signs(found, [change for entry in entries for change in _changes(entry)], served)


def _told(patient: Patient, found: Mapping[str, Sign]) -> Iterator[tuple[str, Sign]]:
    """What findings tell besides, for those causes that need it."""
    now_s = patient.reading["at_s"]
    if "gpu_throttled" in found:
        name = "power_brake" if braked(patient) else "heat_throttled"
        yield name, found["gpu_throttled"]
    gsp = [event for event in patient.events if event["kind"] == "xid" and event["key"] in _GSP]
    shown = [event for event in gsp if (named := _NAME.search(event["text"])) and named[1] in patient.rules.displays]
    if shown:
        yield "display_thread", Sign(f"a thread of the display is named: {shown[-1]['text']}", shown[-1]["last_s"])
    xids = [event for event in patient.events if event["kind"] == "xid"]
    answers = bool(patient.gpus) and len(patient.gpus) == len(patient.samples)
    if xids and answers and not any(patient.of_this_boot(event) for event in xids):
        yield "gpu_back", Sign("the GPU answers since the boot after it", now_s)
    if "rail_errors" in found and loses_packets(patient):
        yield "rail_loss", found["rail_errors"]


def _starts(patient: Patient) -> bool:
    """Return whether no server of the host counts yet: what hangs is a start."""
    return all(counted is None for server in patient.servers for counted in server.counted)


def _own_limits(patient: Patient) -> bool:
    """Whether none was killed for want of memory on the host: a container or a unit may have a limit of its own."""
    kills = [event["text"] for event in patient.events if event["kind"] == "oom_kill"]
    return bool(kills) and all(text.startswith("Memory cgroup") for text in kills)


def _nothing_left(findings: Sequence[Finding]) -> bool:
    return any((finding.id, finding.severity) == ("disk_full", "error") for finding in findings)


def _other_place(patient: Patient) -> str:
    """The first word for what failed on PCIe, where all of it is known and none is the ConnectX-7."""
    places = [pci_place(patient, event) for event in patient.events if event["kind"] == "pcie_error"]
    return places[-1].partition(" ")[0].lower() if all(places) and ADAPTER not in places else ""


def _of_disks(patient: Patient, ends: Sequence[Entry]) -> Iterator[tuple[str, Sign]]:
    """Whether the SSD lost its power as well: it counts that itself, for all its life."""
    counts = [disk["unsafe_shutdowns"] for disk in patient.reading["disks"] or ()]
    known = [count for count in counts if count is not None]
    if known and max(known) >= len(ends):
        yield "disk_lost_power", Sign(f"the SSD counts {max(known)} losses of power", ends[-1].at_s)
    elif known and max(known) == 0:
        yield "disk_kept_power", Sign("the SSD counts no loss of power at all", ends[-1].at_s)


def _at_clean_end(patient: Patient, entry: Entry, cleans: Sequence[float]) -> bool:
    """Return whether it belongs to a shutdown in good order, which ends each service. `cleans`: when there was one."""
    within_s = patient.limit("shutdown_s")
    return any(0 <= at_s - entry.at_s <= within_s for at_s in cleans)


def _serves(patient: Patient, entry: Entry) -> bool:
    """Return whether the service that failed serves: then that cause has ended, whatever the clock said meanwhile."""
    services = patient.reading.get("services") or {units.SHORT: patient.reading["service"]}
    unit = _unit(entry.text)
    service = next((each for name, each in services.items() if units.long_name(name) == unit), None)
    return service is not None and service["phase"] == READY


def _of_finding(patient: Patient, finding: Finding, times: Mapping[str, Sequence[float]]) -> Sign:
    """`times`: by finding; one that is not there is of now."""
    mine = times.get(finding.id, ())
    last_s, first_s = max(mine, default=patient.reading["at_s"]), min(mine, default=None)
    return Sign(finding.fact, last_s, _unit(finding.way_out), None if finding.id == "unclean_boot" else first_s)


def _unit(text: str) -> str:
    """The first unit of a service that is named."""
    found = _UNIT.search(text)
    return found[0] if found else ""


def _times(entries: Sequence[Entry]) -> dict[str, list[float]]:
    """When the timeline has what a finding is about, by the finding's id."""
    found: dict[str, list[float]] = {}
    for entry in entries:
        own = {UNCLEAN: "unclean_boot", "xid": f"xid_{entry.key}"}.get(entry.kind)
        for id_ in (f"log_{entry.kind}", *([own] if own else [])):
            found.setdefault(id_, []).append(entry.at_s)
    return found


def _before_end(
    patient: Patient, end: Entry, entries: Sequence[Entry], known: Mapping[str, Sign]
) -> Mapping[str, Sign]:
    """`known`: what is a fault at all; a line that healthy hosts have explains no end."""
    span = float(patient.limit("before_end_s"))
    spans = {DRIVER_MEMORY: float(patient.limit("wedge_s"))}  # a host in a wedge may write lines until somebody comes
    before = [entry for entry in entries if 0 <= end.at_s - entry.at_s <= spans.get(entry.kind, span)]
    found: dict[str, Sign] = {}
    kept = patient.reading.get("guard")
    if kept and kept["boot"] == end.key:
        text = next((entry.text for entry in entries if entry.kind == GUARD), "the host guard tells of it")
        found["guard_rebooted" if kept["reboots"] else "guard_saw"] = Sign(text, end.at_s)
    for entry in before:
        id_ = f"xid_{entry.key}" if entry.kind == "xid" else f"log_{entry.kind}"
        if id_ in known:
            found.setdefault(f"end_{entry.kind}", Sign(entry.text, end.at_s, began_s=entry.at_s))
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
    for name, pattern in (("driver", _DRIVER), ("kernel", _KERNEL)) if entry.kind == APT else ():
        if moves := [move for move in entry.key.split(MOVES) if pattern.search(move)]:
            yield replace(entry, kind=CHANGES[name], text=few(moves))
