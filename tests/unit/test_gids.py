"""GID tables: every fixture is built as a sysfs tree and read like the real one."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gb10.fleet.plugins.module_utils import gids
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

FIXTURES = Path(__file__).parents[1] / "fixtures" / "gids" / "tables.yml"
CASES: dict[str, dict[str, Any]] = yaml.safe_load(FIXTURES.read_text(encoding="utf-8"))


def put(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{value}\n", encoding="utf-8")


def build(root: Path, hcas: dict[str, dict[str, Any]]) -> str:
    """Write the tree; an empty slot lacks its attributes, which reads like the kernel's EINVAL."""
    for device, hca in hcas.items():
        base = root / "class" / "infiniband" / device
        put(base / "ports/1/state", "4: ACTIVE")
        put(base / "ports/1/phys_state", "5: LinkUp")
        put(base / "ports/1/link_layer", "Ethernet")
        put(base / "ports/1/rate", "200 Gb/sec (4X HDR)")
        put(base / "fw_ver", "28.45.4028")
        for slot in range(hca.get("slots", 16)):
            gid, kind, netdev = hca["gids"].get(slot, [gids.ZERO_GID, None, None])
            put(base / f"ports/1/gids/{slot}", gid)
            for name, value in (("types", kind), ("ndevs", netdev)):
                if value:
                    put(base / f"ports/1/gid_attrs/{name}/{slot}", value)
        if "parent" in hca:
            put(base / "parent", hca["parent"])
        if "pci" in hca:
            function = root / "devices" / hca["pci"]["address"]
            put(function / "current_link_width", hca["pci"]["width"])
            put(function / "max_link_width", hca["pci"]["max_width"])
            (base / "device").symlink_to(function)
        if "net" in hca:
            net = root / "class" / "net" / hca["net"]["name"]
            put(net / "address", hca["net"]["mac"])
            for name in ("mtu", "speed", "phys_port_name"):
                if name in hca["net"]:
                    put(net / name, hca["net"][name])
    return str(root)


@pytest.mark.parametrize("name", CASES)
def test_nccl_choice(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    hcas = gids.read_hcas(build(tmp_path, case["hcas"]))
    result = gids.describe(hcas, case["range"])
    for device, hca in case["hcas"].items():
        selected = result["selected"][f"{device}:1"]
        assert (selected["default"]["index"], selected["in_range"]["index"]) == (hca["picks"], hca["in_range"])
    assert "remark" not in case or any(case["remark"] in remark for remark in gids.remarks(hcas))


def test_ports_of_a_spark(tmp_path: Path) -> None:
    result = gids.describe(gids.read_hcas(build(tmp_path, CASES["index_3"]["hcas"])))
    first = next(port for port in result["ports"] if port["device"] == "rocep1s0f0")
    assert first["netdev"] == "enp1s0f0np0"
    assert (first["state"], first["phys_state"], first["rate_gbps"]) == ("ACTIVE", "LinkUp", 200.0)
    assert (first["mtu"], first["ib_mtu"], first["speed_mbps"], first["slots"]) == (9000, 4096, 200000, 256)
    assert (first["pci"], first["pcie_width"], first["fw_ver"]) == ("0000:01:00.0", 4, "28.45.4028")
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
    assert {port: [hca.netdev for hca in functions] for port, functions in twins.items()} == {
        "p1": ["enp1s0f1np1", "enP2p1s0f1np1"]
    }


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
    result = gids.describe(gids.read_hcas(str(tmp_path)))
    assert (result["present"], result["gids"], result["remarks"]) == (False, [], [])
    assert result["stdout_lines"][-1] == "0 GIDs on 0 ports"


def test_table_columns_do_not_move(tmp_path: Path) -> None:
    header, *rows, _total = gids.describe(gids.read_hcas(build(tmp_path, CASES["rxe"]["hcas"])))["stdout_lines"]
    column = header.index("NETDEV")
    assert len(rows) == 3
    assert all(row[column:] == "enp1s0f0np0" and row[column - 1] == " " for row in rows)
    assert all(len(row.split()) == len(header.split()) for row in rows)


def test_read_file_takes_kernel_errors_as_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "slot", "x")

    def einval(_descriptor: int, _size: int) -> bytes:
        raise OSError(22, "Invalid argument")

    assert gids.read_file(str(tmp_path / "slot")) == "x"
    monkeypatch.setattr(os, "read", einval)
    assert gids.read_file(str(tmp_path / "slot")) is None


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


@settings(deadline=None)
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
    choice = gids.nccl_choice([gid for gid in used if gid], address_range)
    assert choice.index == nccl_reference(table, network)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_any_content_of_sysfs_is_readable(data: st.DataObject) -> None:
    junk = st.one_of(
        st.none(),
        st.text(max_size=60),
        st.sampled_from(
            [gids.ZERO_GID, "::ffff:1.2.3.4", "fe80::1", "RoCE v2", "IB/RoCE v1", "9000", "-1", "x" * 5000]
        ),
    )
    slots = data.draw(st.integers(0, 4))

    def read(path: str) -> str | None:
        return data.draw(junk, label=path)

    table = gids._read_table("base", range(slots), read)
    built = [gid for gid in (gids.make_gid(*entry, mac=data.draw(junk)) for entry in table) if gid]
    gids.nccl_choice(built)
    assert all(gid.gid != gids.ZERO_GID for gid in built)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=64), name=st.sampled_from(["state", "rate", "link_layer", "gids/0", "gids/x"]))
def test_any_bytes_in_the_tree_are_readable(tmp_path: Path, content: bytes, name: str) -> None:
    tree = build(tmp_path / os.urandom(6).hex(), {"rxe0": {"slots": 1, "gids": {}}})
    (Path(tree) / "class/infiniband/rxe0/ports/1" / name).write_bytes(content)
    gids.describe(gids.read_hcas(tree), "10.0.0.0/8")
