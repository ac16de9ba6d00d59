"""A faulty and a healthy example of each sign in catalog/health.yml, each with where it was seen.

Figures and lines of machines, put into readings of our own form. A line is given raw, and goes through the reader.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.reading import kernel_log

from tests.support import health
from tests.support.health import (
    BOOT,
    GIB,
    MEMORY,
    NOW,
    QUIET,
    Record,
    boot,
    disk,
    gpu,
    rail,
    reading,
    room,
    sample,
    serving,
)

STOPPED = {"unit": "gb10-vllm.service", "role": "vllm", "state": "inactive", "file_state": "disabled", "wish": None}
OVERRIDDEN = {
    **{"phase": "ready", "since": None, "failures": 0, "verdict": None, "text": None, "at": None},
    **{"remark": "fabric_half_idle", "remark_text": "NET/IB: Subnet-aware routing: overriding dev 2 with dev 0"},
}
PROCESSES = [{"pid": 1, "memory_mib": 90000}]


@dataclass(frozen=True)
class Example:
    """`source`: where it was seen. `id`: of the finding, where it is not the sign's own."""

    source: str
    record: Record = field(default_factory=reading)
    lines: Sequence[str] = ()
    id: str = ""

    def made(self) -> Record:
        if not self.lines:
            return self.record
        entries = [
            {"__REALTIME_TIMESTAMP": str(int((NOW - 600 + place) * 1e6)), "_BOOT_ID": BOOT + "0" * 20, "MESSAGE": line}
            for place, line in enumerate(self.lines)
        ]
        return {**self.record, "events": kernel_log.parse_journal("\n".join(map(json.dumps, entries)))}


def of_gpus(*gpus: Record, every_s: float = 2, serves: Sequence[Record | None] = (), **more: Any) -> Record:
    counts = serves or [None] * len(gpus)
    samples = [
        sample(NOW - every_s * (len(gpus) - 1 - place), gpu=one, serving=count)
        for place, (one, count) in enumerate(zip(gpus, counts, strict=True))
    ]
    return reading(samples, **{"processes": PROCESSES, **more})


def busy(clock: float, power: float, **more: Any) -> Record:
    return gpu(clock, power, 96, temperature_c=more.pop("temperature_c", 55.0), **more)


def silent(state: str, source: str) -> Example:
    return Example(source, reading([sample(gpu=health.silent(state))]))


def of_rails(before: Record, after: Record, passed_s: float = 1, **more: Any) -> Record:
    return reading([sample(NOW - passed_s, rails=[before]), sample(rails=[after])], **more)


def four(**more: Any) -> list[Record]:
    names = ("rocep1s0f0", "rocep1s0f1", "roceP2p1s0f0", "roceP2p1s0f1")
    return [rail(hca=name, **more) for name in names]


def with_memory(cached: int = 10, waited: float = 0, now: float = 0, **changes: Any) -> Record:
    full = {"some": {"avg10": now, "avg60": now, "avg300": waited}, "full": QUIET["full"]}
    short = {"free_bytes": 2 * GIB, "available_bytes": (2 + cached) * GIB} if waited else {}
    memory = {**MEMORY, "cached_bytes": cached * GIB, **short, **changes}
    pressure = {"cpu": QUIET, "memory": full, "io": QUIET}
    return reading([sample(memory=memory, pressure=pressure)], processes=PROCESSES if waited else [])


def steps(first: float, later: float) -> Record:
    """1,000 steps at one pace, and 125 at another."""
    counts = [
        {**serving(1, 1000 + place), "step_s_sum": first * 1000 + later * 25 * place, "step_count": 1000.0 + 25 * place}
        for place in range(6)
    ]
    return of_gpus(*[busy(2405, 17)] * 6, every_s=12, serves=counts)


def still(power: float, clock: float, tokens: float = 500, **more: Any) -> Record:
    return of_gpus(*[busy(clock, power, **more)] * 6, every_s=40, serves=[serving(2, tokens)] * 6)


