"""A kernel that boots once, over files in a temporary root: GRUB's environment is written by GRUB's own tool, the menu
by the lab's update-grub, and the way back is the shell script that a host runs."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.engine.structs import replace
from ansible_collections.gb10.fleet.plugins.module_utils.engine.system import Clock, Completed, HostError, System
from ansible_collections.gb10.fleet.plugins.module_utils.programs.coherence.grub import read_grub
from ansible_collections.gb10.fleet.plugins.module_utils.releases import trial, trial_files
from ansible_collections.gb10.fleet.plugins.module_utils.releases.trial import Trial

from lab.vendor.packages import FILES

pytestmark = pytest.mark.skipif(shutil.which("grub-editenv") is None, reason="needs grub-editenv, of grub-common")
OLD, NEW = "6.17.0-1014-nvidia", "6.17.0-1032-nvidia"
KHO = {"kernel": "7.0.", "parameter": "kho=off", "reason": "no start works without it"}
ASKED = Trial(NEW, deadline_s=900, watchdog_s=180, panic_s=60, parameters=(KHO,), allow_saved=True)
MOUNT = "29 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n"
STATUS = """Package: dpkg
Status: install ok installed
Architecture: arm64
Version: 1.22

Package: nvidia-driver-580-open
Status: install ok installed
Architecture: arm64
Version: 580.142-0ubuntu0.24.04.1
"""


class Host:
    """A root with two kernels of one driver, of which the older one runs; `boot` is what GRUB and the kernel do."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.modules = {OLD: "580.142", NEW: "580.142"}
        self.calls: list[list[str]] = []
        self.fails: dict[str, Callable[[], Completed]] = {}
        for kernel in self.modules:
            self.put(f"/boot/vmlinuz-{kernel}", "x")
            self.put(f"/boot/initrd.img-{kernel}", "x")
            self.put(f"/lib/modules/{kernel}/modules.dep", "kernel/drivers/watchdog/softdog.ko.zst:\n")
        for path, text in {
            "/etc/passwd": "root:x:0:0::/root:/bin/sh\n", "/etc/group": "root:x:0:\n", "/etc/default/grub": "",
            "/var/lib/dpkg/status": STATUS, "/proc/self/mountinfo": MOUNT, "/proc/sys/kernel/osrelease": OLD,
        }.items():  # fmt: skip
            self.put(path, text)
        self.system = System(root, self.run, Clock())
        self.update_grub()

    def put(self, path: str, text: str) -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def run(self, argv: Sequence[str], stdin: str | None, timeout: float) -> Completed:
        self.calls.append([*argv])
        if argv[0] in self.fails:
            return self.fails[argv[0]]()
        if argv[0] == "grub-editenv":
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            return Completed(tuple(argv), done.returncode, done.stdout, done.stderr)
        if argv[0] == "update-grub":
            self.update_grub()
        if argv[0] == "modinfo":
            version = self.modules.get(argv[argv.index("-k") + 1])
            return Completed(tuple(argv), 0 if version else 1, version or "")
        return Completed(tuple(argv), 0)

    def update_grub(self) -> None:
        text = (FILES / "update-grub").read_text()
        for path in ("/etc/default", "here=/boot", "find /boot", "s|^/boot"):
            text = text.replace(path, path.replace("/", f"{self.root}/", 1))
        subprocess.run(["sh", "-c", text], check=True, capture_output=True)

    def boot(self) -> str:
        """As GRUB does: the entry for a single boot is cleared before the kernel starts."""
        chosen = read_grub(self.root).next_kernel
        assert chosen
        subprocess.run(["grub-editenv", str(self.root / "boot/grub/grubenv"), "unset", "next_entry"], check=True)
        self.put("/proc/sys/kernel/osrelease", f"{chosen}\n")
        return chosen

    def way_back(self) -> str:
        """Run the host's own script as its timer would; returns what it asked systemd for."""
        programs = self.root / "programs"
        programs.mkdir(exist_ok=True)
        (programs / "systemctl").write_text(f'#!/bin/sh\necho "$*" >>{self.root}/asked\n')
        (programs / "systemctl").chmod(0o755)
        script = (self.root / trial_files.BACK.lstrip("/")).read_text()
        for path in ("cd /var", " /boot/grub", "cat /proc"):
            script = script.replace(path, path.replace("/", f"{self.root}/", 1))
        environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
        subprocess.run(["sh", "-c", script], check=True, capture_output=True, env=environment)
        asked = self.root / "asked"
        return asked.read_text().strip() if asked.exists() else ""

    def environment(self) -> dict[str, str]:
        argv = ["grub-editenv", str(self.root / "boot/grub/grubenv"), "list"]
        lines = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
        return dict(line.split("=", 1) for line in lines)

    def ours(self) -> set[str]:
        """What lies on the host while a trial is under way."""
        paths = [*trial_files.files(deadline_s=1, watchdog_s=1, panic_s=1), trial_files.GRUB]
        return {path for path in paths if (self.root / path.lstrip("/")).exists()}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(
        System, "account_id", lambda self, database, name: os.getuid() if database == "passwd" else os.getgid()
    )
    return Host(tmp_path)


