# SPDX-License-Identifier: GPL-3.0-or-later
"""What a trial boot puts on a host while it lasts. The way back is a shell script of the host's own: it needs neither
the controller nor Python.
"""

from __future__ import annotations

STATE = "/var/lib/gb10-fleet/trial"
# Read last, so that no other file's GRUB_CMDLINE_LINUX takes the place of ours.
GRUB_FOLDER = "/etc/default/grub.d"
GRUB = f"{GRUB_FOLDER}/zz-gb10-trial.cfg"
BACK = "/usr/local/sbin/gb10-trial-back"
TIMER = "gb10-trial-back.timer"
SERVICE = "gb10-trial-back.service"
SYSTEMD = "/etc/systemd/system"
MANAGER = "/etc/systemd/system.conf.d/60-gb10-trial.conf"
HOOK = "/etc/initramfs-tools/hooks/gb10-trial"
SCRIPT = "/etc/initramfs-tools/scripts/init-top/gb10-trial"
# On the kernel's command line while a trial lasts. Its dot makes it a parameter of a module that is not there: neither
# the kernel nor systemd does anything with it.
WORD = "gb10.trial"
_HEAD = "# Written by gb10-fleet for a trial boot, and removed at its end.\n"

# GRUB_SAVEDEFAULT would make the trial kernel the default as soon as it begins to boot. panic= reboots after a panic,
# and where the initramfs would open a shell.
_SAVED = f"{_HEAD}GRUB_DEFAULT=saved\nGRUB_SAVEDEFAULT=false\n"
_PANIC = 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX panic=@PANIC@ @WORD@"\n'

_BACK = (
    "#!/bin/sh\n"
    + _HEAD
    + f"""\
# Runs once, some minutes after a boot: nobody has proven the trial kernel by then, so it boots the old one.
# `mv` is the decision: either this script has the mark, or the proof has it, and never both. On a disk that cannot be
# written neither can move it. Then there is no proof, and the mark is still there.
# Nothing after that ends the script: GRUB's default is the old kernel since before the trial, so a reboot suffices.
set -u
cd {STATE} || exit 0
mv armed reverting 2>/dev/null || [ -e armed ] || exit 0
# GRUB takes nothing from a damaged environment, and would boot the newest kernel: it is made anew.
block=/boot/grub/grubenv
entry=$(cat back_entry)
grub-editenv $block unset next_entry
if [ -n "$entry" ] && ! grub-editenv $block set saved_entry="$entry"; then
  grub-editenv $block create
  grub-editenv $block set saved_entry="$entry"
fi
if [ "$(cat /proc/sys/kernel/osrelease)" = "$(cat back)" ]; then
  echo came_back >outcome
  exit 0
fi
echo not_proven >outcome
systemctl reboot || systemctl reboot --force || systemctl reboot --force --force
"""
)

# Emergency mode ends sysinit.target, which a timer and a service need unless told otherwise: a trial kernel that misses
# a file system would stay there. What is left of the usual dependencies is the end at a shutdown.
_EARLY = "DefaultDependencies=no\nConflicts=shutdown.target\nBefore=shutdown.target\n"

_SERVICE = (
    _HEAD
    + f"""\
[Unit]
Description=Boot the old kernel again, where nobody has proven the trial kernel
ConditionPathExists={STATE}/armed
{_EARLY}
[Service]
Type=oneshot
ExecStart={BACK}
"""
)

_TIMER = (
    _HEAD
    + f"""\
[Unit]
Description=How long a trial kernel may run until it is proven
{_EARLY}
[Timer]
OnBootSec=@DEADLINE@s
AccuracySec=1s

[Install]
WantedBy=sysinit.target timers.target rescue.target emergency.target
"""
)

# systemd takes the watchdog over from the initramfs; a manager that hangs no longer feeds it.
_MANAGER = f"{_HEAD}[Manager]\nRuntimeWatchdogSec=@WATCHDOG@\nRebootWatchdogSec=120\n"

_PREREQUISITES = 'case "${1:-}" in prereqs) exit 0 ;; esac\n'
_HOOK = f"#!/bin/sh\n{_HEAD}{_PREREQUISITES}. /usr/share/initramfs-tools/hook-functions\nmanual_add_modules softdog\n"
# It acts in a trial alone: an initramfs that keeps it would start a watchdog at each boot, and nobody would feed it.
# A driver that is there before is fed by systemd alone: its timeout is not known here, and may be 10 s. Closing the
# device without the magic letter leaves the watchdog running.
_SCRIPT = (
    f"#!/bin/sh\n{_HEAD}{_PREREQUISITES}"
    + """\
case " $(cat /proc/cmdline) " in *" @WORD@ "*) ;; *) exit 0 ;; esac
[ ! -c /dev/watchdog0 ] || exit 0
modprobe -q softdog soft_margin=@WATCHDOG@ || exit 0
[ ! -c /dev/watchdog0 ] || echo gb10 >/dev/watchdog0
"""
)


def files(*, deadline_s: int, watchdog_s: int, panic_s: int) -> dict[str, tuple[str, int]]:
    """Path -> text and mode, of all but GRUB's: that one decides what boots, and comes last."""
    texts = {
        BACK: (_BACK, 0o755),
        f"{SYSTEMD}/{SERVICE}": (_SERVICE, 0o644),
        f"{SYSTEMD}/{TIMER}": (_TIMER, 0o644),
        MANAGER: (_MANAGER, 0o644),
        HOOK: (_HOOK, 0o755),
        SCRIPT: (_SCRIPT, 0o755),
    }
    return {path: (_filled(text, deadline_s, watchdog_s, panic_s), mode) for path, (text, mode) in texts.items()}


def grub(panic_s: int | None) -> str:
    """Of GRUB's configuration; without a number the part that keeps an old kernel the default after a trial."""
    return _SAVED if panic_s is None else _filled(_SAVED + _PANIC, 0, 0, panic_s)


def _filled(text: str, deadline_s: int, watchdog_s: int, panic_s: int) -> str:
    words = {"@DEADLINE@": deadline_s, "@WATCHDOG@": watchdog_s, "@PANIC@": panic_s, "@WORD@": WORD}
    for word, value in words.items():
        text = text.replace(word, str(value))
    return text
