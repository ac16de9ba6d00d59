"""GID tables: every fixture is built as a sysfs tree and read like the real one."""

from __future__ import annotations

import ipaddress
import json
import os
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gb10.fleet.plugins.module_utils.fabric import gid_remarks, gid_report, gids
from ansible_collections.gb10.fleet.plugins.module_utils.fabric.nccl_choice import nccl_choice
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.fitting import misfit

FIXTURES = Path(__file__).parents[2] / "fixtures" / "gids" / "tables.yml"
CASES: dict[str, dict[str, Any]] = yaml.safe_load(FIXTURES.read_text(encoding="utf-8"))


def put(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{value}\n", encoding="utf-8")


def build(root: Path, hcas: dict[str, dict[str, Any]]) -> gids.Sysfs:
    """Write the tree; an empty slot lacks its attributes, which reads like the kernel's EINVAL."""
    for device, hca in hcas.items():
        base = root / "class" / "infiniband" / device
        put(base / "ports/1/state", hca.get("state", "4: ACTIVE"))
        put(base / "ports/1/phys_state", "5: LinkUp")
        put(base / "ports/1/link_layer", hca.get("link_layer", "Ethernet"))
        put(base / "ports/1/rate", "200 Gb/sec (4X HDR)")
        put(base / "fw_ver", "28.45.4028")
        for slot in range(hca.get("slots", 16)):
            gid, kind, netdev = hca["gids"].get(slot, [gids.ZERO_GID, None, None])
            put(base / f"ports/1/gids/{slot}", gid)
            for name, value in (("types", kind), ("ndevs", netdev)):
                if value:
                    put(base / f"ports/1/gid_attrs/{name}/{slot}", value)
        for name in ("parent", "sys_image_guid"):
            if name in hca:
                put(base / name, hca[name])
        if "pci" in hca:
            function = root / "devices" / hca["pci"]["address"]
            put(function / "current_link_width", hca["pci"]["width"])
            put(function / "max_link_width", hca["pci"]["max_width"])
            put(function / "current_link_speed", hca["pci"].get("speed", "32.0 GT/s PCIe"))
            put(function / "max_link_speed", "32.0 GT/s PCIe")
            (base / "device").symlink_to(function)
        if "net" in hca:
            net = root / "class" / "net" / hca["net"]["name"]
            put(net / "address", hca["net"]["mac"])
            for name in ("mtu", "speed", "phys_port_name", "phys_switch_id"):
                if name in hca["net"]:
                    put(net / name, hca["net"][name])
    return gids.Sysfs(str(root))


@pytest.mark.parametrize("name", CASES)
def test_nccl_choice(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    hcas = gids.read_hcas(build(tmp_path, case["hcas"]))
    result = gid_report.describe(hcas, case["range"])
    assert misfit("show_gids", result) is None
    for device, hca in case["hcas"].items():
        selected = result["selected"][f"{device}:1"]
        assert (selected["default"]["index"], selected["in_range"]["index"]) == (hca["picks"], hca["in_range"])
    found = gid_remarks.remarks(hcas)
    assert [remark.name for remark in found] == case["remarks"]
    assert all(remark.where and remark.text and remark.way_out for remark in found)


def test_every_table_has_its_source() -> None:
    for name, case in CASES.items():
        kind, _, text = case["source"].partition(": ")
        assert kind in ("published", "constructed") and text, name
        assert kind == "constructed" or "https://" in text, name


def test_ports_of_a_spark(tmp_path: Path) -> None:
    result = gid_report.describe(gids.read_hcas(build(tmp_path, CASES["index_3"]["hcas"])))
    first = next(port for port in result["ports"] if port["device"] == "rocep1s0f0")
    assert first["netdev"] == "enp1s0f0np0"
    assert (first["state"], first["phys_state"], first["rate_gbps"]) == ("ACTIVE", "LinkUp", 200.0)
    assert (first["mtu"], first["ib_mtu"], first["speed_mbps"], first["slots"]) == (9000, 4096, 200000, 256)
    assert (first["pci"], first["pcie_width"], first["fw_ver"]) == ("0000:01:00.0", 4, "28.45.4028")
    assert (first["pcie_max_width"], first["pcie_max_speed"]) == (4, "32.0 GT/s PCIe")
    assert (first["port_name"], first["rail"], first["twin"]) == ("p0", "p0/0", "roceP2p1s0f0")
    second = next(port for port in result["ports"] if port["device"] == "roceP2p1s0f0")
    assert (second["rail"], second["twin"], second["ib_mtu"]) == ("p0/1", "rocep1s0f0", 1024)
    assert first["carrier"] is None, "absent is absent, never a guess"
    assert result["twins"] == [
        {"port": "p0", "devices": ["rocep1s0f0", "roceP2p1s0f0"], "netdevs": ["enp1s0f0np0", "enP2p1s0f0np0"]}
    ]
    assert result["by_address"]["192.168.101.10"]["v2"] == {"device": "roceP2p1s0f0", "port": 1, "index": 3}
    assert result["selected"]["rocep1s0f0:1"]["in_range"] is None


def test_port_name_and_twin_order_without_pci(tmp_path: Path) -> None:
    hcas = {
        f"roce{name[2:]}": {"net": {"name": name, "mac": "52:54:00:00:00:01"}, "parent": name, "gids": {}}
        for name in ("enP2p1s0f1np1", "enp1s0f1np1")
    }
    twins = gids.twins(gids.read_hcas(build(tmp_path, hcas)))
    assert [(port, [hca.netdev for hca in functions]) for port, functions in twins] == [
        ("p1", ["enp1s0f1np1", "enP2p1s0f1np1"])
    ]


@pytest.mark.parametrize("word", ["sys_image_guid", "phys_switch_id"])
def test_ports_of_two_nics_are_no_twins(word: str, tmp_path: Path) -> None:
    hcas = {
        device: {
            "net": {"name": f"en{device}", "mac": "52:54:00:00:00:01", "phys_port_name": "p0", word: guid},
            "sys_image_guid": guid if word == "sys_image_guid" else "the same",
            "gids": {},
        }
        for device, guid in (("mlx5_0", "a"), ("mlx5_1", "a"), ("mlx5_2", "b"))
    }
    for device in hcas:
        put(tmp_path / "class/infiniband" / device / "device/net" / f"en{device}" / "dev_port", 0)
    result = gid_report.describe(gids.read_hcas(build(tmp_path, hcas)))
    assert [(port["rail"], port["twin"]) for port in result["ports"]] == [
        ("p0/0", "mlx5_1"),
        ("p0/1", "mlx5_0"),
        ("p0/0", None),
    ]


def test_the_netdev_of_a_port_is_not_the_vlan_on_top_of_it(tmp_path: Path) -> None:
    vlan = ["0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2", "eth0.100"]
    own = ["0000:0000:0000:0000:0000:ffff:0a00:0002", "RoCE v2", "eth0"]
    tree = build(tmp_path, {"mlx5_0": {"gids": {0: vlan, 1: own}}})
    (tmp_path / "class/infiniband/mlx5_0/device/net/eth0").mkdir(parents=True)
    for name in ("eth0", "eth0.100"):
        put(tmp_path / f"class/net/{name}/operstate", "up")
    (hca,) = gids.read_hcas(tree)
    assert (hca.netdev, hca.netdevs) == ("eth0", ("eth0.100", "eth0"))


ROUTES = """\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t0101000A\t0003\t0\t0\t100\t00000000\t0\t0\t0
enp1s0f0np0\t0064A8C0\t00000000\t0001\t0\t0\t101\t{mask}\t0\t0\t0
enP2p1s0f0np0\t{second}64A8C0\t00000000\t0001\t0\t0\t102\t{mask}\t0\t0\t0
"""  # the kernel's own columns (fib_route_seq_show), 192.168.100.N in the byte order of a Spark


@pytest.mark.parametrize(
    ("last", "routes", "found"),
    [
        (5, ROUTES.format(mask="FCFFFFFF", second="04"), []),
        (2, ROUTES.format(mask="FCFFFFFF", second="00"), ["192.168.100.0/30"]),
        (5, ROUTES.format(mask="00FFFFFF", second="00"), ["192.168.100.0/24"]),
        (5, "", ["192.168.100.0/24 (a /24 assumed)"]),
        (5, ROUTES.format(mask="FCFFFFFF", second="08"), []),
        (2, ROUTES.format(mask="00FFFFFF", second="00").replace("enP2", "eth"), ["192.168.100.0/24 (a /24 assumed)"]),
        (5, ROUTES.format(mask="x", second="04"), ["192.168.100.0/24 (a /24 assumed)"]),
    ],
)
def test_the_twins_own_prefix_decides_whether_they_share_a_subnet(
    last: int, routes: str, found: list[str], tmp_path: Path
) -> None:
    hcas = CASES["shared_subnet"]["hcas"]
    for (name, hca), number in zip(hcas.items(), (1, last), strict=True):
        gid = f"0000:0000:0000:0000:0000:ffff:c0a8:64{number:02x}"
        hcas = {**hcas, name: {**hca, "gids": {3: [gid, "RoCE v2", hca["net"]["name"]]}}}
    remarks = gid_remarks.remarks(gids.read_hcas(build(tmp_path, hcas), routes))
    assert [remark.name for remark in remarks] == ["shared_subnet"] * len(found)
    assert all(f"both have an address in {subnet}, " in remarks[0].text for subnet in found)


def test_a_vlan_on_a_rail_is_a_foreign_address_and_no_rail(tmp_path: Path) -> None:
    # The kernel puts a VLAN's GIDs into the table of the device below it (roce_gid_mgmt.c), here before the rail's own.
    tree = build(tmp_path, CASES["vlan"]["hcas"])
    (tmp_path / "class/infiniband/rocep1s0f0/device/net/enp1s0f0np0").mkdir(parents=True)
    put(tmp_path / "class/net/enp1s0f0np0.100/operstate", "up")
    hcas = gids.read_hcas(tree)
    rails = [gid_remarks.DeclaredRail("enp1s0f0np0", "192.168.100.10")]
    result = gid_report.describe(hcas, None, rails)
    (port,) = result["ports"]
    assert (port["netdev"], port["netdevs"]) == ("enp1s0f0np0", ["enp1s0f0np0", "enp1s0f0np0.100"])
    assert port["addresses"] == ["10.0.0.1", "192.168.100.10"], "both take a GID of the device"
    (rail,) = result["rails"]
    assert (rail["index"], rail["nccl_index"], rail["agrees"]) == (5, 3, False)
    assert [remark["name"] for remark in result["remarks"]] == ["several_addresses", "other_picked"]
    assert gid_report.describe(hcas, "192.168.100.0/23", rails)["rails"][0]["agrees"]


def test_a_name_of_another_namespace_is_not_taken_for_ours(tmp_path: Path) -> None:
    # rxe names its parent to everybody; the eth0 of a container is another one, with an MTU of its own.
    unreadable = ["0000:0000:0000:0000:0000:ffff:0a00:0001", None, None]
    net = {"name": "eth0", "mac": "52:54:00:00:00:01", "mtu": 1500}
    tree = build(tmp_path, {"rxe0": {"parent": "eth0", "net": net, "gids": {0: unreadable}}})
    (port,) = gid_report.describe(gids.read_hcas(tree))["ports"]
    assert (port["netdev"], port["mtu"], port["ib_mtu"], port["rail"]) == (None, None, None, None)


def test_a_netdev_that_is_only_named_is_in_another_namespace(tmp_path: Path) -> None:
    # Linux 6.12 and newer, seen from a container: the GID table has the name, /sys/class/net has no such interface.
    named = ["0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2", "enp1s0f0np0"]
    tree = build(tmp_path, {"rxe0": {"gids": {0: named}}})
    said = gid_report.describe(gids.read_hcas(tree))
    assert [(port["netdev"], port["mtu"]) for port in said["ports"]] == [(None, None)]
    assert [remark["name"] for remark in said["remarks"]] == ["other_namespace"]


def test_two_ports_of_one_function_have_their_own_netdevs(tmp_path: Path) -> None:
    for number, name in enumerate(("ens1", "ens1d1")):
        put(tmp_path / f"class/infiniband/mlx4_0/ports/{number + 1}/state", "4: ACTIVE")
        (tmp_path / "class/infiniband/mlx4_0/device/net" / name).mkdir(parents=True)
        put(tmp_path / "class/net" / name / "dev_port", number)
    assert [hca.netdev for hca in gids.read_hcas(gids.Sysfs(str(tmp_path)))] == ["ens1", "ens1d1"]


def test_declared_rails(tmp_path: Path) -> None:
    hcas = gids.read_hcas(build(tmp_path, CASES["link_local_first"]["hcas"]))
    rails = [
        gid_remarks.DeclaredRail("enp1s0f0np0", "192.168.100.10"),
        gid_remarks.DeclaredRail("enp1s0f0np0", "192.168.100.99"),
        gid_remarks.DeclaredRail("enP2p1s0f0np0", "192.168.101.10"),
    ]
    result = gid_report.describe(hcas, None, rails)
    assert result["rails"][0] == {
        "netdev": "enp1s0f0np0",
        "address": "192.168.100.10",
        "device": "rocep1s0f0",
        "port": 1,
        "index": 5,
        "nccl_index": 3,
        "agrees": False,
    }
    assert [(rail["device"], rail["index"], rail["agrees"]) for rail in result["rails"][1:]] == [
        ("rocep1s0f0", None, False),
        (None, None, False),
    ]
    names = [remark["name"] for remark in result["remarks"]]
    assert names == ["link_local_picked", "other_picked", "address_absent", "rail_absent"]
    ranged = gid_report.describe(hcas, "192.168.100.0/23", rails[:1])
    assert (ranged["rails"][0]["agrees"], ranged["remarks"]) == (True, [])


def test_an_address_on_the_twin_is_named(tmp_path: Path) -> None:
    hcas = gids.read_hcas(build(tmp_path, CASES["index_3"]["hcas"]))
    found = gid_remarks.remarks(hcas, None, [gid_remarks.DeclaredRail("enp1s0f0np0", "192.168.101.10")])
    remark = next(remark for remark in found if remark.name == "address_elsewhere")
    assert "roceP2p1s0f0 port 1 (enP2p1s0f0np0)" in remark.text


@pytest.mark.parametrize("owner", ["enp1s0f0np0", "bond0"])
def test_a_rail_in_a_bond_is_told_to_leave_it(owner: str, tmp_path: Path) -> None:
    # The kernel gives the bond's address to the device below it (roce_gid_mgmt.c), in the bond's name or not at all.
    gid = ["0000:0000:0000:0000:0000:ffff:c0a8:640a", "RoCE v2", "bond0"]
    net = {"name": "enp1s0f0np0", "mac": "4c:bb:47:00:00:01", "mtu": 9000}
    tree = build(tmp_path, {"rocep1s0f0": {"net": net, "gids": {3: gid} if owner == "bond0" else {}}})
    (tmp_path / "class/infiniband/rocep1s0f0/device/net/enp1s0f0np0").mkdir(parents=True)
    put(tmp_path / "class/net/bond0/operstate", "up")
    (tmp_path / "class/net/enp1s0f0np0/master").symlink_to(tmp_path / "class/net/bond0")
    (hca,) = gids.read_hcas(tree)
    found = gid_remarks.remarks([hca], None, [gid_remarks.DeclaredRail("enp1s0f0np0", "192.168.100.10")])
    (remark,) = [remark for remark in found if remark.where == "rail enp1s0f0np0"]
    assert remark.name == "has_master"
    assert "enp1s0f0np0 is a port of bond0" in remark.text
    assert remark.way_out.startswith("take enp1s0f0np0 out of bond0 for good (in netplan or nmcli), then ")
    assert "--tags fabric" in remark.way_out and "no_ipv4" not in [remark.name for remark in found]


@pytest.mark.parametrize("master", ["bond0", "br0"])
def test_a_port_in_a_bond_is_no_port_without_an_address(master: str, tmp_path: Path) -> None:
    net = {"name": "enp1s0f0np0", "mac": "4c:bb:47:00:00:01", "mtu": 9000}
    tree = build(tmp_path, {"rocep1s0f0": {"net": net, "gids": {}}})
    (tmp_path / "class/infiniband/rocep1s0f0/device/net/enp1s0f0np0").mkdir(parents=True)
    (tmp_path / "class/net/enp1s0f0np0/master").symlink_to(tmp_path / f"class/net/{master}")
    (remark,) = gid_remarks.remarks(gids.read_hcas(tree))
    assert (remark.name, f"a port of {master}" in remark.text) == ("has_master", True)


GID_OF_RAIL = ["::ffff:192.168.100.10", "RoCE v2", "enP2p1s0f0np0"]


@pytest.mark.parametrize(("state", "shown"), [("1: DOWN", "DOWN"), ("2: INIT", "INIT")])
@pytest.mark.parametrize("gids_there", [{}, {3: ["::ffff:192.168.100.10", "RoCE v2", "enp1s0f0np0"]}])
def test_a_rail_without_a_link_is_told_to_get_one(
    state: str, shown: str, gids_there: dict[int, list[str]], tmp_path: Path
) -> None:
    net = {"name": "enp1s0f0np0", "mac": "4c:bb:47:00:00:01", "mtu": 9000}
    tree = build(tmp_path, {"rocep1s0f0": {"net": net, "gids": gids_there, "state": state}})
    (tmp_path / "class/infiniband/rocep1s0f0/device/net/enp1s0f0np0").mkdir(parents=True)
    hcas = gids.read_hcas(tree)
    assert gid_remarks.remarks(hcas) == [], "without a rail there a port needs no cable"
    rails = [gid_remarks.DeclaredRail("enp1s0f0np0", "192.168.100.10")]
    (remark,) = gid_remarks.remarks(hcas, None, rails)
    assert (remark.name, f"the port is {shown}" in remark.text) == ("port_down", True)
    assert "cable" in remark.way_out and "ip link set enp1s0f0np0 up" in remark.way_out
    assert "the peer" in remark.way_out and "--tags fabric" not in remark.way_out
    twin = {"name": "enP2p1s0f0np0", "mac": "4c:bb:47:00:00:02"}
    hcas = gids.read_hcas(build(tmp_path, {"roceP2p1s0f0": {"net": twin, "gids": {3: GID_OF_RAIL}}}))
    found = [remark.name for remark in gid_remarks.remarks(hcas, None, rails) if remark.where == "rail enp1s0f0np0"]
    assert found == ["port_down", *([] if gids_there else ["address_elsewhere"])], "both are to be mended"


@pytest.mark.parametrize(("netdev", "address"), [("a/b", "10.0.0.1"), ("", "10.0.0.1"), ("eth0", "fe80::1")])
def test_bad_rails_are_refused(netdev: str, address: str) -> None:
    with pytest.raises(ValueError, match=r"^rails"):
        gid_remarks.parse_rails({netdev: address})
    assert gid_remarks.parse_rails({"eth0": "10.0.0.1"}) == [gid_remarks.DeclaredRail("eth0", "10.0.0.1")]


def test_infiniband_is_not_roce(tmp_path: Path) -> None:
    (hca,) = gids.read_hcas(build(tmp_path, CASES["bond_active"]["hcas"]))
    assert nccl_choice(hca.gids).index == 3
    assert nccl_choice(hca.gids, None, "InfiniBand").index == 0


def test_a_slow_pcie_link_is_seen(tmp_path: Path) -> None:
    pci = {"address": "0000:01:00.0", "width": 4, "max_width": 4, "speed": "16.0 GT/s PCIe"}
    hcas = {"rocep1s0f0": {**CASES["index_3"]["hcas"]["rocep1s0f0"], "pci": pci}}
    (remark,) = gid_remarks.remarks(gids.read_hcas(build(tmp_path, hcas)))
    assert (remark.name, "16 of 32 GT/s" in remark.text) == ("slow_pcie", True)


def test_scopes_and_addresses(tmp_path: Path) -> None:
    (hca,) = gids.read_hcas(build(tmp_path, CASES["link_local_first"]["hcas"]))
    assert [(gid.index, gid.scope) for gid in hca.gids] == [
        (0, "default"),
        (1, "default"),
        (2, "link"),
        (3, "link"),
        (4, "global"),
        (5, "global"),
    ]
    assert [gid.ipv4 for gid in hca.gids][2:] == ["169.254.7.8"] * 2 + ["192.168.100.10"] * 2


def test_only_mapped_gids_have_an_ipv4(tmp_path: Path) -> None:
    (hca,) = gids.read_hcas(build(tmp_path, CASES["no_ipv4"]["hcas"]))
    assert [gid.ipv4 for gid in hca.gids] == [None, None, None], "the classic tool calls ::1 an IPv4 address"


def test_slots_come_in_numeric_order(tmp_path: Path) -> None:
    entry = ["0000:0000:0000:0000:0000:ffff:c0a8:640a", "RoCE v2", "eth1"]
    tree = build(tmp_path, {"rxe0": {"slots": 120, "gids": {2: entry, 10: entry, 100: entry}}})
    assert [gid.index for gid in gids.read_hcas(tree)[0].gids] == [2, 10, 100]


def test_find_address_wants_roce_v2(tmp_path: Path) -> None:
    hcas = gids.read_hcas(build(tmp_path, CASES["index_3"]["hcas"]))
    found = gids.find_address(hcas, "rocep1s0f0", "192.168.100.10")
    assert found is not None and found[1].index == 3
    assert gids.find_address(hcas, "rocep1s0f0", "192.168.101.10") is None, "that is the twin's address"


def test_no_rdma_is_a_result(tmp_path: Path) -> None:
    result = gid_report.describe(gids.read_hcas(gids.Sysfs(str(tmp_path))))
    assert (result["present"], result["ports"], result["gids"], result["remarks"]) == (False, [], [], [])
    assert result["stdout_lines"][-1] == "0 GIDs on 0 ports"


def test_table_columns_do_not_move(tmp_path: Path) -> None:
    lines = gid_report.describe(gids.read_hcas(build(tmp_path, CASES["rxe"]["hcas"])))["stdout_lines"]
    header, *rows = lines[: lines.index("3 GIDs on 1 ports")]
    column = header.index("NETDEV")
    assert len(rows) == 3
    assert all(row[column:] == "enp1s0f0np0" and row[column - 1] == " " for row in rows)
    assert all(len(row.split()) == len(header.split()) for row in rows)
    names, port = lines[-2:]
    assert port[names.index("NCCL") :] == "index 1, 192.168.100.10"
    assert port[names.index("PCIE") :].startswith("absent "), "soft-RoCE has no PCIe link"


def test_a_table_says_absent_and_ends_with_the_remarks(tmp_path: Path) -> None:
    lines = gid_report.describe(gids.read_hcas(build(tmp_path, CASES["container"]["hcas"])))["stdout_lines"]
    assert lines[1].split()[-3:] == ["absent", "link", "absent"]
    assert lines[-2] == ""
    assert lines[-1].startswith("! rocep1s0f0 port 1 (no netdev): RoCE version or netdev of 2 used slots")


def test_kernel_errors_mean_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "slot", "x")
    sysfs = gids.Sysfs(str(tmp_path))

    def einval(_descriptor: int, _size: int) -> bytes:
        raise OSError(22, "Invalid argument")

    assert sysfs.read("slot") == "x"
    monkeypatch.setattr(os, "read", einval)
    assert sysfs.read("slot") is None
    assert sysfs.names("slot") == [] and sysfs.target("slot") is None


@pytest.mark.parametrize(
    ("mtu", "driver", "expected"),
    [
        (9000, "mlx5", 4096),
        (4192, "mlx5", 4096),
        (4191, "mlx5", 2048),
        (1500, "mlx5", 1024),
        (4176, "rxe", 4096),
        (4175, "rxe", 2048),
        (200, "rxe", None),
        (None, "mlx5", None),
    ],
)
def test_roce_mtu(mtu: int | None, driver: str, expected: int | None) -> None:
    assert gids.roce_mtu(mtu, driver) == expected


def nccl_reference(table: list[tuple[ipaddress.IPv6Address, int | None]], network: Any) -> int:
    """NCCL's loop over *all* slots, written down as its source has it, to check the shorter one against."""

    def mapped(gid: ipaddress.IPv6Address) -> bool:
        return gid.ipv4_mapped is not None

    def valid(gid: ipaddress.IPv6Address) -> bool:
        return int(gid) != 0 and gid not in ipaddress.ip_network("fe80::/64")

    current = 0
    for slot in range(1, len(table)):
        gid, version = table[slot]
        now, now_version = table[current]
        matches = mapped(gid) and (network is None or gid.ipv4_mapped in network)
        if mapped(now) != mapped(gid):
            if matches:
                current = slot
        elif matches and valid(gid) and version == 2 and (now_version != version or not valid(now)):
            current = slot
    return current


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["::", "fe80::1", "2001:db8::1", "::ffff:10.0.0.1", "::ffff:169.254.1.1", "::ffff:10.1.0.1"]
            ),
            st.sampled_from([1, 2]),
        ),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from([None, "10.0.0.0/16", "10.0.0.0/8"]),
)
def test_nccl_choice_is_nccls_loop(rows: list[tuple[str, int]], address_range: str | None) -> None:
    table = [(ipaddress.IPv6Address(gid), version if gid != "::" else None) for gid, version in rows]
    network = ipaddress.ip_network(address_range) if address_range else None
    used = [gids.make_gid(slot, str(gid), f"RoCE v{version}", None) for slot, (gid, version) in enumerate(table)]
    choice = nccl_choice([gid for gid in used if gid], address_range)
    assert choice.index == nccl_reference(table, network)


