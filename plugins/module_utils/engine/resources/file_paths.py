# SPDX-License-Identifier: GPL-3.0-or-later
"""What a path means to apt and to systemd."""

from __future__ import annotations

import re

_APT_FOLDERS = ("/etc/apt/", "/usr/share/keyrings/")
_UNIT_FILE = (
    r"/(etc|usr/local/lib)/systemd/system/"
    r"(?P<stem>([A-Za-z0-9:_.\\@-]+\.)?)(?P<type>service|socket|timer|path|mount|automount|swap|target|slice|scope|device)(\.d/[^/]+)?\Z"
)
_APT_SOURCE = r"/etc/apt/(sources\.list|preferences|keyrings/|trusted\.gpg|auth\.conf)|/usr/share/keyrings/"
_APT_PIN = "/etc/apt/preferences"


def belongs_to_apt(path: str) -> bool:
    """Return whether it is one of apt's own files, or a key for one."""
    return path.startswith(_APT_FOLDERS)


def is_apt_source(path: str) -> bool:
    """Return whether apt answers differently once this file changes: sources, pins, keys and credentials."""
    return re.match(_APT_SOURCE, path) is not None


def outdates_lists(path: str) -> bool:
    """Return whether apt has to fetch its lists again once this file changes; a pin only weighs what they hold."""
    return is_apt_source(path) and not path.startswith(_APT_PIN)


def unit_pattern(path: str) -> str:
    """The units that a unit file or a drop-in is for, as `systemctl show` takes them; empty if it is for none."""
    match = re.match(_UNIT_FILE, path)
    if match is None:
        return ""
    stem = match["stem"].rstrip(".")
    # A template is for all its instances, a stem that ends in a dash or no stem at all for all units that share it.
    return f"{stem}*.{match['type']}" if stem.endswith(("@", "-")) or not stem else f"{stem}.{match['type']}"
