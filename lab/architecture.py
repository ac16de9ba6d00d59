"""The table of what the lab does otherwise for each architecture: names that Debian, QEMU and the kernel have."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Architecture:
    debian: str  # of packages
    kernel: str  # what `uname -m` says; QEMU's programs have it in their names
    cpu: str  # that QEMU emulates
    console: str
    tools: Mapping[str, str]  # command or file -> Debian package, beside those that every machine of the lab needs
    board: tuple[str, ...] = ()  # words for QEMU: the board and its firmware
    cache: str = ""  # folder of the images and snapshots below the cache

    @property
    def qemu(self) -> str:
        return f"qemu-system-{self.kernel}"

    @property
    def foreign(self) -> bool:
        """Says whether this machine runs its programs by emulation alone."""
        return self.kernel != platform.machine()


FIRMWARE = "/usr/share/qemu-efi-aarch64/QEMU_EFI.fd"
AMD64 = Architecture("amd64", "x86_64", "max", "ttyS0", {"qemu-system-x86_64": "qemu-system-x86"})
ARM64 = Architecture(
    "arm64",
    "aarch64",
    "neoverse-n1",  # "max" signs pointers, which takes an emulated CPU a multiple of its time
    "ttyAMA0",
    {"qemu-system-aarch64": "qemu-system-arm", FIRMWARE: "qemu-efi-aarch64", "qemu-aarch64-static": "qemu-user-static"},
    # This board hands SMBIOS to a kernel that UEFI starts, and to no other.
    board=("-machine", "virt,gic-version=3", "-bios", FIRMWARE),
    cache="arm64",
)
ARCHITECTURES = {architecture.debian: architecture for architecture in (AMD64, ARM64)}