class Tree(gids.Sysfs):
    """A sysfs of a dict from path to content, so that ten thousand of them take seconds."""

    def __init__(self, files: Mapping[str, str]) -> None:
        super().__init__()
        self.files = files
        self.folders: dict[str, dict[str, None]] = {}
        for path in files:
            while "/" in path:
                path, _, name = path.rpartition("/")
                self.folders.setdefault(path, {})[name] = None

    def read(self, path: str) -> str | None:
        return self.files.get(path)

    def names(self, path: str) -> list[str]:
        return list(self.folders.get(path, ()))

    def target(self, path: str) -> str | None:
        return self.files.get(f"{path} ->")


GIDS = (
    *[gids.ZERO_GID, "fe80:0000:0000:0000:5054:00ff:fe00:0001", "fe80::1", "2001:db8::1", "::1", "ff0e::ffff:10.0.0.1"],
    *["::ffff:10.0.0.1", "::FFFF:A00:1", "0000:0000:0000:0000:0000:ffff:c0a8:640a", "::ffff:169.254.1.1"],
    *["::ffff:10.1.0.1", "::ffff:0.0.0.0", "", "fe80::1%eth0", "not a GID", "\0", "\ud800", "x" * 5000],
)
JUNK = (
    "",
    "-1",
    "9000",
    "1500",
    "x" * 5000,
    "\0",
    "\ud800",
    "9" * 400,
    "\u0663",
    "4: ACTIVE",
    "1: DOWN",
    ":",
    "a/b",
    "..",
)
ATTRIBUTES = ("fw_ver", "board_id", "node_guid", "sys_image_guid", "parent")
FUNCTION = ("current_link_speed", "max_link_speed", "current_link_width", "max_link_width", "numa_node")
NETDEVS = ("eth0", "eth0.100", "bond0", "enP2p1s0f1np1", "enp1s0f1np1", "../../../etc", "", "..", "a b", "\0", "x" * 99)


