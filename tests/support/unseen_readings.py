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

    `first`: of the cause that the first line should be about, any of them; "-" where it was not asked.
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


TWO = four()[:2]
DOWN = {"state": "DOWN", "carrier": False, "rate_gbps": 40.0}
OF_DELL = [rail(hca=f"roce{p}s0f{n}", netdev=f"en{p}s0f{n}np{n}", **(DOWN if n else {}))
           for p in ("p1", "P2p1") for n in (0, 1)]  # fmt: skip
PLANNED = ["enp1s0f0np0", "enP2p1s0f0np0"]
HELD = {"boot": FORMER, "at_s": NOW - 3705, "full_percent": 91.2, "reboots": True}

FIRST = (
    # sound: clocks, power, heat
    Case(
        "sound: gpu",
        "graham33/nixos-dgx-spark issue 165, idle without its adapter",
        "",
        of_gpus(*[gpu(208, 3.2)] * 6, processes=[]),
        "",
    ),
    Case(
        "sound: gpu",
        "hasso5703/dgx-spark-qwen38 pull request 4, 12.1 W with an idle scheduler",
        "",
        of_gpus(*[gpu(2405, 12.1, 0, reasons=[])] * 6),
    ),
    Case(
        "sound: gpu",
        "AEON-7/vllm-dflash issue 1, 67 °C and 16 W at 0 %",
        "",
        of_gpus(*[gpu(2405, 16, 0, reasons=[], temperature_c=67.0, pstate="P0")] * 6),
    ),
    Case(
        "sound: gpu",
        "ollama issue 13552, 81 °C, 13 °C to its limit",
        "",
        of_gpus(*[busy(2411, 74, temperature_c=81.0, tlimit_c=13.0)] * 6),
        "",
    ),
    Case(
        "sound: gpu",
        "open-gpu-kernel-modules issue 1358, clocks capped at 2100, 80 °C",
        "",
        of_gpus(*[busy(2093, 60, temperature_c=80.0)] * 6),
    ),
    Case(
        "sound: gpu",
        "llama.cpp discussion 18254, 31 to 36 W at 2.4 GHz for one request",
        "",
        asked(busy(2405, 34), [500, 1300, 2100, 2900, 3700, 4500]),
    ),
    Case(
        "sound: gpu",
        "NemoClaw issue 7127, a prompt of 144,694 tokens in 111 s",
        "",
        asked(busy(2398, 71), [900] * 6, 20),
        "",
    ),
    Case(
        "sound: gpu",
        "a load that comes and goes; hasso5703 issue 8 is the faulty one",
        "",
        of_gpus(*[gpu(208, 5, 0), busy(2411, 62)] * 6, every_s=10),
    ),
    Case(
        "sound: gpu",
        "ollama issue 13552, 0.9 s of sw_thermal_slowdown in all",
        "",
        of_gpus(*[busy(2350, 78, temperature_c=82.0)] * 5, busy(2290, 77, reasons=["sw_thermal_slowdown"])),
    ),
    Case(
        "sound: gpu",
        "geerlingguy/top500-benchmark issue 79, 98 °C of the processor in HPL",
        "",
        reading(zones=[{"zone": "thermal_zone3", "type": "acpitz", "temperature_c": 98.0, "critical_c": None}]),
        "",
    ),
    Case("sound: gpu", "our role's lock at 1300", "", of_gpus(*[busy(1290, 19)] * 6, clock_lock_mhz=1300.0)),
    # sound: memory
    Case(
        "sound: memory",
        "tonyd2wild issue 31, 104 of 121 GB, up for 9 days",
        "",
        {
            **with_memory(cached=8, free_bytes=6 * GIB, available_bytes=14 * GIB),
            "uptime_s": 794000.0,
            "processes": PROCESSES,
        },
    ),
    Case(
        "sound: memory",
        "NemoClaw issue 7127, 3.2 GiB available, 2.2 GiB of swap, two lines at its start",
        "",
        said(pressed((0.4, 0.9, 1.2), free_bytes=2 * GIB, available_bytes=3 * GIB), [NO_MEMORY] * 2),
        "",
    ),
    Case(
        "sound: memory",
        "an engine that was killed three minutes ago; its pressure has passed",
        "",
        pressed((0.2, 4, 14), (0, 1, 9)),
    ),
    Case(
        "sound: memory",
        "christopherowen, 7.0.0-1019-nvidia-64k with kho=off in production",
        "",
        reading(kernel="7.0.0-1019-nvidia-64k", kho_off=True),
    ),
    # sound: rails
    Case(
        "sound: rails",
        "geerlingguy/sbc-reviews issue 92, Dell: f1 Down, Disabled, Rate 40",
        "",
        railed(OF_DELL, OF_DELL, planned_rails=PLANNED),
        "",
    ),
    Case("sound: rails", "the same, before anything was planned", "", railed(OF_DELL, OF_DELL)),
    Case(
        "sound: rails",
        "no cable: the driver says Cable removal some 15 s after each boot (an owner of two)",
        "",
        said(bare(), [REMOVAL], 3585),
        "",
    ),
    Case(
        "sound: rails", "the same host alone, planned without rails", "", said(bare(planned_rails=[]), [REMOVAL], 3585)
    ),
    Case(
        "sound: rails",
        "nccl issue 394's counters, high and at rest",
        "",
        counted(
            {"local_ack_timeout_err": 91316, "out_of_sequence": 6140236},
            {"local_ack_timeout_err": 91316, "out_of_sequence": 6140236},
        ),
    ),
    Case(
        "sound: rails",
        "ECN at work: notifications rise, nothing is lost",
        "",
        counted({"np_cnp_sent": 17269947}, {"np_cnp_sent": 17301947, "rp_cnp_handled": 2000}),
    ),
    # sound: disks, boots, lines
    Case(
        "sound: lines",
        "14 of 15 power cycles unclean from the factory",
        "",
        reading(disks=[disk(used_percent=0, unsafe_shutdowns=14, power_cycles=15)]),
        "",
    ),
    Case(
        "sound: lines",
        "a clock in July 2025 until NTP answers; a program's Xid 31 before that",
        "",
        {
            **said(
                reading(uptime_s=95.0, boots=[boot(FORMER, NOW - 90000, NOW - 200, clean=True), boot(BOOT, JULY, NOW)]),
                [],
            ),
            "events": said(reading(), [XID.format("31, pid=9, name=python3, Ch 8")], NOW - JULY - 40)["events"],
        },
        "",
    ),
    Case(
        "sound: lines",
        "a planned reboot into 6.17.0-1032 with 580.173.02; a task hung while it went down",
        "",
        said(
            said(reading(kernel="6.17.0-1032-nvidia"), ["Linux version 6.17.0-1032-nvidia (b@x)"], 3599),
            ["INFO: task kworker/u80:3:991 blocked for more than 120 seconds."],
            3740,
            FORMER,
        ),
        "",
    ),
    Case(
        "sound: lines",
        "sovgrid, a UPS shuts it down in the evening",
        "",
        reading(uptime_s=600.0, boots=[boot(FORMER, NOW - 90000, NOW - 36000, clean=True), boot(BOOT, NOW - 600, NOW)]),
    ),
    Case(
        "sound: lines",
        "Wi-Fi alone: it is sent away by the access point now and then",
        "",
        said(
            bare(),
            [
                "mt7925e 0009:01:00.0: WM Firmware Version: ____000000, Build Time: 20250721233113",
                "wlP9s9: deauthenticated from 00:00:5e:00:53:01 (Reason: 3=DEAUTH_LEAVING)",
            ],
        ),
    ),
    Case(
        "sound: lines",
        "NVIDIA forum, DOE mailbox at each boot of one that serves",
        "",
        said(
            reading(),
            [
                "pci 000f:01:00.0: DOE: [2c8] ABORT timed out",
                "pci 000f:01:00.0: DOE: [2c8] failed to reset mailbox with abort command : -5",
            ],
        ),
    ),
    Case(
        "sound: lines",
        "ASUS, firmware updated in good order",
        "",
        said(
            said(
                reading(firmware="GX10DGX.0105.2026.0505.1153"),
                ["DMI: ASUSTeK COMPUTER INC. GX10/GX10, BIOS GX10DGX.0103.2026.0211 02/11/2026"],
                89000,
                FORMER,
            ),
            ["DMI: ASUSTeK COMPUTER INC. GX10/GX10, BIOS GX10DGX.0105.2026.0505.1153 05/05/2026"],
            3590,
        ),
    ),
    Case(
        "sound: service",
        "an engine that rests: nothing is asked of it",
        "",
        of_gpus(*[gpu(2405, 11, 0, reasons=[])] * 6, every_s=60, serves=[serving(0, 8000)] * 6),
    ),
    Case(
        "sound: service",
        "loading 164 GiB of weights from the disk",
        "",
        {**of_gpus(*[gpu(2405, 12, 2, reasons=[])] * 6, every_s=40), "service": unit("loading")},
        "",
    ),
    Case(
        "sound: service",
        "it failed in the morning, and serves since",
        "",
        reading(service=unit("ready", "out_of_memory", "2026-11-23T06:00:00Z", "2026-11-23T06:10:00Z")),
    ),
    # faults: power and heat
    Case(
        "power, heat",
        "model-serving-minefield trap 124: used, and never boosts",
        "power_fault",
        of_gpus(*[busy(845, 14.5)] * 6),
        "power_fault",
    ),
    Case("power, heat", "ai-muninn.com, GX10 at 30 W in all", "power_fault", of_gpus(*[busy(507, 11)] * 6)),
    Case(
        "power, heat",
        "open-gpu-kernel-modules issue 1358, 92 °C and slowed",
        "gpu_throttled gpu_hot",
        of_gpus(*[busy(1905, 68, temperature_c=92.0, reasons=["sw_thermal_slowdown"])] * 6),
        "too_hot",
    ),
    Case(
        "power, heat",
        "ollama issue 13552's limit (94 °C) two degrees away",
        "gpu_hot",
        of_gpus(*[busy(2200, 81, temperature_c=89.0, tlimit_c=2.0)] * 6),
    ),
    Case(
        "power, heat",
        "an adapter of 100 W: the cap in each reading",
        "gpu_clock_low",
        of_gpus(*[busy(1650, 42, reasons=["sw_power_cap"])] * 6),
        "clocks_held",
    ),
    Case(
        "power, heat",
        "MiaAI-Lab issue 146's comment: off for heat, no line, fine after it",
        "unclean_boot",
        ended(before_s=20),
        "power_off",
    ),
    Case(
        "power, heat",
        "a zone that was too hot, and an orderly power-off",
        "log_critical_temperature",
        said(reading(), ["thermal thermal_zone0: acpitz: critical temperature reached, shutting down"], 3760, FORMER),
        "overheated",
    ),
    # faults: the GPU
    Case(
        "gpu",
        "NVIDIA forum 371272's lines: the PMU halted",
        "xid_62",
        said(
            reading(),
            [
                XID.format("62, 323f0f30 0000c3d8 00000000 206dae68"),
                "NVRM: GPU0 _kgspRpcGspEventPmuHalted: Received signal from GSP that PMU has halted.",
                XID.format("154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"),
            ],
        ),
        "gpu_lost gpu_asks",
    ),
    Case(
        "gpu",
        "start-technologies pull request 3693: closed modules",
        "xid_169",
        said(
            reading([sample(gpu=health.silent("absent"))]),
            [XID.format("169, fd8cd000 94000000"), "NVRM: GPU 000f:01:00.0: RmInitAdapter failed! (0x62:0x1a:2631)"]
            * 5,
        ),
        "wrong_modules",
    ),
    Case(
        "gpu",
        "open-gpu-kernel-modules issue 1370: Xid 31 of many programs for an hour",
        "xid_31",
        said(
            reading(), [XID.format(f"31, pid={812 + n}, name=prog{n % 4}, Ch 8, intr 0. MMU Fault") for n in range(40)]
        ),
    ),
    Case(
        "gpu",
        "7.0.0-1019 without its modules",
        "gpu_no_driver",
        said(
            said(
                reading([sample(gpu=health.silent("no_driver"))], kernel="7.0.0-1019-nvidia"),
                ["Linux version 7.0.0-1019-nvidia (b@x)"],
                3599,
            ),
            ["Linux version 6.17.0-1032-nvidia (b@x)"],
            90000,
            FORMER,
        ),
        "kernel_without_module gpu_lost",
    ),
    Case(
        "gpu",
        "an unattended upgrade, no reboot yet",
        "gpu_mismatch",
        reading(
            [sample(gpu=health.silent("mismatch"))],
            apt=[health.upgrade(NOW - 7200, "nvidia-driver-580-open", "580.142", "580.173.02")],
        ),
        "gpu_mismatch",
    ),
    # faults: engines
    Case(
        "engine",
        "nccl issue 2213, a kernel that spins at 96 % and 18 to 21 W",
        "engine_hung",
        asked(busy(2405, 20), [4000] * 7),
        "engine_hung",
    ),
    Case(
        "engine",
        "vLLM issue 53130: nothing is admitted any more",
        "engine_hung",
        asked(gpu(2405, 11, 0, reasons=[]), [4000] * 7, running=0, waiting=12.0),
        "engine_hung",
    ),
    Case(
        "engine",
        "tonyd2wild issue 31: a watchdog kills the engine",
        "service_failed memory_short",
        reading(service=unit("failed", "killed", "2026-11-23T07:50:00Z")),
        "service_failed memory_kept",
    ),
    Case(
        "engine",
        "an engine of a unit that gave up",
        "unit_stopped",
        reading(
            stopped=[
                {"unit": "gb10-vllm.service", "role": "vllm", "state": "failed", "file_state": "enabled", "wish": None}
            ]
        ),
        "unit_stopped",
    ),
    # faults: memory
    Case(
        "memory",
        "open-gpu-kernel-modules issue 1358, 202 lines and a power cycle",
        "unclean_boot",
        ended(*[NO_MEMORY] * 202, before_s=250),
        "memory_wedge",
    ),
    Case(
        "memory",
        "MiaAI-Lab issue 193: a global OOM, back by itself",
        "log_oom_kill",
        said(
            reading(),
            ["Out of memory: Killed process 51234 (sglang::schedul) total-vm:90000000kB, shmem-rss:65011712kB"],
        ),
        "memory_short",
    ),
    Case(
        "memory",
        "lcasarin-maker/blackbox, in a wedge: 46 GB available again",
        "memory_pressure",
        pressed((99, 97, 88), (94, 92, 80), available_bytes=46 * GIB),
        "memory_short",
    ),
    Case(
        "memory",
        "MiaAI-Lab issue 193: 30 GiB of shared memory stay of a dead engine",
        "memory_not_returned",
        with_memory(cached=42, free_bytes=68 * GIB, shared_bytes=30 * GIB),
    ),
    # faults: the kernel, PCIe and what came first
    Case(
        "kernel",
        "MiaAI-Lab issue 152: an Oops in ext4's readahead",
        "unclean_boot",
        ended(
            "Unable to handle kernel paging request at virtual address ffff00081f2c3000",
            "Internal error: Oops: 0000000096000004 [#1] SMP",
        ),
        "kernel_failed",
    ),
    Case(
        "kernel",
        "MiaAI-Lab issue 146: a fatal AER, then CPUs that stand still",
        "unclean_boot",
        ended(
            "pcieport 0000:00:00.0: AER: Uncorrectable (Fatal) error message received from 0000:01:00.0",
            "mlx5_core 0000:01:00.0: mlx5_health_try_recover:375:(pid 99): health recovery flow aborted, PCI reads"
            " still not working",
            "watchdog: BUG: soft lockup - CPU#3 stuck for 26s! [kworker/3:1:99]",
            before_s=90,
        ),
        "pcie_fatal",
    ),
    Case("kernel", "the host guard rebooted it", "unclean_boot", ended(guard=HELD), "host_guard"),
    # faults: rails and disks
    Case(
        "rails",
        "tonyd2wild pull request 35: x2 on the second controller before the UEFI of April",
        "rail_degraded",
        reading([sample(rails=[rail(), rail(hca="roceP2p1s0f0", pcie={"width": 2.0})])]),
        "rail_fault",
    ),
    Case(
        "rails",
        "a warm reboot sheds functions that are planned",
        "rail_gone",
        reading([sample(rails=four()[:1])], planned_rails=["enp1s0f0np0", "enP2p1s0f0np0"]),
        "rail_fault",
    ),
    Case("rails", "a cable that flaps", "rail_errors", counted({"link_downed": 2}, {"link_downed": 9}), "rail_fault"),
    Case(
        "rails",
        "MiaAI-Lab pull request 115's stall, between two hosts of four",
        "engine_hung rail_errors",
        reading(
            [
                sample(
                    NOW - 240 + 60 * n,
                    gpu=busy(2405, 21),
                    serving=serving(1, 900),
                    rails=[rail(counters={"packet_seq_err": 1200 * n, "req_transport_retries_exceeded": 2 * n})],
                )
                for n in range(5)
            ],
            processes=PROCESSES,
        ),
        "fabric_hang",
    ),
    Case(
        "disk",
        "Pop!_OS issue 1172: commands that time out, again and again",
        "log_disk",
        said(reading(), [f"nvme nvme0: I/O {448 + n} QID 2 timeout, aborting" for n in range(40)]),
        "disk_failing",
    ),
)