AWAY = "nfs: server 192.0.2.9 not responding, still trying"
SLOT = "mlx5_core {}: mlx5_pcie_event:326:(pid 165): Detected insufficient power on the PCIe slot (27W)."
SLOTS = [SLOT.format(place) for place in ("0000:01:00.0", "0000:01:00.1", "0002:01:00.0", "0002:01:00.1")]
UNTOLD = "mlx5_core 0000:01:00.0: mlx5_pcie_event:316:(pid 165): PCIe slot power capability was not advertised."
NO_MEMORY = (
    "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from"
    " _memdescAllocInternal(pMemDesc) @ mem_desc.c:1359"
)
XID = "NVRM: Xid (PCI:000f:01:00): {}"
IDLE = Example("own H100 and published readings of idle Sparks, 208 MHz and 4.5 W (FujitsuPolycom/sparkring issue 2)")
# A boot of a sound Spark: its lines, and four rails that carry what they should.
SOUND = Example(
    "NVIDIA/dgx-spark-playbooks pull request 108; NVIDIA forum 378459, 111.6 Gb/s with these lines",
    reading([sample(NOW - 1, rails=four()), sample(rails=four())]),
    [
        "Linux version 6.17.0-1014-nvidia (buildd@bos03-arm64-026)",
        *SLOTS,
        "NVRM: loading NVIDIA UNIX Open Kernel Module for aarch64  580.142  Release Build",
        "pcieport 0000:00:00.0: AER: Correctable error message received from 0000:00:00.0",
        "pcieport 0000:00:00.0: PCIe Bus Error: severity=Correctable, type=Physical Layer, (Receiver ID)",
        NO_MEMORY,
        NO_MEMORY,
        XID.format("31, pid=812, name=python3, Ch 00000008, intr 00000000. MMU Fault"),
    ],
)
PAGES = "kworker/3:1: page allocation failure: order:4, mode:0x40cc0(GFP_KERNEL|__GFP_COMP), nodemask=(null)"
API = "NVRM: API mismatch: the client 'nvidia-smi' (pid 4242)"
ENDED = [boot("b0", NOW - 90000, NOW - 3700, clean=False), boot(BOOT, NOW - 3600, NOW)]
LOCKED = ["applications_clocks_setting"]
ZONE = {"zone": "thermal_zone2", "type": "acpitz", "critical_c": 104.8}
KILLED = "Out of memory: Killed process 4242 (VLLM::EngineCor) total-vm:1kB"
PARTED = {"out_of_sequence": 2, "link_downed": 4}

