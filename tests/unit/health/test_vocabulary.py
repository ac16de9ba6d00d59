"""Format strings of Linux 6.12, NVIDIA's modules 595, apt, dpkg, DKMS and OpenSSH, filled in: what each of them is."""

from __future__ import annotations

import json
import re

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.reading import kernel_log

from tests.support.health import BOOT, NOW
from tests.support.unseen import told

NIC, NVME, EXT4 = "mlx5_core 0000:01:00.0: f:1:(pid 7): ", "nvme nvme0: ", "EXT4-fs (nvme0n1p2): "
CARD, SMMU = "r8127 0007:01:00.0 enP7s7: ", "arm-smmu-v3 arm-smmu-v3.1.auto: "
FAULTS = {
    "xid": [
        "NVRM: GPU0 _kgspRpcRecvPoll: LibOS heartbeat timed out",
        "NVRM: GPU0 _kgspBootGspRm: (the GPU is likely in a bad state and may need to be reset)",
        "NVRM: GPU0 kbifPollDeviceOnBus_IMPL: Timeout polling GPU back on bus",
        "NVRM: GPU0 gpuHandleSecFault_GB202: SEC_FAULT lockdown detected. This is fatal. RM will now shut down.",
        "NVRM: Rate limiting GSP RPC error prints for GPU at PCI:000f:01:00 (printing 1 of every 30).",
    ],
    "gpu_start": [
        "NVRM: No NVIDIA PCI devices found.",
        "NVRM: GPU0 kfspPollForResponse_IMPL: FSP command timed out",
        "NVRM: The NVIDIA GPU 000f:01:00.0\nNVRM: (PCI ID: 10de:2e12) installed in this system is not supported by the",
        "NVRM: failed to wait for bar firewall to lower",
    ],
    "nic_firmware": [
        f"{NIC}ACCESS_REG(0x805) timed out while waiting for a slot.",
        f"{NIC}QUERY_HCA_CAP(0x100) canceled on out of queue timeout.",
        f"{NIC}Driver is in error state. Unloading",
        f"{NIC}Failed initializing command interface, aborting",
        f"{NIC}Firmware is not responsive (0xffff) after 5000 ms",
        f"{NIC}init hca failed",
        f"{NIC}wait vital failed with error code: -110",
        "mlx5_core 0000:01:00.0 enp1s0f0np0: mlx5e_tx_timeout_work failed recovering from a tx_timeout, err(-5).",
    ],
    "pcie_error": [
        "pcieport 0004:00:00.0: AER: aer_uncor_severity: 0x00462030",
        "pcieport 0004:00:00.0: DPC: containment event, status:0x1f11, ERR_NONFATAL received from 0004:01:00.0",
        "pcieport 0004:00:00.0: DPC: containment event, status:0x1f15: RP PIO error detected",
        "mt7925e 0009:01:00.0: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Transaction Layer",
        "nvidia 000f:01:00.0: Device config space inaccessible; unable to restore",
    ],
    "iommu": [
        f"{SMMU}device has entered Service Failure Mode!",
        f"{SMMU}CMDQ error (cons 0x01000000): Illegal command",
    ],
    "wired_fault": [
        f"{CARD}PCI error (cmd = 0x0547, status_errs = 0xf100)",
        "r8127 0007:01:00.0: probe with driver r8127 failed with error -5",
    ],
    "disk": [
        f"{NVME}resetting controller due to persistent internal error",
        f"{NVME}failure state error detected, request disconnect",
        f"{NVME}IO queues lost",
        "nvme0n1: Write(0x1) @ LBA 8, 8 blocks, Internal Error (sct 0x0 / sc 0x6) DNR ",
        "device offline error, dev nvme0n1, sector 8 op 0x1:(WRITE) flags 0x0 phys_seg 1 prio class 2",
        "EXT4-fs warning (device nvme0n1p2): ext4_clear_journal_err:6256: Filesystem error recorded from",
        f"{EXT4}corrupt root inode, run e2fsck",
        f"{EXT4}last error at time 1796000000: ext4_find_entry:1683: inode 2",
    ],
    "hardware_error": ["[Hardware Error]: GHES: python3:4242: synchronous unrecoverable error (SIGBUS)"],
    "panic": [
        "Internal error: synchronous parity or ECC error: 0000000096000018 [#1] SMP",
        "Insufficient stack space to handle exception!",
    ],
    "hung_task": ["rcu: INFO: rcu_preempt detected stall, but suppressed full report due to a stuck CSD-lock."],
}
# Many of them come at the level of an error; what they say is that all went well, or that a program did wrong.
SOUND = [
    f"{NVME}Identify Descriptors failed (nsid=1, status=0x2002)",
    f"{NVME}Abort status: 0x0",
    f"{NVME}IO queue depth clamped to 64",
    "nvme0: Identify(0x6), Invalid Field in Command (sct 0x0 / sc 0x2) DNR ",
    f"{NIC}wait vital counter value 0x2a after 1 iterations",
    f"{NIC}cmd[3]: ACCESS_REG(0x805) recovered after timeout",
    f"{NIC}Waiting for FW initialization, timeout abort in 100s (0xffffffff)",
    "NVRM: GPU0 kbifDoFunctionLevelReset_GH100: Time spend on GPU back on bus is 0x1f4 ns,",
    "pcieport 0000:00:00.0: DPC: containment event, status:0x1f1d: software trigger detected",
    f"{EXT4}recovery complete",
    "JBD2: no valid journal superblock found",  # of any stick, and of an image that a login mounts at the desktop
    f"{EXT4}warning: maximal mount count reached, running e2fsck is recommended",
    f"{SMMU}option mask 0x0",
    f"{CARD}rtl_rxtx_empty_cond == 0 (loop: 42, delay: 100).",
    "workqueue: nvidia_work hogged CPU for >10000us 4 times, consider switching to WQ_UNBOUND",
]
OTHERS = [
    ("apt", "E: Packages were downgraded and -y was used without --allow-downgrades.", "apt_would_downgrade"),
    ("apt", "E: Release 'noble-nvidia' for 'cuda' was not found", "apt_package_unknown"),
    ("apt", "E: Type 'debs' is not known on line 1 in source list /etc/apt/sources.list", "apt_sources_unreadable"),
    ("apt", "E: No Hash entry in Release file x which is considered strong enough for security purposes",
     "apt_signature_wrong"),
    ("apt", "dpkg: error processing archive a.deb (--unpack):\n unable to create '/usr/x' (while processing './x'):"
            " Operation not permitted", "disk_refuses"),
    ("apt", "dpkg: error processing package a (--configure):\n unable to execute installed a package post-installation"
            " script (/var/lib/dpkg/info/a.postinst): Permission denied", "dpkg_may_not_execute"),
    ("apt", "dpkg: error processing archive a.deb (--unpack):\n trying to overwrite shared '/x', which is different"
            " from other instances of package a:arm64", "package_files_clash"),
    ("apt", "Error! Could not locate dkms.conf file.", "module_source_missing"),
    ("apt", "Error! Aborting build of module nvidia/580 for kernel 6.17 (aarch64) due to missing BUILD_DEPENDS: x.",
     "module_build_failed"),
    ("ssh", "Failed to connect to the host via ssh: Bad owner or permissions on /home/a/.ssh/config", "permission"),
    ("ssh", "Failed to connect to the host via ssh: banner exchange: Connection to 192.0.2.1 port 22: invalid format",
     "unreachable"),
    ("ssh", "Failed to connect to the host via ssh: debug1: /etc/ssh/ssh_config line 19: Applying options for *\r\nssh:"
            " connect to host a port 22: Connection refused", "unreachable"),
    (
        "ssh",
        "Failed to connect to the host via ssh: The ED25519 host key for a is marked as revoked.\r\n"
        "ED25519 host key for a was revoked and you have requested strict checking.\r\nHost key verification failed.",
        "host_key",
    ),
    ("ssh", 'Failed to connect to the host via ssh: unix_listener: path "/home/a/.ansible/cp/x" too long for Unix'
            " domain socket", "permission"),
    ("docker_pull", 'failed to prepare extraction snapshot "extract-1": parent snapshot sha256:8ea3 does not exist: not'
                    " found", "image_damaged"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "message"), [(kind, one) for kind, several in FAULTS.items() for one in several])
def test_what_the_kernel_says_of_a_fault_is_read_as_one(kind: str, message: str) -> None:
    assert [event["kind"] for event in _events(message)] == [kind]
    assert re.search(kernel_log.GREP, message), "journalctl would leave it on the host"


@pytest.mark.parametrize("message", SOUND)
def test_what_the_kernel_says_of_a_sound_machine_is_no_event(message: str) -> None:
    assert _events(message) == []


@pytest.mark.parametrize(("kind", "said", "name"), OTHERS)
def test_what_a_command_says_has_its_name(kind: str, said: str, name: str) -> None:
    assert told(kind, said) == name


def _events(message: str) -> list[kernel_log.Event]:
    entry = {"__REALTIME_TIMESTAMP": str(int(NOW * 1e6)), "_BOOT_ID": BOOT + "0" * 20, "MESSAGE": message}
    return kernel_log.parse_journal(json.dumps(entry))
