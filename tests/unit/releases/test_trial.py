"""A kernel that boots once, over files in a temporary root: GRUB's environment is written by GRUB's own tool, the menu
by the lab's update-grub, and the way back is the shell script that a host runs."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.reading.grub import read_grub
from ansible_collections.gb10.fleet.plugins.module_utils.releases import trial, trial_files
from ansible_collections.gb10.fleet.plugins.module_utils.releases.trial import Trial
from ansible_collections.gb10.fleet.plugins.module_utils.system import lock
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Clock, Completed, HostError, System

from tests.support.attacker import tally
from tests.support.fitting import misfit
from tests.support.trials import MOUNT, NEW, OLD, Host

pytestmark = pytest.mark.skipif(shutil.which("grub-editenv") is None, reason="needs grub-editenv, of grub-common")
KHO = {"kernel": "7.0.", "parameter": "kho=off", "reason": "no start works without it"}
ASKED = Trial(NEW, deadline_s=900, watchdog_s=180, panic_s=60, parameters=(KHO,), allow_saved=True)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(
        System, "account_id", lambda self, database, name: os.getuid() if database == "passwd" else os.getgid()
    )
    return Host(tmp_path)


def test_the_new_kernel_boots_once_and_the_old_one_after_it(host: Host) -> None:
    told = trial.arm(host.system, ASKED)
    assert misfit("trial_boot", {"trial": told}) is None
    assert (told["kernel"], told["back"], told["back_has_gpu"]) == (NEW, OLD, True)
    assert ["systemctl", "enable", trial_files.TIMER] in host.calls
    assert ["update-initramfs", "-u", "-k", NEW] in host.calls, "and of the old kernel nothing is built"
    assert (host.boot(), host.boot(), host.boot()) == (NEW, OLD, OLD)


def test_a_login_writes_to_nothing_that_a_trial_goes_by(host: Host) -> None:
    """Who could would choose the kernel of the next boot."""
    before = {path for path in host.root.rglob("*") if not path.is_symlink()}
    mask = os.umask(0)
    try:
        trial.arm(host.system, ASKED)
    finally:
        os.umask(mask)
    made = [path for path in host.root.rglob("*") if path not in before and not path.is_symlink()]
    assert any(trial_files.STATE in str(path) for path in made)
    # What others write here is theirs: the lab's update-grub and update-initramfs stand for the system's own.
    ours = [path for path in made if not str(path.relative_to(host.root)).startswith("boot/")]
    open_ones = [str(path) for path in ours if stat.S_IMODE(path.stat().st_mode) & 0o022]
    tally("a login chooses the kernel of the next boot", len(ours), len(open_ones))
    assert open_ones == []


def test_a_proven_kernel_stays_and_nothing_of_the_trial_does(host: Host) -> None:
    trial.arm(host.system, ASKED)
    host.boot()
    told = trial.promote(host.system)
    assert misfit("trial_boot", {"trial": told}) is None
    assert told["default"] == "as before" and host.ours() == set()
    assert (host.boot(), host.boot()) == (NEW, NEW)
    assert trial.status(host.system)["state"] == "none"
    assert misfit("trial_boot", {"trial": trial.status(host.system)}) is None


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


# -- what a trial leaves in an initramfs -------------------------------------------------------------------------------


def proven(host: Host) -> None:
    host.boot()
    trial.promote(host.system)


def back_by_itself(host: Host) -> None:
    host.boot()
    host.way_back()
    host.boot()
    trial.settle(host.system)


def given_up(host: Host) -> None:
    trial.settle(host.system)


@pytest.mark.parametrize("end", [proven, back_by_itself, given_up])
def test_the_initramfs_of_a_trial_starts_no_watchdog_after_its_end(host: Host, end: Callable[[Host], None]) -> None:
    trial.arm(host.system, ASKED)
    assert host.softdog == {NEW: True} and trial_files.WORD in host.line()
    end(host)
    assert host.softdog == {NEW: False} and trial_files.WORD not in host.line()


@pytest.mark.parametrize(("end", "again"), [(proven, trial.promote), (back_by_itself, trial.settle)])
def test_an_initramfs_that_cannot_be_built_again_is_told_and_a_second_call_ends_the_trial(
    host: Host, end: Callable[[Host], None], again: Callable[[System], object]
) -> None:
    trial.arm(host.system, ASKED)
    host.fails["update-initramfs"] = lambda: Completed(("update-initramfs",), 1, "", "No space left")
    with pytest.raises(HostError, match=f"initramfs of {NEW} may still have the watchdog.*No space left.*make room in"):
        end(host)
    assert trial_files.MANAGER in host.ours(), "systemd feeds a watchdog"
    assert trial_files.WORD not in host.line(), "and the script in the initramfs starts none"
    runs = trial.running(host.system)
    assert host.boot() == runs == (NEW if end is proven else OLD)
    host.fails.clear()
    again(host.system)
    assert host.softdog == {NEW: False} and host.ours() <= {trial_files.GRUB} and host.kept() == set()
    assert host.boot() == runs


def test_a_promotion_without_its_end_is_no_trial_to_settle(host: Host) -> None:
    trial.arm(host.system, ASKED)
    host.fails["update-initramfs"] = lambda: Completed((), 1)
    with pytest.raises(HostError):
        proven(host)
    with pytest.raises(HostError, match=f"{NEW} is proven.*`action: promote` again"):
        trial.settle(host.system)


def test_an_initramfs_that_was_not_built_is_noticed(host: Host) -> None:
    host.fails["update-initramfs"] = lambda: Completed((), 0, "update-initramfs: Not updating initramfs.")
    with pytest.raises(HostError, match=r"built nothing: .*update_initramfs in /etc/initramfs-tools") as told:
        trial.arm(host.system, ASKED)
    assert "What was prepared is still there (`action: settle`): the initramfs of" in str(told.value)
    assert trial.status(host.system)["state"] == "none" and host.boot() == OLD
    host.fails.clear()
    trial.settle(host.system)
    assert host.ours() == {trial_files.GRUB} and host.kept() == set()


def test_of_a_kernel_that_was_removed_no_initramfs_is_built(host: Host) -> None:
    trial.arm(host.system, ASKED)
    host.boot()
    host.way_back()
    host.boot()
    for path in (f"boot/vmlinuz-{NEW}", f"boot/initrd.img-{NEW}"):
        (host.root / path).unlink()
    host.calls.clear()
    trial.settle(host.system)
    assert "update-initramfs" not in [call[0] for call in host.calls] and host.kept() == set()


@pytest.mark.parametrize(
    ("line", "starts"),
    [
        ("root=/dev/x ro panic=60 gb10.trial", True),
        ("gb10.trial quiet", True),
        ("root=/dev/x ro quiet", False),
        ("gb10.trials not-gb10.trial", False),
    ],
)
def test_the_script_of_the_initramfs_acts_in_a_trial_alone(tmp_path: Path, line: str, starts: bool) -> None:
    (tmp_path / "cmdline").write_text(f"{line}\n")
    (tmp_path / "modprobe").write_text(f'#!/bin/sh\necho "$*" >{tmp_path}/asked\nexit 1\n')
    (tmp_path / "modprobe").chmod(0o755)
    script, _mode = trial_files.files(deadline_s=900, watchdog_s=180, panic_s=60)[trial_files.SCRIPT]
    script = script.replace("/proc/cmdline", f"{tmp_path}/cmdline").replace("/dev/watchdog0", f"{tmp_path}/watchdog0")
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-c", script], check=True, env=environment)
    assert (tmp_path / "asked").exists() == starts


# -- the host's own way back -------------------------------------------------------------------------------------------


def full_disk(host: Host) -> None:
    """No new file can be written; a rename can."""
    (host.root / trial_files.STATE.lstrip("/") / "outcome").mkdir()


def damaged_environment(host: Host) -> None:
    host.put("/boot/grub/grubenv", "\0" * 1024)


def boot_is_not_mounted(host: Host) -> None:
    (host.root / "boot/grub").rename(host.root / "boot/on-the-disk")


def entry_is_lost(host: Host) -> None:
    """As after a crash. GRUB has it still."""
    (host.root / trial_files.STATE.lstrip("/") / "back_entry").write_text("")


def read_only(host: Host) -> None:
    programs = host.root / "programs"
    programs.mkdir()
    for name in ("mv", "grub-editenv"):
        (programs / name).write_text("#!/bin/sh\nexit 1\n")
        (programs / name).chmod(0o755)
    full_disk(host)


@pytest.mark.parametrize("spoil", [full_disk, damaged_environment, boot_is_not_mounted, read_only, entry_is_lost])
def test_the_way_back_needs_nothing_but_a_reboot(host: Host, spoil: Callable[[Host], None]) -> None:
    trial.arm(host.system, ASKED)
    assert host.boot() == NEW
    spoil(host)
    assert host.way_back() == "reboot"
    if spoil is boot_is_not_mounted:
        (host.root / "boot/on-the-disk").rename(host.root / "boot/grub")
    assert host.boot() == OLD


def test_another_kernel_than_the_old_one_is_left_as_well(host: Host) -> None:
    trial.arm(host.system, ASKED)
    host.put("/proc/sys/kernel/osrelease", "6.17.0-1040-nvidia\n")
    assert host.way_back() == "reboot"
    assert trial.status(host.system)["outcome"] == "not_proven"


def test_the_way_back_runs_in_emergency_mode_too(host: Host) -> None:
    trial.arm(host.system, ASKED)
    units = {}
    for name in (trial_files.TIMER, trial_files.SERVICE):
        units[name] = (host.root / f"etc/systemd/system/{name}").read_text().splitlines()
        head = units[name][: units[name].index("")]
        assert {"DefaultDependencies=no", "Conflicts=shutdown.target", "Before=shutdown.target"} <= {*head}
        assert not [line for line in head if line.startswith(("After=", "Requires=", "Wants="))]
    wanted = next(line for line in units[trial_files.TIMER] if line.startswith("WantedBy="))
    assert {"sysinit.target", "timers.target", "rescue.target", "emergency.target"} == {*wanted[9:].split()}


def test_a_mark_that_cannot_be_moved_proves_nothing_and_is_told(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    trial.arm(host.system, ASKED)
    host.boot()

    def read_only_root(source: object, target: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(source))

    with (
        monkeypatch.context() as patched,
        pytest.raises(HostError, match=r"armed cannot be moved: Read-only.*by itself"),
    ):
        patched.setattr(os, "rename", read_only_root)
        trial.promote(host.system)
    assert trial.status(host.system)["state"] == "armed" and host.way_back() == "reboot"


def test_a_file_that_cannot_be_written_is_told_with_a_way_out(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: System, absolute: str, content: bytes, **_other: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", absolute)

    monkeypatch.setattr(System, "write", full)
    with pytest.raises(HostError, match=r"trial/kernel cannot be written: No space left on device\. Make room"):
        trial.arm(host.system, ASKED)


# -- before a trial ----------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("path", "text", "says"),
    [
        ("/etc/default/grub", 'GRUB_CMDLINE_LINUX_DEFAULT="quiet panic=0"\n',
         "with panic=0, .* as with panic=60. Take it out of /etc/default/grub for"),
        ("/etc/default/grub.d/50-mine.cfg", 'GRUB_CMDLINE_LINUX_DEFAULT="panic=5"\n',
         "with panic=5, .* as with panic=60. Take it out of /etc/default/grub.d/50-mine.cfg "),
        ("/etc/default/grub.d/zzz-mine.cfg", 'GRUB_CMDLINE_LINUX="quiet"\n',
         "without panic=60 of .*: /etc/default/grub.d/zzz-mine.cfg does not keep"),
        ("/etc/default/grub.d/zzz-mine.cfg", 'GRUB_CMDLINE_LINUX="panic=60"\n',
         "without gb10.trial of .*: /etc/default/grub.d/zzz-mine.cfg does not keep"),
    ],
    ids=["default", "default of a folder", "later", "without the word"],
)  # fmt: skip
def test_a_panic_that_would_not_lead_back_is_refused(host: Host, path: str, text: str, says: str) -> None:
    host.put(path, text)
    with pytest.raises(HostError, match=says):
        trial.arm(host.system, ASKED)
    assert "next_entry" not in host.environment() and host.ours() <= {trial_files.GRUB} and host.boot() == OLD


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/etc/default/grub", 'GRUB_CMDLINE_LINUX="panic=0"\n'),
        ("/etc/default/grub.d/70-mine.cfg", 'GRUB_CMDLINE_LINUX="panic=0"\n'),
        ("/etc/default/grub.d/70-mine.cfg", '# panic=0\nGRUB_CMDLINE_LINUX_DEFAULT="quiet"\n'),
    ],
)
def test_what_our_panic_comes_after_stays(host: Host, path: str, text: str) -> None:
    host.put(path, text)
    trial.arm(host.system, ASKED)
    assert [word for word in host.line() if word.startswith("panic=")][-1] == "panic=60"


def fill(host: Host) -> None:
    """An environment block in which nothing more finds room."""
    block = host.root / "boot/grub/grubenv"
    block.write_text(f"# GRUB Environment Block\nmine={'x' * 980}\n".ljust(1024, "#"))


def test_a_full_environment_of_grub_is_told_and_nothing_stays(host: Host) -> None:
    fill(host)
    with pytest.raises(HostError, match=r"failed: .*Where it is full .1024 bytes.*unset NAME"):
        trial.arm(host.system, ASKED)
    assert host.ours() == set() and not (host.root / trial_files.STATE.lstrip("/")).exists()


def test_where_the_entry_for_one_boot_finds_no_room_all_is_taken_away(host: Host) -> None:
    entry = trial.path_of(host.system, OLD)
    block = host.root / "boot/grub/grubenv"
    used = len(f"# GRUB Environment Block\nsaved_entry={entry}\nmine=\n")
    block.write_text(f"# GRUB Environment Block\nmine={'x' * (1024 - used - 40)}\n".ljust(1024, "#"))
    with pytest.raises(HostError, match=r"next_entry=.*Where it is full"):
        trial.arm(host.system, ASKED)
    assert host.kept() == set() and host.ours() == {trial_files.GRUB} and host.boot() == OLD


def test_a_trial_ends_also_where_grubs_environment_cannot_be_written(host: Host) -> None:
    trial.arm(host.system, ASKED)
    host.boot()
    host.boot()
    host.fails["grub-editenv"] = lambda: Completed(("grub-editenv",), 1, "", "error: environment block too small.")
    assert trial.settle(host.system)["default"].startswith(f"{OLD} by")
    assert host.kept() == set() and host.boot() == OLD


def test_a_trial_does_not_end_while_grub_would_boot_its_kernel(host: Host) -> None:
    trial.arm(host.system, ASKED)
    there = host.ours()
    host.fails["grub-editenv"] = lambda: Completed(("grub-editenv",), 1, "", "Read-only file system")
    with pytest.raises(HostError, match="Read-only"):
        trial.settle(host.system)
    assert host.ours() == there and trial.status(host.system)["state"] == "armed", "the way back stays"
    assert host.boot() == NEW and host.way_back() == "reboot"


class Hurried(Clock):
    """A minute is over at each look."""

    def now(self) -> float:
        self.minutes = getattr(self, "minutes", 0) + 1
        return self.minutes * 60.0

    def sleep(self, seconds: float) -> None:
        pass


def test_two_controllers_do_not_arm_at_the_same_time(host: Host) -> None:
    host.system.clock = Hurried()
    tried: list[str] = []

    def meanwhile() -> Completed:
        del host.fails["update-initramfs"]
        for other in (lambda: trial.arm(host.system, replace(ASKED, deadline_s=60)), lambda: trial.settle(host.system)):
            with pytest.raises(lock.Busy, match=f"another run is at work on this host: trial boot of {NEW}"):
                other()
            tried.append("refused")
        host.update_initramfs(NEW)
        return Completed((), 0)

    host.fails["update-initramfs"] = meanwhile
    assert trial.arm(host.system, ASKED)["kernel"] == NEW
    assert tried == ["refused", "refused"]
    assert "OnBootSec=900s" in (host.root / f"etc/systemd/system/{trial_files.TIMER}").read_text()


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
