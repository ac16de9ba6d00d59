"""The parsers: what a sound text gives, and that garbage gives a reason and never a number."""

from __future__ import annotations

import calendar
import gzip
import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.reading import (
    apt_history,
    boots,
    counters,
    gpu,
    kernel_lines,
    kernel_log,
    memory,
    rooms,
    sensors,
    unit_status,
)
from ansible_collections.gb10.fleet.plugins.module_utils.reading import rail_counters as rails
from ansible_collections.gb10.fleet.plugins.module_utils.reading import serving as service
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Completed, System
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import (
    LARGEST_TEXT,
    Notes,
    Unknown,
    hidden,
    quoted,
    text_of,
)

from tests.support.monitored import SetClock

H100 = Path(__file__).parents[2] / "fixtures/health/h100"
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.142\n"
HUGE = "x" * 10_000_000
GARBAGE = ["", "\0" * 100, "\x1b[2J\x1b[31mgarbage", MISMATCH, "{", "[[[" * 1000, "[" * 100_000, "[N/A]\n" * 50, HUGE]


def smi(stdout: str, rc: int = 0, stderr: str = "") -> Completed:
    return Completed(("nvidia-smi",), rc, stdout, stderr)


def row(text: str) -> tuple[dict[str, Any], dict[str, str]]:
    return gpu.parse(smi(text))


def utc(text: str) -> float:
    return float(calendar.timegm(time.strptime(text, "%Y-%m-%d %H:%M:%S")))


PARSERS: dict[str, Callable[[str], object]] = {
    "meminfo": memory.parse_meminfo,
    "blocks": lambda text: memory.parse_blocks(text, 4096),
    "pressure": memory.parse_pressure,
    "oom_kills": memory.parse_oom_kills,
    "boots": boots.parse_boots,
    "dmesg": lambda text: kernel_log.parse_dmesg(text, 0),
    "apt": lambda text: apt_history.parse_history(text, utc),
    "wear by nvme": lambda text: sensors.parse_wear(text, "nvme"),
    "wear by smartctl": lambda text: sensors.parse_wear(text, "smartctl"),
    "status": unit_status.parse_status,
    "settings": lambda text: counters.service_of("vllm", text, "/etc/gb10-fleet/vllm.json"),
    "metrics": counters.parse,
}


@pytest.mark.parametrize("name", PARSERS)
@pytest.mark.parametrize("text", GARBAGE, ids=lambda text: f"{text[:12]!r} {len(text)}")
def test_garbage_is_unknown_with_a_short_reason(name: str, text: str) -> None:
    with pytest.raises(Unknown) as caught:
        PARSERS[name](text)
    assert 5 < len(str(caught.value)) < 400


@pytest.mark.parametrize("text", GARBAGE[1:], ids=lambda text: f"{text[:12]!r} {len(text)}")
def test_a_journal_of_garbage_is_unknown(text: str) -> None:
    with pytest.raises(Unknown):
        kernel_log.parse_journal(text)


@pytest.mark.parametrize("text", GARBAGE, ids=lambda text: f"{text[:12]!r} {len(text)}")
def test_garbage_of_nvidia_smi_is_no_reading(text: str) -> None:
    values, reasons = row(text)
    assert values.pop("state") == "unreadable"
    assert set(values.values()) == {None}
    assert list(reasons) == ["state"]


@pytest.mark.parametrize(
    ("done", "state"),
    [
        (smi("", 124), "silent"),
        (smi("", 127), "no_program"),
        (smi("No devices were found\n", 6), "absent"),
        (smi(MISMATCH, 18), "mismatch"),
        (smi("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", 9), "no_driver"),
        (smi("", 139), "unreadable"),
    ],
)
def test_states_of_nvidia_smi(done: Completed, state: str) -> None:
    values, reasons = gpu.parse(done)
    assert values["state"] == state
    assert reasons["state"]


def test_not_available_is_unknown_and_never_zero() -> None:
    values, reasons = row("NVIDIA GB10, 580.142, [N/A], [N/A], N/A, [Not Supported], [N/A], [N/A], [N/A], [N/A]\n")
    assert (values["state"], values["name"]) == ("ok", "NVIDIA GB10")
    assert {values[name] for name in (*gpu.NUMBERS, "reasons", "pstate")} == {None}
    assert reasons["power_w"] == "nvidia-smi says [Not Supported]"
    assert set(reasons) == {*gpu.NUMBERS, "reasons", "pstate"}


def test_a_gb10_at_work() -> None:
    values, reasons = row("NVIDIA GB10, 580.142, P0, 68, [N/A], 86.20, 2418, 3003, 96, 0x0000000000000021\n")
    assert values["temperature_c"] == 68
    assert (values["clock_mhz"], values["power_w"], values["utilization_percent"]) == (2418, 86.2, 96)
    assert values["reasons"] == ["gpu_idle", "sw_thermal_slowdown"]
    assert list(reasons) == ["tlimit_c"]


@pytest.mark.parametrize("cell", ["9999999", "-1", "1e5", "nan", "inf", "0x10", "12 W"])
def test_an_impossible_power_is_unknown(cell: str) -> None:
    values, reasons = row(f"NVIDIA GB10, 580.142, P0, 68, 20, {cell}, 2418, 3003, 96, 0x0\n")
    assert values["power_w"] is None
    assert "power_w" in reasons


def test_a_bit_without_a_name_keeps_its_number() -> None:
    assert row("NVIDIA GB10, 1, P0, 68, 20, 5, 2418, 3003, 96, 0x1001\n")[0]["reasons"] == ["gpu_idle", "0x1000"]


def test_a_field_that_nvidia_smi_does_not_know_is_left_out() -> None:
    asked = []

    def run(argv: Any, _stdin: Any, _timeout: float) -> Completed:
        asked.append(argv[1])
        if "tlimit" in argv[1]:
            return smi('Field "temperature.gpu.tlimit" is not a valid field to query.\n\n', 2)
        return smi("NVIDIA GB10, 580.142, P8, 41, 4.71, 208, 3003, 0, 0x1\n")

    values, reasons = gpu.read_gpu(HostReader(system=System(runner=run)))
    assert len(asked) == 2
    assert (values["temperature_c"], values["power_w"]) == (41, 4.71)
    assert reasons == {"tlimit_c": "this nvidia-smi does not know the field"}


