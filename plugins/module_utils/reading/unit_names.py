# SPDX-License-Identifier: GPL-3.0-or-later
"""Which services a host has, and what belongs to each is called. Needs little: the collector has it too."""

from __future__ import annotations

import re

from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader

SETTINGS = "/etc/gb10-fleet/vllm.json"
MOST_SERVICES = 32  # of a host
SHORT = "vllm"  # the service of the variables vllm_*
_FILE = re.compile(r"vllm(?:-([a-z0-9][a-z0-9-]{0,62}))?\.json\Z")


def installed(host: HostReader) -> list[str]:
    """The services whose settings the role wrote on this host, whether they can be read or not."""
    found = (_FILE.match(name) for name in host.names("/etc/gb10-fleet"))
    return sorted(match[1] or SHORT for match in found if match)


def long_name(name: str) -> str:
    """Of the unit and its container."""
    return "gb10-vllm" if name == SHORT else f"gb10-vllm-{name}"


def names(host: HostReader) -> list[str]:
    """Those of the services that are installed, and the first one's: a former boot may have had it."""
    return [f"{long_name(name)}.service" for name in sorted({SHORT, *installed(host)})]


def settings_of(name: str) -> str:
    return SETTINGS if name == SHORT else f"/etc/gb10-fleet/vllm-{name}.json"


def status_of(name: str) -> str:
    return f"/run/{long_name(name)}/status.json"
