"""Who claims a port, out of the files of NetworkManager and netplan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.reading.port_owners import claims, read_keyfile, read_owners
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import System
from hypothesis import given
from hypothesis import strategies as st

PORT = {"name": "enp1s0f0np0", "mac": "4C:BB:47:00:00:01", "driver": "mlx5_core"}
TWIN = {"name": "enP2p1s0f0np0", "mac": "4c:bb:47:00:00:02", "driver": "mlx5_core"}
ETC, RUN = "/etc/NetworkManager/system-connections", "/run/NetworkManager/system-connections"
UUID = "9eaac294-5289-5c0d-a38f-2ee88226a986"


def owners(root: Path, files: dict[str, str], *ports: dict[str, Any]) -> list[dict[str, Any]]:
    for path, text in files.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return read_owners(System(root, privileged=True), ports or (PORT, TWIN))


def keyfile(*lines: str, identity: str = "theirs") -> str:
    return "\n".join(["[connection]", f"id={identity}", f"uuid={UUID}", "type=ethernet", *lines, ""])


def test_a_keyfile_that_names_the_port(tmp_path: Path) -> None:
    found = owners(tmp_path, {f"{ETC}/theirs.nmconnection": keyfile("interface-name=enp1s0f0np0")})
    assert found == [
        {
            "interface": "enp1s0f0np0",
            "file": f"{ETC}/theirs.nmconnection",
            "name": "theirs",
            "uuid": UUID,
            "renderer": None,
        }
    ]


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        (["[ethernet]", "mac-address=4c:bb:47:00:00:01"], 1),
        (["[match]", "interface-name=enp*;"], 1),
        (["[match]", "interface-name=en*;"], 2),
        (["[match]", "interface-name=|en*;!enp1*;"], 1),
        (["interface-name=enp1s0f0np0", "autoconnect=false"], 0),
        (["interface-name=enP7s7"], 0),
        (["interface-name=enP7s7", "[match]", "interface-name=en*"], 0),
        ([], 0),  # the usual DHCP profile: it names no port, and gives way
    ],
)
def test_what_a_keyfile_claims(tmp_path: Path, lines: list[str], count: int) -> None:
    assert len(owners(tmp_path, {f"{ETC}/x": keyfile(*lines)})) == count


def test_what_others_render_and_networkmanager_makes_up_is_nobodys(tmp_path: Path) -> None:
    text = keyfile("interface-name=enp1s0f0np0")
    files = {f"{RUN}/netplan-enp1s0f0np0.nmconnection": text, f"{RUN}/Wired connection 1.nmconnection": text}
    assert owners(tmp_path, files) == []
    assert len(owners(tmp_path, {f"{RUN}/somebody.nmconnection": text})) == 1


NVIDIAS = """network:
  version: 2
  ethernets:
    enp1s0f0np0:
      addresses: [192.168.100.10/24]
      dhcp4: no
    enP2p1s0f0np0:
      addresses:
        - 192.168.101.10/24
"""


def test_nvidias_netplan_file_is_named_for_both_rails(tmp_path: Path) -> None:
    files = {
        "/etc/netplan/40-cx7.yaml": NVIDIAS,
        "/etc/netplan/01-network-manager-all.yaml": "network:\n  version: 2\n  renderer: NetworkManager\n",
    }
    found = owners(tmp_path, files)
    assert [(item["interface"], item["file"], item["renderer"]) for item in found] == [
        ("enP2p1s0f0np0", "/etc/netplan/40-cx7.yaml", "NetworkManager"),
        ("enp1s0f0np0", "/etc/netplan/40-cx7.yaml", "NetworkManager"),
    ]


def test_without_a_renderer_it_is_networkds(tmp_path: Path) -> None:
    assert {item["renderer"] for item in owners(tmp_path, {"/etc/netplan/40-cx7.yaml": NVIDIAS})} == {"networkd"}


def test_a_profile_that_netplan_keeps_has_the_name_that_nmcli_knows(tmp_path: Path) -> None:
    """As Ubuntu's NetworkManager wrote it on a Spark, for a profile that it had made up (sparkring issue 168)."""
    text = f"""network:
  version: 2
  ethernets:
    NM-{UUID}:
      renderer: NetworkManager
      match:
        name: "enp1s0f0np0"
      dhcp4: true
      networkmanager:
        uuid: "{UUID}"
        name: "Wired connection 5"
        passthrough:
          connection.autoconnect-priority: "-999"
"""
    (found,) = owners(tmp_path, {f"/etc/netplan/90-NM-{UUID}.yaml": text})
    assert (found["name"], found["uuid"], found["renderer"]) == ("Wired connection 5", UUID, "NetworkManager")
    other = f'      networkmanager: {{uuid: "{UUID[:-1]}7", name: "management"}}'
    (found,) = owners(tmp_path, {f"/etc/netplan/90-NM-{UUID}.yaml": f"{text}    eth9:\n{other}\n"})
    assert (found["name"], found["uuid"]) == (None, None), "which of the two it is cannot be told"