def test_a_program_that_refuses_every_field_is_not_asked_for_ever() -> None:
    def run(argv: Any, _stdin: Any, _timeout: float) -> Completed:
        first = argv[1].partition("=")[2].split(",")[0]
        return smi(f'Field "{first}" is not a valid field to query.', 2)

    assert gpu.read_gpu(HostReader(system=System(runner=run)))[0]["state"] == "unreadable"


# -- the answers of a real driver --------------------------------------------------------------------------------------


def recorded() -> list[tuple[str, Completed, Completed]]:
    found = re.findall(r"== (\w+)\n(.*\n)rc (\d+)\n((?:\d.*\n)*)rc (\d+)\n", (H100 / "smi.txt").read_text())
    return [(name, smi(query, int(rc)), smi(apps, int(rc2))) for name, query, rc, apps, rc2 in found]


def test_a_real_driver_idle_and_under_load() -> None:
    answers = recorded()
    assert [name for name, _query, _apps in answers] == ["idle", *["loaded"] * 6]
    read = [gpu.parse(query) for _name, query, _apps in answers]
    assert [reasons for _values, reasons in read] == [{}] * 7
    first, last = read[0][0], read[-1][0]
    assert (first["power_w"], first["reasons"], first["tlimit_c"]) == (70.57, ["gpu_idle"], 56)
    assert (last["utilization_percent"], last["reasons"]) == (100, ["sw_power_cap"])
    assert gpu.parse_processes(answers[0][2]) == []
    assert gpu.parse_processes(answers[1][2]) == [{"pid": 457, "memory_mib": 874}]


def test_a_real_driver_refuses_a_field() -> None:
    text, _, rc = (H100 / "bad.txt").read_text().rpartition("rc ")
    assert (gpu.parse(smi(text, int(rc)))[0]["state"], re.search(gpu._UNKNOWN_FIELD, text)[1]) == (  # type: ignore[index]
        "unreadable",
        "nosuch.field",
    )


def test_a_real_kernel() -> None:
    values, reasons = memory.parse_meminfo((H100 / "meminfo").read_text())
    assert values["available_bytes"] == 131471012 * 1024
    assert set(reasons) == {"cma_total_bytes", "cma_free_bytes"}
    blocks = memory.parse_blocks((H100 / "buddyinfo").read_text(), 4096)
    assert blocks["large_bytes"] is None  # its largest are of 4 MiB
    assert blocks["free_bytes"] > 840 * 4 * 2**20
    assert memory.parse_pressure((H100 / "pressure-io").read_text())["some"]["avg60"] == 2.06
    assert memory.parse_oom_kills((H100 / "vmstat").read_text()) == 0
    events = kernel_log.parse_dmesg((H100 / "dmesg.txt").read_text(), 1000)
    assert [(event["kind"], event["key"]) for event in events] == [("driver", "580.159.04")]
    assert events[0]["at_s"] == pytest.approx(1001.324441)
    assert apt_history.parse_history((H100 / "apt.txt").read_text(), utc) == []  # nothing of ours moved


# -- the journal -------------------------------------------------------------------------------------------------------


def entry(message: Any, at_s: float = 1000, boot: str = "a" * 32) -> str:
    return json.dumps({"__REALTIME_TIMESTAMP": str(int(at_s * 1e6)), "_BOOT_ID": boot, "MESSAGE": message})


@pytest.mark.parametrize(
    ("message", "kind", "key"),
    [
        ("NVRM: Xid (PCI:000f:01:00): 119, pid=812, name=python3, Timeout after 6s of waiting", "xid", "119"),
        ("NVRM: Xid (PCI:000f:01:00): 79, GPU has fallen off the bus.", "xid", "79"),
        ("Out of memory: Killed process 812 (python3) total-vm:1kB, anon-rss:1kB", "oom_kill", "python3"),
        ("Memory cgroup out of memory: Killed process 9 (VLLM::Engine) total-vm:1kB", "oom_kill", "Memory cgroup"),
        ("NVRM: nvAssertOkFailed: NV_ERR_NO_MEMORY (0x51) returned", "driver_memory", "NV_ERR_NO_MEMORY"),
        ("pcieport 0000:00:00.0: AER: Uncorrectable (Fatal) error message received", "pcie_error", "Uncorrectable"),
        ("mlx5_core 0000:01:00.0: mlx5_pcie_event: Detected insufficient power on the PCIe slot (27W).", "slot_power",
         "mlx5_core 0000:01:00.0"),
        ("INFO: task vllm:812 blocked for more than 120 seconds.", "hung_task", "vllm:812"),
        ("Kernel panic - not syncing: Fatal exception", "panic", "Kernel panic - not syncing"),
        ("thermal thermal_zone0: acpitz: critical temperature reached, shutting down", "critical_temperature",
         "critical temperature reached"),
        ("NVRM: GPU0 _kgspIsHeartbeatTimedOut: Heartbeat timed out, currentTimeMs 8 diff 6", "xid", "119"),
        ("NVRM: _kgspRpcRecvPoll: GSP RPC timeout, function 76", "xid", "119"),
        ("NVRM: krcWatchdog_IMPL: RC watchdog: GPU is probably locked!  Notify Timeout Seconds: 7", "xid", "8"),
        ("              NVRM: fallen off the bus and is not responding to commands.", "xid", "79"),
        ("NVRM: The NVIDIA GPU 000f:01:00.0\nNVRM: (PCI ID: 10de:2e12) installed in this system has\n"
         "NVRM: fallen off the bus and is not responding to commands.", "xid", "79"),
        ("mlx5_core 0000:01:00.0: mlx5_pcie_event:299:(pid 9): PCIe slot power capability was not advertised.",
         "slot_capability", "mlx5_core 0000:01:00.0"),
        ("mlx5_core 0000:01:00.1: wait_func_handle_exec_timeout:1185:(pid 7): cmd[0]: DESTROY_EQ(0x302) timeout. Will"
         " cause a leak of a command resource", "nic_firmware", "mlx5_core 0000:01:00.1"),
        ("cx7-pcie-hotplug MTKP0001:00: Cable removal", "cable_removed", "cx7-pcie-hotplug MTKP0001:00"),
        ("rcu: INFO: rcu_preempt self-detected stall on CPU", "hung_task", "rcu_preempt"),
        ("watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python3:812]", "panic", "watchdog: BUG: soft lockup"),
        ("reboot: HARDWARE PROTECTION shutdown (Temperature too high)", "critical_temperature",
         "HARDWARE PROTECTION shutdown (Temperature"),
        ("nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10", "disk", "nvme0"),
        ("EXT4-fs (nvme0n1p2): Remounting filesystem read-only", "disk", "nvme0n1p2"),
        ("mt7925e 0009:01:00.0: chip reset", "wifi_reset", "mt7925e"),
        ("Linux version 7.0.0-1019-nvidia (buildd@host)", "kernel", "7.0.0-1019-nvidia"),
        ("DMI: NVIDIA NVIDIA_DGX_Spark/P4242, BIOS 5.36_0ACUM018 08/14/2025", "firmware",
         "NVIDIA NVIDIA_DGX_Spark/P4242, BIOS 5.36_0ACUM018 08/14/2025"),
        ("NVRM: loading NVIDIA UNIX Open Kernel Module for aarch64  580.142  Release Build", "driver", "580.142"),
        ("gb10-vllm: engine_died: it ended; the first error", "service", "engine_died"),
        ("gb10-vllm: the container listens: the gateway lets requests through", "serves", ""),
    ],
)  # fmt: skip
def test_lines_that_tell_something(message: str, kind: str, key: str) -> None:
    (event,) = kernel_log.parse_journal(entry(message) + "\n" + entry("nothing of note") + "\n{half a li")
    assert (event["kind"], event["key"], event["count"], event["at_s"]) == (kind, key, 1, 1000)
    assert re.search(kernel_log.OWN_GREP if kind in ("service", "serves") else kernel_log.GREP, message), (
        "journalctl would not give this line"
    )


