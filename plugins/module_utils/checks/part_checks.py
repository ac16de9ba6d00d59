# SPDX-License-Identifier: GPL-3.0-or-later
"""Detectors of rails, disks and their room, boots and certificates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ansible_collections.gb10.fleet.plugins.module_utils.checks.order import spans
from ansible_collections.gb10.fleet.plugins.module_utils.checks.patient import DAY_S, Patient, Said, Unsure, passed_s
from ansible_collections.gb10.fleet.plugins.module_utils.reading.meanings import GIB, short_of

if TYPE_CHECKING:  # for types alone, which no program needs
    from ansible_collections.gb10.fleet.plugins.module_utils.reading.rail_counters import Rail
    from ansible_collections.gb10.fleet.plugins.module_utils.reading.sensors import Disk
    from ansible_collections.gb10.fleet.plugins.module_utils.reading.unit_status import UnitStatus

NO_ADAPTER = "there is no RDMA device"  # how the reader's reason begins
PARTED, BROKEN = "link_downed", "req_transport_retries_exceeded"
_COOL = "leave room for air around the host; the warning of the disk ends when it has cooled (`sudo nvme smart-log`)"
_HOT = 0x2  # of the bits of its critical warning: the temperature


def check_rails(patient: Patient) -> Iterator[Said]:
    """PCIe and link of rails that are up. A port without a cable is the doctor's affair."""
    rails = patient.last["rails"]
    if rails is None:
        yield Unsure("rail_degraded", patient.why("rails"))
        return
    up = [rail for rail in rails if rail["state"] == "ACTIVE"]
    for rail in up:
        yield from _degraded(patient, rail)
    yield from _down(patient, rails)
    if up:
        yield Unsure("rail_degraded", "what a rail carries shows in a measurement alone: `gb10 validate`")


def _down(patient: Patient, rails: Sequence[Rail]) -> Iterator[Said]:
    """Rails that were up in this boot. A port that never had a cable has nothing to say."""
    before = {rail["hca"] for rail in patient.samples[0]["rails"] or () if rail["state"] == "ACTIVE"}
    parted, planned = _parted(patient), set(patient.reading.get("planned_rails") or ())
    off = [rail for rail in rails if rail["state"] != "ACTIVE"]
    wanted = any(rail["netdev"] in planned for rail in off)
    down = [rail["hca"] for rail in off if rail["netdev"] in planned or parted or rail["hca"] in before]
    if down:
        loud = _settled(patient) and (wanted or any(_waits_for_rail(status) for status in patient.services))
        fact = f"{', '.join(down)}: no link{', though planned as a rail' if wanted else ' any more'}"
        yield patient.say("rail_down", fact, "warn" if loud else "")


def check_half_idle(patient: Patient) -> Iterator[Said]:
    """Rails that NCCL gave up for others of the same host. Its list of what it uses names them all the same."""
    services = patient.reading.get("services") or {"": patient.reading["service"]}
    for name, status in services.items():
        if status and status.get("remark") == "fabric_half_idle":  # the verdict of the unit
            fact = f"NCCL leaves rails idle: {status.get('remark_text')}"
            yield patient.say("fabric_half_idle", f"{name}: {fact}" if name else fact)


def check_functions(patient: Patient) -> Iterator[Said]:
    """Functions of the adapter that are not on the bus, where the journal tells of it. Without a cable none is."""
    rails, kinds, parted = patient.last["rails"], patient.kinds, _parted(patient)
    absent = rails is None and patient.why("rails").startswith(NO_ADAPTER)
    if patient.reading["events"] is None or (rails is None and not absent):
        return
    names, most = sorted({rail["hca"] for rail in rails or ()}), patient.limit("adapter_functions")
    waits = any(_waits_for_rail(status) for status in patient.services)
    planned = patient.reading.get("planned_rails")
    gone = sorted(set(planned or ()) - {rail["netdev"] for rail in rails or ()})
    if gone:
        fact = f"{', '.join(gone)}: planned as a rail, and not on the PCIe bus"
        yield patient.say("rail_gone", fact, "warn")
    elif not names and (waits or kinds & {"cable_removed", "slot_power", "slot_capability"}):
        fact = "no function of the ConnectX-7 is on the PCIe bus"
        left = waits or (parted and planned is None)  # a host alone has no cable to miss
        fact += ", and the kernel says that its cable was taken out" if parted else ""
        yield patient.say("rail_gone", fact, "warn" if left else "")
    elif 1 < len(names) < most and not any(map(_bonded, rails or ())):
        fact = f"{len(names)} of {most} functions of the ConnectX-7 are on the PCIe bus ({', '.join(names)})"
        yield patient.say("rail_gone", fact, "warn")


