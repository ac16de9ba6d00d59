# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a host has its accounts from, beside its own files: SSSD, LDAP and their like."""

from __future__ import annotations

import re

from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader

SSSD = "sssd"
_SWITCH = "/etc/nsswitch.conf"
_PASSWD = re.compile(r"^passwd:([^#\n]*)", re.MULTILINE)
_FROM_AFAR = ("ldap", "nis", "nisplus", "winbind")
_RUNNING = "/run/systemd/units/invocation:sssd.service"  # systemd keeps a link of this name while the unit is up


def read_account_services(host: HostReader) -> list[str]:
    """Their names. `sss` also stands there where the library is installed and no SSSD was set up: that is none."""
    said = _PASSWD.search(host.system.text(_SWITCH) or "")
    named = said[1].split() if said else []
    set_up = "sss" in named and host.system.text("/etc/sssd/sssd.conf") is not None
    sssd = [SSSD] if set_up or host.path(_RUNNING).is_symlink() else []
    return [*sssd, *(name for name in _FROM_AFAR if name in named)]