def random_tree(dice: random.Random) -> Tree:
    """A tree in which everything may be right, wrong or absent."""
    files: dict[str, str] = {}

    def maybe(path: str, *values: str) -> None:
        if dice.random() < 0.7:
            files[path] = dice.choice(values)

    for device in dice.sample(("rocep1s0f0", "rocep1s0f1", "roceP2p1s0f1", "rxe0", "mlx5 0"), dice.randrange(4)):
        base = f"class/infiniband/{device}"
        for name in ATTRIBUTES:
            maybe(f"{base}/{name}", *JUNK, *NETDEVS)
        for name in FUNCTION:
            maybe(f"{base}/device/{name}", *JUNK, "4", "2", "32.0 GT/s PCIe", "16.0 GT/s PCIe")
        maybe(f"{base}/device ->", "0000:01:00.0", "0002:01:00.1", *JUNK)
        maybe(f"{base}/device/driver ->", "mlx5_core", *JUNK)
        maybe(f"{base}/device/net/{dice.choice(('eth0', 'eth1'))}/mtu", "1500")
        for port in dice.sample(("1", "2", "0", "x", "\u0661"), dice.randrange(1, 3)):
            for name in ("state", "phys_state", "rate"):
                maybe(f"{base}/ports/{port}/{name}", *JUNK, "200 Gb/sec (4X HDR)", ". Gb/sec")
            maybe(f"{base}/ports/{port}/link_layer", "Ethernet", "Ethernet", "Ethernet", "InfiniBand", *JUNK[:3])
            for slot in dice.sample(range(16), dice.randrange(10)):
                files[f"{base}/ports/{port}/gids/{slot}"] = dice.choice(GIDS)
                maybe(f"{base}/ports/{port}/gid_attrs/types/{slot}", "RoCE v2", "IB/RoCE v1", *JUNK)
                maybe(f"{base}/ports/{port}/gid_attrs/ndevs/{slot}", *NETDEVS)
            maybe(f"{base}/ports/{port}/gids/{dice.choice(('x', '', '-1', '1e3'))}", *GIDS)
    for netdev in NETDEVS[:5]:
        for name in ("address", "mtu", "speed", "carrier", "phys_port_name", "dev_port"):
            maybe(f"class/net/{netdev}/{name}", *JUNK, "52:54:00:00:00:01", "p0", "p1", "1")
        if dice.random() < 0.2:
            maybe(f"class/net/{netdev}/master ->", "bond0", "br0", *JUNK)
    return Tree(files)


