# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Detectors of the GPU: silence, the power supply's fallback, heat, throttling, and an engine that hangs."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.gb10.fleet.plugins.module_utils.checks.patient import (
    Patient,
    Said,
    Server,
    Unsure,
    median,
    passed_s,
)
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports.benchmark import THROTTLING

SLOWED = frozenset(THROTTLING.values())
POWER_CAP = "sw_power_cap"
_DOCTOR = "`gb10 doctor` says whether driver, kernel and hardware fit"
_SILENT_STATES = {
    "silent": (
        "error",
        "nvidia-smi hangs",
        "read `journalctl -k | grep -i nvrm`; only a reboot ends a driver that hangs",
    ),
    "absent": (
        "error",
        "the driver finds no GPU",
        f"{_DOCTOR}; power off, unplug the power supply for 60 s, start again",
    ),
    "mismatch": ("error", "the driver in memory is not the installed one", "reboot (playbook gb10.fleet.reboot)"),
    "no_driver": ("error", "no NVIDIA driver runs", _DOCTOR),
    "no_program": ("error", "nvidia-smi is not there", _DOCTOR),
    "unreadable": ("warn", "nvidia-smi's answer makes no sense", "run `nvidia-smi` on the host by hand"),
}


def check_answer(patient: Patient) -> Iterator[Said]:
    """Whether there is a GPU to speak of."""
    gpu = patient.last["gpu"]
    if gpu is None or gpu["state"] == "ok":
        return
    severity, fact, way_out = _SILENT_STATES.get(gpu["state"], _SILENT_STATES["unreadable"])
    say = patient.error if severity == "error" else patient.warn
    yield say(f"gpu_{gpu['state']}", f"{fact}: {patient.why('gpu.state')}", way_out)


def check_power_fault(patient: Patient) -> Iterator[Said]:
    """A low clock and low power under load, and no reason given. An idle GPU tells nothing of its power supply."""
    known = [gpu for gpu in patient.gpus if gpu["utilization_percent"] is not None]
    needed, busy = patient.limit("busy_readings"), patient.busy
    if not known:
        yield Unsure("power_fault", f"the GPU's utilization is unknown: {_gpu_why(patient, 'utilization_percent')}")
        return
    if len(busy) < needed:
        few = f"the GPU was under load in {len(busy)} samples, and {needed} are needed"
        yield Unsure("power_fault", f"{few}: ask again while it works, or with --load")
        return
    clock, power = median([gpu["clock_mhz"] for gpu in busy]), median([gpu["power_w"] for gpu in busy])
    if clock is None or clock >= patient.limit("clock_min_mhz"):
        if clock is None:
            yield Unsure("power_fault", f"the GPU's clock is unknown: {patient.why('gpu.clock_mhz')}")
        return
    reasons = {reason for gpu in busy for reason in gpu["reasons"] or ()}
    if power is None or any(gpu["reasons"] is None for gpu in busy):
        missing = "power_w" if power is None else "reasons"
        yield Unsure("power_fault", f"the clock is low, and {missing} is unknown: {patient.why(f'gpu.{missing}')}")
    elif reasons & SLOWED or (POWER_CAP in reasons and power >= patient.limit("fault_power_w")):
        return  # the driver says why: check_throttled
    else:
        yield from _low_clock(patient, clock, power)


def _low_clock(patient: Patient, clock: float, power: float) -> Iterator[Said]:
    fact = f"under load the GPU runs at {clock:.0f} MHz and {power:.0f} W, and the driver gives no reason"
    off_s = patient.limit("power_off_s")
    if power < patient.limit("fault_power_w"):
        yield patient.error(
            "power_fault",
            f"{fact}: the power supply has fallen back",
            f"shut down, unplug the power supply from wall and host for {off_s} s, start again",
        )
    else:
        yield patient.warn(
            "gpu_clock_low",
            fact,
            "somebody may have locked the clocks: `nvidia-smi -q -d CLOCK,PERFORMANCE`; `nvidia-smi -rgc` frees them",
        )


def check_throttled(patient: Patient) -> Iterator[Said]:
    """In most samples the driver names a reason that a healthy host does not have."""
    told = [set(gpu["reasons"]) & SLOWED for gpu in patient.gpus if gpu["reasons"] is not None]
    if not told:
        yield Unsure("gpu_throttled", f"the event reasons are unknown: {_gpu_why(patient, 'reasons')}")
    elif 2 * sum(map(bool, told)) > len(told):
        names = ", ".join(sorted(set().union(*told)))
        way_out = "see the temperatures; clean the air inlets, leave room around the host, update the EC firmware"
        yield patient.warn("gpu_throttled", f"the driver slows the GPU: {names}", way_out)


