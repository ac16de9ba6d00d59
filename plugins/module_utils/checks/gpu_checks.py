# SPDX-License-Identifier: GPL-3.0-or-later
"""Detectors of the GPU: silence, the power supply's fallback, heat, throttling, and an engine that hangs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ansible_collections.gb10.fleet.plugins.module_utils.checks import hang, part_checks
from ansible_collections.gb10.fleet.plugins.module_utils.checks.patient import (
    SLOWED,
    Patient,
    Said,
    Server,
    Unsure,
    median,
    passed_s,
)
from ansible_collections.gb10.fleet.plugins.module_utils.reading.meanings import silent_gpu

if TYPE_CHECKING:  # for types alone, which no program needs
    from ansible_collections.gb10.fleet.plugins.module_utils.reading.health import Sample
    from ansible_collections.gb10.fleet.plugins.module_utils.reading.serving import Serving

POWER_CAP, BRAKE, SUM = "sw_power_cap", "hw_power_brake_slowdown", "hw_slowdown"
WAITING = "waiting"
LOCKED = "applications_clocks_setting"


def check_answer(patient: Patient) -> Iterator[Said]:
    """Whether there is a GPU to speak of."""
    gpu = patient.last["gpu"]
    if gpu is None or gpu["state"] == "ok":
        return
    yield patient.say(*silent_gpu(gpu["state"], patient.why("gpu.state")))


def check_power_fault(patient: Patient) -> Iterator[Said]:
    """A low clock and low power under load, and no reason given. An idle GPU tells nothing of its power supply."""
    known = [gpu for gpu in patient.gpus if gpu["utilization_percent"] is not None]
    needed, busy = patient.limit("busy_readings"), patient.busy
    if not known:
        yield Unsure("power_fault", f"the GPU's utilization is unknown: {_gpu_why(patient, 'utilization_percent')}")
        return
    if len(busy) < needed and not _bursts(patient):
        few = f"the GPU was under load in {len(busy)} samples, and {needed} are needed"
        yield Unsure("power_fault", f"{few}: ask again while it works, or with --load")
        return
    clock, power = median([gpu["clock_mhz"] for gpu in busy]), median([gpu["power_w"] for gpu in busy])
    if clock is None:
        yield Unsure("power_fault", f"the GPU's clock is unknown: {patient.why('gpu.clock_mhz')}")
        return
    if any(gpu["reasons"] is None for gpu in busy) or power is None:
        if clock < patient.limit("clock_min_mhz"):
            missing = "power_w" if power is None else "reasons"
            yield Unsure("power_fault", f"the clock is low, and {missing} is unknown: {patient.why(f'gpu.{missing}')}")
        return
    yield from _low_clock(patient, clock, power)


def _bursts(patient: Patient) -> bool:
    """A few readings are enough where the clock falls under load: that of a healthy GPU rises."""
    least, busy = patient.limit("clock_min_mhz"), patient.busy
    between = [gpu["clock_mhz"] or 0 for gpu in patient.late if not patient.is_busy(gpu)]
    low = all(gpu["clock_mhz"] is not None and gpu["clock_mhz"] < least for gpu in busy)
    return len(busy) >= patient.limit("burst_readings") and low and max(between, default=0) >= least


def _low_clock(patient: Patient, clock: float, power: float) -> Iterator[Said]:
    told = [set(gpu["reasons"] or ()) for gpu in patient.busy]
    said, capped = set().union(*told), all(POWER_CAP in reasons for reasons in told)
    fallen = clock < patient.limit("clock_min_mhz") and power < patient.limit("fault_power_w")
    little = power < patient.limit("capped_power_w") and not fallen
    if capped and little and clock < patient.limit("capped_clock_mhz") and not said & SLOWED:
        fact = f"under load the driver's power cap holds the GPU at {clock:.0f} MHz and {power:.0f} W"
        yield patient.say("gpu_clock_low", fact, way_out=_CAPPED)
        return
    if clock >= patient.limit("clock_min_mhz") or said & SLOWED:
        return  # the driver says why: check_throttled
    if POWER_CAP in said and power >= patient.limit("fault_power_w"):
        return
    fact = f"under load the GPU runs at {clock:.0f} MHz and {power:.0f} W"
    if LOCKED in said or _locked_below(patient):
        yield patient.say("gpu_clock_low", f"{fact}: its clocks are locked", "info")
        return
    low, high = patient.limit("fault_power_band_w")
    fact = f"{fact}, and the driver gives no reason"
    if power < low:
        yield patient.say("power_fault", f"{fact}: the power supply has fallen back")
    elif power < high:
        fact = f"{fact}: the power supply has fallen back, or somebody locked the clocks"
        clocks = [gpu["clock_mhz"] for gpu in patient.busy if gpu["clock_mhz"] is not None]
        steady = max(clocks) - min(clocks) <= patient.limit("lock_steady_mhz")
        way_out = _LOCKS_FIRST + patient.rules.signs["power_fault"]["way_out"]
        yield patient.say("power_fault", fact, "info" if steady else "warn", way_out)
    else:
        yield patient.say("gpu_clock_low", fact)


_CAPPED = (
    "unplug the power supply from wall and host for {power_off_s} s, and use the one that came with the host;"
    " `nvidia-smi -q -d POWER,PERFORMANCE` names the cap"
)
_LOCKS_FIRST = (
    "`nvidia-smi -q -d CLOCK` tells of locked clocks, and `nvidia-smi -rgc` frees them; where there are none "
)


def _locked_below(patient: Patient) -> bool:
    """Return whether our own role holds the clocks so low."""
    locked = patient.reading.get("clock_lock_mhz")
    return locked is not None and locked <= patient.limit("clock_min_mhz")


def check_throttled(patient: Patient) -> Iterator[Said]:
    """In most samples the driver names a reason that a healthy host does not have."""
    if all(gpu["reasons"] is None for gpu in patient.gpus):
        yield Unsure("gpu_throttled", f"the event reasons are unknown: {_gpu_why(patient, 'reasons')}")
    elif patient.slowed:
        fact = f"the driver slows the GPU: {', '.join(sorted(patient.slowed))}"
        yield patient.say("gpu_throttled", fact, way_out=_BRAKED if braked(patient) else "")


def braked(patient: Patient) -> bool:
    """Whether the power brake alone slows the GPU; the driver names `hw_slowdown` with each reason of hardware."""
    return patient.slowed - {SUM} == {BRAKE}


_BRAKED = (
    "the power supply signals it, and heat does not: use the one that came with the host, straight into the wall, and"
    " unplug it from wall and host for {power_off_s} s"
)


def check_temperature(patient: Patient) -> Iterator[Said]:
    hot, warm, (low, high) = (patient.limit(name) for name in ("gpu_hot_c", "gpu_warm_c", "gpu_usual_c"))
    heat = median([gpu["temperature_c"] for gpu in patient.gpus])
    left = median([gpu["tlimit_c"] for gpu in patient.gpus])
    usual = f"under sustained load {low} to {high} °C are usual"
    if heat is None and left is None:
        yield Unsure("gpu_hot", f"the GPU's temperature is unknown: {_gpu_why(patient, 'temperature_c')}")
    elif (heat is not None and heat >= hot) or (left is not None and left <= patient.limit("tlimit_c")):
        room = "" if left is None else f", {left:.0f} °C below its limit"
        heard = "at an unknown temperature" if heat is None else f"at {heat:.0f} °C"
        yield patient.say("gpu_hot", f"the GPU is {heard}{room}; {usual}")
    elif heat is not None and heat > warm:
        yield patient.say("gpu_warm", f"the GPU is at {heat:.0f} °C; {usual}")


def check_zones(patient: Patient) -> Iterator[Said]:
    """Near the temperature at which the kernel switches the machine off."""
    zones = [zone for zone in patient.reading["zones"] or () if zone["temperature_c"] is not None]
    if not zones:
        yield Unsure("soc_hot", f"no thermal zone tells a temperature: {patient.why('zones')}")
    for zone in zones:
        limit, heat = zone["critical_c"] or patient.limit("zone_critical_c"), zone["temperature_c"] or 0
        if heat >= limit - patient.limit("zone_margin_c"):
            fact = (
                f"{zone['zone']} ({zone['type']}) is at {heat:.0f} °C, and the machine switches off at {limit:.0f} °C"
            )
            yield patient.say("soc_hot", fact)


def check_hang(patient: Patient) -> Iterator[Said]:
    """Requests run, no token comes, no prompt is taken, and the GPU does not work: checks/hang.py has the rule."""
    for server in patient.servers:
        yield from _hung(patient, server)


def _hung(patient: Patient, server: Server) -> Iterator[Said]:
    serving = server.counted
    known = [each for each in serving if each is not None]
    if not known and (_phase(patient, server) or hang.RESTING[0]) not in hang.RESTING:
        yield from _start_hung(patient, server)
        return
    if len(known) < len(serving) or len(known) < 2:
        why = patient.why(server.path) if len(known) < len(serving) else "it takes two samples"
        if _phase(patient, server) == WAITING:
            why = "it waits for the other hosts of its cluster: ask those (`gb10 status --hosts`)"
        yield Unsure("engine_hung", server.says(f"the server's counters are unknown: {why}"))
        return
    looks = [_look(patient, sample, each) for sample, each in zip(patient.samples, known)]
    if not hang.stands(looks):
        yield from _queued(patient, server, known)
        return
    if any(look.power_w is None for look in looks):
        why = _gpu_why(patient, "power_w")
        yield Unsure("engine_hung", server.says(f"no token comes, and the GPU's power is unknown: {why}"))
        return
    rules = _rules(patient)
    if any(hang.held(look, rules) for look in looks):
        held = f"no token comes, and the GPU is busy below {patient.limit('held_clock_mhz')} MHz"
        yield Unsure("engine_hung", server.says(f"{held}: its power does not tell whether it works; see --watch"))
        return
    still = hang.follow_all(looks, rules)
    if still is None or still.since_s > looks[0].at_s:
        works = "no token comes, and the GPU works: a long prefill, or an engine that spins"
        yield Unsure("engine_hung", server.says(f"{works}; where it lasts for many minutes, it spins"))
        return
    span_s = still.last_s - still.since_s
    if hang.verdict(still, (), 0, rules) != hang.HUNG:
        short = f"no token came for {span_s:.0f} s; judged after {patient.limit('hang_s')} s: see --watch"
        yield Unsure("engine_hung", server.says(short))
        return
    most = max(look.power_w or 0 for look in looks)
    fact = f"{known[-1]['running']:.0f} requests run, no token came for {span_s:.0f} s, and the GPU takes {most:.0f} W"
    way_out = patient.rules.signs["engine_hung"]["way_out"]
    if part_checks.loses_packets(patient):
        fact, way_out = f"{fact}, while a rail loses packets", _SWITCH_FIRST + way_out
    yield patient.say("engine_hung", server.says(fact), way_out=way_out, unit=server.unit)


def _queued(patient: Patient, server: Server, known: Sequence[Serving]) -> Iterator[Said]:
    """Requests wait, and the engine takes none: its scheduler stands. The watchdog leaves that to a person."""
    still = len({(each["generated_tokens"], each["prompt_tokens"]) for each in known}) == 1
    if not still or any(each["running"] > 0 or not (each["waiting"] or 0) > 0 for each in known):
        return
    span_s = passed_s(patient.samples[0], patient.last)
    fact = f"{known[-1]['waiting']:.0f} requests wait, and none was taken for {span_s:.0f} s"
    if span_s < patient.limit("hang_s"):
        yield Unsure("engine_hung", server.says(f"{fact}; judged after {patient.limit('hang_s')} s: see --watch"))
    else:
        yield patient.say("engine_hung", server.says(fact), "warn", unit=server.unit)


_SWITCH_FIRST = "look at the switch first (MTU, flow control, speed of each port) and run `gb10 validate`; then "


def _look(patient: Patient, sample: Sample, each: Serving | None = None) -> hang.Look:
    """Of a server that counts; without one the GPU's alone."""
    gpu = sample["gpu"]
    power, clock, busy = (gpu["power_w"], gpu["clock_mhz"], gpu["utilization_percent"]) if gpu else (None, None, None)
    look = hang.Look(passed_s(patient.samples[0], sample), "ready", "", None, None, None, power, clock, busy)
    if each is None:
        return look
    return look._replace(running=each["running"], tokens=each["generated_tokens"], prompts=each["prompt_tokens"])