# The same faults as other kernels and drivers word them.
NIC, NVME, PORT = "mlx5_core 0000:01:00.0: ", "nvme nvme0: ", "pcieport 0000:00:00.0: "
SPELLINGS = {
    "xid": [
        "NVRM: Xid (PCI:000f:01:00 GPU-I:00): 31, pid=1, name=python3",
        "NVRM: _kgspRpcRecvPoll: Back to back GSP RPC timeout detected! GPU marked for reset",
        "NVRM: GPU0 _kgspRpcRecvPoll: GSP RPC Timeout, function 76",
        # NVIDIA forum 371272; kubernetes-sigs/dra-driver-nvidia-gpu issue 982; open-gpu-kernel-modules issue 688
        "NVRM: GPU0 kgspHealthCheck_TU102: ********** GSP-CrashCat Report **********",
        "NVRM: GPU0 _kgspRpcGspEventPmuHalted: Received signal from GSP that PMU has halted.",
        "NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062) returned",
        "NVRM: nvAssertOkFailedNoLog: Assertion failed: GPU lost from the bus [NV_ERR_GPU_IS_LOST] (0x0000000F)",
    ],
    "gpu_start": ["NVRM: GPU 000f:01:00.0: RmInitAdapter failed! (0x62:0x40:2068)"],
    "pcie_error": [
        f"{PORT}AER: Multiple Uncorrectable (Non-Fatal) error message received from 0000:01:00.0",
        f"{PORT}AER: Uncorrected (Fatal) error received: 0000:01:00.0",
        f"{PORT}DPC: containment event, status:0x1f03, ERR_FATAL received from 0000:01:00.0",
        f"{PORT}DPC: unmasked uncorrectable error detected",
        f"{PORT}AER: device recovery failed",
        f"{PORT}AER: subordinate device reset failed",
        f"{NIC}PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer, (Receiver ID)",
    ],
    "nic_firmware": [
        f"{NIC}wait_func_handle_exec_timeout:1171:(pid 3219): cmd[0]: DESTROY_EQ(0x302) No done completion",
        f"{NIC}poll_health:825:(pid 0): device's health compromised - reached miss count",
        f"{NIC}print_health_info:431: Health issue observed, unrecoverable hardware error, severity(2) CRITICAL:",
        f"{NIC}mlx5_load_one failed with error code -22",
        f"{NIC}probe_one:1955:(pid 1): mlx5_init_one failed with error code -110",
        f"{NIC}mlx5_function_setup:1170:(pid 5): Firmware over 120000 MS in pre-initializing state, aborting",
    ],
    "disk_slow": [f"{NVME}I/O tag 511 (11ff) opcode 0x2 (I/O Cmd) QID 5 timeout, aborting req_op:READ(0) size:4096"],
    "cable_fault": [
        f"{NIC}Port module event[error]: module 0, Cable error, Bus stuck (I2C or data shorted)",
        f"{NIC}temp_warn:102:(pid 0): High temperature on sensors with bit set 0 1",
    ],
    "hung_task": [
        "INFO: task VLLM::EngineCor:812 blocked in I/O wait for more than 122 seconds.",
        "INFO: task kworker/u80:3:1234 blocked for more than 122 seconds.",
        "rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 5-.... } 26 jiffies s: 549 root: 0x20/.",
        "rcu: INFO: rcu_tasks detected stalls on tasks:",
    ],
    "panic": [
        "watchdog: CPU4: Watchdog detected hard LOCKUP on cpu 5",
        "Internal error: synchronous external abort: 0000000096000410 [#1]  SMP",
    ],
    "critical_temperature": ["reboot: HARDWARE PROTECTION reboot (Temperature too high)"],
    "disk": [
        f"{NVME}I/O tag 511 (11ff) opcode 0x2 (I/O Cmd) QID 5 timeout, reset controller",
        f"{NVME}I/O 22 QID 5 timeout, reset controller",
        f"{NVME}Removing after probe failure status: -19",
        "blk_update_request: critical medium error, dev nvme0n1, sector 12",
        "Buffer I/O error on dev nvme0n1p2, logical block 0, lost async page write",
        "EXT4-fs error (device dm-0) in ext4_reserve_inode_write:5764: Journal has aborted",
        "Aborting journal on device nvme0n1p2-8.",
    ],
}


@pytest.mark.parametrize(("kind", "message"), [(kind, one) for kind, several in SPELLINGS.items() for one in several])
def test_other_kernels_and_drivers_say_the_same_in_other_words(kind: str, message: str) -> None:
    (event,) = kernel_log.parse_journal(entry(message))
    assert event["kind"] == kind and re.search(kernel_log.GREP, message)


