# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses, TCP ports and networks as an inventory names them.

`ports`, `within` and `network` are tests in Jinja as well.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Any

HIGHEST_PORT = 65535
# A server that listens on all addresses answers on this one.
_ON_THE_HOST_ITSELF = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104
_PORTS = re.compile(r"([1-9][0-9]{0,4})(?:-([1-9][0-9]{0,4}))?\Z")
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\Z")
_NETWORK = re.compile(r"(?:[0-9.]+|[0-9A-Fa-f:]+)(?:/[0-9]+)?\Z")


def is_loopback(host: str) -> bool:
    """Tell whether nobody beyond the host itself reaches a server that listens there."""
    return ipaddress.ip_address(host).is_loopback if is_address(host) else host == "localhost"


def is_address(text: str) -> bool:
    """One IP address of either family, without a zone: that may be any text, and % means something to systemd."""
    try:
        return "%" not in text and bool(ipaddress.ip_address(text))
    except ValueError:
        return False


def is_host(text: str) -> bool:
    """A host as a URL names it: a name of DNS, an IPv4 address, or an IPv6 address in brackets."""
    if text.startswith("[") and text.endswith("]"):
        return ":" in text and is_address(text[1:-1])
    labels = text.removesuffix(".").split(".")
    # Where the last part is a number, resolvers read an address: 10.1 would be 10.0.0.1.
    return ":" not in text and (is_address(text) if labels[-1].isdigit() else all(map(_LABEL.match, labels)))


def asked_on_the_host(host: str) -> str:
    """Return where a program on the host itself asks a server that listens at `host`, as a URL names it."""
    return in_url(on_the_host(host))


def on_the_host(host: str) -> str:
    """The address at which the host itself finds a server that listens at `host`."""
    return _ON_THE_HOST_ITSELF.get(host, host)


def half_of(host: str) -> str:
    """Return the /64 of an address of IPv6, which one machine elsewhere has whole; empty for others."""
    return str(ipaddress.ip_network((host, 64), strict=False)) if ":" in host and is_address(host) else ""


def in_url(host: str) -> str:
    """An address as a URL names it: IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


def is_ports(value: Any) -> bool:
    """One port, as a number or its digits, or a range from low to high: `8000`, `8000-8010`."""
    return _bounds(value) is not None


def is_within(value: Any, all_of: Iterable[Any]) -> bool:
    """Tell whether a port, or each one of a range, is in one of these ports and ranges."""
    found = _bounds(value)
    return found is not None and any(
        low <= found[0] and found[1] <= high for low, high in filter(None, map(_bounds, all_of))
    )


def is_network(value: Any) -> bool:
    """A network of either family without host bits, or one address: `192.0.2.0/24`, `2001:db8::1`.

    As nft reads it: a prefix in digits, no zone, and no IPv4 within IPv6, which no packet carries here.
    """
    if not isinstance(value, str) or not _NETWORK.match(value):
        return False
    try:
        ipaddress.ip_network(value)
    except ValueError:
        return False
    return True


def contains(network: str, address: str) -> bool:
    """Tell whether an address is in a network; what is neither holds nothing."""
    try:
        return ipaddress.ip_address(address.partition("/")[0]) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def _bounds(value: Any) -> tuple[int, int] | None:
    found = _PORTS.match(str(value))
    if found is None:
        return None
    low, high = int(found[1]), int(found[2] or found[1])
    return (low, high) if low <= high <= HIGHEST_PORT and found[1] != found[2] else None