def _bonded(rail: Rail) -> bool:
    """Return whether one RDMA device stands for both ports of an adapter, as a bond of them has it."""
    return rail.get("bonded", False) or "_bond_" in rail["hca"]


def _parted(patient: Patient) -> bool:
    """Return whether a cable was taken out since the drivers looked: at each boot they say so of an empty port."""
    up_s = patient.reading["uptime_s"]
    looked_s = 0.0 if up_s is None else patient.reading["at_s"] - up_s + patient.limit("cable_look_s")
    return any(
        event["kind"] == "cable_removed" and patient.of_this_boot(event) and event["last_s"] >= looked_s
        for event in patient.events
    )


def _settled(patient: Patient) -> bool:
    """Return whether the host is up for long enough that each link has come up."""
    up_s = patient.reading["uptime_s"]
    return up_s is None or up_s >= patient.limit("cable_look_s")


def _waits_for_rail(status: UnitStatus | None) -> bool:
    return bool(status) and status["phase"] != "ready" and status["verdict"] == "rail_down"  # type: ignore[index]


def _degraded(patient: Patient, rail: Rail) -> Iterator[Said]:
    pcie, lanes, name = rail["pcie"], patient.limit("pcie_width_lanes"), f"{rail['hca']} ({rail['netdev']})"
    speed, most = pcie["gigatransfers"], pcie["gigatransfers_max"]
    if pcie["width"] is not None and pcie["width"] < lanes:
        fact = f"{name} has {pcie['width']:.0f} PCIe lanes of {lanes}"
        yield patient.say("rail_degraded", fact)
    elif speed is not None and most is not None and speed < most:
        fact = f"{name} runs PCIe at {speed:g} GT/s of {most:g}"
        yield patient.say("rail_degraded", fact)
    if rail["rate_gbps"] is not None and rail["rate_gbps"] < patient.limit("link_gbps"):
        fact = f"{name} links at {rail['rate_gbps']:g} Gb/s of {patient.limit('link_gbps')}"
        yield patient.say("rail_slow_link", fact)


def check_rail_errors(patient: Patient) -> Iterator[Said]:
    """What stands high is history; what rises while we look is not."""
    first, last = patient.samples[0]["rails"], patient.last["rails"]
    if first is None or last is None or len(patient.samples) < 2:
        yield Unsure("rail_errors", patient.why("rails") if last is None else "it takes two samples")
        return
    for rail, old, more in _risen(patient):
        told = ", ".join(
            f"{name} from {old.get(name, 0)} to {old.get(name, 0) + count}" for name, count in more.items()
        )
        fact = f"errors of {rail['hca']} rise: {told}"
        yield patient.say("rail_errors", fact, "" if serious(patient, more) else "info")


def _risen(patient: Patient) -> Iterator[tuple[Rail, Mapping[str, int], Mapping[str, int]]]:
    """Each rail whose errors rose: what it counted before, and how many more."""
    before = {(rail["hca"], rail["port"]): rail["counters"] for rail in patient.samples[0]["rails"] or ()}
    for rail in patient.last["rails"] or ():
        old = before.get((rail["hca"], rail["port"]), {})
        more = {
            name: count - old.get(name, 0)
            for name, count in rail["counters"].items()
            if name in patient.rules.rail_errors and count > old.get(name, 0)
        }
        if more:
            yield rail, old, more


def serious(patient: Patient, more: Mapping[str, int]) -> bool:
    """Return whether it is more than what a sound fabric loses, and than a peer that was rebooted."""
    lost = sum(count for name, count in more.items() if name in patient.rules.losses)
    span_s = passed_s(patient.samples[0], patient.last)
    many = lost >= patient.limit("loss_least") and lost >= patient.limit("loss_per_s") * span_s
    if PARTED in more:  # a link that comes back counts other errors besides
        return many or more[PARTED] >= int(patient.limit("link_downs"))
    return many or bool(set(more) - patient.rules.losses)


def loses_packets(patient: Patient) -> bool:
    """Return whether a rail loses more packets than a sound fabric does, or a connection broke over it."""
    lossy = patient.rules.losses | {BROKEN}
    return len(patient.samples) > 1 and any(
        serious(patient, more) and lossy & set(more) for _rail, _old, more in _risen(patient)
    )


def check_disks(patient: Patient) -> Iterator[Said]:
    disks = patient.reading["disks"]
    if not disks:
        reasons = [reason for path, reason in patient.reading["unknown"].items() if path.startswith("disks")]
        yield Unsure("disk_worn", "; ".join(reasons) or "no disk tells its wear")
        return
    for disk in disks:
        hot, worn = _hot(disk), _worn(patient, disk)
        if hot or worn:
            fact = f"{disk['disk']} has used {disk['used_percent']} % of its writes"
            yield patient.say("disk_worn", "; ".join([fact, *hot, *filter(None, worn)]), way_out="" if worn else _COOL)


