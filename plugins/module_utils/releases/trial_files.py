# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a trial boot puts on a host while it lasts. The way back is a shell script of the host's own: it needs neither
the controller nor Python.
"""

from __future__ import annotations

STATE = "/var/lib/gb10-fleet/trial"
GRUB = "/etc/default/grub.d/60-gb10-trial.cfg"
BACK = "/usr/local/sbin/gb10-trial-back"
TIMER = "gb10-trial-back.timer"
SERVICE = "gb10-trial-back.service"
SYSTEMD = "/etc/systemd/system"
MANAGER = "/etc/systemd/system.conf.d/60-gb10-trial.conf"
HOOK = "/etc/initramfs-tools/hooks/gb10-trial"
SCRIPT = "/etc/initramfs-tools/scripts/init-top/gb10-trial"
_HEAD = "# Written by gb10-fleet for a trial boot, and removed at its end.\n"

# GRUB_SAVEDEFAULT would make the trial kernel the default as soon as it begins to boot. panic= reboots after a panic,
# and where the initramfs would open a shell.
_SAVED = f"{_HEAD}GRUB_DEFAULT=saved\nGRUB_SAVEDEFAULT=false\n"
_PANIC = 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX panic=@PANIC@"\n'

_BACK = (
    "#!/bin/sh\n"
    + _HEAD
    + f"""\
# Runs once, some minutes after a boot: nobody has proven the trial kernel by then, so it boots the old one.
# `mv` is the decision: either this script has the mark, or the proof has it, and never both.
set -eu
cd {STATE}
mv armed reverting 2>/dev/null || exit 0
grub-editenv /boot/grub/grubenv set saved_entry="$(cat back_entry)"
grub-editenv /boot/grub/grubenv unset next_entry
if [ "$(cat /proc/sys/kernel/osrelease)" = "$(cat kernel)" ]; then
	echo not_proven >outcome
	sync
	systemctl reboot || systemctl reboot --force
else
	echo came_back >outcome
fi
"""
)

_SERVICE = (
    _HEAD
    + f"""\
[Unit]
Description=Boot the old kernel again, where nobody has proven the trial kernel
ConditionPathExists={STATE}/armed

[Service]
Type=oneshot
ExecStart={BACK}
"""
)

_TIMER = (
    _HEAD
    + """\
[Unit]
Description=How long a trial kernel may run until it is proven

[Timer]
OnBootSec=@DEADLINE@s
AccuracySec=1s

[Install]
WantedBy=timers.target
"""
)

# systemd takes the watchdog over from the initramfs; a manager that hangs no longer feeds it.
_MANAGER = f"{_HEAD}[Manager]\nRuntimeWatchdogSec=@WATCHDOG@\nRebootWatchdogSec=120\n"

_PREREQUISITES = 'case "${1:-}" in prereqs) exit 0 ;; esac\n'
_HOOK = f"#!/bin/sh\n{_HEAD}{_PREREQUISITES}. /usr/share/initramfs-tools/hook-functions\nmanual_add_modules softdog\n"
# A driver that is there before is fed by systemd alone: its timeout is not known here, and may be 10 s. Closing the
# device without the magic letter leaves the watchdog running.
_SCRIPT = (
    f"#!/bin/sh\n{_HEAD}{_PREREQUISITES}"
    + """\
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
    words = {"@DEADLINE@": deadline_s, "@WATCHDOG@": watchdog_s, "@PANIC@": panic_s}
    for word, value in words.items():
        text = text.replace(word, str(value))
    return text
