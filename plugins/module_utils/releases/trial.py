# SPDX-License-Identifier: GPL-3.0-or-later
"""A kernel that boots once: the next boot takes it, and every boot after that takes the old one, until it is proven.

    arm      refuse what cannot work, prepare the way back, then set GRUB's entry for a single boot
    promote  the trial kernel is proven: it becomes the default
    settle   the host is back on the old kernel: it stays the default, and the way back is taken away

GRUB's environment is the only thing that decides. It is written with GRUB's own tool, and read back each time.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.reading.dpkg import read_database
from ansible_collections.gb10.fleet.plugins.module_utils.reading.grub import (
    Entry,
    parse_environment,
    parse_menu,
    read_grub,
)
from ansible_collections.gb10.fleet.plugins.module_utils.reading.meanings import upstream_version
from ansible_collections.gb10.fleet.plugins.module_utils.releases import trial_files
from ansible_collections.gb10.fleet.plugins.module_utils.releases.host_set import installed_userland
from ansible_collections.gb10.fleet.plugins.module_utils.releases.trial_files import STATE
from ansible_collections.gb10.fleet.plugins.module_utils.system import folders, lock
from ansible_collections.gb10.fleet.plugins.module_utils.system.driver_packages import BRANCH
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError, System

MENU, ENVIRONMENT = "/boot/grub/grub.cfg", "/boot/grub/grubenv"
# File systems of /boot on which GRUB can write its environment; on a volume or an array it cannot.
_WRITABLE = ("ext2", "ext3", "ext4", "vfat", "msdos")
_LONG_S = 900.0  # an initramfs is built
_PATIENCE_S = 120.0  # for whoever is at work on the host, or reads its state
# Seconds. A timer of 0 ends the trial at its boot, panic=0 stands still for ever, a watchdog of 0 is none, and softdog
# takes two bytes; with more than a day nobody would wait for the way back.
_BOUNDS = {"deadline_s": (60, 86_400), "watchdog_s": (10, 65_535), "panic_s": (1, 3_600)}
_RELEASE = re.compile(r"[0-9][0-9A-Za-z.+~-]{1,99}\Z")


@dataclass(frozen=True)
class Trial:
    """What is asked. `parameters`: each a start of a kernel's release, and the word that it must be started with."""

    kernel: str
    deadline_s: int
    watchdog_s: int
    panic_s: int
    parameters: Sequence[Mapping[str, str]]
    allow_saved: bool


def running(system: System) -> str:
    return (system.text("/proc/sys/kernel/osrelease") or "").strip()


def status(system: System) -> dict[str, Any]:
    """`state`: none, armed, promoted, or reverting; `outcome` is the word of the host's own way back."""
    words = {name: (system.text(f"{STATE}/{name}") or "").strip() or None for name in ("kernel", "back", "outcome")}
    marks = [name for name in ("armed", "promoted", "reverting") if system.path(f"{STATE}/{name}").exists()]
    return {"state": marks[0] if marks else "none", **words, "running": running(system)}


def refusals(system: System, trial: Trial) -> list[str]:
    """Return why this kernel is not tried on this host; nothing is changed to find out."""
    found = _of_times(trial) + _of_kernel(system, trial) + _of_grub(system, trial)
    if status(system)["state"] == "armed":
        found.append(f"a trial of {status(system)['kernel']} is under way; end it with `action: settle`")
    return found


def _of_times(trial: Trial) -> list[str]:
    return [
        f"{name[:-2]} is {getattr(trial, name)}: it takes {least} to {most} seconds, else there is no way back in time"
        for name, (least, most) in _BOUNDS.items()
        if not least <= getattr(trial, name) <= most
    ]