@pytest.mark.parametrize(
    "message",
    [
        *("gb10-vllm: stopping", "gb10-vllm: made_up: text", "NVRM: GPU at PCI", "DMI none"),
        f"{NIC}wait_func_handle_exec_timeout:1171:(pid 3219): Recovered 1 EQEs on cmd_eq",
        f"{NIC}mlx5_pcie_event:301:(pid 165): PCIe slot advertised sufficient power (75W).",
        f"{NIC}Health issue observed, temperature, severity(5) NOTICE:",
        f"{PORT}AER: Multiple Correctable error message received from 0000:00:00.0",
        f"{PORT}DPC: error containment capabilities: Int Msg #0, RPExt+ PoisonedTLP+ SwTrigger+ RP PIO Log 6",
        f"{NVME}I/O tag 0 (1000) QID 5 timeout, completion polled",
        *(
            "EXT4-fs error (device sda1): ext4_find_entry:1: inode #2",
            "EXT4-fs (sdb1): Remounting filesystem read-only",
        ),
        *("I/O error, dev loop3, sector 0 op 0x0:(READ)", "Buffer I/O error on dev sr0, logical block 0"),
        # Sound boots: nvtrust issue 54, open-gpu-kernel-modules issue 402, NVIDIA forum 366026, mlx5/core/events.c
        "NVRM: nvCheckOkFailedNoLog: Check failed: Call not supported [NV_ERR_NOT_SUPPORTED] (0x00000056) returned",
        "NVRM: nvAssertFailedNoLog: Assertion failed: 0 @ osapi.c:1688",
        "pci 000f:01:00.0: DOE: [2c8] ABORT timed out",
        f"{NIC}Port module event: module 0, Cable plugged",
        "DMI: Memory slots populated: 1/1",  # the next line of newer kernels
    ],
)
def test_lines_that_tell_nothing(message: str) -> None:
    assert kernel_log.parse_journal(entry(message)) == []


def test_equal_lines_in_a_row_are_counted_and_boots_kept_apart() -> None:
    line = "NVRM: Xid (PCI:000f:01:00): 31, pid=1"
    text = "\n".join([entry(line, 1), entry(line, 2), entry(line, 3, "b" * 32), entry([78, 86, 300, "x"], 4)])
    events = kernel_log.parse_journal(text)
    assert [(event["count"], event["at_s"], event["last_s"]) for event in events] == [(2, 1, 2), (1, 3, 3)]


def test_equal_lines_that_are_far_apart_are_two_events() -> None:
    line = "NVRM: Xid (PCI:000f:01:00): 31, pid=1"
    text = "\n".join(entry(line, at_s) for at_s in (1, 3000, 3001 + kernel_log.GAP_S))
    assert [event["count"] for event in kernel_log.parse_journal(text)] == [2, 1]


# Names that a login can give: of a program (15 characters), and of a control group, which may be any path.
FORGED = (
    "NVRM: Xid (PCI:000f:01:00): 79, pid=1, GPU has fallen off the bus.",
    "mlx5_core 0000:01:00.0: Detected insufficient power on the PCIe slot (27W).",
    "pcieport 0000:00:00.0: AER: Uncorrectable (Fatal) error message received",
    "Kernel panic - not syncing: Fatal exception",
    "thermal thermal_zone0: acpitz: critical temperature reached, shutting down",
    "NVRM: nvAssertOkFailed: NV_ERR_NO_MEMORY (0x51) returned",
    "mt7925e 0009:01:00.0: chip reset",
    "INFO: task vllm:812 blocked for more than 120 seconds.",
    "nvme nvme0: controller is down; will reset",
    "NVRM: abcdefg: NV_ERR_NO_MEMORY",
    "Linux version 9 (x)",
    "DMI: x, BIOS 9 01/01/2025",
    "Killed x due to memory pressure",
)


def dump(name: str) -> list[str]:
    """What the kernel prints when it kills a program of that name, in a control group of that name."""
    comm = name[:15]
    return [
        f"{comm} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        f"CPU: 3 UID: 1000 PID: 4242 Comm: {comm} Not tainted 6.17.0-1014-nvidia",
        f"Memory cgroup stats for /user.slice/{name}:",
        f"[   4242]  1000  4242   123456    1234   987654        0             0 {comm}",
        f"oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/user.slice/{name},task_memcg=/x,task={comm},pid=4242,uid=1000",
        f"Tasks in /user.slice/{name} are going to be killed due to memory.oom.group set",
        f"{comm}[4242]: segfault at 0 ip 0000 sp 0000 error 4 in {name}[aaaa0000+1000]",
    ]


def before_a_wildcard(items: Iterable[tuple[Any, Any]]) -> tuple[int, bool]:
    """How many characters a line has at least where a pattern first takes any, as `.{0,200}`; and whether it does."""
    width = 0
    for kind, value in items:
        name = str(kind)
        if name == "ANY" or name == "NOT_LITERAL" or (name == "IN" and str(value[0][0]) == "NEGATE"):
            return width, True
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            least, most, inside = value
            wild = before_a_wildcard(inside)[1]
            if wild and most > COMM:
                return width, True
            width += least * max(1, 0 if wild else before_a_wildcard(inside)[0])
        elif name in ("SUBPATTERN", "BRANCH"):
            choices = [value[-1]] if name == "SUBPATTERN" else value[1]
            found = [before_a_wildcard(each) for each in choices]
            if taking := [each for each, wild in found if wild]:
                return width + min(taking), True
            width += min(each for each, _ in found)
        elif name != "AT":
            width += 1
    return width, False


COMM = 15  # characters of a program's name


@pytest.mark.parametrize(("kind", "pattern"), kernel_lines.KINDS)
def test_a_pattern_begins_with_more_than_a_program_s_name(kind: str, pattern: str) -> None:
    """Else a login gives its program a name like the beginning, and a wildcard takes what the kernel writes behind."""
    assert pattern.startswith(r"\A"), "a search would find it in the middle of a dump"
    width, wild = before_a_wildcard(re._parser.parse(pattern))  # type: ignore[attr-defined]
    # Changes are no faults: what a login forges of them is a line in a timeline.
    assert kind in ("kernel", "firmware", "driver") or not wild or width > COMM, width
    assert before_a_wildcard(re._parser.parse(r"\ANVRM: .{0,200}x")) == (6, True)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", FORGED)