def only_hot(patient: Patient) -> bool:
    """Return whether some disk is too hot, and none has anything else."""
    disks = patient.reading["disks"] or ()
    return any(map(_hot, disks)) and not any(_worn(patient, disk) for disk in disks)


def _hot(disk: Disk) -> Sequence[str]:
    warning = disk["critical_warning"]
    return [f"it is too hot (bits {warning:#x})"] if warning == _HOT else []


def _worn(patient: Patient, disk: Disk) -> Sequence[str]:
    """What is wrong with it besides heat; an empty text where it is the share of its writes, which is said anyway."""
    warning, spare, least = disk["critical_warning"] or 0, disk["spare_percent"], disk["spare_least_percent"]
    media = disk["media_errors"] or 0
    said = [f"it warns (bits {warning:#x})"] if warning and warning != _HOT else []
    said += [f"{spare} % of its spare is left, {least} % is the least"] if _below(spare, least) else []
    said += [f"{media} media errors"] if media >= patient.limit("media_errors") else []
    return said + ([""] if disk["used_percent"] >= patient.limit("wear_percent") else [])


def _below(spare: int | None, least: int | None) -> bool:
    return spare is not None and least is not None and spare < least


def check_rooms(patient: Patient) -> Iterator[Said]:
    """File systems with less than is needed, and almost nothing of their own size; each once, for who needs most."""
    needed, least = patient.limit("minimum_free_gib"), patient.limit("cache_free")
    short: dict[str, Said] = {}
    for gib, room in sorted(
        ((needed.get(room["path"], least), room) for room in patient.reading.get("rooms") or ()),
        key=lambda each: float(each[0]),
    ):
        if room["free_bytes"] >= room["size_bytes"] * patient.limit("disk_free"):
            continue
        if fact := short_of(room["path"], room, gib):
            severity = "error" if room["free_bytes"] < least * GIB else ""
            short[room["mount"]] = patient.say("disk_full", fact, severity, mount=room["mount"])
    yield from short.values()
    if "rooms" in patient.reading["unknown"]:
        yield Unsure("disk_full", patient.why("rooms"))


def check_boots(patient: Patient) -> Iterator[Said]:
    boots = patient.reading["boots"]
    if boots is None:
        yield Unsure("unclean_boot", patient.why("boots"))
        return
    known = spans(patient.reading)
    unclean = [boot for boot in boots if boot["clean"] is False and patient.recent(known[boot["boot"]].ended_s)]
    if unclean:
        times = "once" if len(unclean) == 1 else f"{len(unclean)} times"
        fact = f"in the last {patient.limit('recent_days')} days the host stopped {times} without a shutdown"
        yield patient.say("unclean_boot", fact)


def check_stopped(patient: Patient) -> Iterator[Said]:
    """Units that a role wants started. Of those that the operator wants to stand still it is good to know."""
    for unit in patient.reading.get("stopped") or ():
        state = " and ".join(
            filter(None, (unit["state"], "" if unit["file_state"] == "enabled" else unit["file_state"]))
        )
        fact = f"{unit['unit']} is {state}"
        if unit["wish"]:
            yield patient.say(
                "unit_stopped", f"{fact}: stopped by {unit['wish']}", "info", "`gb10 start` starts it again"
            )
        else:
            wanted = f"{fact}, and the role {unit['role']} wants it started"
            yield patient.say("unit_stopped", wanted, unit=unit["unit"].rpartition(".")[0])
    if "stopped" in patient.reading["unknown"]:
        yield Unsure("unit_stopped", patient.why("stopped"))


def check_certificates(patient: Patient) -> Iterator[Said]:
    """That of the gateway. A host without one has nothing to say."""
    for certificate in patient.reading.get("certificates") or ():
        left_s = certificate["ends_s"] - patient.reading["at_s"]
        if left_s <= 0:
            fact = f"{certificate['file']} has ended; clients refuse the gateway"
            yield patient.say("certificate", fact, "error")
        elif left_s < patient.limit("certificate_days") * DAY_S:
            yield patient.say("certificate", f"{certificate['file']} ends in {left_s / DAY_S:.0f} days")
    if "certificates" in patient.reading["unknown"]:
        yield Unsure("certificate", patient.why("certificates"))


CHECKS = (
    check_rails,
    check_rail_errors,
    check_disks,
    check_rooms,
    check_functions,
    check_boots,
    check_certificates,
    check_stopped,
    check_half_idle,
)
