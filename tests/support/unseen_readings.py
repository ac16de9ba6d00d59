"""Whole readings of hosts that nobody here had seen: figures and lines of others, in our own form.

Each was labelled before it was run: the finding that is right, or none, and what the first line of `gb10 why` should
be about. docs/health.md has the counts of each set before anything was mended for it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from ansible_collections.gb10.fleet.plugins.module_utils.reading import kernel_log

from tests.support import health
from tests.support.health import BOOT, FORMER, GIB, MEMORY, NOW, Record, boot, disk, gpu, rail, reading, sample, serving
from tests.support.signs import NO_MEMORY, PROCESSES, XID, busy, four, of_gpus, with_memory

LOST = "there is no RDMA device with hardware in /sys"
JULY = 1_751_328_000.0
REMOVAL = "cx7-pcie-hotplug MTKP0001:00: Cable removal"
AN_HOUR_AGO = [boot(FORMER, NOW - 90000, NOW - 3700, clean=False), boot(BOOT, NOW - 3600, NOW)]


class Case(NamedTuple):
    """`right`: ids of findings or causes, any of which is right; none where nobody has to do anything.

    "? " before them: it is not told, and docs/health.md says so. `first`: of the cause that the first line should be
    about, any of them, or none; "-" where it was not asked.
    """

    kind: str
    source: str
    right: str
    record: Record
    first: str = "-"


def said(record: Record, lines: Sequence[str], ago_s: float = 600, of_boot: str = BOOT, **fields: str) -> Record:
    """A reading with lines of the kernel, a second apart."""
    entries = [
        {"__REALTIME_TIMESTAMP": str(int((NOW - ago_s + place) * 1e6)), "_BOOT_ID": of_boot + "0" * 20,
         "MESSAGE": line, **fields}
        for place, line in enumerate(lines)
    ]  # fmt: skip
    return {**record, "events": [*record["events"], *kernel_log.parse_journal("\n".join(map(json.dumps, entries)))]}


def ended(*lines: str, before_s: float = 20, **more: Any) -> Record:
    """A host that is up for an hour, and whose former boot ended without a shutdown after these lines."""
    return said(reading(boots=AN_HOUR_AGO, **more), lines, 3700 + before_s, FORMER)


def pressed(some: Sequence[float], full: Sequence[float] = (0, 0, 0), **memory: int) -> Record:
    waits = {
        kind: dict(zip(("avg10", "avg60", "avg300"), map(float, figures), strict=True))
        for kind, figures in (("some", some), ("full", full))
    }
    pressure = {"cpu": health.QUIET, "memory": waits, "io": health.QUIET}
    return reading([sample(memory={**MEMORY, **memory}, pressure=pressure)], processes=PROCESSES)


def railed(before: Sequence[Record], after: Sequence[Record], passed_s: float = 60, **more: Any) -> Record:
    return reading([sample(NOW - passed_s, rails=list(before)), sample(rails=list(after))], **more)


def bare(**more: Any) -> Record:
    """Without the ConnectX-7 on the bus."""
    return reading([sample(NOW - 1, rails=None), sample(rails=None)], **{"unknown": {"rails": LOST}, **more})


def counted(first: Record, last: Record, span_s: float = 240) -> Record:
    return railed([rail(counters=first)], [rail(counters=last)], span_s)


def asked(gpu_: Record, tokens: Sequence[float], every_s: float = 40, **more: Any) -> Record:
    counts = [{**serving(1, count), **more} for count in tokens]
    return of_gpus(*[gpu_] * len(tokens), every_s=every_s, serves=counts)


def unit(phase: str, verdict: str | None = None, at: str | None = None, since: str = "2026-11-23T08:30:00Z") -> Record:
    text = f"what the unit said of {verdict}" if verdict else None
    return {"phase": phase, "since": since, "failures": 1 if verdict else 0, "verdict": verdict, "text": text, "at": at}


DOWN = {"state": "DOWN", "carrier": False, "rate_gbps": 40.0}
OF_DELL = [rail(hca=f"roce{p}s0f{n}", netdev=f"en{p}s0f{n}np{n}", **(DOWN if n else {}))
           for p in ("p1", "P2p1") for n in (0, 1)]  # fmt: skip
PLANNED = ["enp1s0f0np0", "enP2p1s0f0np0"]
HELD = {"boot": FORMER, "at_s": NOW - 3705, "full_percent": 91.2, "reboots": True}

FIRST = (
    Case("sound: gpu", "graham33/nixos-dgx-spark issue 165, idle without its adapter", "", of_gpus(*[gpu(208,
         3.2)] * 6, processes=[]), ""),
    Case("sound: gpu", "hasso5703/dgx-spark-qwen38 pull request 4, 12.1 W with an idle scheduler", "",
         of_gpus(*[gpu(2405, 12.1, 0, reasons=[])] * 6)),
    Case("sound: gpu", "AEON-7/vllm-dflash issue 1, 67 °C and 16 W at 0 %", "", of_gpus(*[gpu(2405, 16, 0, reasons=[],
         temperature_c=67.0, pstate="P0")] * 6)),
    Case("sound: gpu", "ollama issue 13552, 81 °C, 13 °C to its limit", "", of_gpus(*[busy(2411, 74,
         temperature_c=81.0, tlimit_c=13.0)] * 6), ""),
    Case("sound: gpu", "open-gpu-kernel-modules issue 1358, clocks capped at 2100, 80 °C", "", of_gpus(*[busy(2093,
         60, temperature_c=80.0)] * 6)),
    Case("sound: gpu", "llama.cpp discussion 18254, 31 to 36 W at 2.4 GHz for one request", "", asked(busy(2405, 34),
         [500, 1300, 2100, 2900, 3700, 4500])),
    Case("sound: gpu", "NemoClaw issue 7127, a prompt of 144,694 tokens in 111 s", "", asked(busy(2398, 71),
         [900] * 6, 20), ""),
    Case("sound: gpu", "a load that comes and goes; hasso5703 issue 8 is the faulty one", "", of_gpus(*[gpu(208, 5,
         0), busy(2411, 62)] * 6, every_s=10)),
    Case("sound: gpu", "ollama issue 13552, 0.9 s of sw_thermal_slowdown in all", "", of_gpus(*[busy(2350, 78,
         temperature_c=82.0)] * 5, busy(2290, 77, reasons=["sw_thermal_slowdown"]))),
    Case("sound: gpu", "geerlingguy/top500-benchmark issue 79, 98 °C of the processor in HPL", "",
         reading(zones=[{"zone": "thermal_zone3", "type": "acpitz", "temperature_c": 98.0, "critical_c": None}]),
         ""),
    Case("sound: gpu", "our role's lock at 1300", "", of_gpus(*[busy(1290, 19)] * 6, clock_lock_mhz=1300.0)),
    Case("sound: memory", "tonyd2wild issue 31, 104 of 121 GB, up for 9 days", "", {**with_memory(cached=8,
         free_bytes=6 * GIB, available_bytes=14 * GIB), "uptime_s": 794000.0, "processes": PROCESSES}),
    Case("sound: memory", "NemoClaw issue 7127, 3.2 GiB available, 2.2 GiB of swap, two lines at its start", "",
         said(pressed((0.4, 0.9, 1.2), free_bytes=2 * GIB, available_bytes=3 * GIB), [NO_MEMORY] * 2), ""),
    Case("sound: memory", "an engine that was killed three minutes ago; its pressure has passed", "", pressed((0.2, 4,
         14), (0, 1, 9))),
    Case("sound: memory", "christopherowen, 7.0.0-1019-nvidia-64k with kho=off in production", "",
         reading(kernel="7.0.0-1019-nvidia-64k", kho_off=True)),
    Case("sound: rails", "geerlingguy/sbc-reviews issue 92, Dell: f1 Down, Disabled, Rate 40", "", railed(OF_DELL,
         OF_DELL, planned_rails=PLANNED), ""),
    Case("sound: rails", "the same, before anything was planned", "", railed(OF_DELL, OF_DELL)),
    Case("sound: rails", "no cable: the driver says Cable removal some 15 s after each boot (an owner of two)", "",
         said(bare(), [REMOVAL], 3585), ""),
    Case("sound: rails", "the same host alone, planned without rails", "", said(bare(planned_rails=[]), [REMOVAL],
         3585)),
    Case("sound: rails", "nccl issue 394's counters, high and at rest", "", counted({"local_ack_timeout_err": 91316,
         "out_of_sequence": 6140236}, {"local_ack_timeout_err": 91316, "out_of_sequence": 6140236})),
    Case("sound: rails", "ECN at work: notifications rise, nothing is lost", "", counted({"np_cnp_sent": 17269947},
         {"np_cnp_sent": 17301947, "rp_cnp_handled": 2000})),
    Case("sound: lines", "14 of 15 power cycles unclean from the factory", "", reading(disks=[disk(used_percent=0,
         unsafe_shutdowns=14, power_cycles=15)]), ""),
    Case("sound: lines", "a clock in July 2025 until NTP answers; a program's Xid 31 before that", "",
         {**said(reading(uptime_s=95.0, boots=[boot(FORMER, NOW - 90000, NOW - 200, clean=True), boot(BOOT, JULY,
         NOW)]), []), "events": said(reading(), [XID.format("31, pid=9, name=python3, Ch 8")],
         NOW - JULY - 40)["events"]}, ""),
    Case("sound: lines", "a planned reboot into 6.17.0-1032 with 580.173.02; a task hung while it went down", "",
         said(said(reading(kernel="6.17.0-1032-nvidia"), ["Linux version 6.17.0-1032-nvidia (b@x)"], 3599),
         ["INFO: task kworker/u80:3:991 blocked for more than 120 seconds."], 3740, FORMER), ""),
    Case("sound: lines", "sovgrid, a UPS shuts it down in the evening", "", reading(uptime_s=600.0,
         boots=[boot(FORMER, NOW - 90000, NOW - 36000, clean=True), boot(BOOT, NOW - 600, NOW)])),
    Case("sound: lines", "Wi-Fi alone: it is sent away by the access point now and then", "", said(bare(),
         ["mt7925e 0009:01:00.0: WM Firmware Version: ____000000, Build Time: 20250721233113",
         "wlP9s9: deauthenticated from 00:00:5e:00:53:01 (Reason: 3=DEAUTH_LEAVING)"])),
    Case("sound: lines", "NVIDIA forum, DOE mailbox at each boot of one that serves", "", said(reading(),
         ["pci 000f:01:00.0: DOE: [2c8] ABORT timed out",
         "pci 000f:01:00.0: DOE: [2c8] failed to reset mailbox with abort command : -5"])),
    Case("sound: lines", "ASUS, firmware updated in good order", "",
         said(said(reading(firmware="GX10DGX.0105.2026.0505.1153"),
         ["DMI: ASUSTeK COMPUTER INC. GX10/GX10, BIOS GX10DGX.0103.2026.0211 02/11/2026"], 89000, FORMER),
         ["DMI: ASUSTeK COMPUTER INC. GX10/GX10, BIOS GX10DGX.0105.2026.0505.1153 05/05/2026"], 3590)),
    Case("sound: service", "an engine that rests: nothing is asked of it", "", of_gpus(*[gpu(2405, 11, 0,
         reasons=[])] * 6, every_s=60, serves=[serving(0, 8000)] * 6)),
    Case("sound: service", "loading 164 GiB of weights from the disk", "", {**of_gpus(*[gpu(2405, 12, 2,
         reasons=[])] * 6, every_s=40), "service": unit("loading")}, ""),
    Case("sound: service", "it failed in the morning, and serves since", "", reading(service=unit("ready",
         "out_of_memory", "2026-11-23T06:00:00Z", "2026-11-23T06:10:00Z"))),
    Case("power, heat", "model-serving-minefield trap 124: used, and never boosts", "power_fault", of_gpus(*[busy(845,
         14.5)] * 6), "power_fault"),
    Case("power, heat", "ai-muninn.com, GX10 at 30 W in all", "power_fault", of_gpus(*[busy(507, 11)] * 6)),
    Case("power, heat", "open-gpu-kernel-modules issue 1358, 92 °C and slowed", "gpu_throttled gpu_hot",
         of_gpus(*[busy(1905, 68, temperature_c=92.0, reasons=["sw_thermal_slowdown"])] * 6), "too_hot"),
    Case("power, heat", "ollama issue 13552's limit (94 °C) two degrees away", "gpu_hot", of_gpus(*[busy(2200, 81,
         temperature_c=89.0, tlimit_c=2.0)] * 6)),
    Case("power, heat", "an adapter of 100 W: the cap in each reading", "gpu_clock_low", of_gpus(*[busy(1650, 42,
         reasons=["sw_power_cap"])] * 6), "clocks_held"),
    Case("power, heat", "MiaAI-Lab issue 146's comment: off for heat, no line, fine after it", "unclean_boot",
         ended(before_s=20), "power_off"),
    Case("power, heat", "a zone that was too hot, and an orderly power-off", "log_critical_temperature",
         said(reading(), ["thermal thermal_zone0: acpitz: critical temperature reached, shutting down"], 3760,
         FORMER), "overheated"),
    Case("gpu", "NVIDIA forum 371272's lines: the PMU halted", "xid_62", said(reading(),
         [XID.format("62, 323f0f30 0000c3d8 00000000 206dae68"),
         "NVRM: GPU0 _kgspRpcGspEventPmuHalted: Received signal from GSP that PMU has halted.",
         XID.format("154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)")]),
         "gpu_lost gpu_asks"),
    Case("gpu", "start-technologies pull request 3693: closed modules", "xid_169",
         said(reading([sample(gpu=health.silent("absent"))]), [XID.format("169, fd8cd000 94000000"),
         "NVRM: GPU 000f:01:00.0: RmInitAdapter failed! (0x62:0x1a:2631)"] * 5), "closed_modules"),
    Case("gpu", "open-gpu-kernel-modules issue 1370: Xid 31 of many programs for an hour", "? xid_31", said(reading(),
         [XID.format(f"31, pid={812 + n}, name=prog{n % 4}, Ch 8, intr 0. MMU Fault") for n in range(40)])),
    Case("gpu", "7.0.0-1019 without its modules", "gpu_no_driver",
         said(said(reading([sample(gpu=health.silent("no_driver"))], kernel="7.0.0-1019-nvidia"),
         ["Linux version 7.0.0-1019-nvidia (b@x)"], 3599), ["Linux version 6.17.0-1032-nvidia (b@x)"], 90000,
         FORMER), "kernel_without_module gpu_lost"),
    Case("gpu", "an unattended upgrade, no reboot yet", "gpu_mismatch",
         reading([sample(gpu=health.silent("mismatch"))], apt=[health.upgrade(NOW - 7200, "nvidia-driver-580-open",
         "580.142", "580.173.02")]), "gpu_mismatch"),
    Case("engine", "nccl issue 2213, a kernel that spins at 96 % and 18 to 21 W", "engine_hung", asked(busy(2405, 20),
         [4000] * 7), "engine_hung"),
    Case("engine", "vLLM issue 53130: nothing is admitted any more", "engine_hung", asked(gpu(2405, 11, 0,
         reasons=[]), [4000] * 7, running=0, waiting=12.0), "engine_hung"),
    Case("engine", "tonyd2wild issue 31: a watchdog kills the engine", "service_failed memory_short",
         reading(service=unit("failed", "killed", "2026-11-23T07:50:00Z")), "service_failed memory_kept"),
    Case("engine", "an engine of a unit that gave up", "unit_stopped", reading(stopped=[{"unit": "gb10-vllm.service",
         "role": "vllm", "state": "failed", "file_state": "enabled", "wish": None}]), "unit_stopped"),
    Case("memory", "open-gpu-kernel-modules issue 1358, 202 lines and a power cycle", "unclean_boot",
         ended(*[NO_MEMORY] * 202, before_s=250), "memory_wedge"),
    Case("memory", "MiaAI-Lab issue 193: a global OOM, back by itself", "log_oom_kill", said(reading(),
         ["Out of memory: Killed process 51234 (sglang::schedul) total-vm:90000000kB, shmem-rss:65011712kB"]),
         "memory_short"),
    Case("memory", "lcasarin-maker/blackbox, in a wedge: 46 GB available again", "memory_pressure", pressed((99, 97,
         88), (94, 92, 80), available_bytes=46 * GIB), "memory_short"),
    Case("memory", "MiaAI-Lab issue 193: 30 GiB of shared memory stay of a dead engine", "? memory_not_returned",
         with_memory(cached=42, free_bytes=68 * GIB, shared_bytes=30 * GIB)),
    Case("kernel", "MiaAI-Lab issue 152: an Oops in ext4's readahead", "unclean_boot",
         ended("Unable to handle kernel paging request at virtual address ffff00081f2c3000",
         "Internal error: Oops: 0000000096000004 [#1] SMP"), "kernel_failed"),
    Case("kernel", "MiaAI-Lab issue 146: a fatal AER, then CPUs that stand still", "unclean_boot",
         ended("pcieport 0000:00:00.0: AER: Uncorrectable (Fatal) error message received from 0000:01:00.0",
         "mlx5_core 0000:01:00.0: mlx5_health_try_recover:375:(pid 99): health recovery flow aborted, PCI reads"
         " still not working",
         "watchdog: BUG: soft lockup - CPU#3 stuck for 26s! [kworker/3:1:99]", before_s=90), "pcie_fatal"),
    Case("kernel", "the host guard rebooted it", "unclean_boot", ended(guard=HELD), "host_guard"),
    Case("rails", "tonyd2wild pull request 35: x2 on the second controller before the UEFI of April", "rail_degraded",
         reading([sample(rails=[rail(), rail(hca="roceP2p1s0f0", pcie={"width": 2.0})])]), "rail_fault"),
    Case("rails", "a warm reboot sheds functions that are planned", "rail_gone", reading([sample(rails=four()[:1])],
         planned_rails=["enp1s0f0np0", "enP2p1s0f0np0"]), "rail_fault"),
    Case("rails", "a cable that flaps", "rail_errors", counted({"link_downed": 2}, {"link_downed": 9}), "rail_fault"),
    Case("rails", "MiaAI-Lab pull request 115's stall, between two hosts of four", "engine_hung rail_errors",
         reading([sample(NOW - 240 + 60 * n, gpu=busy(2405, 21), serving=serving(1, 900),
         rails=[rail(counters={"packet_seq_err": 1200 * n,
         "req_transport_retries_exceeded": 2 * n})]) for n in range(5)], processes=PROCESSES), "fabric_hang"),
    Case("disk", "Pop!_OS issue 1172: commands that time out, again and again", "log_disk log_disk_slow",
         said(reading(), [f"nvme nvme0: I/O {448 + n} QID 2 timeout, aborting" for n in range(40)]), "disk_failing"),
)  # fmt: skip

PLUGGED = [
    "cx7-pcie-hotplug MTKP0001:00: Cable plugin",
    "mlx5_core 0000:01:00.0: mlx5_pcie_event:326:(pid 165): Detected insufficient power on the PCIe slot (27W).",
    "mlx5_core 0000:01:00.0 enp1s0f0np0: Link down",
    "mlx5_core 0000:01:00.0: Port module event: module 0, Cable plugged",
    "mlx5_core 0000:01:00.0 enp1s0f0np0: Link up",
]
KEPT_OFF = {"reasons": ["sw_thermal_slowdown"], "temperature_c": 86.0}
OOPS = ["Unable to handle kernel NULL pointer dereference at virtual address 0000000000000008",
        "Internal error: Oops: 0000000096000004 [#1] SMP"]  # fmt: skip


def slept(count: int, days: float, **more: Any) -> list[Record]:
    """So many boots, the last ones of which ended without a shutdown."""
    step = days * 86400 / count
    ends = [NOW - 3700 - step * n for n in reversed(range(count))]
    return [boot(f"b{n:011d}", end - step + 60, end, clean=False, **more) for n, end in enumerate(ends)] + [
        boot(BOOT, NOW - 3600, NOW)
    ]


SECOND = (
    Case("sound: rails", "NemoClaw issue 8520, a cable put in while it runs", "",
         said(said(railed([], four()), [REMOVAL], 3585), PLUGGED), ""),
    Case("sound: rails", "an owner moves the cable from one port to the other", "",
         said(railed(OF_DELL, [rail(hca="rocep1s0f0", netdev="enp1s0f0np0", **DOWN), rail(hca="rocep1s0f1"),
                               rail(hca="roceP2p1s0f0", **DOWN), rail(hca="roceP2p1s0f1")]),
              [REMOVAL, PLUGGED[0]]), ""),
    Case("sound: rails", "the reboot of a peer: the link came back, with a few symbol errors", "",
         counted({"link_downed": 2, "symbol_error": 3},
                 {"link_downed": 3, "symbol_error": 17, "link_error_recovery": 1})),
    Case("sound: gpu", "rwlove/home-ops, ComfyUI at 85 W and 82 °C, no service of ours", "",
         of_gpus(*[busy(2411, 85, temperature_c=82.0)] * 6), ""),
    Case("sound: gpu", "speculative decoding for one at 18 W, and tokens come", "",
         asked(busy(2411, 18), [100, 1700, 3300, 4900, 6500, 8100]), ""),
    Case("sound: lines", "one program that crashes again and again (Xid 13, 43)", "",
         said(reading(), [XID.format("13, pid=77, name=python3, Graphics SM Warp Exception on (GPC 0, TPC 0, SM 0)"),
                          XID.format("43, pid=77, name=python3, Ch 00000010")] * 15), ""),
    Case("sound: lines", "NTP never answered: July 2025, and the former boot is of the future", "",
         reading(at_s=JULY + 28800, uptime_s=28800.0, samples=[sample(JULY + 28799), sample(JULY + 28800)],
                 clock={"epoch_s": JULY, "source": "chrony", "synchronized": False},
                 boots=[boot(FORMER, NOW - 90000, NOW - 3700, clean=True), boot(BOOT, JULY, JULY + 28800)]), ""),
    Case("sound: disk", "120 losses of power in its life, and all boots end well", "",
         reading(disks=[disk(used_percent=3, unsafe_shutdowns=120, power_cycles=160)]), ""),
    Case("sound: service", "a grammar is compiled: two wait for a minute", "",
         asked(gpu(2405, 13, 0, reasons=[]), [4000] * 4, 20, running=0, waiting=2.0)),
    Case("sound: memory", "7.0.0-1019 with kho=off: CmaTotal 0, CmaFree 0", "",
         reading(kernel="7.0.0-1019-nvidia", kho_off=True, boots=slept(2, 20)[:1] + slept(1, 1)[1:]), ""),
    Case("kernel", "MiaAI-Lab issue 146, 2026-08-26: a fatal AER, both devices lost, CPUs stand still; no reboot yet",
         "log_pcie_error",
         said(bare(), ["pcieport 0000:00:00.0: AER: Uncorrectable (Fatal) error message received from 0000:01:00.0",
                       "mlx5_core 0000:01:00.0: mlx5_error_sw_reset:242:(pid 9): start",
                       "watchdog: BUG: soft lockup - CPU#7 stuck for 22s! [irq/71-aerdrv:301]"]), "pcie_fault"),
    Case("kernel", "NVIDIA forum 366026: it fails at each boot since an update", "unclean_boot",
         said(said(reading(boots=slept(5, 2)), ["Linux version 6.17.0-1008-nvidia (b@x)"], 33700, "b00000000004"),
              OOPS, 3720, "b00000000004"), "kernel_failed"),
    Case("power, heat", "open-gpu-kernel-modules issue 1358: 14 stops in 4 days, nothing in the journal",
         "unclean_boot",
         reading(boots=slept(14, 4), disks=[disk(unsafe_shutdowns=16, power_cycles=22)]), "power_off"),
    Case("power, heat", "a fan that stands: 91 °C at idle", "gpu_hot",
         of_gpus(*[gpu(208, 9, 0, temperature_c=91.0)] * 6), "too_hot"),
    Case("power, heat", "ollama issue 13552: slowed for heat in two readings of six, 173 s in all",
         "? gpu_throttled gpu_warm",
         of_gpus(*[busy(2400, 80, temperature_c=86.0)] * 4, *[busy(1700, 52, **KEPT_OFF)] * 2)),
    Case("power, heat", "a supply that fell back, while an engine computes on", "power_fault",
         asked(busy(702, 14), [4000] * 7), "power_fault"),
    Case("engine", "an engine that spins at 45 W", "? engine_hung", asked(busy(2405, 45), [4000] * 7)),
    Case("memory", "earlyoom takes a browser", "log_oom_daemon",
         said(reading(), ['sending SIGTERM to process 991 uid 1000 "firefox": badness 1211, VmRSS 3100 MiB'],
              _SYSTEMD_UNIT="earlyoom.service"), "memory_short"),
    Case("memory", "the first minute of a wedge: 60 % in 10 s, 9 % in 300 s", "? memory_pressure",
         pressed((60, 45, 9), (55, 40, 8), available_bytes=GIB)),
    Case("rails", "a QSFP module whose bus hangs", "log_cable_fault",
         said(reading(), ["mlx5_core 0000:01:00.0: Port module event[error]: module 0, Cable error, Bus stuck(I2C or"
                          " data shorted)"])),
    Case("gpu", "it left the bus, and the engine failed of that", "xid_79",
         said(reading(service=unit("failed", "gpu_dead", "2026-11-23T07:51:00Z"),
                      samples=[sample(gpu=health.silent("absent"))]),
              [XID.format("79, pid=1234, name=VLLM::Worker, GPU has fallen off the bus.")]), "gpu_lost"),
    Case("gpu", "an update of the driver alone, then Xid 119 in each start", "xid_119",
         said(reading(apt=[health.upgrade(NOW - 86400, "nvidia-driver-580-open", "580.142", "580.173.02")]),
              [XID.format("119, pid=812, name=VLLM::EngineCor, Timeout after 45s of waiting for RPC response")] * 3),
         "torn_update"),
)  # fmt: skip

PCIE = "pcieport {}:00:00.0: AER: Uncorrectable (Non-Fatal) error message received from {}:01:00.0"
GRAPHICS = {**MEMORY, "free_bytes": 70 * GIB, "available_bytes": 80 * GIB}

# Whole stories of hosts: what came first, what speaks against it, and what is not so any more.
THIRD = (
    Case("story: order", "a former boot that was at July 2025 from its first line to its last, and panicked",
         "unclean_boot",
         said(reading(boots=[boot("b0", NOW - 90000, NOW - 40000, clean=True),
                             boot(FORMER, JULY, JULY + 10800, clean=False), boot(BOOT, NOW - 3600, NOW)]),
              OOPS, NOW - JULY - 10790, FORMER), "kernel_failed"),
    Case("story: order",
         "dgx-spark-playbooks issue 116: many lines an hour before, then nothing; a hand next morning",
         "unclean_boot", ended(*[NO_MEMORY] * 202, before_s=3300), "memory_wedge"),
    Case("story: order", "a GPU that left the bus, a task that hung for it, and a killed engine", "xid_79",
         said(reading([sample(gpu=health.silent("silent"))], service=unit("failed", "killed", "2026-11-23T07:55:00Z")),
              [XID.format("79, pid=1, name=VLLM::Worker, GPU has fallen off the bus."),
               "INFO: task nvidia-smi:4242 blocked for more than 120 seconds."]), "gpu_lost"),
    Case("story: place", "a PCIe error of the SSD (0004), not of the ConnectX-7", "log_pcie_error",
         said(reading(), [PCIE.format("0004", "0004"), "nvme nvme0: frozen state error detected, reset controller"]),
         "disk_failing"),
    Case("story: place", "a PCIe error of the GPU (000f), then Xid 79", "xid_79",
         said(reading([sample(gpu=health.silent("absent"))]),
              [PCIE.format("000f", "000f"), XID.format("79, pid=1, name=python3, GPU has fallen off the bus.")]),
         "gpu_lost"),
    Case("story: place", "a PCIe error of the wired card (0007) alone", "log_pcie_error",
         said(reading(), [PCIE.format("0007", "0007")]), ""),
    Case("story: sound", "Isaac Sim renders: 30 GiB of graphics, and no process computes", "",
         reading([sample(NOW - 2 + n, memory=GRAPHICS, gpu=busy(2405, 70)) for n in range(3)]), ""),
    Case("story: sound", "the SSD is hot for a moment (bit 1), and well otherwise", "disk_worn",
         reading(disks=[disk(critical_warning=2)]), "too_hot"),
    Case("story: sound", "an apt update of the driver, a planned reboot, and all is well", "",
         said(said(reading(apt=[health.upgrade(NOW - 7200, "nvidia-driver-580-open", "580.142", "580.173.02")]),
                   ["NVRM: loading NVIDIA UNIX Open Kernel Module for aarch64  580.142  Release Build"], 89000, FORMER),
              ["NVRM: loading NVIDIA UNIX Open Kernel Module for aarch64  580.173.02  Release Build"], 3590), ""),
    Case("story: sound", "an OOM kill 9 days ago", "",
         said(reading(uptime_s=1e6, boots=[boot(BOOT, NOW - 1e6, NOW)]),
              ["Out of memory: Killed process 1 (python3) total-vm:1kB"], 9 * 86400), ""),
    Case("story: sound", "the watchdog of our own restarted an engine that hung; it serves", "",
         reading(service=unit("ready", "hung", "2026-11-23T06:00:00Z", "2026-11-23T06:09:00Z")), ""),
    Case("story: cause", "no room for a start, and memory of a dead engine is still gone", "memory_not_returned",
         {**with_memory(free_bytes=19 * GIB, available_bytes=29 * GIB),
          "service": unit("failed", "memory_short", "2026-11-23T07:59:00Z")},
         "memory_kept"),
    Case("story: cause", "KHO after a kernel update, and no start over two hosts since", "kho",
         {**said(said(with_memory(cma_free_bytes=9 * GIB), ["Linux version 7.0.0-1019-nvidia (b@x)"], 3599),
                 ["Linux version 6.17.0-1032-nvidia (b@x)"], 89000, FORMER),
          "service": unit("failed", "fabric_memory", "2026-11-23T07:59:00Z")}, "kho"),
    Case("story: cause", "one host of a pair waits for a cable that is out", "rail_down",
         {**said(railed([rail(**DOWN)], [rail(**DOWN)], planned_rails=["enp1s0f0np0"]),
                 ["mlx5_core 0000:01:00.0: Port module event: module 0, Cable unplugged"]),
          "service": unit("failed", "rail_down", "2026-11-23T07:59:00Z")}, "rail_fault"),
    Case("story: cause", "a full-load host at 84 °C that went off: nothing in the journal, SSD counts it",
         "unclean_boot",
         ended(disks=[disk(unsafe_shutdowns=5)], before_s=20), "power_off"),
)  # fmt: skip

INFINIBAND = [rail(hca=name, netdev="", state="INIT", carrier=None, rate_gbps=10.0, counters={})
              for name in ("ibp1s0f0", "ibp1s0f1", "ibP2p1s0f0", "ibP2p1s0f1")]  # fmt: skip
NO_JOURNAL = {"events": None, "boots": None, "unknown": {"events": "journalctl failed", "boots": "no /var/log/journal"}}

FOURTH = (
    Case("sound", "ConnectX-7 in InfiniBand mode, unused", "", railed(INFINIBAND, INFINIBAND), ""),
    Case("sound", "booted 30 s ago; its service waits for the other host", "",
         reading(uptime_s=30.0, boots=[boot(FORMER, NOW - 90000, NOW - 60, clean=True), boot(BOOT, NOW - 30, NOW)],
                 service=unit("waiting", None, None, "2026-11-23T08:39:50Z")), ""),
    Case("sound", "Xid 154 back to nothing", "",
         said(reading(), [XID.format("154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")]),
         ""),
    Case("sound", "from the carton: a boot of the factory in July 2025 that was cut off", "",
         reading(boots=[boot(FORMER, JULY, JULY + 900, clean=False), boot(BOOT, NOW - 3600, NOW)],
                 disks=[disk(unsafe_shutdowns=9, power_cycles=10)]), ""),
    Case("sound", "a planned step back to 6.17.0-1029", "",
         said(said(reading(kernel="6.17.0-1029-nvidia"), ["Linux version 6.17.0-1031-nvidia (b@x)"], 89000, FORMER),
              ["Linux version 6.17.0-1029-nvidia (b@x)"], 3599), ""),
    Case("sound", "zones that tell nothing, a disk without spare figures", "",
         reading(zones=[{"zone": "thermal_zone0", "type": "acpitz", "temperature_c": None, "critical_c": 0.0},
                        {"zone": "thermal_zone1", "type": "acpitz", "temperature_c": 61.0, "critical_c": 0.0}],
                 disks=[disk(), disk(disk="nvme1", spare_percent=None, spare_least_percent=None, media_errors=None,
                                     critical_warning=None, unsafe_shutdowns=None, power_cycles=None)]), ""),
    Case("sound", "a 20 GiB model computes on a GPU that rests between two requests", "",
         of_gpus(*[gpu(2405, 12, n % 2 * 30, reasons=[]) for n in range(6)], every_s=10,
                 serves=[serving(n % 2, 900 + 40 * n) for n in range(6)]), ""),
    Case("sound", "a correctable error of memory, 40 of a kind", "",
         said(reading(), ["EDAC MC0: 1 CE single-bit ECC on unknown memory (page:0x0 offset:0x0 grain:1)"] * 40), ""),
    Case("fault: silent ones", "a unit that failed and did not say why", "service_failed",
         reading(service=unit("failed"))),
    Case("fault: silent ones", "no journal, and the kernel killed three since the boot", "log_oom_kill",
         reading(oom_kills=3, **NO_JOURNAL)),
    Case("fault: silent ones", "waiting for a peer for an hour", "? peer_lost service_waits service_failed",
         reading(uptime_s=9000.0, service=unit("waiting", None, None, "2026-11-23T06:40:00Z"))),
    Case("fault: figures", "a cap in each reading, 1500 MHz and 22 W", "gpu_clock_low power_fault",
         of_gpus(*[busy(1500, 22, reasons=["sw_power_cap"])] * 6), "clocks_held power_fault"),
    Case("fault: figures", "the power brake, 1100 MHz and 26 W", "gpu_throttled",
         of_gpus(*[busy(1100, 26, reasons=["hw_slowdown", "hw_power_brake_slowdown"])] * 6), "power_brake"),
    Case("fault: figures", "one planned rail links at 50 of 200 Gb/s, the other at 200", "? rail_slow_link",
         railed(four(), [rail(rate_gbps=50.0), *four()[1:]], planned_rails=["enp1s0f0np0"])),
    Case("fault: figures", "PCIe at 16 GT/s", "rail_degraded",
         railed(four(), [rail(pcie={"gigatransfers": 16.0}), *four()[1:]]), "rail_fault"),
    Case("fault: lines", "Xid 94 of a contained memory error", "xid_94",
         said(reading(), [XID.format("94, pid=812, name=python3, Contained: SM (0x1). RST: No, D-RST: No")])),
    Case("fault: lines", "ext4 tells of errors since the last fsck", "log_disk",
         said(reading(), ["EXT4-fs (nvme0n1p2): error count since last fsck: 4"]), "disk_failing"),
    Case("fault: lines", "a CPU that stood still, and came back", "log_panic log_hung_task",
         said(reading(), ["watchdog: BUG: soft lockup - CPU#11 stuck for 23s! [VLLM::EngineCor:812]"]), "kernel_stuck"),
    Case("fault: order", "earlyoom takes the engine, whose unit says killed", "log_oom_daemon",
         said(reading(service=unit("failed", "killed", "2026-11-23T08:30:30Z")),
              ['sending SIGTERM to process 4242 uid 0 "VLLM::EngineCor": badness 1211'],
              _SYSTEMD_UNIT="earlyoom.service"), "memory_short"),
    Case("fault: order", "a Wi-Fi that reset itself, and nothing else", "? log_wifi_reset",
         said(reading(), ["mt7925e 0009:01:00.0: chip reset", "mt7925e 0009:01:00.0: driver own failed"])),
)  # fmt: skip

FIFTH = (
    Case("sound", "llama-server alone, no unit of ours: 96 % at 55 W", "",
         of_gpus(*[busy(2405, 55, temperature_c=71.0)] * 6, services={}), ""),
    Case("sound", "two services, one at rest and one at work", "",
         reading([sample(NOW - 50 + 10 * n, gpu=busy(2411, 66),
                         servings={"chat": serving(2, 400 + 90 * n), "embed": serving(0, 0)}) for n in range(6)],
                 processes=PROCESSES,
                 services={"chat": unit("ready"), "embed": unit("ready")}), ""),
    Case("sound", "a queue: two run, nine wait, tokens come", "",
         asked(busy(2405, 78), [100, 900, 1700, 2500, 3300, 4100], running=2, waiting=9.0), ""),
    Case("sound", "a Spark that was moved: halted, and its cable put in an hour later", "",
         said(said(railed(four(), four(), boots=[boot(FORMER, NOW - 900000, NOW - 90000, clean=True),
                                                 boot(BOOT, NOW - 3600, NOW)]), [REMOVAL], 3584), PLUGGED, 900), ""),
    Case("sound", "page cache of 100 GiB after a copy of models, no pressure", "",
         with_memory(cached=100, free_bytes=8 * GIB, available_bytes=108 * GIB), ""),
    Case("sound", "kernel 7.0.0-1022 with a driver that no catalog has", "",
         of_gpus(*[gpu(208, 4.1, driver="590.71.05")] * 6, kernel="7.0.0-1022-nvidia", kho_off=True), ""),
    Case("sound", "one SSD command that was late at a resume", "",
         said(reading(), ["nvme nvme0: I/O tag 5 (1005) opcode 0x2 (I/O Cmd) QID 1 timeout, aborting req_op:READ(0)"]),
         ""),
    Case("sound", "link_downed four times in its life, none while we look", "",
         counted({"link_downed": 4, "symbol_error": 12}, {"link_downed": 4, "symbol_error": 12}), ""),
    Case("fault", "a hang whose power nvidia-smi does not give", "? engine_hung",
         asked(busy(2405, None), [4000] * 7)),
    Case("fault", "a supply that fell back, seen through one burst of two readings", "? power_fault",
         of_gpus(*[gpu(2223, 12, 0, reasons=[])] * 4, *[busy(700, 13)] * 2)),
    Case("fault", "the SSD read-only (bits 0x8)", "disk_worn", reading(disks=[disk(critical_warning=8)]),
         "disk_failing"),
    Case("fault", "an unclean end at the time of an update of the kernel, with a panic", "unclean_boot",
         said(ended(*OOPS), ["Linux version 6.17.0-1031-nvidia (b@x)"], 3700 + 86000, FORMER), "kernel_failed"),
    Case("fault", "earlyoom spared it, the kernel did not: two kills in a minute", "log_oom_kill",
         said(reading(oom_kills=2), ["Out of memory: Killed process 9 (python3) total-vm:1kB",
                                     "Out of memory: Killed process 10 (VLLM::EngineCor) total-vm:1kB"]),
         "memory_short"),
    Case("fault", "three of four functions", "rail_gone", railed(four(), four()[:3]), "rail_fault"),
    Case("fault", "a task that hung for the SSD, then commands that were late", "log_disk_slow log_hung_task",
         said(reading(), ["INFO: task jbd2/nvme0n1p2-:512 blocked for more than 122 seconds.",
                          *[f"nvme nvme0: I/O tag {n} (100) opcode 0x1 (I/O Cmd) QID 4 timeout, aborting req_op:WRITE"
                            for n in range(24)]]), "disk_failing kernel_stuck"),
    Case("fault", "the same Xid 79 again in three boots, and the GPU is there now", "xid_79",
         said(said(reading(), [XID.format("79, pid=1, name=x, GPU has fallen off the bus.")], 90000, FORMER),
              [XID.format("79, pid=1, name=x, GPU has fallen off the bus.")], 200000, "b00600000000"), "gpu_lost"),
)  # fmt: skip

SETS = (FIRST, SECOND, THIRD, FOURTH, FIFTH)
