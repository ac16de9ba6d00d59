"""Later sets of whole readings, as in unseen_readings.py: the sixth, when the sources of the words had been read."""

from __future__ import annotations

from tests.support import health
from tests.support.health import BOOT, FORMER, GIB, MEMORY, NOW, boot, gpu, rail, reading, sample, serving
from tests.support.signs import API, AWAY, ENDED, NO_MEMORY, XID, four, of_gpus, with_memory
from tests.support.unseen_readings import Case, bare, counted, ended, pressed, railed, said

ABSENT = [sample(gpu=health.silent("absent"))]
FAILED = "NVRM: GPU 000f:01:00.0: RmInitAdapter failed! (0x62:0x51:1941)"
CLOSED = (
    "NVRM: The NVIDIA GPU 000f:01:00.0 (PCI ID: 10de:2e12)\n"
    "NVRM: installed in this system requires use of the NVIDIA open kernel modules."
)
QUEUE = "r8127 0007:01:00.0 enP7s7: NETDEV WATCHDOG: CPU: {}: transmit queue 0 timed out {} ms"
ROOT = "pcieport 000f:00:00.0: AER: Multiple Uncorrected (Fatal) error received: 000f:00:00.0"
CORRECTED = ["{77}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 5",
             "{77}[Hardware Error]: It has been corrected by h/w and requires no further action",
             "{77}[Hardware Error]: event severity: corrected"]  # fmt: skip
STALL = ["rcu: INFO: rcu_sched detected stalls on CPUs/tasks:",
         "watchdog: BUG: soft lockup - CPU#0 stuck for 71s! [khugepaged:34]"]  # fmt: skip

SIXTH = (
    Case("fault", "open-gpu-kernel-modules issue 1027, closed modules", "xid_169 gpu_absent",
         said(reading(ABSENT), [CLOSED, "NVRM: GPU 000f:01:00.0: RmInitAdapter failed! (0x22)"]),
         "closed_modules gpu_lost"),
    Case("fault", "open-gpu-kernel-modules issue 892, no memory for the GSP's image", "gpu_absent log_gpu_start",
         said(reading(ABSENT), [NO_MEMORY, NO_MEMORY, "NVRM: kgspInitRm_IMPL: Error preparing GSP-RM image",
                                "NVRM: RmInitAdapter: Cannot initialize GSP firmware RM", FAILED]), "gpu_lost"),
    Case("fault", "csrutil/OpenWrt-NIC-Drivers issue 11, the wired card again and again", "log_wired_fault",
         said(reading(), [QUEUE.format(3, 5010), QUEUE.format(0, 5010), QUEUE.format(3, 5160)]), "wired_card"),
    Case("fault", "rwth-i6/returnn issue 1500, a fatal AER of the GPU's port", "xid_79 gpu_absent",
         said(reading(ABSENT), [ROOT, "nvidia 000f:01:00.0: AER: can't recover (no error_detected callback)",
                                XID.format("79, pid=1, name=python3, GPU has fallen off the bus.")]), "gpu_lost"),
    Case("fault", "ovro-lwa/lwa-issues issue 117, a memory error, then the host was gone", "log_hardware_error",
         said(ended(), ["EDAC MC0: 1 UE memory read error on CPU_SrcID#1_MC#1_Chan#2_DIMM#0 (channel:2 slot:0)",
                        "{1}[Hardware Error]: event severity: recoverable"], 3760, FORMER), "hardware_error power_off"),
    Case("fault", "oxidecomputer/crucible issue 1844, reads that time out, then the journal aborts", "log_disk",
         said(reading(), ["nvme0n1: I/O Cmd(0x2) @ LBA 131209936, 200 blocks, I/O Error (sct 0x3 / sc 0x71) ",
                          "I/O error, dev nvme0n1, sector 131209936 op 0x0:(READ) flags 0x80700 phys_seg 25",
                          "Aborting journal on device nvme0n1p1-8."]), "disk_failing"),
    Case("fault", "open-gpu-kernel-modules issue 971, nvidia-smi hangs after 66 days", "gpu_silent",
         reading([sample(gpu=health.silent("silent"))], uptime_s=66.5 * 86400,
                 boots=[boot(BOOT, NOW - 66.5 * 86400, NOW)]), "gpu_lost"),
    Case("fault", "rancher/elemental-toolkit pull request 801, a stall and a lockup", "log_panic log_hung_task",
         said(ended(), STALL, 3730, FORMER), "kernel_failed kernel_hung"),
    Case("fault", "open-gpu-kernel-modules issue 1363, a hang without a word", "unclean_boot", ended(), "power_off"),
    Case("sound", "nodejs/build issue 2894, corrected errors by the minute", "", said(reading(), CORRECTED * 20), ""),
    Case("sound", "open-gpu-kernel-modules issues 1363 and 514, a boot with what each driver says", "",
         said(of_gpus(*[gpu(208, 4.2)] * 3), [
             "nvidia: module verification failed: signature and/or required key missing - tainting kernel",
             "nvidia 000f:01:00.0: Direct firmware load for nvidia/580.142/gsp_log_ga10x.bin failed, error -2",
             "NVRM: RmFetchGspRmImages: Failed to load gsp_log_*.bin, no GSP-RM logs will be printed (non-fatal)",
         ]), ""),
    Case("sound", "kiddin9/Kwrt issue 851, the wired link goes and comes", "",
         said(reading([sample(rails=four())]), ["r8127: enP7s7: link down", "r8127: enP7s7: link up"]), ""),
    Case("sound", "the start of a GPU that was tried again, and it serves", "",
         said(of_gpus(*[gpu(2400, 84, 95)] * 3, serves=[serving(3, 100 * n) for n in range(3)]),
              [FAILED, NO_MEMORY]), ""),
    Case("sound", "a container with libraries of its own, the GPU answers", "", said(reading(), [API]), ""),
)  # fmt: skip

