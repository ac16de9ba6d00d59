"""Each kind of plug against its stand-in, and against answers that are none."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.power import plug as plugs
from ansible_collections.gb10.fleet.plugins.plugin_utils.power import wall
from ansible_collections.gb10.fleet.plugins.plugin_utils.power.plug import PlugError, plug, turn
from ansible_collections.gb10.fleet.plugins.plugin_utils.power.setting import Setting, parse

from lab import plugs as lab
from tests.support.attacker import tally

WRONG = "wr0ng-one"
KINDS = ("shelly", "netio", "home_assistant", "snmp")
SAID: dict[str, dict[str, Any]] = {
    "shelly": {},
    "netio": {"user": lab.USER, "outlet": 1},
    "home_assistant": {"outlet": "switch.spark", "watts": "sensor.spark_power"},
    "snmp": {"model": "apc2", "outlet": 3},
}
HANDLERS = {"shelly": lab.Shelly, "netio": lab.Netio, "home_assistant": lab.HomeAssistant}


def setting(kind: str, port: int, **more: Any) -> Setting:
    found = parse({"kind": kind, "address": "127.0.0.1", "port": port, "secret": lab.PASSWORD, **SAID[kind], **more})
    assert found
    return found


@contextlib.contextmanager
def stand_in(kind: str, outlet: lab.Outlet) -> Iterator[int]:
    if kind == "snmp":
        known = catalog.load("plugs")["pdus"]["apc2"]["value"]
        names = {name: known[name].format(outlet=3) for name in ("state", "command", "watts")}
        with lab.pdu(outlet, **names) as port:
            yield port
    else:
        with lab.serving(HANDLERS[kind], outlet) as (port, _):
            yield port


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second, and not ten, for what never comes."""
    known = catalog.load("plugs")
    monkeypatch.setitem(known["answer_s"], "value", 1)
    monkeypatch.setitem(known["switched_s"], "value", 1)


@pytest.mark.parametrize("kind", KINDS)
def test_four_calls(kind: str) -> None:
    outlet = lab.Outlet(watts=lambda: 42)
    with stand_in(kind, outlet) as port:
        said = setting(kind, port)
        one = plug(said)
        assert (one.state(), one.watts()) == (True, 42)
        assert turn(one, said, on=False)
        assert not turn(one, said, on=False), "it is off already"
        assert one.state() is False
        assert turn(one, said, on=True)
    assert outlet.orders == [False, True]


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_secret_switches_nothing_and_is_shown_nowhere(kind: str, quick: None) -> None:
    outlet = lab.Outlet()
    with stand_in(kind, outlet) as port:
        one = plug(setting(kind, port, secret=WRONG))
        for call in (one.state, one.off, one.watts):
            with pytest.raises(PlugError) as error:
                call()
            assert WRONG not in str(error.value) and "secret" in str(error.value)
    assert outlet.orders == []


@pytest.mark.parametrize(
    ("kind", "outlet"), [("shelly", 4), ("netio", 9), ("home_assistant", "switch.other"), ("snmp", 8)]
)
def test_an_outlet_that_is_not_there(kind: str, outlet: Any) -> None:
    with stand_in(kind, lab.Outlet()) as port, pytest.raises(PlugError, match="outlet"):
        plug(setting(kind, port, outlet=outlet)).state()


@pytest.mark.parametrize("kind", ["shelly", "snmp"])
def test_without_a_meter_there_are_no_watts(kind: str) -> None:
    with stand_in(kind, lab.Outlet(watts=lambda: None)) as port:
        assert plug(setting(kind, port)).watts() is None


def test_a_pdu_that_says_minus_one_has_no_meter() -> None:
    with stand_in("snmp", lab.Outlet(watts=lambda: -1)) as port:
        assert plug(setting("snmp", port)).watts() is None


def test_a_short_passphrase_is_refused_by_name() -> None:
    with pytest.raises(PlugError, match="8 characters"):
        plug(setting("snmp", 1, user="gb10", secret=WRONG[:5])).state()


def test_one_that_takes_the_order_and_does_nothing(quick: None) -> None:
    outlet = lab.Outlet()
    outlet.turn = lambda on: None  # type: ignore[method-assign]
    with stand_in("shelly", outlet) as port, pytest.raises(PlugError, match="is as before"):
        said = setting("shelly", port)
        turn(plug(said), said, on=False)