def test_a_login_s_names_make_no_fault(name: str) -> None:
    """An OOM kill in a control group or a program of any name is that kill alone."""
    killed = f"Memory cgroup out of memory: Killed process 4242 ({name[:15]}) total-vm:1kB"
    text = "\n".join(entry(line, 1000 + place) for place, line in enumerate([*dump(name), killed]))
    assert [event["kind"] for event in kernel_log.parse_journal(text)] == ["oom_kill"]
    dmesg = "\n".join(f"[ {place + 1}.000001] {line}" for place, line in enumerate([*dump(name), killed]))
    assert [event["kind"] for event in kernel_log.parse_dmesg(dmesg, 0)] == ["oom_kill"]


@pytest.mark.parametrize("caller", ["", "[  T812]", "[    C3]"])
def test_dmesg_may_name_who_spoke(caller: str) -> None:
    """As kernels with CONFIG_PRINTK_CALLER do."""
    dmesg = f"[   12.345678]{caller} NVRM: Xid (PCI:000f:01:00): 79, GPU has fallen off the bus."
    assert [event["key"] for event in kernel_log.parse_dmesg(dmesg, 0)] == ["79"]


@pytest.mark.parametrize(
    ("unit", "message", "key"),
    [
        ("earlyoom.service", 'sending SIGTERM to process 812 uid 1000 "python3": badness 900, VmRSS 9 MiB',
         'uid 1000 "python3"'),
        ("systemd-oomd.service", "Killed /system.slice/docker-1.scope due to memory pressure for /system.slice",
         "/system.slice/docker-1.scope"),
    ],
)  # fmt: skip
def test_programs_that_kill_for_memory_are_heard(unit: str, message: str, key: str) -> None:
    told = json.dumps({**json.loads(entry(message)), "_SYSTEMD_UNIT": unit})
    (event,) = kernel_log.parse_journal(told)
    assert (event["kind"], event["key"]) == ("oom_daemon", key)
    assert re.search(kernel_log.GUARD_GREP, message), "journalctl would not give this line"
    assert kernel_log.parse_journal(told.replace(unit, "x.service")) == []


def test_what_a_gpu_asks_for_last_is_kept() -> None:
    asks = "NVRM: Xid (PCI:000f:01:00): 154, GPU recovery action changed from {} to {}"
    texts = [asks.format("0x0 (None)", "0x2 (Node Reboot Required)"), asks.format("0x2 (Node Reboot)", "0x0 (None)")]
    events = kernel_log.parse_journal("\n".join(entry(text, place) for place, text in enumerate(texts)))
    assert [event["text"] for event in events] == texts


def test_the_beginning_of_a_young_boot_is_read_whatever_its_clock_said(tmp_path: Path) -> None:
    """--since leaves out what the kernel said before the clock was set."""
    (tmp_path / "var/log/journal/x").mkdir(parents=True)
    xid = json.loads(entry("NVRM: Xid (PCI:000f:01:00): 79, pid=1", 1000))
    late = {**json.loads(entry("Kernel panic - not syncing", 9000)), "__CURSOR": "b"}

    def journal(argv: Sequence[str], _stdin: str | None, _timeout: float) -> Completed:
        kernel = "_TRANSPORT=kernel" in argv
        early = [{**xid, "__CURSOR": "a"}] if "--boot" in argv else []
        return Completed(tuple(argv), 0, "\n".join(map(json.dumps, [*early, late])) if kernel else "")

    host = HostReader(system=System(tmp_path, journal))
    assert [one["kind"] for one in kernel_log.read_events(host, None, since_s=8000)] == ["panic"]
    young = kernel_log.read_events(host, None, since_s=8000, this_boot=True)
    assert [(one["kind"], one["count"]) for one in young] == [("xid", 1), ("panic", 1)]


def test_where_journald_names_devices_a_line_of_one_needs_it() -> None:
    line = "mlx5_core 0000:01:00.0: Detected insufficient power on the PCIe slot (27W)."
    marked = json.dumps({**json.loads(entry(line, 2000)), "_KERNEL_DEVICE": "+pci:0000:01:00.0"})
    (event,) = kernel_log.parse_journal(entry(line) + "\n" + marked)
    assert (event["at_s"], event["count"]) == (2000, 1)
    assert [event["count"] for event in kernel_log.parse_journal(entry(line))] == [1], "an old journal marks none"


def test_the_newest_line_comes_first_out_of_journalctl_and_last_out_of_here() -> None:
    text = "\n".join(
        [entry("Linux version 7.0 (x)", 9), entry("Linux version 6.17 (x)", 5), entry("Kernel panic - not syncing", 7)]
    )
    assert [event["key"] for event in kernel_log.parse_journal(text)] == ["6.17", "Kernel panic - not syncing", "7.0"]


def test_what_is_quoted_is_short_printable_and_names_no_gpu() -> None:
    said = quoted("GPU-9b10f1ee-0000-4b10-8121-000000000001\x1b[2J\nnext " + "y" * 999)
    assert said.startswith("GPU-(hidden)?[2J next y")
    assert len(said) == 200 and said.endswith("y ..."), "what is cut says so"


JSON_BOOTS = json.dumps(
    [
        {"index": -1, "boot_id": "a" * 32, "first_entry": 1_000_000_000, "last_entry": 2_000_000_000},
        {"index": 0, "boot_id": "b" * 32, "first_entry": 3_000_000_000, "last_entry": 4_000_000_000},
    ]
)
TABLE_BOOTS = """\
IDX BOOT ID                          FIRST ENTRY                 LAST ENTRY
 -1 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa Thu 1970-01-01 00:16:40 UTC Thu 1970-01-01 00:33:20 UTC
  0 bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb Thu 1970-01-01 00:50:00 UTC—Thu 1970-01-01 01:06:40 UTC
"""


@pytest.mark.parametrize("text", [JSON_BOOTS, TABLE_BOOTS])
def test_boots_as_json_and_as_a_table(text: str) -> None:
    assert [(boot["boot"], boot["first_s"], boot["last_s"]) for boot in boots.parse_boots(text)] == [
        ("a" * 12, 1000, 2000),
        ("b" * 12, 3000, 4000),
    ]


