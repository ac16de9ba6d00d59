"""A trial boot on a virtual machine: a proven kernel stays, and each of four bad ones is left without a hand.

GRUB is simulated at boot (`/etc/gb10-lab/boots-by-grub`), and so is the initramfs of kernels that are stand-ins. Real
are the boots, systemd's timer, softdog with the script that loads it, the way back and grub-editenv. GB10_TRIAL_ROUNDS
(1) repeats all five, each time with the kernel that does not run. GB10_TRIAL_HOST (spark-a) names the machine:

    GB10_TRIAL_ROUNDS=10 pytest tests/lab/test_pair_trial.py -m long
"""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.lab_pair import Pair

pytestmark = [pytest.mark.lab, pytest.mark.long]
ROUNDS = pytest.mark.parametrize("number", range(int(os.environ.get("GB10_TRIAL_ROUNDS", "1"))))

HOST = os.environ.get("GB10_TRIAL_HOST", "spark-a")
OLD, NEW = "6.17.0-1014-nvidia", "6.17.0-1032-nvidia"
SAID = {"reboot_wait": 600, "trial_boot_allow": True, "trial_boot_grub_saved": True}
KERNEL = "cat /proc/sys/kernel/osrelease"
BOOT = "cat /proc/sys/kernel/random/boot_id"
SOURCE = "/etc/apt/sources.list.d/kernel.sources"
MODEL = "/etc/systemd/system/gb10-vllm.service"  # it would wait for the other host of its cluster
EVERY_S = 12.0  # a look at a host that boots: on an emulated CPU each login takes it a second
# What a trial does not look at, and a fourth of an emulated boot.
IDLE = "docker.service docker.socket containerd.service unattended-upgrades.service"
# A host that has booted: not is-system-running, for the coherence check fails where a kernel is on trial.
UP = "systemctl is-active --quiet lab-gpu.service"
# The newer kernel with modules of the driver that is there, past our own pins, and held; a softdog that modules.dep
# names; and an update-initramfs that builds nothing, for stand-ins have no modules: it writes down what it was asked
# for, and whether the trial's hook was there.
HOOK = "/etc/initramfs-tools/hooks/gb10-trial"
BUILT, BUILDER = "/var/log/gb10-lab-initramfs", "/usr/local/sbin/update-initramfs"
PREPARE = f"""
set -e
sudo mkdir -p /etc/gb10-lab
sudo touch /etc/gb10-lab/boots-by-grub
sed 's/^Suites: .*/Suites: offer-kernel-with-modules/' /etc/apt/sources.list.d/dgx.sources |
    sudo tee {SOURCE} >/dev/null
sudo apt-get -qq update
sudo DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \\
    -oDir::Etc::PreferencesParts=/dev/null linux-image-{NEW} linux-modules-nvidia-580-open-{NEW}
sudo apt-mark hold linux-image-{NEW} linux-modules-{NEW} linux-modules-nvidia-580-open-{NEW} >/dev/null
[ ! -e {MODEL} ] || sudo systemctl disable --now gb10-vllm.service
sudo systemctl disable --now {IDLE}
for kernel in {OLD} {NEW}; do
    sudo mkdir -p /lib/modules/$kernel/kernel/drivers/watchdog
    echo kernel/drivers/watchdog/softdog.ko: | sudo tee -a /lib/modules/$kernel/modules.dep >/dev/null
done
sudo rm -f {BUILT}
sudo tee {BUILDER} >/dev/null <<'BUILDER'
#!/bin/sh
set -eu
[ "$#" = 3 ] || exit 0
if [ -e {HOOK} ]; then hook=with; else hook=without; fi
echo "$hook $*" >>{BUILT}
cp -p /boot/initrd.img-$3 /boot/initrd.img-$3.new
mv /boot/initrd.img-$3.new /boot/initrd.img-$3
BUILDER
sudo chmod 755 {BUILDER}
sudo update-grub
entry=$(sudo grep -o "gnulinux-{OLD}-advanced-[0-9a-f-]*" /boot/grub/grub.cfg | head -n 1)
menu=$(sudo grep -o "gnulinux-advanced-[0-9a-f-]*" /boot/grub/grub.cfg | head -n 1)
sudo grub-editenv /boot/grub/grubenv set saved_entry="$menu>$entry"
sudo mkdir -p /etc/default/grub.d
echo GRUB_DEFAULT=saved | sudo tee /etc/default/grub.d/10-lab.cfg >/dev/null
sudo update-grub
"""  # noqa: S608 - "update" and "set" of a shell, not of a database
FAULT, FAULT_UNIT = "/usr/local/sbin/gb10-lab-fault", "/etc/systemd/system/gb10-lab-fault.service"
# What goes wrong in a boot of the trial kernel, and the unit that it happens in.
LATE = """[Unit]
After=lab-gpu.service lab-rails.service
[Service]
Type=oneshot
ExecStart=/usr/local/sbin/gb10-lab-fault
[Install]
WantedBy=multi-user.target
"""
EARLY = """[Unit]
DefaultDependencies=no
After=systemd-remount-fs.service
Before=sysinit.target
[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart=/usr/local/sbin/gb10-lab-fault
[Install]
WantedBy=sysinit.target
"""
ONLY_THERE = '[ "$(cat /proc/sys/kernel/osrelease)" = {kernel} ] || exit 0\n'
NO_DRIVER = ONLY_THERE + "umount /proc/driver\nrm /run/gb10-lab/loaded-driver\n"
NO_RAILS = ONLY_THERE + "for name in $(ls /sys/class/infiniband); do rdma link delete $name; done\n"
# QEMU brings the initramfs and the command line, so systemd stands still in its place, before it has a watchdog. What
# GRUB does first is done here, and the script of the initramfs is run with the command line of GRUB's menu.
HANG = """grub-editenv /boot/grub/grubenv list | grep -q '^next_entry=.*{kernel}' || exit 0
grub-editenv /boot/grub/grubenv unset next_entry
sync
grep -m 1 'linux.*vmlinuz-{kernel} ' /boot/grub/grub.cfg >/run/gb10-lab-cmdline
mount --bind /run/gb10-lab-cmdline /proc/cmdline
echo 1 >/sys/fs/cgroup/init.scope/cgroup.freeze
sh /etc/initramfs-tools/scripts/init-top/gb10-trial
exec sleep infinity
"""
CLEAN = f"""
sudo rm -rf /etc/gb10-lab/boots-by-grub /etc/default/grub.d/10-lab.cfg {BUILDER} {BUILT} {SOURCE}
sudo apt-get -qq purge -y --allow-change-held-packages linux-image-{NEW} linux-modules-nvidia-580-open-{NEW}
[ ! -e {MODEL} ] || sudo systemctl enable gb10-vllm.service
sudo systemctl enable {IDLE}
sudo apt-get -qq update
sudo update-grub
"""


