# SPDX-License-Identifier: GPL-3.0-or-later
"""What a line of the kernel's log tells, by its pattern."""

from __future__ import annotations

from ansible_collections.gb10.fleet.plugins.module_utils.reading import stacked

_DISK = stacked.DISK
_PCI = r"[0-9a-f:.]{12,}"
SHARE = "share_lost"
_DRIVERS = r"pcieport|pci|nvidia|mlx5_core|nvme|r81\d\d|mt79\w{2,3}"  # of what a Spark has on PCIe
_NIC = rf"\A(mlx5_core {_PCI}): (?:\w{{4,50}}:\d+:(?:\(pid \d+\):?)? )?"  # newer drivers name function and process
_NETDEV = rf"\A(mlx5_core {_PCI}) \S{{1,15}}: "
# The first group is what it is about: equal ones in a row are one event. In the order of trial. Each
# is anchored, and begins with more than a program's name can hold (15 characters): a dump of the OOM killer has names
# of programs and of control groups in it, and those are any login's own words.
KINDS = (
    ("xid", r"\ANVRM: Xid \(PCI:[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.\d)?(?: [^)]{1,40})?\): (\d+)"),
    (
        "xid",
        r"\A\s{0,40}NVRM: (?:GPU (?:at PCI:)?[0-9a-fA-F:.]+: GPU has |The NVIDIA GPU [0-9a-fA-F][\s\S]{0,200}?)?"
        r"(fallen off the bus)",
    ),
    # The function that says it differs from driver to driver.
    (
        "xid",
        r"\ANVRM: (?:GPU\d+ )?\w{10,60}: .{0,60}?"
        r"([Hh]eartbeat timed out|GSP Timeout|GSP RPC [Tt]imeout|rpcRecvPoll timed ?out|GSP-CrashCat Report|"
        r"GPU (?:is likely|may be) in a bad state|PMU has halted|sanity check failed 0xf|failed with status 0x0000000f|"
        r"API_GPU_ATTACHED_SANITY_CHECK failed|Timeout (?:GPU not|polling GPU) back on|GPU is present on the bus|"
        r"SEC_FAULT lockdown detected|uvm encountered global fatal error|GPU is probably locked|"
        r"\[NV_ERR_GPU_IS_LOST\]|\[NV_ERR_RESET_REQUIRED\])",
    ),
    ("xid", r"\ANVRM: (Rate limiting GSP RPC error prints)"),
    ("xid", r"\ANVRM: (?:GPU\d+ )?rpcRmApi\w{4,30}: .{20,160}; (status=0x0000000f)"),
    ("xid", r"\ANVRM: (?:GPU\d+ )?krcRcAndNotify\w{4,30}: RC all channels for critical error (\d{1,4})"),
    (
        "xid",
        r"\A\s{0,40}NVRM: (?:The NVIDIA GPU [0-9a-fA-F][\s\S]{0,120}?)?installed in this system "
        r"(requires use of the NVIDIA open)",
    ),
    ("gpu_start", r"\ANVRM: GPU [0-9a-fA-F:.]{7,16}: (RmInitAdapter|rm_init_adapter) failed"),
    (
        "gpu_start",
        r"\ANVRM: (?:GPU\d+ )?(RmInit\w{4,40}|RmFetch\w{4,40}|osInit\w{4,40}|_?k(?:gsp|fsp)\w{4,40}|gpuWait\w{4,40}): "
        r".{0,80}?(?:[Cc]annot|did not find|No firmware|[Ff]ail(?!.*non-fatal)|[Ff]atal |Error |reported an error|"
        r"[Tt]ime(?:d )?out|unexpected)",
    ),
    (
        "gpu_start",
        r"\ANVRM: (?:GPU [0-9a-fA-F:.]{7,16} )?(The NVIDIA probe routine (?:failed|was not called)|"
        r"None of the NVIDIA [\w ]{4,20} were|No NVIDIA (?:devices|GPU|PCI devices)|is already bound to|"
        r"Can't find an IRQ for|This PCI I/O region assigned to your NVIDIA|"
        r"(?:request_mem_region|pci_enable_device) failed|Device start failed for|rm_init_\w{2,20}\(\) failed|"
        r"[Ff]ailed to (?:map registers|initialize module|wait for bar firewall|copy vbios))",
    ),
    (
        "gpu_start",
        r"\A\s{0,40}NVRM: (?:The NVIDIA GPU [0-9a-fA-F][\s\S]{0,120}?)?(installed in this system is not supported)",
    ),
    # Modules that the kernel refused, and a display without its GPU: of the GPU where none answers.
    (
        "gpu_start",
        r"\A(Loading of (?:unsigned module|module with \w+ (?:key|hash|crypto)) is rejected|"
        r"Lockdown: \S{1,15}: unsigned module loading is restricted|"
        r"nvidia\w*: (?:version magic '|disagrees about version of symbol |Unknown symbol )|"
        r"\[drm:nv_drm_\w{4,40} \[nvidia_drm\]\] \*ERROR\* \[nvidia-drm\] \[GPU ID 0x[0-9a-f]{8}\] Failed to )",
    ),
    # Of many assertions these are of the hardware; without a GPU that answers they say why.
    (
        "gpu_start",
        r"\ANVRM: (?:GPU\d+ )?nv\w{8,40}: .{0,80}?\[(NV_ERR_(?:MEMORY_ERROR|TIMEOUT|GPU_IN_FULLCHIP_RESET))\]",
    ),
    # Said of each program that has libraries of another version: also of a container that brings its own.
    ("driver_mismatch", r"\ANVRM: (API mismatch): "),
    (
        "gpu_start",
        rf"\A(nvidia|nvidia {_PCI}): (?:probe (?:of {_PCI}|with driver \w+) failed with error|"
        r"Direct firmware load for nvidia/\S{1,30}/gsp_(?!log)\w{1,20}\.bin failed)",
    ),
    ("oom_kill", r"\AOut of memory(?: \(oom_kill_allocating_task\))?: Killed process \d+ \((.{0,15})\)"),
    ("oom_kill", r"\A(Out of memory) and no killable processes"),
    # A caller may do without the pages, and try again: by count and with memory short.
    ("no_pages", r"\A.{1,15}: (page allocation (?:failure|stalls)): order:\d+, mode:"),
    ("no_pages", r"\A.{1,15}: (vmalloc error): size \d+, .{4,60}, mode:"),
    ("no_pages", r"\A(SLUB): Unable to allocate memory on (?:CPU|node)"),
    ("oom_kill", r"\A(Memory cgroup) out of memory: Killed process \d+ \("),  # at a limit of its own
    (
        "oom_daemon",
        r"\A(?:earlyoom|systemd-oomd)(?:\[\d+\])?: sending SIG(?:TERM|KILL) to process \d+ (.{1,120}?): "
        r"(?:badness|oom_score)",
    ),
    (
        "oom_daemon",
        r"\A(?:earlyoom|systemd-oomd)(?:\[\d+\])?: (?:Killed|Marked) (.{1,200}?) (?:for killing )?due to memory "
        r"(?:pressure|used)",
    ),
    ("driver_memory", r"\ANVRM: (?:GPU\d+ )?\w{10,60}: .{0,200}(NV_ERR_NO_MEMORY)"),
    # A command that its firmware refuses, or answers late, is no fault of the firmware.
    (
        "nic_firmware",
        _NIC + r".{0,80}"
        r"(?:\(0x[0-9a-f]{1,4}\) (?:Async, )?(?:timeout\b|timed out|canceled on out of queue|No done completion)|"
        r"timeout\. Will cause a leak of a command resource|failed to allocate command entry|"
        r"device's health compromised|Fatal error \d+ detected|Fatal error detected|synd 0x(?!0:)[0-9a-f]{1,2}: |"
        r"Health issue observed, (?:firmware internal error|.{1,60}, severity\([0-3]\))|wait vital failed|"
        r"health recovery (?:flow aborted|failed)|starting health recovery|PCI reads still not working|"
        r"PCI slot is unavailable|device is in fatal|Driver is in error state|NIC IFC still \d|"
        r"handling bad device here|Firmware over \d+ MS in (?:pre-)?initializing state|Firmware is not responsive|"
        r"PCI link not ready|"
        r"sync reset (?:timeout|action, state)|Sync reset did not complete|"
        r"[\w ]{4,60}, aborting\Z|[Ff]ailed to (?:create EQs|alloc IRQs|read dtor|allocate (?:boot|init) pages|"
        r"initialize (?:eq|events|irq table))|failed reclaiming pages|"
        r"(?:handle_hca_cap\w{0,20}|(?:enable|init|query) hca|set_hca_c\w{2,4}|query board id|"
        r"\w{0,20}(?:load|init|probe)_one|mlx5_(?:load|init|attach|enable|pci|function|cmd_init|recover)\w{0,30})"
        r" failed)",
    ),
    (
        "pcie_error",
        rf"\A(?:{_DRIVERS}) {_PCI}: "
        r"(?:DPC: (?:containment event, status:0x[0-9a-f]+[,:] )?)?(?:AER: )?(?:Multiple )?"
        r"(?:(?:PCIe|CXL) Bus Error: severity=|pciehp: Slot\([^)]{1,12}\): )?(Uncorrect\w*|Fatal|aer_uncor_severity|"
        r"unmasked uncorrectable|ERR_(?:NON)?FATAL|RP PIO error|mlx5_pci_err_detected Device state|"
        r"device recovery failed|subordinate device reset failed|can't recover|broken device, retraining|Power fault|"
        r"Cannot train link|not ready \d+ms after [\w ]{3,20}; giving up|unknown header type \w\w, ignoring)",
    ),
    (
        "pcie_error",  # the ConnectX-7 says it as well where its cable is taken out
        rf"\A(?:nvidia|nvme) {_PCI}: "
        r"((?:Unable to|can't|Refused to) change power state(?: from (?!D0)|, currently in )\w+|"
        r"Device config space inaccessible)",
    ),
    # A device that does not answer the memory unit of the bus, or whose access it refused; and the unit itself.
    (
        "iommu",
        r"\A(arm-smmu-v3) [\w.-]{4,40}: (?:CMD_SYNC timeout|CMDQ (?:timeout|error)|unexpected global error|"
        r"device has entered Service Failure|EVTQ overflow|event: [CF]_\w{3,30} client: [0-9a-f]{4}:|"
        r"event 0x(?!0[12])[0-9a-f]{2} received)",
    ),
    ("nic_firmware", r"\A(cx7-pcie-hotplug \S{4,20}): (?:Timeout |R\w{5,7} .{0,60}(?:failed|Actual=[1-9]))"),
    ("slot_power", rf"\A(mlx5_core {_PCI}): .{{0,80}}insufficient power on the PCIe slot"),
    ("slot_capability", rf"\A(mlx5_core {_PCI}): .{{0,80}}PCIe slot power capability was not advertised"),
    ("nic_firmware", rf"\A(mlx5_core|mlx5_core {_PCI}): probe (?:of {_PCI}|with driver \w+) failed with error"),
    (
        "nic_firmware",
        _NETDEV + r"(?:[RT]X timeout |NETDEV WATCHDOG: .{0,40}timed out|\w{10,40} failed recovering from a tx_timeout)",
    ),
    ("nic_queue", _NETDEV + r"(?:(?:Error|ERR) CQE on |Error cqe on cqn .{10,60} syndrome 0x(?!5,)[0-9a-f]+, vendor)"),
    ("nic_firmware", r"\ANETDEV WATCHDOG: (\S{1,15}) \(mlx5_core\): transmit queue \d+ timed out"),
    (
        "wired_fault",
        rf"\A(r81\d\d {_PCI})(?: \S{{1,15}})?(?: \(\w+\))?: (?:NETDEV WATCHDOG: .{{0,40}}timed out|"
        r"PCI error \(cmd|Transmit timeout reset|Can't reset secondary PCI bus|unknown chip XID|PCI read failed|"
        r"cannot remap MMIO|no MMIO resource|Unable to change power state|probe with driver \w+ failed with error)",
    ),
    ("wired_fault", r"\ANETDEV WATCHDOG: (\S{1,15}) \(r81\d\d\): transmit queue \d+ timed out"),
    ("wired_fault", rf"\A(r81\d\d): probe of {_PCI} failed with error"),
    (
        "cable_fault",
        rf"\A(mlx5_core {_PCI}): (?:Port module event\[error\]: module \d+, |"
        r".{0,60}High temperature on sensors with bit set)",
    ),
    ("cable_removed", r"\A(cx7-pcie-hotplug \S{4,20}): Cable removal"),
    ("cable_plugged", r"\A(cx7-pcie-hotplug \S{4,20}): Cable plugin"),
    ("cable_removed", rf"\A(mlx5_core {_PCI}): Port module event: module \d+, Cable unplugged"),
    ("hung_task", r"\AINFO: task (.{1,15}:\d+) blocked (?:in I/O wait )?for more than \d+ seconds"),
    (
        "hung_task",
        r"\A(?:rcu: )?INFO: (rcu_\w+) (?:self-)?detected (?:expedited )?stalls?(?: on (?:CPU|tasks)|, but suppressed)",
    ),
    (
        "hung_task",
        r"\Arcu: (?:INFO: |All QSes seen, last )?(rcu_\w+) kthread (?:starved|activity \d|timer wakeup didn't)",
    ),
    ("hung_task", r"\ABUG: (workqueue lockup - pool) cpus="),
    ("cpu_missing", r"\A(psci: failed to boot CPU\d+|Error taking CPU\d+ up|CPU\d+: failed to (?:come online|boot)\b)"),
    ("sleep", r"\A(PM: suspend (?:entry|exit))\b"),
    ("irq_off", r"\A(irq \d+): nobody cared \(try booting with"),
    ("watchdog_reset", r"\A(sbsa-gwdt) [\w.-]{4,40}: System reset by WDT"),  # said by the boot after it
    (
        "net_table",
        r"\A(nf_conntrack: table full|neighbour: \w{3,20}: neighbor table overflow|"
        r"TCP: out of memory -- consider tuning|Route cache is full: consider)",
    ),
    ("net_table", r"\Anf_conntrack: (nf_conntrack: table full)"),
    # Of one server the last line counts: it may be back.
    (SHARE, r"\A(?:nfs|nfsacl|lockd|statd|mount): server (\S{1,255}) (?:not responding, [a-z ]{9,12}|OK)\Z"),
    (SHARE, r"\ANFS: state manager: .{4,60} failed on NFSv4 server (\S{1,255}) with error \d"),
    (SHARE, r"\ACIFS: VFS: (\\\\\S{1,255}) has not responded in \d+ seconds"),
    (
        "panic",
        r"\A(Kernel panic - not syncing|Internal error: [\w ./()-]{0,60}: [0-9a-f]+ \[#\d|SError Interrupt on CPU|"
        r"Insufficient stack space to handle exception|Unhandled (?:\d+-bit el1\w |fault: \w{4,20} )|"
        r"Fixing recursive fault but reboot|Unexpected kernel BRK exception|BUG: KFENCE: [a-z -]{7,40}|"
        r"list_(?:add|del) corruption[.,] |"
        r"Unable to handle kernel [\w -]{4,60} at virtual address|kernel BUG at [\w/.-]{4,80}:\d+!|"
        r"BUG: (?:unable to handle (?:kernel|page)|kernel NULL pointer dereference|stack guard page was hit|"
        r"Bad page (?:state|map) in process|scheduling while atomic: )|general protection fault, |"
        r"BUG: soft lockup - CPU|(?:NMI )?watchdog: BUG: soft lockup|"
        r"(?:NMI )?watchdog: (?:CPU\d+: )?Watchdog detected hard LOCKUP)",
    ),
    ("hardware_error", r"\A\{\d{1,4}\}(\[Hardware Error\]: event severity: (?:recoverable|fatal|panic))"),
    ("hardware_error", r"\A(\[Hardware Error\]): GHES: .{1,15}:\d+: synchronous unrecoverable error"),
    # Of the boot before: the firmware has kept it.
    ("former_error", r"\A(?:BERT: )?(\[Hardware Error\]: event severity: (?:recoverable|fatal|panic))"),
    ("hardware_error", r"\A(Memory failure): 0x[0-9a-f]{1,16}: "),
    ("hardware_error", r"\A(EDAC \w{1,20}): (?:\d+ UE |UE )"),
    (
        "critical_temperature",
        r"\A(?:thermal thermal_zone\d+: .{0,60}|reboot: )"
        r"(critical temperature reached|HARDWARE PROTECTION \w+ \(Temperature)",
    ),
    (
        "disk",
        r"\Anvme (nvme\d+): (?:controller is down|Device not ready; aborting|Disabling device after|"
        r"Removing after probe failure|[Ii]dentify (?:Controller|[Nn]amespace) failed|failed to mark controller|"
        r"Could not set queue count|(?:frozen|fatal|failure) state error detected|IO queues (?:lost|not created)|"
        r"resetting controller due to persistent internal error|Fw activation timeout|Reading (?:CAP|VS|CRTO) failed|"
        r"I/O (?:tag )?\d+ .{0,60}timeout, (?:reset|disable) controller)",
    ),
    # A command that is late once or twice is no fault.
    ("disk_slow", r"\Anvme (nvme\d+): I/O (?:tag )?\d+ .{0,90}timeout, aborting"),
    ("disk", rf"\A(nvme|nvme {_PCI}): probe (?:of {_PCI}|with driver \w+) failed with error"),
    # Status types of NVMe: 2 is of the medium, 3 of the way to it. A command that a disk does not know is of type 0, as
    # are a transfer that failed (4) and an error within the disk (6).
    (
        "disk",
        r"\A(nvme\d+)n\d+: [\w/ ]{4,20}\(0x[0-9a-f]+\) @ LBA \d+, \d+ blocks, [\w /-]{3,60} "
        r"\(sct 0x(?:[23] |0 / sc 0x[46]\))",
    ),
    ("disk", rf"\AEXT4-fs error \(device ({_DISK})\)(?:: | in )"),
    (
        "disk",
        rf"\AEXT4-fs warning \(device ({_DISK})\): \w+:\d+: (?:I/O error|Filesystem error recorded from|"
        r"Marked fs in need of|inode #\d+: .{0,60}(?:error -?\d+ reading directory|Corrupt directory))",
    ),
    (
        "disk",
        rf"\AEXT4-fs \(({_DISK})\): (?:Remounting filesystem read-only|I/O error |previous I/O error|"
        r"error loading journal|error count(?: since last fsck)?: |warning: mounting fs with errors|"
        r"[Ff]ailed to (?:convert unwritten|initialize |open journal)|Inode \d+ \(\w+\): orphan list check|"
        r"Delayed block allocation failed|"
        r"This should not happen!! Data will be lost|unable to read |can't read |group descriptors corrupted|"
        r"ext4_check_descriptors: |bad geometry|(?:initial|last) error at time|corrupt|"
        r"(?:no journal found|journal inode is deleted|invalid journal|Could not load journal|get root inode failed)|"
        r"VFS: Found ext4 filesystem with invalid superblock|mount failed)",
    ),
    # What JBD2 says without a device may be of a stick; ext4 says the same of its device right behind it.
    (
        "disk",
        rf"\A(?:Aborting journal on device|JBD2: (?:I/O error|Error -\d+|Detected IO errors)[\w ]{{5,60}}) ({_DISK})",
    ),
    (
        "disk",
        rf"\AXFS \(({_DISK})\): (?!.{{10,40}} at xfs_fs_goingdown)"
        r"(?:Filesystem has been shut|[Mm]etadata (?:I/O [Ee]rror|corruption)|[Ll]og I/O [Ee]rror|"
        r"Internal error |Corruption |log mount/recovery failed|Unmount and run xfs_repair)",
    ),
    ("disk", rf"\ABTRFS:? (?:error|critical) \(device ({_DISK})"),
    # That a disk does not take a discard says nothing of it.
    (
        "disk",
        rf"\A(?:(?:blk_update_request|print_req_error): )?(?:critical (?:medium|target|nexus|space allocation)|"
        r"I/O|timeout|protection|"
        r"device offline|recoverable transport) error, "
        rf"dev ({_DISK}), sector(?!.{{0,30}}\((?:DISCARD|WRITE_ZEROES|SECURE_ERASE)\))",
    ),
    (
        "disk",
        r"\A(block nvme\w+|device-mapper: thin): "
        r"(?:no \w+ path - |[\d:]{3,9}: (?:switching pool to (?!write)|no free data))",
    ),
    ("disk", r"\AWARNING: (Pool '[\w.: -]{1,255}') has encountered an uncorrectable I/O failure"),
    ("disk", rf"\ABuffer I/O error on dev(?:ice)? ({_DISK}), logical block"),
    ("disk", r"\A(Read-error|Write-error) on swap-device \((?!8:)"),  # 8: a stick
    ("disk", rf"\AFAT-fs \(({_DISK})\): (?:error, |Filesystem has been set read-only|FAT read failed|bread failed)"),
    ("disk", rf"\ABTRFS warning \(device ({_DISK})\): (?:csum|checksum) "),
    ("disk", rf"\Amd/raid\d{{0,2}}:md\d+: Disk failure on ({_DISK}), disabling"),
    # What a sleep has lost.
    *(
        (kind, rf"\A({driver} {_PCI}): PM: failed to (?:resume|restore|thaw)[ \w]{{0,14}}: error -\d")
        for driver, kind in (
            *(("nvme", "disk"), ("nvidia", "gpu_start"), ("mlx5_core", "nic_firmware")),
            *((r"r81\d\d", "wired_fault"), (r"mt79\w{2,3}", "wifi_reset")),
        )
    ),
    (
        "wifi_reset",
        rf"\A(mt79\w+) {_PCI}: .{{0,40}}(?:chip reset|driver own failed|hardware init failed|"
        r"Timeout for initializing firmware|Message \w+ \(seq \d+\) timeout)",
    ),
    ("kernel", r"\ALinux version (\S+) \("),
    ("firmware", r"\ADMI: ([^\[\]]+, BIOS [^\[\]]+ \d\d/\d\d/\d{4})\Z"),
    ("driver", r"\ANVRM: loading NVIDIA UNIX .*?Kernel Module +(?:for \w+ +)?([\d.]+)"),
)
RECOVERY = "154"  # the Xid that says what the GPU needs
# The driver's own words for what an Xid says as well; it does not always give the number.
XIDS_IN_WORDS = {
    "fallen off the bus": "79", "Heartbeat timed out": "119", "heartbeat timed out": "119", "GSP Timeout": "119",
    "Rate limiting GSP RPC error prints": "119", "GPU is likely in a bad state": "120",
    "GPU may be in a bad state": "120", "SEC_FAULT lockdown detected": "110", "GPU is present on the bus": "79",
    "requires use of the NVIDIA open": "169", "Timeout GPU not back on": "79", "Timeout polling GPU back on": "79",
    "uvm encountered global fatal error": "154",
    "GSP RPC timeout": "119", "GSP RPC Timeout": "119", "rpcRecvPoll timedout": "119", "rpcRecvPoll timed out": "119",
    "GSP-CrashCat Report": "120", "PMU has halted": "62", "sanity check failed 0xf": "79",
    "failed with status 0x0000000f": "79", "status=0x0000000f": "79", "API_GPU_ATTACHED_SANITY_CHECK failed": "79",
    "[NV_ERR_GPU_IS_LOST]": "79", "[NV_ERR_RESET_REQUIRED]": "154", "GPU is probably locked": "8",
}  # fmt: skip