@pytest.mark.parametrize(
    ("first_us", "last_us"),
    [
        pytest.param(5_000_000, 4_000_000_000, id="its RTC is dead"),
        pytest.param(9_000_000_000, 4_000_000_000, id="its RTC is fast"),
    ],
)
def test_boots_stay_in_the_order_of_journalctl(first_us: int, last_us: int) -> None:
    """A boot whose clock was wrong at first is the last one all the same."""
    rows = json.loads(JSON_BOOTS)
    rows[1].update(first_entry=first_us, last_entry=last_us)
    former, current = boots.judge(boots.parse_boots(json.dumps(rows)), "", "b" * 12)
    assert (former["boot"], former["clean"]) == ("a" * 12, False)
    assert (current["boot"], current["first_s"], current["clean"]) == ("b" * 12, first_us / 1e6, None)


@pytest.mark.parametrize("at_us", [10**30, -1, 10**400])
def test_an_impossible_time_is_no_entry(at_us: int) -> None:
    line = json.dumps({"__REALTIME_TIMESTAMP": str(at_us), "_BOOT_ID": "a" * 32, "MESSAGE": "Kernel panic"})
    with pytest.raises(Unknown):
        kernel_log.parse_journal(line)
    with pytest.raises(Unknown):
        boots.parse_boots(json.dumps([{"boot_id": "a" * 32, "first_entry": at_us, "last_entry": at_us}]))


def test_only_root_says_that_a_boot_ended_well(tmp_path: Path) -> None:
    """journalctl takes a line that fits all words of a group; anyone can send the other two."""
    (tmp_path / "var/log/journal/x").mkdir(parents=True)
    asked: list[str] = []

    def runs(argv: Sequence[str], _stdin: str | None, _timeout: float) -> Completed:
        asked.extend(argv if f"MESSAGE_ID={boots.STOPPED}" in argv else ())
        return Completed(tuple(argv), 0, JSON_BOOTS if "--list-boots" in argv else "")

    boots.read_boots(HostReader(system=System(tmp_path, runs)), "b" * 32)
    groups = " ".join(word for word in asked if "=" in word or word == "+").split(" + ")
    assert len(groups) == 2 and all("_UID=0" in group.split() for group in groups)


@pytest.mark.parametrize(
    ("mark", "clean"),
    [
        (entry("Journal stopped", 1999), True),
        (entry("Reached target shutdown.target", 1900), True),
        (entry("Journal stopped", 1200), False),  # journald was restarted in the middle
        (entry("Journal stopped", 1999, "c" * 32), False),
        ("", False),
    ],
)
def test_a_boot_that_ended_without_a_word_is_unclean(mark: str, clean: bool) -> None:
    former, current = boots.judge(boots.parse_boots(JSON_BOOTS), mark, "b" * 12)
    assert (former["clean"], current["clean"]) == (clean, None)


# -- apt, disks, memory, the service -----------------------------------------------------------------------------------

HISTORY = """
Start-Date: 2026-11-20  06:12:01
Commandline: apt-get -o Acquire::http::Proxy=http://me:secret@proxy:3128 -y dist-upgrade
Requested-By: me (1000)
Upgrade: nvidia-driver-580-open:arm64 (580.142-0ubuntu1, 580.159.03-0ubuntu1), bash:arm64 (5.2, 5.3)
Install: linux-image-6.17.0-1022-nvidia:arm64 (6.17.0-1022.22, automatic)
Remove: docker-ce:arm64 (5:29.2.1-1)
End-Date: 2026-11-20  06:15:40

Start-Date: 2026-11-21  07:00:00
Commandline: apt install cowsay
Install: cowsay:arm64 (3.03)
End-Date: 2026-11-21  07:00:09
"""


XID_79 = "NVRM: Xid (PCI:000f:01:00): 79, pid=1"


def test_lines_of_this_boot_stand_by_the_clock_that_nobody_sets(tmp_path: Path) -> None:
    """Somebody set the clock two hours ahead, and back again."""
    now_s, up_s, boot = 1_795_420_800.0, 9000.0, "b" * 32
    said = [
        ("Kernel panic - not syncing: first", 7200, up_s - 600),
        ("NVRM: Xid (PCI:000f:01:00): 79, pid=1", 0, up_s - 300),
    ]
    lines = [
        {"__REALTIME_TIMESTAMP": str(int((now_s - up_s + at_s + ahead_s) * 1e6)), "_BOOT_ID": boot,
         "__MONOTONIC_TIMESTAMP": str(int(at_s * 1e6)), "MESSAGE": text}
        for text, ahead_s, at_s in said
    ]  # fmt: skip
    place = tmp_path / "proc/sys/kernel/random/boot_id"
    place.parent.mkdir(parents=True)
    place.write_text(boot)
    (tmp_path / "var/log/journal/x").mkdir(parents=True)

    def journal(argv: Sequence[str], _stdin: str | None, _timeout: float) -> Completed:
        return Completed(tuple(argv), 0, "\n".join(map(json.dumps, lines)) if "_TRANSPORT=kernel" in argv else "")

    host = HostReader(System(tmp_path, journal, clock=SetClock(up_s)), time_of_day=lambda: now_s)
    events = kernel_log.read_events(host, now_s - up_s)
    assert [(event["kind"], now_s - event["at_s"]) for event in events] == [("panic", 600), ("xid", 300)]


def test_the_history_of_apt_keeps_what_is_ours_and_no_password() -> None:
    (change,) = apt_history.parse_history(HISTORY, utc)
    assert change["at_s"] == utc("2026-11-20 06:12:01")
    assert change["command"] == "apt-get dist-upgrade"
    assert sorted((move["name"], move["action"], move["before"], move["after"]) for move in change["packages"]) == [
        ("docker-ce", "remove", "5:29.2.1-1", None),
        ("linux-image-6.17.0-1022-nvidia", "install", None, "6.17.0-1022.22"),
        ("nvidia-driver-580-open", "upgrade", "580.142-0ubuntu1", "580.159.03-0ubuntu1"),
    ]
    assert change["others"] == 1


