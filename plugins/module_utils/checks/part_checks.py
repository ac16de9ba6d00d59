# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Detectors of rails and disks, and of what the journal tells."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.gb10.fleet.plugins.module_utils.checks.patient import DAY_S, Patient, Said, Unsure
from ansible_collections.gb10.fleet.plugins.plugin_utils.health.schema import Rail

_COLD = (
    "power both hosts off, unplug power and QSFP cables for 60 s, put the QSFP cables back in, then the power;"
    " then `gb10 validate`"
)


def check_rails(patient: Patient) -> Iterator[Said]:
    """PCIe and link of rails that are up. A port without a cable is the doctor's affair."""
    rails = patient.last["rails"]
    if rails is None:
        yield Unsure("rail_degraded", patient.why("rails"))
        return
    for rail in rails:
        if rail["state"] == "ACTIVE":
            yield from _degraded(patient, rail)


def _degraded(patient: Patient, rail: Rail) -> Iterator[Said]:
    pcie, lanes, name = rail["pcie"], patient.limit("pcie_width_lanes"), f"{rail['hca']} ({rail['netdev']})"
    speed, most = pcie["gigatransfers"], pcie["gigatransfers_max"]
    if pcie["width"] is not None and pcie["width"] < lanes:
        fact = f"{name} has {pcie['width']:.0f} PCIe lanes of {lanes}"
        yield patient.warn("rail_degraded", fact, f"{_COLD}; partner boards with old firmware need its update")
    elif speed is not None and most is not None and speed < most:
        fact = f"{name} runs PCIe at {speed:g} GT/s of {most:g}"
        yield patient.warn("rail_degraded", fact, _COLD)
    if rail["rate_gbps"] is not None and rail["rate_gbps"] < patient.limit("link_gbps"):
        fact = f"{name} links at {rail['rate_gbps']:g} Gb/s of {patient.limit('link_gbps')}"
        yield patient.info("rail_slow_link", fact, "a switch may be set to it; else take another cable")


def check_rail_errors(patient: Patient) -> Iterator[Said]:
    """What stands high is history; what rises while we look is not."""
    first, last = patient.samples[0]["rails"], patient.last["rails"]
    if first is None or last is None or len(patient.samples) < 2:
        yield Unsure("rail_errors", patient.why("rails") if last is None else "it takes two samples")
        return
    before = {(rail["hca"], rail["port"]): rail["counters"] for rail in first}
    for rail in last:
        old = before.get((rail["hca"], rail["port"]), {})
        risen = [
            f"{name} from {old.get(name, 0)} to {count}"
            for name, count in rail["counters"].items()
            if name in patient.rules.rail_errors and count > old.get(name, 0)
        ]
        if risen:
            yield patient.warn(
                "rail_errors",
                f"errors of {rail['hca']} rise: {', '.join(risen)}",
                "seat the cable anew on both ends or take another one; behind a switch compare its flow control",
            )


def check_disks(patient: Patient) -> Iterator[Said]:
    disks = patient.reading["disks"]
    if not disks:
        reasons = [reason for path, reason in patient.reading["unknown"].items() if path.startswith("disks")]
        yield Unsure("disk_worn", "; ".join(reasons) or "no disk tells its wear")
        return
    for disk in disks:
        used, warning = disk["used_percent"], disk["critical_warning"] or 0
        if warning or used >= patient.limit("wear_percent"):
            said = f", and it warns (bits {warning:#x})" if warning else ""
            yield patient.warn(
                "disk_worn",
                f"{disk['disk']} has used {used} % of its writes{said}",
                "save what only this disk has, and plan its replacement",
            )


def check_boots(patient: Patient) -> Iterator[Said]:
    boots = patient.reading["boots"]
    if boots is None:
        yield Unsure("unclean_boot", patient.why("boots"))
        return
    unclean = [boot for boot in boots if boot["clean"] is False and patient.recent(boot["last_s"])]
    if unclean:
        times = "once" if len(unclean) == 1 else f"{len(unclean)} times"
        yield patient.warn(
            "unclean_boot",
            f"in the last {patient.limit('recent_days')} days the host stopped {times} without a shutdown",
            "see in the timeline what came before; look at wall, plug and power supply first",
        )


def check_log(patient: Patient) -> Iterator[Said]:
    """One finding for each kind of line, and for each number of Xid."""
    events = patient.reading["events"]
    if events is None:
        yield Unsure("log", patient.why("events"))
        return
    counted: dict[tuple[str, str], tuple[int, str]] = {}
    for event in events:
        if event["kind"] in patient.rules.events and patient.recent(event["last_s"]):
            key = (event["kind"], event["key"] if event["kind"] == "xid" else "")
            counted[key] = (counted.get(key, (0, ""))[0] + event["count"], event["text"])
    for (kind, number), (count, text) in counted.items():
        rule = patient.rules.events[kind]
        xid = patient.rules.xids.get(number, {})
        severity, meaning = xid.get("severity", rule["severity"]), xid.get("meaning", rule["meaning"])
        times = "once" if count == 1 else f"{count} times"
        say = {"error": patient.error, "warn": patient.warn, "info": patient.info}[severity]
        id_ = f"xid_{number}" if kind == "xid" else f"log_{kind}"
        yield say(id_, f"{meaning}, {times} in {patient.limit('recent_days')} days, last: {text}", rule["way_out"])


def check_certificates(patient: Patient) -> Iterator[Said]:
    """That of the gateway. A host without one has nothing to say."""
    for certificate in patient.reading.get("certificates") or ():
        left_s = certificate["ends_s"] - patient.reading["at_s"]
        way_out = "renew it (gateway_certificate), then `systemctl reload gb10-gateway`"
        if left_s <= 0:
            yield patient.error("certificate", f"{certificate['file']} has ended; clients refuse the gateway", way_out)
        elif left_s < patient.limit("certificate_days") * DAY_S:
            yield patient.warn("certificate", f"{certificate['file']} ends in {left_s / DAY_S:.0f} days", way_out)
    if "certificates" in patient.reading["unknown"]:
        yield Unsure("certificate", patient.why("certificates"))
