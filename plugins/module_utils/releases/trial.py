# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
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
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.engine import folders
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.dpkg import read_database
from ansible_collections.gb10.fleet.plugins.module_utils.engine.structs import dataclass
from ansible_collections.gb10.fleet.plugins.module_utils.engine.system import HostError, System
from ansible_collections.gb10.fleet.plugins.module_utils.facts.readings import upstream_version
from ansible_collections.gb10.fleet.plugins.module_utils.programs.coherence.driver_packages import BRANCH
from ansible_collections.gb10.fleet.plugins.module_utils.programs.coherence.grub import Entry, parse_menu, read_grub
from ansible_collections.gb10.fleet.plugins.module_utils.releases import trial_files
from ansible_collections.gb10.fleet.plugins.module_utils.releases.host_set import installed_userland
from ansible_collections.gb10.fleet.plugins.module_utils.releases.trial_files import STATE

MENU, ENVIRONMENT = "/boot/grub/grub.cfg", "/boot/grub/grubenv"
# File systems of /boot on which GRUB can write its environment; on a volume or an array it cannot.
_WRITABLE = ("ext2", "ext3", "ext4", "vfat", "msdos")
_LONG_S = 900.0  # an initramfs is built
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
    """Why this kernel is not tried on this host; nothing is changed to find out."""
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
    if not trial.allow_saved and not _default_is_saved(system):
        found.append("GRUB's default must be the old kernel by name, which takes GRUB_DEFAULT=saved: consent to that")
    return found


def arm(system: System, trial: Trial) -> dict[str, Any]:
    """Everything that leads back comes first. What fails on the way is taken away again."""
    why = refusals(system, trial)
    if why:
        raise HostError("; ".join(why))
    back = running(system)
    try:
        _prepare(system, trial, back)
        _set(system, next_entry=path_of(system, trial.kernel))
        _must_boot(system, trial.kernel)
    except BaseException:
        with contextlib.suppress(HostError):
            settle(system)
        raise
    return {
        "kernel": trial.kernel,
        "back": back,
        "back_has_gpu": module_version(system, back) in (_driver(system), None)
        and module_version(system, back) is not None,
        "watchdog": (system.text("/sys/class/watchdog/watchdog0/identity") or "softdog").strip(),
        "deadline_s": trial.deadline_s,
    }


def _prepare(system: System, trial: Trial, back: str) -> None:
    system.private_directory(STATE)
    for name in ("armed", "promoted", "reverting", "outcome"):
        _remove(system, f"{STATE}/{name}")
    for name, text in (("kernel", trial.kernel), ("back", back), ("back_entry", path_of(system, back))):
        system.write(f"{STATE}/{name}", f"{text}\n".encode(), mode=0o600)
    _set(system, saved_entry=path_of(system, back))
    for path, (text, mode) in trial_files.files(
        deadline_s=trial.deadline_s, watchdog_s=trial.watchdog_s, panic_s=trial.panic_s
    ).items():
        system.write(path, text.encode(), mode=mode)
    system.ask(["update-initramfs", "-u", "-k", trial.kernel], timeout=_LONG_S)
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
    if now["state"] == "armed":
        try:
            os.rename(system.path(f"{STATE}/armed"), system.path(f"{STATE}/promoted"))  # noqa: PTH104 - as mv does
        except FileNotFoundError:
            raise HostError("too late: the host is on its way back to the old kernel") from None
    _set(system, saved_entry=path_of(system, now["kernel"]))
    return {**now, "state": "promoted", "default": _end(system, str(now["kernel"]))}


def settle(system: System) -> dict[str, Any]:
    """End a trial on the kernel of before; harmless where there is none."""
    now = status(system)
    if now["back"] is None:
        return {**now, "default": None}
    if now["running"] == now["kernel"]:
        raise HostError(f"the trial kernel {now['kernel']} runs: boot {now['back']} first, or prove it")
    _remove(system, f"{STATE}/armed")
    _set(system, saved_entry=path_of(system, str(now["back"])))
    clear_once(system)
    return {**now, "state": "none", "default": _end(system, str(now["back"]))}


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
        system.ask(["grub-editenv", str(system.path(ENVIRONMENT)), "unset", "next_entry"])


def go_back(system: System) -> dict[str, Any]:
    """Run the host's own way back now, as its timer would."""
    now = status(system)
    if now["state"] == "armed":
        system.ask(["systemctl", "start", "--no-block", trial_files.SERVICE])
    return now


def _end(system: System, kernel: str) -> str:
    """Take all away. Where the usual default would be another kernel, GRUB_DEFAULT=saved stays: returned in words."""
    system.run(["systemctl", "disable", "--now", trial_files.TIMER])
    for path in trial_files.files(deadline_s=0, watchdog_s=0, panic_s=0):
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
    for name in ("kernel", "back", "back_entry", "promoted", "reverting"):
        _remove(system, f"{STATE}/{name}")
    return default


def path_of(system: System, kernel: str) -> str:
    """How GRUB names the entry of a kernel: the identifiers from the top, with `>` between."""
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
    words = [f"{name}={value}" for name, value in values.items()]
    system.ask(["grub-editenv", str(system.path(ENVIRONMENT)), "set", *words])


def _must_boot(system: System, kernel: str) -> None:
    boots = read_grub(system.root).next_kernel
    if boots != kernel:
        raise HostError(
            f"GRUB would boot {boots or 'an unknown kernel'} next, and not {kernel}; nothing was left armed"
        )


def _must_have_parameters(system: System, trial: Trial) -> None:
    line = next(
        (
            line
            for line in (system.text(MENU) or "").splitlines()
            if re.search(rf"\blinux\s+\S*-{re.escape(trial.kernel)}\s", line)
        ),
        "",
    )
    for each in trial.parameters:
        if trial.kernel.startswith(each["kernel"]) and each["parameter"] not in line.split():
            raise HostError(
                f"{trial.kernel} would start without {each['parameter']}: {each['reason']}. Put it into"
                " GRUB_CMDLINE_LINUX of /etc/default/grub"
            )


def _default_is_saved(system: System) -> bool:
    return parse_menu(system.text(MENU) or "")[1] in ("${saved_entry}", "$saved_entry")


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
        words, _, more = line.partition(" - ")
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
