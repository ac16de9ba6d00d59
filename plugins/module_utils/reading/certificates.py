# SPDX-License-Identifier: GPL-3.0-or-later
"""When the certificate of the gateway ends."""

from __future__ import annotations

import calendar
import re
import time
from typing import TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import Unknown, quoted

SETTINGS = "/etc/gb10-fleet/gateway.conf"
DEADLINE_S = 5.0
_FILE = re.compile(r"^\s*ssl_certificate\s+\"?([^\";\s]+)\"?\s*;", re.MULTILINE)
_END = re.compile(r"^notAfter=(\w{3} +\d+ \d\d:\d\d:\d\d \d{4}) GMT$", re.MULTILINE)


class Certificate(TypedDict):
    file: str
    ends_s: float


def read_certificates(host: HostReader) -> list[Certificate]:
    """Those of the gateway of this host; none where it has no gateway, or one that speaks no TLS."""
    files = dict.fromkeys(_FILE.findall(host.read(SETTINGS) or ""))
    return [{"file": quoted(file), "ends_s": _end(host, file)} for file in files]


def _end(host: HostReader, file: str) -> float:
    done = host.system.run(["openssl", "x509", "-noout", "-enddate", "-in", file], timeout=DEADLINE_S)
    found = _END.search(done.stdout)
    if not found:
        raise Unknown(f"openssl does not say when {quoted(file)} ends: {quoted(done.words)}")
    try:
        return float(calendar.timegm(time.strptime(" ".join(found[1].split()), "%b %d %H:%M:%S %Y")))
    except (ValueError, OverflowError):
        raise Unknown(f"{quoted(file)} ends at an impossible time: {quoted(found[1])}") from None