# By id of the sign: the faulty one, and the healthy one.
EXAMPLES: dict[str, tuple[Example, Example]] = {
    "gpu_silent": (silent("silent", "open-gpu-kernel-modules issue 1230"), IDLE),
    "gpu_absent": (silent("absent", "NVSentinel issue 155; leptonai/gpud pull request 1209"), IDLE),
    "gpu_mismatch": (silent("mismatch", "nvidia-smi's own words after an update"), IDLE),
    "gpu_no_driver": (silent("no_driver", "a Spark whose 7.0.0-1019 came without modules, 2026-09-15"), IDLE),
    "gpu_no_program": (silent("no_program", "the lab's hosts without a driver"), IDLE),
    "gpu_unreadable": (silent("unreadable", "tests/fixtures/health/h100/bad.txt"), IDLE),
    "power_fault": (
        Example("NVIDIA forum 376039, 721 MHz", of_gpus(*[busy(721, 17)] * 6)),
        Example("a clock lock at 1200 MHz", of_gpus(*[busy(1200, 24, reasons=LOCKED)] * 6)),
    ),
    "gpu_clock_low": (
        Example("ai-muninn.com, half of the power", of_gpus(*[busy(1900, 55, reasons=["sw_power_cap"])] * 6)),
        Example("tonyd2wild issue 1, eight Sparks locked at 2200 MHz", of_gpus(*[gpu(2189, 11, 0, reasons=[])] * 6)),
    ),
    "gpu_throttled": (
        Example("NVIDIA forum 380238", of_gpus(*[busy(2197, 72, reasons=["hw_thermal_slowdown"])] * 8)),
        Example("readings of owners", of_gpus(*[gpu(reasons=["gpu_idle", "sw_power_cap"])] * 6, processes=[])),
    ),
    "gpu_hot": (
        Example("EC firmware 0x0300xxxx, its fans", of_gpus(*[busy(2400, 86, temperature_c=96.0)] * 6)),
        Example("users of sparkview", of_gpus(*[busy(2400, 86, temperature_c=83.0)] * 6)),
    ),
    "gpu_warm": (
        Example("NVIDIA forum 380238, 89 °C", of_gpus(*[busy(2400, 72, temperature_c=89.0)] * 6)),
        Example("users of sparkview", of_gpus(*[busy(2400, 86, temperature_c=83.0)] * 6)),
    ),
    "soc_hot": (
        Example("forum 368536, a host that switched off",
                reading(zones=[{**ZONE, "temperature_c": 101.0}])),
        Example("nvcheckup; owners under load",
                reading(zones=[{**ZONE, "temperature_c": 96.5}])),
    ),
    "engine_hung": (
        Example("vllm issue 40926", still(24, 2400)),
        Example("a long prefill with the clock locked at 1500 MHz", still(28, 1500, reasons=LOCKED)),
    ),
    "slow_steps": (
        Example("tonyd2wild DeepSeek-V4.1-Flash issue 1, 63 ms became 94", steps(0.063, 0.094)),
        Example("the same hosts before", steps(0.063, 0.063)),
    ),
    "fabric_half_idle": (
        Example("two rings of four Sparks, 2026-10", reading(service=OVERRIDDEN)),
        Example("a start without that line", reading(service={**OVERRIDDEN, "remark": None, "remark_text": None})),
    ),
    "disk_full": (
        Example("a day on the lab's pair, a disk filled by hand", reading(rooms=[room("/var/lib/docker", 3.0)])),
        Example("a disk of 3.7 TiB with 100 GiB left, 3 %; room for an image",
                reading(rooms=[room("/", 100, size_gib=3700), room("/var/lib/docker", 100, size_gib=3700)])),
    ),
    "unit_stopped": (
        Example("a day on the lab's pair: stopped and disabled by hand", reading(stopped=[STOPPED])),
        Example("the same pair, with a wish of its operator", reading(stopped=[{**STOPPED, "wish": "ada@laptop"}])),
    ),
    "certificate": (
        Example("certbot's default is 30 days", reading(certificates=[{"file": "a.pem", "ends_s": NOW + 86400 * 5}])),
        Example("certbot's default is 30 days", reading(certificates=[{"file": "a.pem", "ends_s": NOW + 86400 * 30}])),
    ),
    "memory_not_returned": (
        Example("a bisect of kernels, 81 GiB stay gone with 6.17.0-1031",
                with_memory(free_bytes=19 * GIB, available_bytes=29 * GIB)),
        Example("Syllo/nvtop issue 449, 8 GiB of a desktop", with_memory(free_bytes=96 * GIB, cached=14)),
    ),
    "memory_fragmented": (
        Example("sparkring, pull requests 173 and 202",
                reading([sample(blocks={"free_bytes": 100 * GIB, "large_bytes": 2 * GIB})])),
        Example("sparkring, pull requests 173 and 202",
                reading([sample(blocks={"free_bytes": 100 * GIB, "large_bytes": 40 * GIB})])),
    ),
    "memory_pressure": (
        Example("lcasarin-maker/blackbox, wedge 3", with_memory(waited=92.4, now=92.4)),
        Example("lcasarin-maker/blackbox, a spike of 2 minutes", with_memory(waited=32, now=98.5)),
    ),
    "page_cache_pressure": (
        Example("dgx-spark-playbooks issue 116", with_memory(cached=47, waited=18, now=18)),
        Example("470 GB of models through the cache, no pressure", with_memory(cached=47, free_bytes=60 * GIB)),
    ),
    "kho": (
        Example("eugr/spark-vllm-docker issue 389", with_memory(cma_free_bytes=9 * GIB)),
        Example("hasso5703/dgx-spark-qwen38, a box that serves",
                with_memory(cma_total_bytes=131072 * 1024, cma_free_bytes=69320 * 1024)),
    ),
    "rail_degraded": (
        Example("NVIDIA forum 367853", of_rails(rail(), rail(pcie={"width": 2.0}))),
        Example("docs.nvidia.com", of_rails(rail(), rail())),
    ),
    "rail_gone": (
        Example("NVIDIA forum 374275; NVIDIA/NV-Kernels pull request 271",
                reading([sample(rails=None)], unknown={"rails": "there is no RDMA device with hardware in /sys"}),
                ["cx7-pcie-hotplug MTKP0001:00: Cable removal"]),
        Example("a Spark without a cable",
                reading([sample(rails=None)], unknown={"rails": "there is no RDMA device with hardware in /sys"})),
    ),
    "rail_down": (
        Example("NVIDIA forum 374275, a cable taken out", of_rails(rail(), rail(state="DOWN", carrier=False))),
        Example("a port that never had a cable", of_rails(rail(state="DOWN"), rail(state="DOWN"))),
    ),
    "rail_slow_link": (
        Example("some switches before they are set to 200G", of_rails(rail(), rail(rate_gbps=100.0))),
        Example("NVIDIA forum 378459", of_rails(rail(), rail())),
    ),
    "rail_errors": (
        Example("MiaAI-Lab GLM-5.3-Flash-EXL3 pull request 115, a stall of nine minutes",
                of_rails(rail(counters={}), rail(counters={"packet_seq_err": 4830, "roce_adp_retrans": 498}), 540)),
        Example("a sound switch, and a peer that was rebooted",
                of_rails(rail(counters={"link_downed": 3}), rail(counters=PARTED), 200)),
    ),
    "disk_worn": (
        Example("form of the NVMe SMART log", reading(disks=[disk(spare_percent=8, media_errors=12)])),
        Example("form of the NVMe SMART log", reading(disks=[disk(unsafe_shutdowns=40)])),
    ),
    "unclean_boot": (
        Example("tonyd2wild DSv4-Flash-Vision issue 31",
                reading(boots=[boot("b0", NOW - 90000, NOW - 3700, clean=False), boot(BOOT, NOW - 3600, NOW)])),
        Example("a planned reboot",
                reading(boots=[boot("b0", NOW - 90000, NOW - 3700, clean=True), boot(BOOT, NOW - 3600, NOW)])),
    ),
    "log_oom_kill": (
        Example("dgx-spark-playbooks issue 97", lines=[KILLED]),
        SOUND,
    ),
    "log_gpu_start": (
        Example("osinit.c", reading([sample(gpu=health.silent("absent"))]),
                ["NVRM: GPU 000f:01:00.0: RmInitAdapter failed! (0x62:0x40:2068)"]),
        Example("a start that was tried again",
                lines=["NVRM: GPU 000f:01:00.0: RmInitAdapter failed! (0x62:0x40:2068)"]),
    ),
    "log_oom_daemon": (
        Example("an owner's report, exit 143",
                lines=['earlyoom[771]: sending SIGTERM to process 4242 uid 0 "VLLM::EngineCor": badness 1211']),
        SOUND,
    ),
    "log_driver_memory": (Example("open-gpu-kernel-modules issue 1358, dozens", lines=[NO_MEMORY] * 40), SOUND),
    "log_pcie_error": (
        Example("MiaAI-Lab issue 146", lines=["pcieport 0000:00:00.0: AER: Uncorrectable (Fatal) error"]),
        SOUND,
    ),
    "log_no_pages": (
        Example("Linux, mm/page_alloc.c", lines=[PAGES] * 12),
        Example("a card that tried again", lines=[PAGES] * 2),
    ),
    "log_driver_mismatch": (
        Example("open-gpu-kernel-modules, after an update", reading([sample(gpu=health.silent("mismatch"))]), [API]),
        Example("a container with libraries of its own", lines=[API]),
    ),
    "log_iommu": (
        Example("Linux, arm-smmu-v3.c", lines=["arm-smmu-v3 arm-smmu-v3.2.auto: CMD_SYNC timeout at 0x0000002a"]),
        Example("the same, as it starts",
                lines=["arm-smmu-v3 arm-smmu-v3.2.auto: allocated 65536 entries for cmdq"]),
    ),
    "log_wired_fault": (
        Example("Linux, net/sched/sch_generic.c",
                lines=["r8127 0007:01:00.0 enP7s7: NETDEV WATCHDOG: CPU: 3: transmit queue 0 timed out 5368 ms"]),
        Example("a cable that is taken out", lines=["r8127 0007:01:00.0 enP7s7: Link is Down"]),
    ),
    "log_slot_power": (
        Example("community runbooks, a warm reboot drops functions",
                reading([sample(rails=four()[:2])]), [SLOTS[0], UNTOLD]),
        SOUND,
    ),
    "log_slot_capability": (Example("Linux, mlx5/core/events.c", lines=[UNTOLD]), SOUND),
    "log_nic_firmware": (
        Example("an owner's log, 2026-05-09",
                lines=["mlx5_core 0000:01:00.0: wait_func_handle_exec_timeout:1185:(pid 7): cmd[0]: DESTROY_EQ(0x302)"
                       " timeout. Will cause a leak of a command resource"]),
        Example("the line before it, of the cable",
                lines=["mlx5_core 0000:01:00.0: Port module event: module 0, Cable unplugged"]),
    ),
    "log_nic_queue": (
        Example("Linux, mlx5/core/en/reporter_tx.c",
                lines=["mlx5_core 0000:01:00.0 enp1s0f0np0: Error CQE on SQ: 0x1a3"]),
        Example("the same of a queue that is closed",
                lines=["mlx5_core 0000:01:00.0 enp1s0f0np0: Error cqe on cqn 0x4a9, ci 0x7d, qn 0x1a2, opcode 0xd,"
                       " syndrome 0x5, vendor syndrome 0xf9"]),
    ),
    "log_cable_fault": (
        Example("Linux, mlx5/core/events.c",
                lines=["mlx5_core 0000:01:00.0: Port module event[error]: module 0, Cable error, High Temperature"]),
        Example("the same, as it is plugged in",
                lines=["mlx5_core 0000:01:00.0: Port module event: module 0, Cable plugged"]),
    ),
    "log_cable_removed": (
        Example("NVIDIA/NV-Kernels pull request 271", lines=["cx7-pcie-hotplug MTKP0001:00: Cable removal"]), SOUND,
    ),
    "log_cable_plugged": (
        Example("notes of an owner of a pair, 2026-09", lines=["cx7-pcie-hotplug MTKP0001:00: Cable plugin"]),
        Example("a boot with its cable in", lines=["cx7-pcie-hotplug MTKP0001:00: Hotplug enabled"]),
    ),
    "log_hung_task": (
        Example("kernel/hung_task.c", lines=["INFO: task VLLM::EngineCor:812 blocked for more than 120 seconds"]),
        SOUND,
    ),
    "log_cpu_missing": (
        Example("Linux, arch/arm64/kernel/smp.c", lines=["CPU7: failed to come online"]),
        Example("Linux, psci.c, at each sleep", lines=["psci: CPU7 killed (polled 0 ms)"]),
    ),
    "log_sleep": (
        Example("open-gpu-kernel-modules issue 1117",
                reading(boots=ENDED, events=[health.event("sleep", NOW - 3705, "PM: suspend entry", of_boot="b0")])),
        Example("a desktop", lines=["PM: suspend entry (s2idle)", "PM: suspend exit"]),
    ),
    "log_irq_off": (
        Example("Linux, kernel/irq/spurious.c",
                lines=['irq 45: nobody cared (try booting with the "irqpoll" option)']),
        Example("Linux, drivers/pci/pcie/pme.c", lines=["pcieport 0000:00:00.0: PME: Spurious native interrupt!"]),
    ),
    "log_watchdog_reset": (
        Example("Linux, sbsa_gwdt.c", reading(boots=ENDED), ["sbsa-gwdt sbsa-gwdt.0: System reset by WDT."]),
        Example("the same after a boot that ended well", lines=["sbsa-gwdt sbsa-gwdt.0: System reset by WDT."]),
    ),
    "log_net_table": (
        Example("Linux, nf_conntrack_core.c", lines=["nf_conntrack: nf_conntrack: table full, dropping packet"]),
        Example("many clients at once",
                lines=["TCP: request_sock_TCP: Possible SYN flooding on port 0.0.0.0:8000. Sending cookies."]),
    ),
    "log_share_lost": (
        Example("Linux, net/sunrpc/clnt.c", lines=[AWAY]),
        Example("the same, and back", lines=[AWAY, "nfs: server 192.0.2.9 OK"]),
    ),
    "log_panic": (Example("NVIDIA forum 366026", lines=["Kernel panic - not syncing: Fatal exception"]), SOUND),
    "log_hardware_error": (
        Example("a report, 2025-04-04", lines=["Memory failure: 0x46fab5: unhandlable page."]),
        Example("Linux, drivers/firmware/efi/cper.c", lines=["{3}[Hardware Error]: event severity: corrected"]),
    ),
    "log_former_error": (
        Example("Linux, apei/bert.c", reading(boots=ENDED), ["[Hardware Error]: event severity: fatal"]),
        Example("a record that stays", lines=["[Hardware Error]: event severity: fatal"]),
    ),
    "log_critical_temperature": (
        Example("NVIDIA forum 368536", lines=["thermal thermal_zone2: acpitz: critical temperature reached"]),
        SOUND,
    ),
    "log_disk": (
        Example("Linux, drivers/nvme/host/pci.c",
                lines=["nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10"]),
        SOUND,
    ),
    "log_disk_slow": (
        Example("Pop!_OS issue 1172", lines=[f"nvme nvme0: I/O {448 + n} QID 2 timeout, aborting" for n in range(16)]),
        Example("clearlinux issue 2121", lines=["nvme nvme0: I/O 14 QID 2 timeout, aborting"] * 2),
    ),
    "log_wifi_reset": (Example("MiaAI-Lab pull request 157", lines=["mt7925e 0009:01:00.0: chip reset"]), SOUND),
    "log_xid": (
        Example("prometheus_hoard, 2026-10-09",
                lines=[XID.format("79, pid=1234, name=VLLM::Worker, GPU has fallen off the bus.")], id="xid_79"),
        Example("NVIDIA, Xid Errors, user app", lines=[XID.format("43, pid=4242, name=python3, Ch 00000010")]),
    ),
}  # fmt: skip