def _of_kernel(system: System, trial: Trial) -> list[str]:
    kernel = trial.kernel
    if not _RELEASE.match(kernel):
        return [f"{kernel} is no kernel's release, as in 6.17.0-1032-nvidia"]
    if running(system) == kernel:
        return [f"{kernel} runs already: there is nothing to try"]
    entry = _entry(system, kernel)
    if entry is None:
        return [f"{kernel} is not in GRUB's menu: install linux-image-{kernel}, then update-grub"]
    found = []
    for path in [*entry.image, *entry.initrd] or [f"/boot/vmlinuz-{kernel}"]:
        if not _filled(system, path):
            found.append(f"{path} is missing or empty, so {kernel} would not boot: update-initramfs -c -k {kernel}")
    if not entry.initrd:
        found.append(f"GRUB's entry of {kernel} has no initramfs: update-initramfs -c -k {kernel}, then update-grub")
    built_for, driver = module_version(system, kernel), _driver(system)
    if built_for is None:
        found.append(f"{kernel} has no NVIDIA module: install linux-modules-nvidia-{BRANCH}-open-{kernel}")
    elif driver and built_for != driver:
        found.append(f"the NVIDIA module of {kernel} is of driver {built_for}, and driver {driver} is installed")
    if not _has_watchdog(system, kernel):
        found.append(f"{kernel} has no module softdog and the host no watchdog: a boot that hangs would stay so")
    return found


def _of_grub(system: System, trial: Trial) -> list[str]:
    kind, source = _mount(system, "/boot/grub")
    found = []
    if kind not in _WRITABLE or source.startswith(("/dev/mapper/", "/dev/dm-", "/dev/md")):
        found.append(
            f"/boot/grub is on {kind or 'an unknown file system'} ({source}), where GRUB cannot clear its entry for a"
            " single boot: the trial kernel would boot for ever"
        )
    if system.path("/boot/grub/custom.cfg").exists():
        found.append("/boot/grub/custom.cfg may choose another entry than GRUB's own menu: move it away for the trial")
    if read_grub(system.root).next_kernel is None:
        found.append("GRUB's menu does not tell which kernel boots next, so the way back is not sure")
    if _entry(system, running(system)) is None:
        found.append(f"the running kernel {running(system)} is not in GRUB's menu, so there is no way back to it")
    default = parse_menu(system.text(MENU) or "")[1]
    if not trial.allow_saved and default not in ("${saved_entry}", "$saved_entry"):
        found.append("GRUB's default must be the old kernel by name, which takes GRUB_DEFAULT=saved: consent to that")
    return found


def arm(system: System, trial: Trial) -> dict[str, Any]:
    """Everything that leads back comes first. What fails on the way is taken away again."""
    # From the refusals on, for two controllers may arm two kernels at the same time.
    with _files_told(), lock.held(system, f"trial boot of {trial.kernel}", exclusive=True, patience=_PATIENCE_S):
        why = refusals(system, trial)
        if why:
            raise HostError("; ".join(why))
        return _arm(system, trial, running(system))


def _arm(system: System, trial: Trial, back: str) -> dict[str, Any]:
    try:
        _prepare(system, trial, back)
        _set(system, next_entry=path_of(system, trial.kernel))
        _must_boot(system, trial.kernel)
    except BaseException as error:
        try:
            _settle(system)
        except (HostError, OSError) as more:
            if isinstance(error, HostError):
                raise HostError(f"{error}. What was prepared is still there (`action: settle`): {more}") from None
        raise
    return {
        "kernel": trial.kernel,
        "back": back,
        "back_has_gpu": module_version(system, back) in (_driver(system), None)
        and module_version(system, back) is not None,
        "watchdog": (system.text("/sys/class/watchdog/watchdog0/identity") or "softdog").strip(),
        "deadline_s": trial.deadline_s,
    }


@contextlib.contextmanager
def _files_told() -> Iterator[None]:
    """A file that cannot be written is told with a way out."""
    try:
        yield
    except OSError as error:
        raise HostError(
            f"{error.filename or STATE} cannot be written: {error.strerror}. Make room (`df -h / /boot`), or see why a"
            " file system is read-only (`findmnt -O ro`; `journalctl -k`), then repeat this"
        ) from None