def test_the_new_kernel_boots_once_and_the_old_one_after_it(host: Host) -> None:
    told = trial.arm(host.system, ASKED)
    assert (told["kernel"], told["back"], told["back_has_gpu"]) == (NEW, OLD, True)
    assert ["systemctl", "enable", trial_files.TIMER] in host.calls
    assert ["update-initramfs", "-u", "-k", NEW] in host.calls, "and of the old kernel nothing is built"
    assert (host.boot(), host.boot(), host.boot()) == (NEW, OLD, OLD)


def test_a_proven_kernel_stays_and_nothing_of_the_trial_does(host: Host) -> None:
    trial.arm(host.system, ASKED)
    host.boot()
    told = trial.promote(host.system)
    assert told["default"] == "as before" and host.ours() == set()
    assert (host.boot(), host.boot()) == (NEW, NEW)
    assert trial.status(host.system)["state"] == "none"


def test_nobody_proves_it_so_the_host_goes_back_by_itself(host: Host) -> None:
    trial.arm(host.system, ASKED)
    assert host.boot() == NEW
    assert host.way_back() == "reboot"
    assert trial.status(host.system)["outcome"] == "not_proven"
    assert host.boot() == OLD
    told = trial.settle(host.system)
    assert told["default"].startswith(f"{OLD} by GRUB_DEFAULT=saved")
    assert host.ours() == {trial_files.GRUB} and (host.boot(), host.boot()) == (OLD, OLD)
    assert "panic=" not in (host.root / trial_files.GRUB.lstrip("/")).read_text()


def test_a_boot_that_hung_ends_on_the_old_kernel_which_does_not_reboot(host: Host) -> None:
    trial.arm(host.system, ASKED)
    host.boot()
    assert host.boot() == OLD, "the watchdog has reset it"
    assert host.way_back() == "", "the timer of the old kernel's boot asks for nothing"
    assert trial.status(host.system)["outcome"] == "came_back"


def test_proof_and_way_back_never_both_win(host: Host) -> None:
    trial.arm(host.system, ASKED)
    host.boot()
    host.way_back()
    with pytest.raises(HostError, match="not_proven"):
        trial.promote(host.system)


def test_after_the_proof_the_way_back_does_nothing(host: Host) -> None:
    trial.arm(host.system, ASKED)
    host.boot()
    state = host.root / trial_files.STATE.lstrip("/")
    (state / "armed").rename(state / "promoted")  # the proof has it, and is not at its end
    before = host.environment()
    assert host.way_back() == "" and host.environment() == before
    assert not (state / "outcome").exists()
    assert trial.promote(host.system)["default"] == "as before" and host.boot() == NEW


def test_a_promotion_that_was_cut_short_is_finished(host: Host) -> None:
    trial.arm(host.system, ASKED)
    host.boot()
    host.fails["update-grub"] = lambda: Completed((), 1, "", "no room")
    with pytest.raises(HostError, match="no room"):
        trial.promote(host.system)
    host.fails.clear()
    assert trial.promote(host.system)["default"] == "as before" and host.boot() == NEW


def missing_initramfs(host: Host) -> None:
    host.put(f"/boot/initrd.img-{NEW}", "")


def no_module(host: Host) -> None:
    del host.modules[NEW]


def another_driver(host: Host) -> None:
    host.modules[NEW] = "580.178.04"


def no_watchdog(host: Host) -> None:
    host.put(f"/lib/modules/{NEW}/modules.dep", "")


def on_a_volume(host: Host) -> None:
    host.put("/proc/self/mountinfo", MOUNT + "30 29 1:1 / /boot rw - ext4 /dev/mapper/vg-boot rw\n")


def on_btrfs(host: Host) -> None:
    host.put("/proc/self/mountinfo", MOUNT.replace("ext4", "btrfs"))


def own_menu(host: Host) -> None:
    host.put("/boot/grub/custom.cfg", "")


def runs_it(host: Host) -> None:
    host.put("/proc/sys/kernel/osrelease", NEW)


def unknown_running(host: Host) -> None:
    host.put("/proc/sys/kernel/osrelease", "6.12.0-amd64")