def check_temperature(patient: Patient) -> Iterator[Said]:
    hot, warm, (low, high) = (patient.limit(name) for name in ("gpu_hot_c", "gpu_warm_c", "gpu_usual_c"))
    heat = median([gpu["temperature_c"] for gpu in patient.gpus])
    left = median([gpu["tlimit_c"] for gpu in patient.gpus])
    usual = f"under sustained load {low} to {high} °C are usual"
    way_out = "clean the air inlets, leave room around the host, update the EC firmware"
    if heat is None and left is None:
        yield Unsure("gpu_hot", f"the GPU's temperature is unknown: {_gpu_why(patient, 'temperature_c')}")
    elif (heat is not None and heat >= hot) or (left is not None and left <= patient.limit("tlimit_c")):
        room = "" if left is None else f", {left:.0f} °C below its limit"
        heard = "at an unknown temperature" if heat is None else f"at {heat:.0f} °C"
        yield patient.warn("gpu_hot", f"the GPU is {heard}{room}; {usual}", way_out)
    elif heat is not None and heat > warm:
        yield patient.info("gpu_warm", f"the GPU is at {heat:.0f} °C; {usual}", way_out)


def check_zones(patient: Patient) -> Iterator[Said]:
    """Near the temperature at which the kernel switches the machine off."""
    zones = [zone for zone in patient.reading["zones"] or () if zone["temperature_c"] is not None]
    if not zones:
        yield Unsure("soc_hot", f"no thermal zone tells a temperature: {patient.why('zones')}")
    for zone in zones:
        limit, heat = zone["critical_c"] or patient.limit("zone_critical_c"), zone["temperature_c"] or 0
        if heat >= limit - patient.limit("zone_margin_c"):
            yield patient.warn(
                "soc_hot",
                f"{zone['zone']} ({zone['type']}) is at {heat:.0f} °C, and the machine switches off at {limit:.0f} °C",
                "clean the air inlets, leave room around the host, update the EC firmware",
            )


def check_hang(patient: Patient) -> Iterator[Said]:
    """Requests run, no token comes, and the GPU does not work: long enough to be no prefill."""
    for server in patient.servers:
        yield from _hung(patient, server)


def _hung(patient: Patient, server: Server) -> Iterator[Said]:
    serving = server.counted
    known = [each for each in serving if each is not None]
    if len(known) < len(serving) or len(known) < 2:
        why = patient.why(server.path) if len(known) < len(serving) else "it takes two samples"
        yield Unsure("engine_hung", server.says(f"the server's counters are unknown: {why}"))
        return
    if any(each["running"] <= 0 for each in known) or len({each["generated_tokens"] for each in known}) > 1:
        return
    powers = [gpu["power_w"] for sample in patient.samples if (gpu := sample["gpu"])]
    if len(powers) < len(serving) or None in powers:
        why = _gpu_why(patient, "power_w")
        yield Unsure("engine_hung", server.says(f"no token comes, and the GPU's power is unknown: {why}"))
        return
    span_s, most = passed_s(patient.samples[0], patient.last), max(power or 0 for power in powers)
    if most >= patient.limit("hang_power_w"):
        return  # a long prefill
    if span_s < patient.limit("hang_s"):
        short = f"no token came for {span_s:.0f} s; judged after {patient.limit('hang_s')} s: see --watch"
        yield Unsure("engine_hung", server.says(short))
        return
    fact = f"{known[-1]['running']:.0f} requests run, no token came for {span_s:.0f} s, and the GPU takes {most:.0f} W"
    yield patient.error(
        "engine_hung",
        server.says(fact),
        f"keep `journalctl -u {server.unit}`, then `sudo systemctl restart --no-block {server.unit}` on the first host"
        " of the cluster alone: the others end and start with it",
    )


def check_steps(patient: Patient) -> Iterator[Said]:
    """The hidden slow state: nvidia-smi shows nothing, and a step takes far longer than this server's steps did so far.

    Only with one request at a time: many share a step, and each then takes longer.
    """
    for server in patient.servers:
        yield from _slow(patient, server)


def _slow(patient: Patient, server: Server) -> Iterator[Said]:
    known = [each for each in server.counted if each is not None]
    if len(known) < 2 or any(each["running"] != 1 for each in known):
        return
    before, after = (each.get("step_count") for each in (known[0], known[-1]))
    sum_before, sum_after = (each.get("step_s_sum") for each in (known[0], known[-1]))
    if before is None or after is None or sum_before is None or sum_after is None:
        return
    if min(before, after - before) < patient.limit("slow_steps"):
        return
    own, now = sum_before / before, (sum_after - sum_before) / (after - before)
    if now >= patient.limit("slow_ratio") * own > 0:
        yield patient.warn(
            "slow_steps",
            server.says(
                f"a step takes {1000 * now:.0f} ms, and {1000 * own:.0f} ms was the mean of this server so far"
            ),
            "compare with `gb10 benchmark`; where it stays so, power off, unplug its power supply for 60 s",
        )


def _gpu_why(patient: Patient, name: str) -> str:
    unknown = patient.reading["unknown"]
    return unknown.get("gpu.state") or unknown.get(f"gpu.{name}") or "it was not read"
