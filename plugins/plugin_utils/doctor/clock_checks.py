# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the doctor says of a host's clock: certificates, tokens and evidence depend on it."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import Finding
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.subject import Subject

_DAY_S = 86400


def check_clock(subject: Subject) -> Iterator[Finding]:
    """The host's clock beside the controller's. The host may have read it at any moment of the call."""
    now = subject.facts["clock"]["epoch_s"]
    if subject.call is None or now is None:
        return
    began, ended = subject.call
    offset = now - ended if now > ended else min(0.0, now - began)
    if abs(offset) > subject.catalog["platforms"]["clock"]["tolerance"]["value"]:
        side, seconds = "ahead of" if offset > 0 else "behind", abs(offset)
        distance = f"{seconds / _DAY_S:.0f} days" if seconds >= 2 * _DAY_S else f"{seconds:.0f} s"
        yield subject.say(
            "clock_differs",
            f"this host's clock is {distance} {side} the controller's",
            "compare both with a clock that you trust (`timedatectl`, on this host and here), and let NTP set the wrong"
            " one; certificates, tokens and evidence depend on it",
        )


def check_time_source(subject: Subject) -> Iterator[Finding]:
    clock = subject.facts["clock"]
    source = clock["source"]
    if source is None:
        yield subject.say(
            "clock_free",
            "nothing sets this host's clock: no time daemon runs",
            "`timedatectl set-ntp true`. Where it says that NTP is not supported, start the daemon that is installed"
            " (`systemctl enable --now ntpsec`), or install chrony. Without the internet, name a server of your own"
            " network",
        )
    elif clock["synchronized"] is False:
        yield subject.say(
            "clock_free",
            f"{source} runs, and has not reached a time server since the boot",
            f"`journalctl -u {source}` says why; UDP port 123 must be open, or name a server of your own network"
            " (NTP= in /etc/systemd/timesyncd.conf)",
        )


CHECKS = (check_clock, check_time_source)
