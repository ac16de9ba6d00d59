"""A switch with RouterOS, read and changed over its API by `librouteros`.

What it says is a stranger's: its size, its time and its numbers have limits, and its texts are cleaned. A port is
addressed by its name; the internal id that a change needs is asked for each time, for it differs between switches.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import socket
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import unadvised
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import printable

from gb10_fleet.switch.settings import Account, Switch

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,62}")  # of a port that goes into a command
_ID = re.compile(r"\*[0-9A-F]{1,8}")
_MAC = re.compile(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}")
_RATE = re.compile(r"(\d{1,4}(?:\.\d{1,2})?)(G|M)(?:bps)?(?:-.*)?")
_BYTES, _SECONDS, _ROWS, _TEXT, _LARGEST = 8 * 2**20, 30.0, 4096, 1200, 2**63
_WHOLE_S = 60.0  # for all commands of one connection; a reading has ten, and takes some seconds
_SAID = 200  # characters of an error
STEP_S = 10.0  # the same where a port is set or looked at: three commands at most
# Settings of a port that a plan may change, as RouterOS calls them.
SETTINGS = (
    *("mtu", "l2mtu", "rx-flow-control", "tx-flow-control"),
    *("advertise", "auto-negotiation", "speed", "fec-mode"),
)
_PAUSE = ("rx-flow-control", "tx-flow-control")
Row = Mapping[str, Any]


class Silent(Exception):
    """The switch gave no answer that can be read; the text says why, and what to do."""


@dataclass(frozen=True)
class Port:
    """One port. What the switch does not say is None."""

    name: str
    default_name: str
    running: bool | None
    gbps: float | None
    settings: Mapping[str, str]
    counters: Mapping[str, int]
    pfc: str | None = None  # name of its profile, empty without one
    trusts: bool | None = None  # whether it takes the class from layer 3
    offloaded: bool | None = None  # by the chip; None: in no bridge
    agreed: bool | None = None  # on pause in both directions, where both ends negotiate it

    def number(self, name: str) -> int | None:
        return _number(self.settings.get(name))

    @property
    def pauses(self) -> bool | None:
        said = {self.settings.get(name) for name in _PAUSE}
        return None if None in said else self.agreed if "auto" in said and "off" not in said else said == {"on"}


@dataclass(frozen=True)
class State:
    """One reading. `classes`: of each PFC profile; `unknown`: what could not be read, and why."""

    name: str
    model: str
    version: str
    at_s: float
    ports: Mapping[str, Port]
    macs: Mapping[str, str]
    neighbours: Mapping[str, Sequence[str]]
    classes: Mapping[str, int]
    ecn: frozenset[int] | None
    unknown: Mapping[str, str] = field(default_factory=dict)


class _Bounded:
    """A socket whose peer may say so many bytes in so many seconds, for each command, and for all of them."""

    def __init__(self, sock: socket.socket, whole_s: float) -> None:
        self._sock, self._last = sock, time.monotonic() + whole_s
        self.begin()

    def begin(self) -> None:
        self._left, self._end = _BYTES, min(time.monotonic() + _SECONDS, self._last)

    def recv(self, size: int) -> bytes:
        left_s = self._end - time.monotonic()
        if size > self._left:
            raise Silent("it says more than a switch has to say; nothing of it is believed")
        if left_s <= 0:
            raise Silent("it has not come to an end in its time; nothing of it is believed")
        self._sock.settimeout(left_s)
        said = self._sock.recv(min(size, 2**16))
        self._left -= len(said)
        return said

    def sendall(self, data: bytes) -> None:
        self._sock.sendall(data)

    def close(self) -> None:
        self._sock.close()


class Session:
    """An open connection."""

    def __init__(self, api: Any, sock: _Bounded) -> None:
        self._api, self._sock = api, sock

    def rows(self, command: str, **words: Any) -> list[Row]:
        """What it answers, with cleaned and bounded values."""
        from librouteros.exceptions import TrapError

        self._sock.begin()
        try:
            said = list(self._api(command, **words))
        except TrapError as error:
            raise Refused(_plain(error.message, _SAID)) from None
        except Silent:
            raise
        except Exception as error:  # the library trusts what it reads, so a stranger's words may end it in any way
            raise Silent(f"{command}: {_reason(error)}") from None
        if len(said) > _ROWS:
            raise Silent(f"{command}: {len(said)} rows, at most {_ROWS} are read")
        return [{printable(str(key))[:64]: _text(value) for key, value in row.items()} for row in said]

    def read(self) -> State:
        unknown: dict[str, str] = {}

        def ask(command: str, **words: Any) -> list[Row] | None:
            try:
                return self.rows(command, **words)
            except Refused as error:
                unknown[command] = str(error)
                return None

        ethernet = self.rows("/interface/ethernet/print")
        resource = (ask("/system/resource/print") or [{}])[0]
        identity = (ask("/system/identity/print") or [{}])[0]
        ids = ",".join(row[".id"] for row in ethernet if _ID.fullmatch(row.get(".id", "")))
        monitored = ask("/interface/ethernet/monitor", numbers=ids, once="") if ids else []
        seen = {row.get("name", ""): row for row in monitored or ()}
        qos = {row.get("name", ""): row for row in ask("/interface/ethernet/switch/qos/port/print") or ()}
        profiles = ask("/interface/ethernet/switch/qos/priority-flow-control/print") or ()
        queues = ask("/interface/ethernet/switch/qos/tx-manager/queue/print")
        bridged = {row.get("interface", ""): row for row in ask("/interface/bridge/port/print") or ()}
        ports = [_port(row, seen, qos, bridged) for row in ethernet if row.get("name")]
        hosts = ask("/interface/bridge/host/print") or ()
        heard: dict[str, list[str]] = {}
        for row in ask("/ip/neighbor/print") or ():
            heard.setdefault(row.get("interface", "").partition(",")[0], []).append(row.get("identity", "")[:64])
        return State(
            identity.get("name", "")[:64],
            resource.get("board-name", "")[:64],
            resource.get("version", "")[:32],
            time.monotonic(),
            {port.name: port for port in ports},
            {mac: port for row in hosts if row.get("local") != "yes" for mac, port in _learned(row)},
            heard,
            {row.get("name", ""): _number(row.get("traffic-class")) or 0 for row in profiles},
            None if queues is None else frozenset(_marking(queues)),
            unknown,
        )

    def set(self, name: str, values: Mapping[str, str]) -> None:
        """Set a port by its name, and read it again."""
        found = [row for row in self.rows("/interface/ethernet/print") if row.get("name") == name]
        ids = [row[".id"] for row in found if _ID.fullmatch(row.get(".id", ""))]
        if len(ids) != 1:
            raise Silent(f"it has {len(ids)} ports with the name {name}")
        self.rows("/interface/ethernet/set", **{".id": ids[0]}, **values)
        now = next((row for row in self.rows("/interface/ethernet/print") if row.get("name") == name), {})
        wrong = [f"{key} is {now.get(key)} and not {value}" for key, value in values.items() if now.get(key) != value]
        if wrong:
            raise Silent(f"{name} did not take it: {', '.join(wrong)}")

    def running(self, name: str) -> bool:
        return any(
            row.get("name") == name and row.get("running") == "yes" for row in self.rows("/interface/ethernet/print")
        )


class Refused(Exception):
    """The switch refused a command, in its words."""


@contextlib.contextmanager
def session(switch: Switch, account: Account, whole_s: float | None = None) -> Iterator[Session]:
    """Log in, over TLS with the certificate that the inventory names. Nothing is sent before it was seen.

    `whole_s`: how long all of it may take once it is connected.
    """
    try:
        import librouteros
        from librouteros.exceptions import TrapError
    except ImportError:
        raise Silent("librouteros is not installed here; run: pip install 'gb10-fleet[switch]'") from None
    opened: list[_Bounded] = []

    def wrap(sock: socket.socket) -> Any:
        secure = sock if switch.plain else _encrypted(sock, switch.certificate)
        opened.append(_Bounded(secure, whole_s or _WHOLE_S))
        return opened[0]

    where = f"{switch.address}:{switch.port}"
    try:
        api = librouteros.connect(
            switch.address, account.user, account.secret, port=switch.port, timeout=10, ssl_wrapper=wrap
        )
    except Silent:
        raise
    except TrapError as error:
        text = f"{where} refuses the account {account.user}: {_reason(error)}. Fix: correct its name or password in the"
        raise Silent(
            f"{text} inventory, or its group on the switch, which needs the policy api (docs/switch.md)"
        ) from None
    except Exception as error:
        text = f"{where} as {account.user}: {_reason(error)}. Fix: see that the switch is on, and that gb10_switch has"
        raise Silent(f"{text} the address and port at which its API answers (docs/switch.md)") from None
    try:
        yield Session(api, opened[0])
    finally:
        with contextlib.suppress(OSError):
            api.close()


def _encrypted(sock: socket.socket, certificate: str) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # its own certificate; the fingerprint counts
    secure = context.wrap_socket(sock)
    seen = hashlib.sha256(secure.getpeercert(binary_form=True) or b"").hexdigest()
    if seen != certificate:
        secure.close()
        named = "gb10_switch.certificate names another one" if certificate else "gb10_switch.certificate names none"
        raise Silent(
            f"its certificate has the fingerprint {seen}, and {named}. No password was sent. Compare it with"
            " /certificate/print detail on the switch itself, and write it down"
        )
    return secure


def _reason(error: Exception) -> str:
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return _plain(said, _SAID)


def _plain(words: Any, most: int) -> str:
    """Words of the switch: text, and none behind a `Fix:` of ours."""
    return unadvised(printable(str(words))[:most])


def _text(value: Any) -> str:
    """RouterOS's own words: the library has made truth and numbers of some."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _plain(value, _TEXT)