def test_ten_thousand_trees() -> None:
    dice = random.Random(5)  # noqa: S311 the same trees each time
    started = time.process_time()
    seen: dict[str, int] = {}
    for number in range(10_000):
        tree = random_tree(dice)
        address_range = dice.choice((None, "10.0.0.0/16", "0.0.0.0/0", "10.0.0.1/32"))
        rails = [gid_remarks.DeclaredRail(dice.choice(NETDEVS[:5]), "10.0.0.1")]
        hcas = gids.read_hcas(tree)
        result = gid_report.describe(hcas, address_range, rails)
        json.dumps(result)
        assert all(isinstance(line, str) for line in result["stdout_lines"]), number
        for hca in hcas:
            check_port(hca, result["selected"][f"{hca.device}:{hca.port}"]["in_range"], address_range)
        for remark in result["remarks"]:
            seen[remark["name"]] = seen.get(remark["name"], 0) + 1
    assert set(seen) == REMARKS, "a remark that no tree causes is not tested here"
    assert time.process_time() - started < 20


REMARKS = {
    *("no_ipv4", "link_local_picked", "roce_v1_picked", "several_addresses", "other_namespace", "narrow_pcie"),
    *("slow_pcie", "shared_subnet", "rail_absent", "address_absent", "address_elsewhere", "other_picked"),
    *("has_master", "port_down"),
}