def _rules(patient: Patient) -> hang.Rules:
    names = ("hang_s", "hang_power_w", "busy_percent", "held_clock_mhz")
    after_s, power_w, busy_percent, held_clock_mhz = (patient.limit(name) for name in names)
    return hang.Rules(after_s, power_w, math.inf, 0, busy_percent, held_clock_mhz)


def _phase(patient: Patient, server: Server) -> str | None:
    status = patient.reading.get("services", {}).get(server.name) if server.name else patient.reading["service"]
    return status["phase"] if status else None


def _start_hung(patient: Patient, server: Server) -> Iterator[Said]:
    """Before its server counts anything: the GPU is busy all the while, and does not work."""
    span_s = passed_s(patient.samples[0], patient.last)
    rules = _rules(patient)
    busy = [look for look in map(partial(_look, patient), patient.samples) if _spins(look, rules)]
    known = [look.power_w for look in busy if look.power_w is not None]
    spins = len(known) == len(patient.samples) > 1 and max(known) < rules.power_w
    if spins and span_s >= patient.limit("hang_s"):
        fact = f"the service starts, and the GPU is busy for {span_s:.0f} s at no more than {max(known):.0f} W"
        yield patient.say("engine_hung", server.says(fact), "warn", way_out=_STARTS, unit=server.unit)
    else:
        why = "the service still starts: `gb10 top` shows how far it is"
        yield Unsure("engine_hung", server.says(f"{why}; see --watch" if spins else why))


def _spins(look: hang.Look, rules: hang.Rules) -> bool:
    return (look.busy_percent or 0) >= rules.busy_percent and not hang.held(look, rules)


_STARTS = (
    "see whether each host of the cluster loads (`gb10 top`): one that is slower keeps the others waiting; else keep"
    " `journalctl -u {unit}`, measure the rails (`gb10 validate`), and restart it"
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
        fact = f"a step takes {1000 * now:.0f} ms, and {1000 * own:.0f} ms was the mean of this server so far"
        yield patient.say("slow_steps", server.says(fact))


def _gpu_why(patient: Patient, name: str) -> str:
    unknown = patient.reading["unknown"]
    return unknown.get("gpu.state") or unknown.get(f"gpu.{name}") or "it was not read"


CHECKS = (check_answer, check_power_fault, check_throttled, check_temperature, check_zones, check_hang, check_steps)