@pytest.fixture(scope="module")
def host(pair: Pair) -> str:
    """A machine that runs the old kernel by the simulated GRUB, and has a newer one."""
    pair.ssh(HOST, PREPARE, timeout=600)
    boot(pair)
    assert pair.ssh(HOST, KERNEL).strip() == OLD
    return HOST


def boot(pair: Pair) -> None:
    before = pair.ssh(HOST, BOOT).strip()
    pair.lab("ssh", HOST, "sudo systemctl reboot", check=False)
    until(pair, f"test $({BOOT}) != {before} && {UP}")


def until(pair: Pair, command: str, limit_s: int = 600) -> None:
    pair.until(HOST, command, limit_s, EVERY_S)


def kernels(pair: Pair) -> tuple[str, str]:
    """The one that runs, and the one to try: to GRUB an older one is another one like any."""
    back = pair.ssh(HOST, KERNEL).strip()
    return back, NEW if back == OLD else OLD


def arm(pair: Pair, folder: Path, kernel: str, *, watchdog: int, deadline: int = 60) -> str:
    """As a controller does that dies after it. Returns the boot id of before."""
    asked = {
        "action": "arm", "kernel": kernel, "deadline": deadline, "watchdog": watchdog, "panic": 60, "allow_saved": True,
    }  # fmt: skip
    said = pair.ask(folder, "gb10.fleet.trial_boot", asked, hosts=HOST)
    assert said[HOST]["trial"]["back"] == kernels(pair)[0]
    return pair.ssh(HOST, BOOT).strip()


def nothing_is_left(pair: Pair, kernel: str) -> None:
    left = f"ls /usr/local/sbin/gb10-trial-back /etc/systemd/system/gb10-trial-back.timer {HOOK} 2>/dev/null | wc -l"
    assert pair.ssh(HOST, left).strip() == "0", "the end of a trial takes the way back away"
    built = pair.ssh(HOST, f"tail -n 2 {BUILT}").splitlines()
    assert built == [f"with -u -k {kernel}", f"without -u -k {kernel}"], "and the watchdog out of the initramfs"
    said = pair.ssh(HOST, "sudo grep -c gb10.trial /boot/grub/grub.cfg || :").strip()
    assert said == "0", "and its word off the kernel's command line"