WOKE = ["PM: suspend entry (s2idle)", "PM: suspend exit", "nvme nvme0: 20/0/0 default/read/poll queues",
        "r8127 0007:01:00.0 enP7s7: Link is Down", "mlx5_core 0000:01:00.0 enp1s0f0np0: Link up"]  # fmt: skip
LOST = "{}: PM: failed to resume async: error -5"
BOND = [rail(hca=name, bonded=True) for name in ("rocep1s0f0", "roceP2p1s0f0")]
RESET = "sbsa-gwdt sbsa-gwdt.0: System reset by WDT."
SMB = r"CIFS: VFS: \\nas.lan has not responded in 180 seconds. Reconnecting..."

TENTH = (
    Case("sound", "woke from a sleep", "", said(reading([sample(rails=four())]), WOKE), ""),
    Case("fault", "it went to sleep, and was switched off in the morning", "unclean_boot log_sleep",
         ended(*WOKE[:1]), "did_not_wake"),
    Case("fault", "it slept and woke, and lost its power later", "unclean_boot", ended(*WOKE[:2]), "power_off"),
    Case("sound", "it slept in the former boot, woke, and was rebooted", "", said(reading(), WOKE, 4000, FORMER), ""),
    Case("sound", "a server that gave up, hours ago, and no line since", "",
         said(reading(uptime_s=90000.0, boots=[boot(BOOT, NOW - 90000, NOW)]), [SMB], 30000), ""),
    Case("sound", "a file server was away in the former boot", "", said(reading(), [AWAY], 3800, FORMER), ""),
    Case("sound", "of two servers both are back", "",
         said(reading(), [AWAY, AWAY.replace("2.9", "2.8"), "nfs: server 192.0.2.8 OK", "nfs: server 192.0.2.9 OK"]),
         ""),
    Case("sound", "rdma-core's names of a bond over both ports, to a switch", "", railed(BOND, BOND), ""),
    Case("sound", "Linux, mlx5_ib: the kernel's own names of it", "",
         railed(*[[rail(hca="mlx5_bond_0"), rail(hca="mlx5_bond_1")]] * 2), ""),
    Case("fault", "packets of RoCE that arrive changed", "rail_errors",
         counted({"rx_icrc_encapsulated": 3}, {"rx_icrc_encapsulated": 900}), "rail_fault"),
    Case("sound", "the same counter, at rest", "",
         counted({"rx_icrc_encapsulated": 3}, {"rx_icrc_encapsulated": 3}), ""),
    Case("fault", "two of four functions, and no bond", "rail_gone", railed(four(), four()[::2]), "rail_fault"),
    Case("sound", "Blender rests with 25 GiB of its scene: the GPU is awake, and no process computes", "",
         reading([sample(NOW - 1 + n, gpu=gpu(2405, 12, 1, reasons=[]),
                         memory={**MEMORY, "free_bytes": 74 * GIB, "available_bytes": 86 * GIB}) for n in (0, 1)]), ""),
    Case("fault", "25 GiB of nobody, and the GPU is idle", "memory_not_returned",
         with_memory(free_bytes=74 * GIB, available_bytes=86 * GIB), "memory_kept"),
    Case("sound", "a build at its own limit of memory: 90 GiB are free", "",
         pressed((38, 32, 28), (20, 18, 16), free_bytes=90 * GIB, available_bytes=100 * GIB), ""),
    Case("fault", "lcasarin-maker/blackbox: 46 GiB available, and all waits", "memory_pressure",
         pressed((99, 97, 88), (94, 92, 80), free_bytes=40 * GIB, available_bytes=46 * GIB), "memory_short"),
    Case("fault", "of two servers one is back", "log_share_lost",
         said(reading(), [AWAY, AWAY.replace("2.9", "2.8"), "nfs: server 192.0.2.8 OK"]), "share_lost"),
    Case("fault", "a mount that tries on, since yesterday", "log_share_lost",
         said(reading(uptime_s=190000.0, boots=[boot(BOOT, NOW - 190000, NOW)]), [AWAY], 90000), "share_lost"),
    Case("fault", "what waits for it hangs", "log_share_lost",
         said(reading(), [AWAY, "INFO: task python3:4121 blocked for more than 120 seconds."]), "share_lost"),
    Case("fault", "an SSD that did not wake", "log_disk",
         said(reading(), [*WOKE, LOST.format("nvme 0004:01:00.0")]), "disk_failing"),
    Case("fault", "a GPU that did not wake", "gpu_absent log_gpu_start",
         said(reading(ABSENT), [*WOKE, LOST.format("nvidia 000f:01:00.0")]), "gpu_lost"),
    Case("fault", "the hardware watchdog reset it", "unclean_boot log_watchdog_reset",
         said(reading(boots=ENDED), [RESET], 3590), "hardware_watchdog"),
    Case("fault", "no memory for the kernel's own tables", "log_no_pages",
         said(reading(), ["SLUB: Unable to allocate memory on CPU 3 (of node 0) on node -1, gfp=0x820(GFP_ATOMIC)"] * 9
              + ["python3: vmalloc error: size 4096, failed to allocate pages, mode:0xdc2(GFP_KERNEL)"] * 3),
         "memory_short"),
)  # fmt: skip