def _prepare(system: System, trial: Trial, back: str) -> None:
    # GRUB's environment first: where it cannot be written, nothing is left to take away.
    _set(system, saved_entry=path_of(system, back))
    system.private_directory(STATE)
    for name in ("armed", "promoted", "reverting", "outcome"):
        _remove(system, f"{STATE}/{name}")
    for name, text in (("kernel", trial.kernel), ("back", back), ("back_entry", path_of(system, back))):
        system.write(f"{STATE}/{name}", f"{text}\n".encode(), mode=0o600)
    for path, (text, mode) in trial_files.files(
        deadline_s=trial.deadline_s, watchdog_s=trial.watchdog_s, panic_s=trial.panic_s
    ).items():
        system.write(path, text.encode(), mode=mode)
    _build(system, trial.kernel)
    system.write(trial_files.GRUB, trial_files.grub(trial.panic_s).encode(), mode=0o644)
    system.ask(["update-grub"], timeout=_LONG_S)
    _must_boot(system, back)
    _must_have_parameters(system, trial)
    system.ask(["systemctl", "daemon-reload"])
    system.ask(["systemctl", "enable", trial_files.TIMER])
    system.write(f"{STATE}/armed", b"\n", mode=0o600)


def promote(system: System) -> dict[str, Any]:
    """The mark is moved first: from then on the host's own way back does nothing."""
    now = status(system)
    if now["state"] not in ("armed", "promoted"):  # a promotion that was cut short is finished
        raise HostError(f"no trial waits for its proof: {now['outcome'] or now['state']}")
    if now["running"] != now["kernel"]:
        raise HostError(f"{now['running']} runs, and not the trial kernel {now['kernel']}")
    with _files_told():
        if now["state"] == "armed":
            _take_the_mark(system)
        _set(system, saved_entry=path_of(system, now["kernel"]))
        return {**now, "state": "promoted", "default": _end(system, str(now["kernel"]), str(now["kernel"]))}


def _take_the_mark(system: System) -> None:
    try:
        os.rename(system.path(f"{STATE}/armed"), system.path(f"{STATE}/promoted"))  # noqa: PTH104 - as mv does
    except FileNotFoundError:
        raise HostError("too late: the host is on its way back to the old kernel") from None
    except OSError as error:
        raise HostError(
            f"{STATE}/armed cannot be moved: {error.strerror}. So nothing is proven, and the host boots the old kernel"
            " by itself (now: `action: back`); see why / is read-only or damaged (`findmnt /`; `journalctl -k`)"
        ) from None


def settle(system: System) -> dict[str, Any]:
    """End a trial on the kernel of before; harmless where there is none."""
    if status(system)["back"] is None:
        return _settle(system)
    with _files_told(), lock.held(system, "end of a trial boot", exclusive=True, patience=_PATIENCE_S):
        return _settle(system)


def _settle(system: System) -> dict[str, Any]:
    now = status(system)
    if now["back"] is None:
        return {**now, "default": None}
    if now["running"] == now["kernel"]:
        if now["state"] == "promoted":
            raise HostError(f"{now['kernel']} is proven, and its trial not at its end: `action: promote` again")
        raise HostError(f"the trial kernel {now['kernel']} runs: boot {now['back']} first, or prove it")
    back, said = str(now["back"]), []
    # Where GRUB's environment cannot be written, the rest is done all the same, if only GRUB does not boot the trial
    # kernel next: without the way back it would stay.
    try:
        clear_once(system)
    except HostError as error:
        if "next_entry" in parse_environment(system.text(ENVIRONMENT) or ""):
            raise
        said.append(str(error))
    try:
        _set(system, saved_entry=path_of(system, back))
    except HostError as error:
        said.append(str(error))
    _remove(system, f"{STATE}/armed")
    try:
        return {**now, "state": "none", "default": _end(system, back, str(now["kernel"]))}
    except HostError as error:
        raise HostError("; ".join([str(error), *said])) from None


def boot_once(system: System, kernel: str) -> None:
    """Let the next boot take this kernel, with or without a GPU. `clear_once` afterwards, for some GRUBs cannot."""
    _set(system, next_entry=path_of(system, kernel))
    try:
        _must_boot(system, kernel)
    except HostError:
        clear_once(system)
        raise


def clear_once(system: System) -> None:
    if system.path(ENVIRONMENT).exists():
        _edit(system, "unset", "next_entry")


def go_back(system: System) -> dict[str, Any]:
    """Run the host's own way back now, as its timer would."""
    now = status(system)
    if now["state"] == "armed":
        system.ask(["systemctl", "start", "--no-block", trial_files.SERVICE])
    return now


