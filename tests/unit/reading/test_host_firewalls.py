"""ufw and firewalld, by their files."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.gb10.fleet.plugins.module_utils.reading.host_firewalls import read_firewalls
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import System

RULES = (Path(__file__).parents[2] / "fixtures/facts/ufw-user.rules").read_text(encoding="utf-8")
PUBLIC = """<?xml version="1.0" encoding="utf-8"?>
<zone>
  <service name="ssh"/>
  <port port="8443" protocol="tcp"/>
</zone>
"""


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text, encoding="utf-8")


def rule(ports: str, protocol: str = "tcp", interface: str = "any", source: str = "any") -> dict[str, str]:
    return {"ports": ports, "protocol": protocol, "interface": interface, "source": source}


def ufw(root: Path, enabled: str = "yes") -> HostReader:
    write(root, "etc/ufw/ufw.conf", f"# /etc/ufw/ufw.conf\nENABLED={enabled}\nLOGLEVEL=low\n")
    write(root, "etc/default/ufw", 'IPV6=yes\nDEFAULT_INPUT_POLICY="DROP"\nDEFAULT_OUTPUT_POLICY="ACCEPT"\n')
    write(root, "etc/ufw/user.rules", RULES)
    return HostReader(System(root))


def test_what_ufw_lets_in(tmp_path: Path) -> None:
    (found,) = read_firewalls(ufw(tmp_path))
    assert (found["name"], found["default"]) == ("ufw", "drop")
    assert found["allowed"] == [
        rule("8443"),
        rule("any", "any", "enp1s0f0np0", "192.168.100.0/22"),
        rule("22"),
        rule("23"),
        rule("40000-40010"),
        rule("80,443", source="192.0.2.0/24"),
        rule("77"),
    ]


def test_one_that_is_off_is_none(tmp_path: Path) -> None:
    assert read_firewalls(HostReader(System(tmp_path))) == []
    assert read_firewalls(ufw(tmp_path, enabled="no")) == []


def test_zones_of_firewalld(tmp_path: Path) -> None:
    write(tmp_path, "etc/firewalld/firewalld.conf", "# default\nDefaultZone=public\n")
    write(tmp_path, "usr/lib/firewalld/zones/public.xml", "<zone/>")
    write(tmp_path, "etc/firewalld/zones/public.xml", PUBLIC)
    trusted = '<zone target="ACCEPT"><interface name="enp1s0f0np0"/></zone>'
    write(tmp_path, "etc/firewalld/zones/trusted.xml", trusted)
    host = HostReader(System(tmp_path))
    assert read_firewalls(host) == [], "it does not run"
    link = tmp_path / "run/systemd/units/invocation:firewalld.service"
    link.parent.mkdir(parents=True)
    link.symlink_to("0123")
    (found,) = read_firewalls(host)
    assert (found["name"], found["default"]) == ("firewalld", "reject")
    assert found["allowed"] == [rule("8443"), rule("any", "any", "enp1s0f0np0")]