def no_image(host: Host) -> None:
    (host.root / f"boot/vmlinuz-{NEW}").unlink()
    host.update_grub()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (missing_initramfs, "missing or empty"),
        (no_module, "has no NVIDIA module"),
        (another_driver, "is of driver 580.178.04, and driver 580.142 is installed"),
        (no_watchdog, "a boot that hangs would stay so"),
        (on_a_volume, "cannot clear its entry"),
        (on_btrfs, "cannot clear its entry"),
        (own_menu, "custom.cfg"),
        (runs_it, "runs already"),
        (unknown_running, "there is no way back to it"),
        (no_image, "is not in GRUB's menu"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_what_cannot_work_is_refused_before_anything_changes(
    host: Host, spoil: Callable[[Host], None], says: str
) -> None:
    spoil(host)
    before = host.environment()
    with pytest.raises(HostError, match=says):
        trial.arm(host.system, ASKED)
    assert host.ours() == set() and host.environment() == before
    assert not [call for call in host.calls if call[0] not in ("modinfo",)], "and nothing ran that changes anything"


@pytest.mark.parametrize("text", ["", "; reboot", "../x", "-x"])
def test_what_is_no_kernel_is_refused(host: Host, text: str) -> None:
    with pytest.raises(HostError, match="no kernel's release"):
        trial.arm(host.system, replace(ASKED, kernel=text))


@pytest.mark.parametrize(
    ("name", "value"),
    [("deadline_s", -5), ("deadline_s", 0), ("deadline_s", 10**9), ("watchdog_s", 0), ("watchdog_s", 65536),
     ("panic_s", 0), ("panic_s", -1), ("panic_s", 10**400)],
    ids=lambda each: str(each)[:12],
)  # fmt: skip
def test_times_without_a_way_back_are_refused(host: Host, name: str, value: int) -> None:
    with pytest.raises(HostError, match=f"^{name[:-2]} is {str(value)[:9]}.*no way back in time$"):
        trial.arm(host.system, replace(ASKED, **{name: value}))
    assert host.ours() == set()


def test_without_consent_grubs_default_stays(host: Host) -> None:
    with pytest.raises(HostError, match="GRUB_DEFAULT=saved: consent"):
        trial.arm(host.system, replace(ASKED, allow_saved=False))
    host.put("/etc/default/grub", "GRUB_DEFAULT=saved\n")
    host.update_grub()
    subprocess.run(
        ["grub-editenv", str(host.root / "boot/grub/grubenv"), "set", f"saved_entry={trial.path_of(host.system, OLD)}"],
        check=True,
    )
    assert trial.refusals(host.system, replace(ASKED, allow_saved=False)) == [], "it is saved already"


def test_a_kernel_without_its_parameter_is_refused_and_nothing_stays_armed(host: Host) -> None:
    needs = replace(ASKED, parameters=({**KHO, "kernel": "6.17.0-1032"},))
    with pytest.raises(HostError, match="would start without kho=off"):
        trial.arm(host.system, needs)
    assert "next_entry" not in host.environment() and host.boot() == OLD
    host.put("/etc/default/grub", 'GRUB_CMDLINE_LINUX="kho=off"\n')
    assert trial.arm(host.system, needs)["kernel"] == NEW


@pytest.mark.parametrize("program", ["update-initramfs", "update-grub", "systemctl"])
def test_what_fails_on_the_way_leaves_the_old_kernel(host: Host, program: str) -> None:
    def once() -> Completed:
        del host.fails[program]
        return Completed((), 1, "", "no room")

    host.fails[program] = once
    with pytest.raises(HostError, match="no room"):
        trial.arm(host.system, ASKED)
    assert "next_entry" not in host.environment() and host.boot() == OLD


def test_a_second_trial_waits_for_the_end_of_the_first(host: Host) -> None:
    trial.arm(host.system, ASKED)
    with pytest.raises(HostError, match="under way"):
        trial.arm(host.system, ASKED)
    trial.settle(host.system)
    assert host.boot() == OLD and trial.arm(host.system, ASKED)["kernel"] == NEW


@pytest.mark.skipif(shutil.which("grub-reboot") is None, reason="needs grub-reboot, of grub2-common")
def test_grubs_own_command_writes_the_same_entry(host: Host) -> None:
    trial.arm(host.system, ASKED)
    ours = host.environment()["next_entry"]
    subprocess.run(["grub-reboot", f"--boot-directory={host.root}/boot", ours], check=True, capture_output=True)
    assert host.environment()["next_entry"] == ours and read_grub(host.root).next_kernel == NEW