@contextlib.contextmanager
def saying(answer: bytes, pause_s: float = 0) -> Iterator[int]:
    """A server that says this to whoever comes, byte after byte where there is a pause."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        over = threading.Event()

        def serve() -> None:
            while not over.is_set():
                with contextlib.suppress(OSError):
                    line, _ = server.accept()
                    with line:
                        line.recv(4096)
                        step = 1 if pause_s else len(answer) or 1
                        for start in range(0, len(answer), step):
                            line.sendall(answer[start : start + step])
                            if over.wait(pause_s):
                                break

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            over.set()
            thread.join()


def http(body: bytes, head: bytes = b"HTTP/1.1 200 OK\r\n") -> bytes:
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


HOSTILE = {
    "nothing": b"",
    "no HTTP": b"SSH-2.0-OpenSSH_9.9\r\n",
    "no JSON": http(b"<html>"),
    "deep": http(b"[" * 60_000),
    "long": http(b'{"a": "' + b"x" * 70_000 + b'"}'),
    "a list": http(b"[]"),
    "other types": http(b'{"output": "yes", "state": 1, "Outputs": [7, {"ID": 1, "State": "on"}], "attributes": 3}'),
    "a redirect": b"HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\nContent-Length: 0\r\n\r\n",
    "many headers": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500 + b"\r\n",
    "a challenge by MD5": b'HTTP/1.1 401 No\r\nWWW-Authenticate: Digest qop="auth", realm="r", nonce="n", algorithm=MD5'
    b"\r\nContent-Length: 0\r\n\r\n",
    "a chunk shorter than nothing": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-ff\r\n{}",
    # A pattern that looks for pairs in it takes time with the square of its length.
    "a challenge without pairs": b"HTTP/1.1 401 No\r\nWWW-Authenticate: Digest " + b"a" * 65_000 + b"\r\n\r\n",
    "a challenge of two lines": b'HTTP/1.1 401 No\r\nWWW-Authenticate: Digest qop="auth", realm="r\r\n X: y",'
    b' nonce="n", algorithm=SHA-256\r\nContent-Length: 0\r\n\r\n',
}


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=[*HOSTILE])
@pytest.mark.parametrize("kind", ["shelly", "netio", "home_assistant"])
def test_an_answer_that_is_none(kind: str, answer: bytes, quick: None) -> None:
    begun = time.process_time()
    with saying(answer) as port, pytest.raises(PlugError):
        plug(setting(kind, port)).state()
    taken = time.process_time() - begun  # of this process, whatever else runs here
    tally("a plug answers what no plug says", 1, int(taken > 5))
    assert taken < 5


def test_one_that_drips_has_one_deadline(quick: None) -> None:
    begun = time.monotonic()
    with saying(http(b'{"output": true}'), pause_s=0.1) as port, pytest.raises(PlugError, match="timed out"):
        plug(setting("shelly", port)).state()
    assert time.monotonic() - begun < 3


def test_a_handshake_that_drips_has_the_same(quick: None) -> None:
    begun = time.monotonic()
    with saying(b"\x16\x03\x03" + b"\x40" * 100, pause_s=0.2) as port, pytest.raises(PlugError, match="no answer"):
        plug(setting("shelly", port, tls=True)).state()
    assert time.monotonic() - begun < 3


@pytest.mark.parametrize("watts", ["nan", "inf", "1e9", "-3", "unavailable"])
def test_watts_that_are_none(watts: str) -> None:
    outlet = lab.Outlet(watts=lambda: watts)  # type: ignore[arg-type,return-value]
    with stand_in("home_assistant", outlet) as port, pytest.raises(PlugError, match="watts"):
        plug(setting("home_assistant", port)).watts()


@pytest.mark.parametrize("state", ["1" + "0" * 400, "[1]", "null"])
def test_a_number_that_is_none_is_no_figure(state: str, quick: None) -> None:
    """One plug would end `gb10 status --hosts` for all hosts."""
    said = http(b'{"state": %s, "attributes": {"unit_of_measurement": "W"}}' % state.encode())
    with saying(said) as port:
        found = wall.Wall({"a": setting("home_assistant", port)})
        found.look()
        assert found.of("a") == {}
        with pytest.raises(PlugError, match="watts"):
            plug(setting("home_assistant", port)).watts()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["a..b", "nobody.invalid"])
def test_a_name_that_nobody_has(kind: str, name: str, quick: None) -> None:
    with pytest.raises(PlugError, match="no answer"):
        plug(setting(kind, 1, address=name)).state()


def test_nobody_is_there(quick: None) -> None:
    with pytest.raises(PlugError, match="no answer"):
        plug(setting("snmp", 1)).state()
    with pytest.raises(PlugError, match="no answer: Connection refused"):
        plug(setting("shelly", 1)).state()


def test_the_wall_has_no_figure_of_a_plug_that_two_hosts_share(quick: None) -> None:
    with stand_in("shelly", lab.Outlet()) as port, stand_in("netio", lab.Outlet(watts=lambda: 7)) as other:
        both, mine = setting("shelly", port), setting("netio", other)
        found = wall.Wall({"a": both, "b": both, "c": mine, "dead": setting("shelly", 1)})
        found.look()
    assert [found.of(host) for host in ("a", "b", "c", "dead", "none")] == [{}, {}, {"wall_w": 7}, {}, {}]


def test_prometheus_reads_it() -> None:
    text = wall.exposition({"a": (True, 40.5), "b": (True, 40.5), "c": (False, None)}, {"a": 1, "b": 1, "c": 2})
    assert 'gb10_wall_watts{host="a,b"} 40.5' in text and text.count("gb10_wall_watts{") == 1
    assert 'gb10_plug_on{host="c"} 0' in text


def test_a_figure_is_a_number() -> None:
    with pytest.raises(PlugError):
        plugs.figure(setting("shelly", 1), True)