def test_room_is_read_of_what_programs_write_to_and_of_no_layer(tmp_path: Path) -> None:
    """Layers, snaps and what lies in memory are full at all times, and a share of another host may answer never."""
    sizes = {"/": (1000, 300), "/srv/models": (4000, 20)}

    def statvfs(path: str) -> Any:
        size, free = sizes.get(f"/{path[len(str(tmp_path)) + 1 :]}", (1, 0))
        return SimpleNamespace(f_blocks=size, f_bavail=free, f_frsize=2**30)

    mounts = [
        "/dev/nvme0n1p2 / ext4 rw 0 0", "overlay /var/lib/docker/overlay2/1/merged overlay rw 0 0",
        "/dev/loop3 /snap/core22/1 squashfs ro 0 0", "tmpfs /run tmpfs rw 0 0",
        "/dev/nvme1n1 /srv/models xfs rw 0 0", "nas:/hub /mnt/hub nfs4 rw 0 0",
    ]  # fmt: skip
    for place, text in {
        "proc/self/mounts": "\n".join(mounts),
        "etc/gb10-fleet/vllm.json": '{"cache": "/srv/models/hub"}',
        "etc/gb10-fleet/vllm-far.json": '{"cache": "/mnt/hub"}',
        "etc/gb10-fleet/vllm-odd.json": '{"cache": 7}',
        "etc/gb10-fleet/vllm-torn.json": "{",
    }.items():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(text)
    found = rooms.read_rooms(HostReader(System(tmp_path), statvfs))
    assert [(room["path"], room["mount"], room["free_bytes"] // 2**30) for room in found] == [
        ("/", "/", 300), ("/var/lib/docker", "/", 300), ("/srv/models/hub", "/srv/models", 20),
    ]  # fmt: skip


def test_the_history_before_this_one_is_read_too(tmp_path: Path) -> None:
    folder = tmp_path / "var/log/apt"
    folder.mkdir(parents=True)
    (folder / "history.log.1.gz").write_bytes(gzip.compress(HISTORY.encode()))
    host = HostReader(system=System(tmp_path))
    assert len(apt_history.read_apt_history(host)) == 1
    (folder / "history.log").write_text(HISTORY.replace("2026-11", "2026-12"))
    assert len(apt_history.read_apt_history(host)) == 2
    sound = gzip.compress(HISTORY.encode())
    damaged = (b"no gzip", sound[:20], sound[:12] + b"\0" * 20 + sound[32:], sound[:-8] + bytes(8))
    for content in damaged:  # as a power cut leaves it
        (folder / "history.log.1.gz").write_bytes(content)
        assert len(apt_history.read_apt_history(host)) == 1
    (folder / "history.log").unlink()
    with pytest.raises(Unknown, match="No such file"):
        apt_history.read_apt_history(host)


def test_two_long_histories_are_both_read(tmp_path: Path) -> None:
    """Each is sound, and they are more than one file may be together: the newest counts."""
    folder = tmp_path / "var/log/apt"
    folder.mkdir(parents=True)
    other = HISTORY[HISTORY.index("\nStart-Date: 2026-11-21") :]
    filling = other * (550_000 // len(other))
    (folder / "history.log.1.gz").write_bytes(gzip.compress((filling + HISTORY.replace("2026-11", "2026-10")).encode()))
    (folder / "history.log").write_text(filling + HISTORY)
    host = HostReader(system=System(tmp_path))
    assert len(apt_history.read_apt_history(host)) == 2
    (folder / "history.log.1.gz").write_bytes(gzip.compress(b"\n" * (LARGEST_TEXT + 1)))
    assert len(apt_history.read_apt_history(host)) == 1, "one without an end costs that history alone"


@pytest.mark.parametrize(
    "text",
    [
        '{"critical_warning":0,"temperature":310,"avail_spare":100,"spare_thresh":10,"percent_used":2,"unsafe_shutdowns":9}',
        '{"smartctl":{},"nvme_smart_health_information_log":{"critical_warning":0,"available_spare":100,'
        '"available_spare_threshold":10,"percentage_used":2,"unsafe_shutdowns":9}}',
    ],
)
def test_wear_by_both_programs(text: str) -> None:
    values, reasons = sensors.parse_wear(text, "nvme")
    assert (values["used_percent"], values["spare_percent"], values["unsafe_shutdowns"]) == (2, 100, 9)
    assert set(reasons) == {"media_errors", "power_cycles"}


@pytest.mark.parametrize("argv", [["vllm", "--headless", "--port", "8000"], ["ray", "start"], ["vllm", "--port", "x"]])
def test_a_rank_without_an_api(tmp_path: Path, argv: list[str]) -> None:
    (tmp_path / "etc/gb10-fleet").mkdir(parents=True)
    (tmp_path / "etc/gb10-fleet/vllm.json").write_text(json.dumps({"argv": argv}))
    with pytest.raises(Unknown, match="no API"):
        service.asker(HostReader(system=System(tmp_path)))


@pytest.mark.parametrize(("phase", "asks"), [("ready", True), ("stopped", False), ("weights", False)])
def test_only_a_server_that_its_unit_vouches_for_is_asked(tmp_path: Path, phase: str, asks: bool) -> None:
    """While it is down, any user of the host can have its port, and would be believed."""
    for path, said in (
        ("etc/gb10-fleet/vllm-chat.json", {"argv": ["--port", "8000"]}),
        ("run/gb10-vllm-chat/status.json", {"phase": phase}),
    ):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(json.dumps(said))
    asked: list[object] = []

    def ask(one: counters.Service, _seconds: float) -> counters.Counters:
        asked.append((one.address, one.port))
        return counters.parse(METRICS)

    notes = Notes()
    host = HostReader(system=System(tmp_path))
    if found := notes.read("x", lambda: service.asker(host, "chat", ask)):
        found()
    assert (asked == [("127.0.0.1", 8000)]) is asks and ("x" in notes.reasons) is not asks


METRICS = """\
# HELP vllm:num_requests_running Number of requests
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
vllm:generation_tokens_total{engine="0",model_name="m"} 1.5e+06
"""


def test_what_the_server_counts() -> None:
    values = service.read_serving(lambda: counters.parse(METRICS))
    assert values == {"running": 3, "waiting": 0, "generated_tokens": 1.5e6, "prompt_tokens": None}
    for text in ("go_goroutines 3\n", METRICS.replace("1.5e+06", "9e999")):
        with pytest.raises(Unknown, match="/metrics"):
            service.read_serving(lambda text=text: counters.parse(text))  # type: ignore[misc]

    def refused() -> counters.Counters:
        raise ConnectionRefusedError(111, "Connection refused")

    with pytest.raises(Unknown, match="the server's /metrics: Connection refused"):
        service.read_serving(refused)


def test_the_last_failure_of_the_unit() -> None:
    failure = {"verdict": "engine_died", "text": "it ended", "at": "2026-11-23T01:00:00Z", "lines": ["secret"]}
    status = {"phase": "starting", "since": "2026-11-23T01:01:00Z", "failures": 2, "failure": failure}
    values, _reasons = unit_status.parse_status(json.dumps(status))
    assert (values["phase"], values["verdict"], values["failures"]) == ("starting", "engine_died", 2)
    assert "secret" not in json.dumps(values)
    assert unit_status.parse_status(json.dumps({"phase": "ready"}))[0]["verdict"] is None


def test_what_the_unit_remarks_though_it_serves() -> None:
    remark = {"verdict": "fabric_half_idle", "text": "overriding dev 2 with dev 0", "way_out": "each rail a subnet"}
    values, _reasons = unit_status.parse_status(json.dumps({"phase": "ready", "remark": remark}))
    assert (values["remark"], values["remark_text"]) == ("fabric_half_idle", "overriding dev 2 with dev 0")
    with pytest.raises(Unknown):
        unit_status.parse_status(json.dumps({"phase": "ready", "remark": "x"}))


@pytest.mark.parametrize(
    ("text", "number"),
    [("32.0 GT/s PCIe", 32), ("200 Gb/sec (4X HDR)", 200), ("4", 4), ("Unknown", None), ("", None), (None, None)],
)
def test_numbers_of_sysfs(text: str | None, number: float | None) -> None:
    assert rails.leading_number(text) == number


def test_a_file_without_an_end_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "big").write_text("y" * (LARGEST_TEXT + 1))
    with pytest.raises(Unknown, match="more than"):
        text_of(HostReader(system=System(tmp_path)), "/big")


def test_what_is_quoted_holds_no_password_of_an_address_and_no_token() -> None:
    said = quoted("proxy http://me:sesame@proxy.test:1 with hf_" + "sesame" * 6 + " and Bearer sesame-0123456789")
    assert "sesame" not in said and "proxy.test:1" in said


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("proxy http://me:ses/ame@proxy.test:1 fails", "proxy.test:1 fails"),
        ("proxy http://me:ses@ame@proxy.test:1 fails", "proxy.test:1 fails"),
        ("Authorization: Basic sesame", "Authorization: Basic "),
        ("authorization: bearer sesame", "authorization: bearer "),
        ("bearer sesame-0123456789", "bearer "),
        ("vllm serve --api-key sk-sesame --port 1", "--port 1"),
        ("vllm serve --hf-token=sesame --port 1", "--port 1"),
        ("['--api-key', 'sesame', '--port']", "'--port'"),
        ("{'api_key': ['sk-sesame', 'sesame'], 'port': 1}", "'port': 1"),
        ('{"password":"my sesame","port":1}', '"port":1'),
        (r"{\"password\": \"sesame\"}", "password"),
        ("NGC_API_KEY=nvapi-sesame PORT=1", "PORT=1"),
        ("key nvapi-sesame is refused", "is refused"),
        ("key sk-sesame is refused", "is refused"),
    ],
)
def test_what_looks_secret_is_hidden_and_the_rest_is_not(text: str, kept: str) -> None:
    said = quoted(text)
    assert not re.search("ses|ame", said) and "(hidden)" in said and kept in said
    assert quoted(said) == said, "what is quoted twice stays as it is"


