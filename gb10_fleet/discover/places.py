"""Where SSH may answer: what a person names, and what announces itself by multicast DNS."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import output

SSH_PORT = 22
MOST_PLACES = 4096  # a /20; more is a mistyped prefix
# Anybody on the network may announce anything, also names that never resolve.
MOST_HEARD = 256
MOST_ADDRESSES = 8  # of one name: a Spark has its sockets, Wi-Fi and its rails
RESOLVING_S = 15.0
# Where a Spark announces it; NVIDIA's own script discover-sparks (playbook connect-two-sparks) browses the same.
SERVICE = "_ssh._tcp.local."
# A name goes into a command line and into the inventory, where it would be a template or an option.
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?\Z")
_RANGE = re.compile(r"(\d+\.\d+\.\d+\.)(\d+)-(\d+)\Z")


class BadPlace(ValueError):
    """A text that is no address; says which and why."""


@dataclass(frozen=True)
class Place:
    """A place where SSH may answer. `named`: somebody asked for this very one, so its silence is worth a word."""

    address: str
    port: int = SSH_PORT
    named: bool = field(default=True, compare=False)

    def __str__(self) -> str:
        address = f"[{self.address}]" if ":" in self.address else self.address
        return self.address if self.port == SSH_PORT else f"{address}:{self.port}"

    @property
    def known_as(self) -> str:
        """As ssh writes it in known_hosts."""
        return self.address if self.port == SSH_PORT else f"[{self.address}]:{self.port}"


def places(words: Iterable[str]) -> list[Place]:
    """Addresses, names, ranges (192.0.2.11-20), networks (192.0.2.0/24), each with :PORT if need be; @FILE has more."""
    found: dict[Place, Place] = {}
    for word in words:
        for place in _from_file(Path(word[1:])) if word.startswith("@") else _places(word):
            found.setdefault(place, place)
            if len(found) > MOST_PLACES:
                raise BadPlace(f"{word}: more than {MOST_PLACES} addresses; name a smaller network")
    return list(found)


def _from_file(path: Path) -> list[Place]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadPlace(f"{path} cannot be read: {error}") from None
    words = [line.partition("#")[0].strip() for line in lines]
    return places(word for word in words if word and not word.startswith("@"))


def _places(word: str) -> Iterator[Place]:
    where, port = _split_port(word)
    if match := _RANGE.match(where):
        first, last = int(match[2]), int(match[3])
        if not first <= last <= 255:
            raise BadPlace(f"{word}: a range goes upwards and ends at 255")
        for number in range(first, last + 1):
            yield Place(_address(f"{match[1]}{number}", word), port, named=False)
    elif "/" in where:
        try:
            network = ipaddress.ip_network(where, strict=False)
        except ValueError as error:
            raise BadPlace(f"{word}: {error}") from None
        if network.num_addresses > MOST_PLACES:
            raise BadPlace(f"{word}: {network.num_addresses} addresses; at most {MOST_PLACES}")
        for address in network.hosts():
            yield Place(str(address), port, named=False)
    elif NAME.match(where) and not re.fullmatch(r"[\d.]+", where):
        yield Place(where, port)
    else:
        yield Place(_address(where, word), port)


def _split_port(word: str) -> tuple[str, int]:
    match = re.fullmatch(r"\[([^\]]+)\](?::(\d+))?|([^:]*):(\d+)", word)
    if match is None:
        return word, SSH_PORT
    port = int(match[2] or match[4] or SSH_PORT)
    if not 0 < port < 2**16:
        raise BadPlace(f"{word}: a port is a number from 1 to 65535")
    return match[1] or match[3], port


def _address(text: str, word: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise BadPlace(
            f"{output.printable(word)}: neither an address nor a name of a host; write ADDRESS or ADDRESS:PORT"
        ) from None


def browse(seconds: float, interfaces: Sequence[str] | None = None) -> list[Place]:
    """Return what announces SSH by multicast DNS within so many seconds; IPv4, for fabric and API are.

    An announcement is a place to ask and nothing else: who answers there is told by its host key.
    """
    # Only who asks for it pays: the import takes longer than all of a scan of one host.
    from zeroconf import InterfaceChoice, IPVersion, ServiceBrowser, ServiceStateChange, Zeroconf

    seen: set[str] = set()

    def heard(zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        if state_change is not ServiceStateChange.Removed and len(seen) < MOST_HEARD:
            seen.add(name)

    zeroconf = Zeroconf(interfaces=list(interfaces) if interfaces else InterfaceChoice.All, ip_version=IPVersion.V4Only)
    found: dict[Place, Place] = {}
    try:
        browser = ServiceBrowser(zeroconf, SERVICE, handlers=[heard])
        time.sleep(seconds)
        browser.cancel()
        until = time.monotonic() + RESOLVING_S
        for name in sorted(seen):
            left_ms = int(min(1.0, until - time.monotonic()) * 1000)
            info = None
            # The library refuses names that are none of the service, and any error of it would be a stranger's doing.
            with contextlib.suppress(Exception):
                info = zeroconf.get_service_info(SERVICE, name, timeout=left_ms) if left_ms > 0 else None
            for address in info.parsed_addresses(IPVersion.V4Only)[:MOST_ADDRESSES] if info else ():
                place = Place(address, (info.port if info else None) or SSH_PORT, named=False)
                found.setdefault(place, place)
    finally:
        zeroconf.close()
    return sorted(found, key=lambda place: (ipaddress.ip_address(place.address), place.port))