def test_a_profile_that_netplan_stores_for_networkmanager_has_its_uuid(tmp_path: Path) -> None:
    text = f"""network:
  ethernets:
    NM-{UUID}:
      renderer: NetworkManager
      match: {{name: "enp1s0f0np0"}}
      networkmanager:
        uuid: "{UUID}"
        name: "gb10-enp1s0f0np0"
"""
    (found,) = owners(tmp_path, {f"/etc/netplan/90-NM-{UUID}.yaml": text})
    assert (found["interface"], found["uuid"], found["renderer"]) == ("enp1s0f0np0", UUID, "NetworkManager")
    off = text + '        passthrough:\n          connection.autoconnect: "false"\n'
    assert owners(tmp_path, {f"/etc/netplan/90-NM-{UUID}.yaml": off}) == []


@pytest.mark.parametrize(
    ("text", "claimed"),
    [
        ("ethernets: {enp1s0f0np0: {dhcp4: true}}", True),
        ('ethernets: {"enp1s0f0np0": {dhcp4: true}}', True),
        ("bonds: {b: {interfaces: [enP7s7, enp1s0f0np0]}}", True),
        ("match: {macaddress: '4c:bb:47:00:00:01'}", True),
        ("match:\n  driver: mlx5_core", True),
        ("match:\n  name: en*", True),
        ("match: {name: enp1s0f?np0}", True),
        ("ethernets: {enp1s0f0np0.7: {}}", False),
        ("ethernets: {enp1s0f0np01: {}}", False),
        ("match: {name: wl*}", False),
        ("match: {driver: r8127}", False),
        ('match: {driver: ["r8127", "mlx5_*"]}', True),  # canonical/netplan pull request 202
        ('{"match": {"driver": "mlx5_core"}}', True),
        ("match:\n  driver:\n    - r8127\n    - mlx5_core\n", True),
        ('match: {driver: ["r8127", "igc"], name: eth0}\nset-name: x\nmtu: 9000', False),
        ("", False),
    ],
)
def test_what_a_netplan_file_claims(text: str, claimed: bool) -> None:
    assert claims(text, PORT) is claimed


def test_a_comment_claims_nothing(tmp_path: Path) -> None:
    assert owners(tmp_path, {"/etc/netplan/a.yaml": "# enp1s0f0np0\nnetwork: {} # enp1s0f0np0\n"}) == []


NETWORKD_RUNS = "/run/systemd/units/invocation:systemd-networkd.service"
OF_LINK = "# This is private data. Do not parse.\nADMIN_STATE=configured\nNETWORK_FILE={}\nDNS=\n"


@pytest.mark.parametrize(
    ("said", "runs", "file"),
    [
        (OF_LINK.format("/etc/systemd/network/20-cx7.network"), True, "/etc/systemd/network/20-cx7.network"),
        (OF_LINK.format("/etc/systemd/network/20-cx7.network"), False, None),  # it keeps the file when it ends
        (OF_LINK.format("/run/systemd/network/10-netplan-enp1s0f0np0.network"), True, None),  # named as its YAML
        ("ADMIN_STATE=unmanaged\n", True, None),
    ],
)
def test_what_networkd_says_that_it_has_taken(tmp_path: Path, said: str, runs: bool, file: str | None) -> None:
    if runs:
        link = tmp_path / NETWORKD_RUNS.lstrip("/")
        link.parent.mkdir(parents=True)
        link.symlink_to("0f")
    files = {"/sys/class/net/enp1s0f0np0/ifindex": "3\n", "/run/systemd/netif/links/3": said}
    found = [(item["interface"], item["file"], item["renderer"]) for item in owners(tmp_path, files)]
    assert found == ([("enp1s0f0np0", file, "networkd")] if file else [])


@given(st.text(max_size=300))
def test_no_file_stops_the_facts(text: str) -> None:
    read_keyfile(text)
    claims(text, PORT)