SWITCH = "cx7-pcie-hotplug MTKP0001:00: "
FAILS = [SWITCH + "Cable plugin", SWITCH + "Timeout waiting for link to reach L0 (reached max count)",
         SWITCH + "Rescan failed: -110"]  # fmt: skip
TRAINS = [rail(state="INIT", carrier=False)]

ELEVENTH = (
    Case("fault", "NVIDIA/NV-Kernels: a cable was put in, and the adapter did not come up", "log_nic_firmware",
         said(bare(), FAILS), "nic_firmware"),
    Case("sound", "the same driver where no cable is", "",
         said(bare(), [SWITCH + "PCIe hotplug driver initialized successfully", SWITCH + "Cable removal"], 3585), ""),
    Case("fault", "sunrpc: the lock server of a share is away", "log_share_lost",
         said(reading(), [AWAY.replace("nfs", "lockd")]), "share_lost"),
    Case("sound", "the same, and it is back", "",
         said(reading(), [AWAY.replace("nfs", "lockd"), "lockd: server 192.0.2.9 OK"]), ""),
    Case("sound", "a planned rail still trains, 25 s after the boot", "",
         railed(TRAINS, TRAINS, planned_rails=["enp1s0f0np0"], uptime_s=25.0), ""),
    Case("fault", "the same an hour later", "rail_down",
         railed(TRAINS, TRAINS, planned_rails=["enp1s0f0np0"]), "rail_fault"),
)  # fmt: skip

HUNG = "INFO: task rsync:812 blocked for more than 122 seconds."
BACK = AWAY.replace("not responding, still trying", "OK")

TWELFTH = (
    Case("fault", "a CPU stood still while a file server was away", "log_hung_task",
         said(reading(), [AWAY, "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:", BACK], 1500), "kernel_stuck"),
    Case("sound", "a task waited for a file server that answers again", "", said(reading(), [AWAY, HUNG, BACK], 1500),
         ""),
    Case("fault", "the same while the server is away", "log_share_lost", said(reading(), [AWAY, HUNG], 1500),
         "share_lost"),
    Case("fault", "a task hangs long after the server was back", "log_hung_task",
         said(said(reading(), [AWAY, BACK], 3500), [HUNG], 300), "kernel_stuck"),
    Case("fault", "a task hangs, and a server that gives up at once was away hours before", "log_hung_task",
         said(said(reading(uptime_s=30000.0), [AWAY.replace("still trying", "timed out")], 20000), [HUNG], 300),
         "kernel_stuck"),
    Case("fault", "OpenZFS: a pool is suspended", "log_disk",
         said(reading(), ["WARNING: Pool 'tank' has encountered an uncorrectable I/O failure and has been suspended."]),
         "disk_failing"),
)  # fmt: skip
