"""What the inventory may say of a plug; anything else is refused by field, before anything is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.power.setting import WrongPlug, parse

SHELLY = {"kind": "shelly", "address": "192.0.2.50"}
NETIO = {"kind": "netio", "address": "192.0.2.51", "outlet": 2, "user": "gb10", "secret": "s3cret"}
SNMP = {"kind": "snmp", "address": "pdu.example", "model": "apc2", "outlet": 7, "secret": "private"}
HOME = {"kind": "home_assistant", "address": "192.0.2.52", "outlet": "switch.spark_a", "secret": "token"}


@pytest.mark.parametrize("said", [SHELLY, NETIO, SNMP, HOME, {**HOME, "watts": "sensor.spark_a_power"}])
def test_one_of_each_kind(said: dict[str, Any]) -> None:
    found = parse(said)
    assert found and found.kind == said["kind"] and found.address == said["address"]


def test_no_plug_is_none() -> None:
    assert parse(None) is None and parse({}) is None


def test_a_port_follows_the_kind() -> None:
    ports = [found.port for said in (SHELLY, NETIO, SNMP, HOME, {**HOME, "tls": True}) if (found := parse(said))]
    assert ports == [80, 80, 161, 8123, 443]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("shelly", "is no dictionary; write the keys kind, address"),
        ({**SHELLY, "kind": ["shelly"]}, "kind is ['shelly']; write one of"),
        ({**SHELLY, "address": 5}, "address is no text; write it in quotes"),
        ({**SHELLY, "secret": 123}, "secret is no text; write it in quotes"),
        ({**SHELLY, "secret_file": ["x"]}, "secret_file is no text"),
        ({**SHELLY, "adress": "x"}, "no key adress"),
        ({**SHELLY, "kind": "shelly1"}, "kind is 'shelly1'; write one of shelly, netio"),
        ({**SHELLY, "address": "http://192.0.2.50/"}, "address is 'http://192.0.2.50/'"),
        ({**SHELLY, "address": "a b"}, "address is 'a b'"),
        ({**SHELLY, "port": 0}, "port is 0"),
        ({**SHELLY, "port": True}, "port is True"),
        ({**SHELLY, "tls": "yes"}, "tls is 'yes'"),
        ({**SNMP, "tls": True}, "tls is True"),
        ({**SHELLY, "outlet": -1}, "outlet is -1"),
        ({**NETIO, "outlet": 0}, "outlet is 0"),
        ({**HOME, "outlet": "switch.a/../../x"}, "outlet is"),
        ({**HOME, "watts": "switch.a"}, "watts is 'switch.a'"),
        ({**SHELLY, "watts": "sensor.a"}, "watts is for the kind home_assistant"),
        ({**SHELLY, "model": "apc"}, "model is for the kind snmp"),
        ({**SNMP, "model": "apc3"}, "model is 'apc3'; write one of apc, apc2"),
        ({**SNMP, "secret": ""}, "has no secret"),
        ({**NETIO, "secret_file": "/x"}, "has secret and secret_file"),
        ({**NETIO, "user": ""}, "has no user"),
        ({**NETIO, "user": "a:b"}, "user is 'a:b'"),
        ({**NETIO, "secret": "two\nlines"}, "secret is no line"),
    ],
)
def test_a_wrong_one_is_refused_by_its_field(said: Any, words: str) -> None:
    with pytest.raises(WrongPlug) as error:
        parse(said)
    assert words in str(error.value) and "; " in str(error.value)


def test_no_text_shows_the_secret() -> None:
    found = parse(NETIO)
    assert found and "s3cret" not in f"{found!r} {found} {found.words} {found.place}"
    with pytest.raises(WrongPlug) as error:
        parse({**NETIO, "secret": "s3cret\nx"})
    assert "s3cret" not in str(error.value)


def test_a_secret_file_is_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "plug"
    file.write_text("s3cret\n")
    found = parse({**{key: said for key, said in NETIO.items() if key != "secret"}, "secret_file": str(file)})
    assert found
    file.chmod(0o600)
    assert found.password() == "s3cret"
    file.chmod(0o640)
    with pytest.raises(WrongPlug, match="not yours alone"):
        found.password()
    file.chmod(0o600)
    file.write_text("")
    with pytest.raises(WrongPlug, match="holds no secret"):
        found.password()
    file.unlink()
    with pytest.raises(WrongPlug, match="No such file"):
        found.password()
    file.symlink_to("/etc/shadow")
    with pytest.raises(WrongPlug, match="secret_file"):
        found.password()
