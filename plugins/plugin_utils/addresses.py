# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an inventory may say where a role asks for TCP ports or networks: the tests `ports`, `network`."""

from __future__ import annotations

import ipaddress
import re
from typing import Any

HIGHEST_PORT = 65535
_PORTS = re.compile(r"([1-9][0-9]{0,4})(?:-([1-9][0-9]{0,4}))?\Z")


def is_ports(value: Any) -> bool:
    """One port, as a number or its digits, or a range from low to high: `8000`, `8000-8010`."""
    found = _PORTS.match(str(value))
    if found is None:
        return False
    low, high = int(found[1]), int(found[2] or found[1])
    return low <= high <= HIGHEST_PORT and found[1] != found[2]


def is_network(value: Any) -> bool:
    """A network of either family without host bits, or one address: `192.0.2.0/24`, `2001:db8::1`."""
    try:
        return isinstance(value, str) and "%" not in value and bool(ipaddress.ip_network(value))
    except ValueError:
        return False