def _end(system: System, kernel: str, tried: str) -> str:
    """Take all away. Where the usual default would be another kernel, GRUB_DEFAULT=saved stays: returned in words.

    What a second call needs goes last. systemd feeds a watchdog as long as the trial kernel's initramfs may start one.
    """
    _remove(system, trial_files.HOOK)
    _remove(system, trial_files.SCRIPT)
    failed = None
    if system.path(_initramfs(tried)).exists():  # else the kernel was removed, and its initramfs with it
        try:
            _build(system, tried)
        except HostError as error:
            failed = str(error)
    system.run(["systemctl", "disable", "--now", trial_files.TIMER])
    for path in trial_files.files(deadline_s=0, watchdog_s=0, panic_s=0):
        if failed is None or path != trial_files.MANAGER:
            _remove(system, path)
    _remove(system, trial_files.GRUB)
    system.run(["systemctl", "daemon-reload"])
    system.ask(["update-grub"], timeout=_LONG_S)
    default = "as before"
    if read_grub(system.root).next_kernel != kernel:
        system.write(trial_files.GRUB, trial_files.grub(None).encode(), mode=0o644)
        system.ask(["update-grub"], timeout=_LONG_S)
        _must_boot(system, kernel)
        default = f"{kernel} by GRUB_DEFAULT=saved in {trial_files.GRUB}"
    if failed is not None:
        raise HostError(
            f"the initramfs of {tried} may still have the watchdog of its trial: {failed}. {kernel} boots, and systemd"
            " feeds a watchdog until this is repeated; make room in /boot (`df -h /boot`) first"
        )
    for name in ("kernel", "back", "back_entry", "promoted", "reverting"):
        _remove(system, f"{STATE}/{name}")
    return default


def _initramfs(kernel: str) -> str:
    return f"/boot/initrd.img-{kernel}"


def _build(system: System, kernel: str) -> None:
    """Its program may leave it as it is and say that all is well: where it is told so, or /boot is read-only."""
    argv, before = ["update-initramfs", "-u", "-k", kernel], _identity(system, kernel)
    system.ask(argv, timeout=_LONG_S)
    if _identity(system, kernel) == before:
        raise HostError(
            f"`{' '.join(argv)}` built nothing: see whether /boot is read-only (`findmnt /boot`), and update_initramfs"
            " in /etc/initramfs-tools/update-initramfs.conf, which must be yes"
        )


def _identity(system: System, kernel: str) -> tuple[int, int] | None:
    try:
        found = system.path(_initramfs(kernel)).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def path_of(system: System, kernel: str) -> str:
    """Return how GRUB names the entry of a kernel: the identifiers from the top, with `>` between."""
    menu, _default = parse_menu(system.text(MENU) or "")
    found = _path(menu, kernel)
    if found is None:
        raise HostError(f"{kernel} is not in GRUB's menu")
    return ">".join((entry.id or entry.title).replace(">", ">>") for entry in found)


def _entry(system: System, kernel: str) -> Entry | None:
    menu, _default = parse_menu(system.text(MENU) or "")
    found = _path(menu, kernel)
    return found[-1] if found else None


def _path(menu: Sequence[Entry], kernel: str) -> list[Entry] | None:
    """To the kernel's own entry. That at the top names no kernel: it is of whichever is the newest."""
    for entry in menu:
        if entry.below is not None:
            found = _path(entry.below, kernel)
            if found:
                return [entry, *found]
        names = f"{entry.title} {entry.id}"
        if kernel in re.split(r"[\s]|(?:^|\s)gnulinux-|-advanced-", names) and "recovery" not in names:
            return [entry]
    return None


def _set(system: System, **values: str) -> None:
    _edit(system, "set", *[f"{name}={value}" for name, value in values.items()])


def _edit(system: System, *words: str) -> None:
    try:
        system.ask(["grub-editenv", str(system.path(ENVIRONMENT)), *words])
    except HostError as error:
        raise HostError(
            f"{error}. Where it is full (1024 bytes), look with `grub-editenv {ENVIRONMENT} list` and take away what"
            f" nothing needs with `unset NAME`; where it is damaged, `grub-editenv {ENVIRONMENT} create` makes it anew"
        ) from None


def _must_boot(system: System, kernel: str) -> None:
    boots = read_grub(system.root).next_kernel
    if boots != kernel:
        raise HostError(
            f"GRUB would boot {boots or 'an unknown kernel'} next, and not {kernel}; nothing was left armed"
        )