def check_port(hca: gids.HcaPort, in_range: dict[str, Any] | None, address_range: str | None) -> None:
    """What must hold for each port, whatever its tree looks like."""
    assert [gid.index for gid in hca.gids] == sorted({gid.index for gid in hca.gids})
    assert all((gid.ipv4 is not None) == gid.gid.startswith("0000:0000:0000:0000:0000:ffff:") for gid in hca.gids)
    assert hca.mtu is None or hca.netdev is not None
    assert all("/" not in name for name in hca.netdevs)
    choice = nccl_choice(hca.gids, address_range)
    length = max((gid.index for gid in hca.gids), default=0) + 1
    table: list[tuple[ipaddress.IPv6Address, int | None]] = [(ipaddress.IPv6Address(0), None)] * length
    for gid in hca.gids:
        table[gid.index] = (ipaddress.IPv6Address(gid.gid), gid.roce_version)
    reached = nccl_reference(table, ipaddress.ip_network(address_range) if address_range else None)
    assert choice.index == reached
    assert (in_range is None) == (address_range is None)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=64), name=st.sampled_from(["state", "rate", "link_layer", "gids/0", "gids/x"]))
def test_any_bytes_in_the_tree_are_readable(tmp_path: Path, content: bytes, name: str) -> None:
    tree = build(tmp_path / os.urandom(6).hex(), {"rxe0": {"slots": 1, "gids": {}}})
    (Path(tree.root) / "class/infiniband/rxe0/ports/1" / name).write_bytes(content)
    gid_report.describe(gids.read_hcas(tree), "10.0.0.0/8")