@pytest.fixture
def fault(pair: Pair, host: str) -> Any:
    """Puts a fault into the boots of a kernel."""

    def put(unit: str, script: str, kernel: str) -> None:
        for path, text in ((FAULT, f"#!/bin/sh\nset -eu\n{script.format(kernel=kernel)}"), (FAULT_UNIT, unit)):
            encoded = base64.b64encode(text.encode()).decode()
            pair.ssh(host, f"echo {encoded} | base64 -d | sudo tee {path} >/dev/null && sudo chmod 755 {path}")
        pair.ssh(host, "sudo systemctl daemon-reload && sudo systemctl enable gb10-lab-fault.service")

    yield put
    pair.ssh(host, f"sudo systemctl disable gb10-lab-fault.service; sudo rm -f {FAULT} {FAULT_UNIT}")


@ROUNDS
def test_a_proven_kernel_stays(pair: Pair, host: str, number: int) -> None:
    _, kernel = kernels(pair)
    said = json.dumps({**SAID, "trial_boot_kernel": kernel})
    run = pair.play("-e", said, "--limit", host, playbook="playbooks/trial_boot.yml")
    assert run.rc == 0
    assert pair.ssh(host, KERNEL).strip() == kernel
    nothing_is_left(pair, kernel)
    assert kernel in pair.ssh(host, "sudo grub-editenv /boot/grub/grubenv list")


@ROUNDS
@pytest.mark.parametrize(
    ("script", "why"), [(NO_DRIVER, "driver_silent"), (NO_RAILS, "rails_gone")], ids=["driver", "rails"]
)
def test_without_driver_or_rails_the_controller_sends_it_back(
    pair: Pair, host: str, fault: Any, script: str, why: str, number: int
) -> None:
    back, kernel = kernels(pair)
    fault(LATE, script, kernel)
    said = json.dumps({**SAID, "trial_boot_kernel": kernel})
    run = pair.play("-e", said, "--limit", host, playbook="playbooks/trial_boot.yml")
    assert run.rc != 0
    assert f"{kernel} is not proven, and {back} runs again" in run.tasks and why in run.tasks
    assert pair.ssh(host, KERNEL).strip() == back
    nothing_is_left(pair, kernel)


@ROUNDS
def test_a_boot_that_hangs_before_systemd_is_ended_by_the_watchdog(
    pair: Pair, host: str, fault: Any, tmp_path: Path, number: int
) -> None:
    back, kernel = kernels(pair)
    before = arm(pair, tmp_path, kernel, watchdog=60)
    fault(EARLY, HANG, kernel)
    pair.lab("ssh", host, "sudo systemctl reboot", check=False)
    until(pair, f"test $({BOOT}) != {before} && test $({KERNEL}) = {back}", limit_s=900)
    # It has come back on a boot of its own; the timer then notes it.
    until(pair, "sudo grep -q came_back /var/lib/gb10-fleet/trial/outcome")
    said = pair.ask(tmp_path, "gb10.fleet.trial_boot", {"action": "settle"}, hosts=host)
    assert said[host]["trial"]["state"] == "none"
    nothing_is_left(pair, kernel)


@ROUNDS
def test_without_its_controller_the_host_comes_back_by_itself(
    pair: Pair, host: str, tmp_path: Path, number: int
) -> None:
    back, kernel = kernels(pair)
    # On an emulated CPU the SSH server may come a minute after the kernel, and the trial kernel is to be seen.
    before = arm(pair, tmp_path, kernel, watchdog=180, deadline=200)
    pair.lab("ssh", host, "sudo systemctl reboot", check=False)
    pair.until(host, f"test $({BOOT}) != {before} && test $({KERNEL}) = {kernel}")
    # Nobody proves it. The next boot is the host's own.
    until(pair, f"test $({KERNEL}) = {back} && {UP}")
    outcome = pair.ssh(host, "sudo cat /var/lib/gb10-fleet/trial/outcome").strip()
    assert outcome == "not_proven"
    said = pair.ask(tmp_path, "gb10.fleet.trial_boot", {"action": "settle"}, hosts=host)
    assert said[host]["trial"]["state"] == "none"


def test_the_host_is_left_as_it_was(pair: Pair, host: str) -> None:
    pair.ssh(host, CLEAN, timeout=600)
    boot(pair)
    assert NEW not in pair.ssh(host, "sudo cat /boot/grub/grub.cfg")