def _must_have_parameters(system: System, trial: Trial) -> None:
    words = _line(system, trial.kernel).split()
    for each in trial.parameters:
        if trial.kernel.startswith(each["kernel"]) and each["parameter"] not in words:
            raise HostError(
                f"{trial.kernel} would start without {each['parameter']}: {each['reason']}. Put it into"
                " GRUB_CMDLINE_LINUX of /etc/default/grub"
            )
    ours, found = f"panic={trial.panic_s}", [word for word in words if word.startswith("panic=")]
    if found[-1:] != [ours]:  # the kernel takes the last one
        where = ", ".join(_files_with(system, r"\bpanic=")) or "the file that has it"
        raise HostError(
            f"{trial.kernel} would start with {found[-1]}, and a panic would not lead back as with {ours}. Take it out"
            f" of {where} for the trial, then update-grub"
            if found
            else _not_ours(system, trial, ours)
        )
    if trial_files.WORD not in words:
        raise HostError(_not_ours(system, trial, trial_files.WORD))


def _not_ours(system: System, trial: Trial, word: str) -> str:
    """What another file has done to a GRUB_CMDLINE_LINUX that has no word of ours."""
    later = [path for path in _files_with(system, r"\bGRUB_CMDLINE_LINUX=") if path > trial_files.GRUB]
    where = ", ".join(later) or "a file that is read after it, or /etc/grub.d/10_linux"
    return (
        f"{trial.kernel} would start without {word} of {trial_files.GRUB}: {where} does not keep GRUB_CMDLINE_LINUX."
        ' Let it add to what is there, as in GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX ..."'
    )


def _files_with(system: System, pattern: str) -> list[str]:
    """The files of GRUB's configuration that say it outside of a comment, but for ours."""
    folder = trial_files.GRUB_FOLDER
    names = [f"{folder}/{name}" for name in system.names(folder) if name.endswith(".cfg")]
    return [
        path
        for path in ("/etc/default/grub", *names)
        if path != trial_files.GRUB and re.search(rf"(?m)^[^#\n]*{pattern}", system.text(path) or "")
    ]


def _line(system: System, kernel: str) -> str:
    """Return how GRUB starts a kernel."""
    lines = (system.text(MENU) or "").splitlines()
    return next((line for line in lines if re.search(rf"\blinux\s+\S*-{re.escape(kernel)}\s", line)), "")


def module_version(system: System, kernel: str) -> str | None:
    """The driver that a kernel's NVIDIA module was built from."""
    done = system.run(["modinfo", "--basedir", str(system.root), "-k", kernel, "-F", "version", "nvidia"])
    return done.stdout.strip() or None if done.rc == 0 else None


def _driver(system: System) -> str:
    packages = {name: each.version for name, each in system.once(read_database).installed.items()}
    return upstream_version(installed_userland(packages, BRANCH))


def _has_watchdog(system: System, kernel: str) -> bool:
    if system.path("/sys/class/watchdog/watchdog0").exists():
        return True
    listed = (system.text(f"/lib/modules/{kernel}/{name}") or "" for name in ("modules.dep", "modules.builtin"))
    return any(re.search(r"(?m)/softdog\.ko", text) for text in listed)


def _mount(system: System, path: str) -> tuple[str, str]:
    """File system and device of the deepest mount above a path."""
    best, found = -1, ("", "")
    for line in (system.text("/proc/self/mountinfo") or "").splitlines():
        words, __, more = line.partition(" - ")
        fields, kind = words.split(), more.split()
        if len(fields) < 5 or len(kind) < 2:
            continue
        place = fields[4]
        above = place == "/" or path == place or path.startswith(f"{place}/")
        if above and len(place) >= best:
            best, found = len(place), (kind[0], kind[1])
    return found


def _filled(system: System, path: str) -> bool:
    """GRUB's paths begin at the root of a device, which may be that of /boot."""
    name = posixpath.basename(path)
    for place in (system.path(path), system.path(f"/boot/{name}")):
        with contextlib.suppress(OSError):
            if place.stat().st_size:
                return True
    return False


def _remove(system: System, path: str) -> None:
    try:
        with system.folder_of(path) as parent:
            folders.remove_file(posixpath.basename(path), parent)
    except FileNotFoundError:
        pass
