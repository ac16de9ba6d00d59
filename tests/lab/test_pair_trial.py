"""A trial boot on a virtual machine: a proven kernel stays, and one whose controller died is left by the host itself.

GRUB is simulated at boot (`/etc/gb10-lab/boots-by-grub`), and so is the initramfs of kernels that are stand-ins. Real
are the boots, systemd's timer, the way back and grub-editenv.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Pair

pytestmark = [pytest.mark.lab, pytest.mark.long]

HOST, OLD, NEW = "spark-a", "6.17.0-1014-nvidia", "6.17.0-1032-nvidia"
SAID = {"reboot_wait": 600, "trial_boot_allow": True, "trial_boot_grub_saved": True}
KERNEL = "cat /proc/sys/kernel/osrelease"
BOOT = "cat /proc/sys/kernel/random/boot_id"
SOURCE = "/etc/apt/sources.list.d/kernel.sources"
# The newer kernel with modules of the driver that is there, past our own pins; a softdog that modules.dep names; and an
# update-initramfs that builds nothing.
PREPARE = f"""
set -e
sudo mkdir -p /etc/gb10-lab
sudo touch /etc/gb10-lab/boots-by-grub
sed 's/^Suites: .*/Suites: offer-kernel-with-modules/' /etc/apt/sources.list.d/dgx.sources |
    sudo tee {SOURCE} >/dev/null
sudo apt-get -qq update
sudo DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \\
    -oDir::Etc::PreferencesParts=/dev/null linux-image-{NEW} linux-modules-nvidia-580-open-{NEW}
for kernel in {OLD} {NEW}; do
    sudo mkdir -p /lib/modules/$kernel/kernel/drivers/watchdog
    echo kernel/drivers/watchdog/softdog.ko: | sudo tee -a /lib/modules/$kernel/modules.dep >/dev/null
done
printf '#!/bin/sh\\nexit 0\\n' | sudo tee /usr/local/sbin/update-initramfs >/dev/null
sudo chmod 755 /usr/local/sbin/update-initramfs
sudo update-grub
entry=$(sudo grep -o "gnulinux-{OLD}-advanced-[0-9a-f-]*" /boot/grub/grub.cfg | head -n 1)
menu=$(sudo grep -o "gnulinux-advanced-[0-9a-f-]*" /boot/grub/grub.cfg | head -n 1)
sudo grub-editenv /boot/grub/grubenv set saved_entry="$menu>$entry"
sudo mkdir -p /etc/default/grub.d
echo GRUB_DEFAULT=saved | sudo tee /etc/default/grub.d/10-lab.cfg >/dev/null
sudo update-grub
"""  # noqa: S608 - "update" and "set" of a shell, not of a database
CLEAN = f"""
sudo rm -rf /etc/gb10-lab/boots-by-grub /etc/default/grub.d/10-lab.cfg /usr/local/sbin/update-initramfs {SOURCE}
sudo apt-get -qq purge -y linux-image-{NEW} linux-modules-nvidia-580-open-{NEW}
sudo apt-get -qq update
sudo update-grub
"""


@pytest.fixture(scope="module")
def host(pair: Pair) -> str:
    """A machine that runs the old kernel by the simulated GRUB, and has a newer one."""
    pair.ssh(HOST, PREPARE)
    boot(pair)
    assert pair.ssh(HOST, KERNEL).strip() == OLD
    return HOST


def boot(pair: Pair) -> None:
    before = pair.ssh(HOST, BOOT).strip()
    pair.lab("ssh", HOST, "sudo systemctl reboot", check=False)
    pair.until(HOST, f"test $({BOOT}) != {before} && systemctl is-system-running --wait")


def test_a_proven_kernel_stays(pair: Pair, host: str) -> None:
    said = json.dumps({**SAID, "trial_boot_kernel": NEW})
    run = pair.play("-e", said, "--limit", host, playbook="playbooks/trial_boot.yml")
    assert run.rc == 0
    assert pair.ssh(host, KERNEL).strip() == NEW
    left = "ls /usr/local/sbin/gb10-trial-back /etc/systemd/system/gb10-trial-back.timer 2>/dev/null | wc -l"
    assert pair.ssh(host, left).strip() == "0", "a proof takes the way back away"
    assert NEW in pair.ssh(host, "sudo grub-editenv /boot/grub/grubenv list")


def test_without_its_controller_the_host_comes_back_by_itself(pair: Pair, host: str, tmp_path: Path) -> None:
    """The trial is the older kernel now: to GRUB it is another one like any."""
    arm = {
        "action": "arm", "kernel": OLD, "deadline": 60, "watchdog": 180, "panic": 60, "allow_saved": True,
    }  # fmt: skip
    said = pair.ask(tmp_path, "gb10.fleet.trial_boot", arm, hosts=host)
    assert said[host]["trial"]["back"] == NEW
    before = pair.ssh(host, BOOT).strip()
    pair.lab("ssh", host, "sudo systemctl reboot", check=False)
    pair.until(host, f"test $({BOOT}) != {before} && test $({KERNEL}) = {OLD}")
    # Nobody proves it. The next boot is the host's own.
    pair.until(host, f"test $({KERNEL}) = {NEW} && systemctl is-system-running --wait")
    outcome = pair.ssh(host, "sudo cat /var/lib/gb10-fleet/trial/outcome").strip()
    assert outcome == "not_proven"
    said = pair.ask(tmp_path, "gb10.fleet.trial_boot", {"action": "settle"}, hosts=host)
    assert said[host]["trial"]["state"] == "none"


def test_the_host_is_left_as_it_was(pair: Pair, host: str) -> None:
    pair.ssh(host, CLEAN)
    boot(pair)
    assert NEW not in pair.ssh(host, "sudo cat /boot/grub/grub.cfg")