def _number(text: str | None) -> int | None:
    value = int(text) if text and len(text) < 20 and text.isascii() and text.isdecimal() else None
    return value if value is not None and value < _LARGEST else None


def _rate(text: str | None) -> float | None:
    found = _RATE.fullmatch(text or "")
    return float(found[1]) / (1 if found[2] == "G" else 1000) if found else None


def _learned(row: Row) -> Iterator[tuple[str, str]]:
    mac, port = row.get("mac-address", "").lower(), row.get("on-interface") or row.get("interface", "")
    if _MAC.fullmatch(mac) and port:
        yield mac, port


def _marking(queues: Sequence[Row]) -> Iterator[int]:
    """The classes whose queue marks ECN."""
    for row in queues:
        number = _number(row.get("traffic-class"))
        if row.get("ecn") == "yes" and number is not None:
            yield number


def _port(row: Row, seen: Mapping[str, Row], qos: Mapping[str, Row], bridged: Mapping[str, Row]) -> Port:
    name = row["name"][:64]
    now = seen.get(row["name"], {})
    flows = {now.get(each) for each in _PAUSE}
    counters = {key: value for key, text in row.items() if (value := _number(text)) is not None}
    own, member = qos.get(name, {}), bridged.get(name, {})
    offloaded = member.get("hw-offload")
    pfc = own.get("pfc")
    return Port(
        name,
        row.get("default-name", name)[:64],
        {"yes": True, "no": False}.get(row.get("running", "")),
        _rate(now.get("rate")),
        {key: row[key] for key in SETTINGS if key in row},
        counters,
        "" if pfc == "disabled" else pfc,
        None if "trust-l3" not in own else own["trust-l3"] != "ignore",
        None if offloaded is None else offloaded == "yes",
        None if None in flows else flows == {"yes"},
    )