@pytest.mark.parametrize(
    "text",
    [
        *("tokens 5", "max_num_batched_tokens=8192", "max_tokens: 5", "eos_token_id=151645", "prompt_token_ids: None"),
        *("the token is wrong", "multi-token prediction", "time per output token: 12 ms", "tokenizer='a/b', seed=0"),
        *("api_key=None, seed=0", "hf_quant_config.json", "a disk-encryption task-scheduler", "SK-hynix-PC801"),
        *("https://hub.test/a?b=c", "image hub.test/a@sha256:0", "basic configuration"),
    ],
)
def test_harmless_words_are_shown(text: str) -> None:
    assert quoted(text) == text


@pytest.mark.parametrize(
    "part", ["://", "a@://", "--", "--a-", "--api-", "token: ", "password:'", "bearer ", "hf_", "sk-"]
)
def test_no_text_takes_long_to_hide(part: str) -> None:
    """A client can have a server log what it likes."""
    began = time.process_time()
    hidden((part * 2**17)[: 2**17] + "@")
    assert time.process_time() - began < 5


def test_a_secret_is_seen_in_every_spelling_that_the_pattern_takes() -> None:
    """What is looked for first, without the pattern, is in all that it matches: \u212a is a k, and \u0131 an i."""
    everything = "".join(map(chr, range(0x80, 0x10000)))
    for word in ("password", "passphrase", "secret", "authorization", "token", "api_key", "--x-token"):
        for at, letter in enumerate(word):
            for other in re.findall(re.escape(letter), everything, re.IGNORECASE):
                text = f"{word[:at]}{other}{word[at + 1 :]}=sesame"
                assert "sesame" not in hidden(text), text


def test_versions_of_apt_are_quoted_too() -> None:
    text = "Start-Date: 2026-01-01  10:00:00\nUpgrade: linux-image-x:arm64 (1\x1b[31m, 2" + "9" * 999 + ")\n"
    (package,) = apt_history.parse_history(text, lambda _: 1.0)[0]["packages"]
    assert package["before"] == "1?[31m" and len(package["after"]) == 200


@pytest.mark.parametrize(("text", "celsius"), [("52000", 52.0), ("-61000", None), ("1" + "0" * 400, None)])
def test_a_temperature_that_is_none_is_unknown(tmp_path: Path, text: str, celsius: float | None) -> None:
    zone = tmp_path / "sys/class/thermal/thermal_zone0"
    zone.mkdir(parents=True)
    (zone / "temp").write_text(text)
    assert [each["temperature_c"] for each in sensors.read_zones(HostReader(system=System(tmp_path)))] == [celsius]
