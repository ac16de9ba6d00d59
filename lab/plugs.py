"""Stand-ins of plugs on loopback: Shelly, NETIO, Home Assistant and a PDU by SNMP, each as its maker describes it.

An `Outlet` is what hangs behind: a test gives it a lab host, whose power then really goes with it.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

PASSWORD = "lab-plug-password"  # noqa: S105 - of a stand-in
USER = "lab"
REALM = "shellylab-000000000001"


@dataclass
class Outlet:
    """`switched` hears each change; `watts` is the meter."""

    on: bool = True
    watts: Callable[[], float | None] = lambda: 42.5
    switched: Callable[[bool], None] = lambda on: None
    orders: list[bool] = field(default_factory=list)

    def turn(self, on: bool) -> None:
        self.orders.append(on)
        if on is not self.on:
            self.on = on
            self.switched(on)


class _Handler(BaseHTTPRequestHandler):
    outlet: Outlet
    seen: list[str]

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, data: Any) -> None:
        self.seen.append(self.path)
        status, document, headers = self.reply(data)
        body = json.dumps(document).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def reply(self, data: Any) -> tuple[int, Any, dict[str, str]]:
        raise NotImplementedError

    def log_message(self, *_args: Any) -> None:
        pass


class Shelly(_Handler):
    """Component switch:0, behind a digest by SHA-256."""

    nonces: ClassVar[set[str]] = set()

    def reply(self, data: Any) -> tuple[int, Any, dict[str, str]]:
        if not self._allowed():
            nonce = secrets.token_hex(8)
            self.nonces.add(nonce)
            asked = f'Digest qop="auth", realm="{REALM}", nonce="{nonce}", algorithm=SHA-256'
            return 401, None, {"WWW-Authenticate": asked}
        url = urlsplit(self.path)
        said = {name: values[0] for name, values in parse_qs(url.query).items()}
        if said.get("id") != "0":
            return 500, {"code": -105, "message": "Argument 'id', value not found!"}, {}
        if url.path == "/rpc/Switch.Set":
            before = self.outlet.on
            self.outlet.turn(said["on"] == "true")
            return 200, {"was_on": before}, {}
        watts = self.outlet.watts()
        return 200, {"id": 0, "output": self.outlet.on, **({} if watts is None else {"apower": watts})}, {}

    def _allowed(self) -> bool:
        told: dict[str, str] = dict(
            re.findall(r'(\w+)="?([^",]+)"?', self.headers.get("Authorization", "").partition(" ")[2])
        )
        if told.get("nonce") not in self.nonces or told.get("uri") != self.path:
            return False
        first, second = _hash("admin", REALM, PASSWORD), _hash(self.command, self.path)
        return _hash(first, told["nonce"], told["nc"], told["cnonce"], "auth", second) == told["response"]


def _hash(*parts: str) -> str:
    return hashlib.sha256(":".join(parts).encode()).hexdigest()


class Netio(_Handler):
    """Outlet 1 of two, behind basic authentication."""

    def reply(self, data: Any) -> tuple[int, Any, dict[str, str]]:
        allowed = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if self.headers.get("Authorization") != allowed or self.path != "/netio.json":
            return 401, None, {}
        for one in (data or {}).get("Outputs", []):
            if one["ID"] == 1:
                self.outlet.turn(one["Action"] == 1)
        other = {"ID": 2, "State": 1, "Load": 0}
        mine = {"ID": 1, "State": int(self.outlet.on), "Load": self.outlet.watts()}
        return 200, {"Agent": {"Model": "lab"}, "Outputs": [other, mine]}, {}


class HomeAssistant(_Handler):
    """switch.spark and the sensor of its power, behind a token."""

    def reply(self, data: Any) -> tuple[int, Any, dict[str, str]]:
        if self.headers.get("Authorization") != f"Bearer {PASSWORD}":
            return 401, None, {}
        if self.path in ("/api/services/switch/turn_on", "/api/services/switch/turn_off") and data:
            self.outlet.turn(self.path.endswith("on"))
            return 200, [], {}
        state = "on" if self.outlet.on else "off"
        unit = {"unit_of_measurement": "W"}
        states: dict[str, tuple[str, dict[str, str]]] = {
            "switch.spark": (state, {}), "sensor.spark_power": (str(self.outlet.watts()), unit)
        }  # fmt: skip
        said = states.get(self.path.removeprefix("/api/states/"))
        return (200, {"state": said[0], "attributes": said[1]}, {}) if said else (404, {"message": "not found"}, {})


@contextlib.contextmanager
def serving(handler: type[_Handler], outlet: Outlet) -> Iterator[tuple[int, list[str]]]:
    """The port on loopback, and the paths that were asked for."""
    seen: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type(handler.__name__, (handler,), {"outlet": outlet, "seen": seen}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server.server_address[1], seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def pdu(outlet: Outlet, *, state: str, command: str, watts: str) -> Iterator[int]:
    """An agent of SNMP version 2c with three objects, as APC's: off is 1 and on is 2 to read, the other way to set."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.bind(("127.0.0.1", 0))
        line.settimeout(0.1)
        over = threading.Event()

        def serve() -> None:
            while not over.is_set():
                with contextlib.suppress(TimeoutError):
                    packet, sender = line.recvfrom(4096)
                    answer = _snmp(packet, outlet, {"state": state, "command": command, "watts": watts})
                    if answer:
                        line.sendto(answer, sender)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield int(line.getsockname()[1])
        finally:
            over.set()
            thread.join()


def _snmp(packet: bytes, outlet: Outlet, names: dict[str, str]) -> bytes | None:
    """The answer to one question; None to a stranger, as an agent does."""
    from pyasn1.codec.ber import decoder, encoder
    from pysnmp.proto import api

    proto = api.PROTOCOL_MODULES[api.SNMP_VERSION_2C]
    message, _ = decoder.decode(packet, asn1Spec=proto.Message())
    if bytes(proto.apiMessage.get_community(message)) != PASSWORD.encode():
        return None
    reply = proto.apiMessage.get_response(message)
    question, answer = proto.apiMessage.get_pdu(message), proto.apiMessage.get_pdu(reply)
    ((name, value),) = proto.apiPDU.get_varbinds(question)
    if question.isSameTypeWith(proto.SetRequestPDU()) and str(name) == names["command"]:
        outlet.turn(int(value) == 1)
        found: Any = value
    else:
        watts = outlet.watts()
        known = {names["state"]: 2 if outlet.on else 1, names["watts"]: None if watts is None else round(watts)}
        figure = known.get(str(name))
        found = proto.NoSuchObject("") if figure is None else proto.Integer32(figure)
    proto.apiPDU.set_varbinds(answer, [(name, found)])
    return bytes(encoder.encode(reply))
