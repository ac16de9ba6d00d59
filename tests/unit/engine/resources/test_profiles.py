from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.engine.engine import ApplyError
from ansible_collections.gb10.fleet.plugins.module_utils.engine.guard import MARK
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.network_manager import parse_terse
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.fake_host import FakeHost

from tests.support.attacker import tally
from tests.support.fake_host import failed
from tests.support.network_manager import P0, P0_TWIN, PAIR, UUID_P0, UUID_TWIN, FakeNetworkManager, rail


@pytest.fixture
def manager(host: FakeHost) -> FakeNetworkManager:
    return FakeNetworkManager(host)


def test_rails_are_created_and_activated_under_one_checkpoint(host: FakeHost, manager: FakeNetworkManager) -> None:
    outcome = host.both(PAIR, fabric_allow_activation=True)

    assert [change["action"] for change in outcome.changes] == ["create", "create"]
    (created,) = (line.split()[5:] for line in host.commands("busctl call") if "CheckpointCreate" in line)
    assert created == ["CheckpointCreate", "aouu", "0", "70", "2"], "of all interfaces, for 70 s"
    assert manager.ended == ["CheckpointDestroy"]
    assert manager.profiles[UUID_P0]["ipv6.method"] == "disabled"
    assert manager.profiles[UUID_P0]["ipv4.never-default"] == "yes"
    host.calls.clear()
    assert host.converge(PAIR).changes == []
    assert len(host.calls) == 3


def test_without_consent_nothing_is_touched(host: FakeHost, manager: FakeNetworkManager) -> None:
    outcome = host.both(PAIR)
    assert outcome.changes == []
    assert [(entry["action"], entry["consent"]) for entry in outcome.pending] == [
        ("create", "fabric_allow_activation")
    ] * 2
    assert manager.writes() == []


@pytest.mark.parametrize(
    ("drift", "action", "detail"),
    [
        (lambda m: m.link(P0, "192.0.2.1/30", mtu=1500), "activate", "live MTU 1500 -> 9000"),
        (lambda m: m.link(P0, mtu=9000), "activate", "live addresses none -> 192.0.2.1/30"),
        (
            lambda m: m.profiles[UUID_P0].update({"802-3-ethernet.mtu": "auto"}),
            "update",
            "802-3-ethernet.mtu auto -> 9000",
        ),
        (lambda m: m.profiles[UUID_P0].update({"device": ""}), "activate", "not active"),
        (lambda m: m.link(P0, "192.0.2.1/30", carrier="", mtu=9000), "activate", "link is down"),
        (lambda m: m.profiles.pop(UUID_P0), "create", "no such profile; not active"),
    ],
)
def test_each_drift_is_named_and_repaired(
    host: FakeHost, manager: FakeNetworkManager, drift: Callable[[Any], Any], action: str, detail: str
) -> None:
    host.converge(PAIR, fabric_allow_activation=True)
    drift(manager)
    outcome = host.both(PAIR, fabric_allow_activation=True)
    (change,) = outcome.changes
    assert (change["resource"], change["action"], change["detail"]) == (f"nm_profile:gb10-{P0}", action, detail)
    assert host.converge(PAIR).pending == []


def test_a_rail_without_a_cable_gets_its_profile_and_no_activation(host: FakeHost, manager: FakeNetworkManager) -> None:
    manager.link(P0, carrier="0")
    outcome = host.both([rail()], fabric_allow_activation=True)
    assert outcome.changes[0]["detail"] == "no such profile; no carrier, active later"
    assert host.commands("nmcli --wait") == []
    assert host.converge([rail()], fabric_allow_activation=True).changes == []


@pytest.mark.parametrize("failure", ["refuses", "lies"])
def test_a_failed_activation_rolls_back(
    host: FakeHost, manager: FakeNetworkManager, fail: Callable[..., Any], failure: str
) -> None:
    host.on("nmcli --wait", fail("Error: Connection activation failed") if failure == "refuses" else "")
    expected = "Connection activation failed" if failure == "refuses" else "but the link has MTU 1500, addresses none"
    with pytest.raises(ApplyError, match=expected):
        host.converge([rail()], fabric_allow_activation=True)
    assert manager.ended == ["CheckpointRollback"]


def test_a_rollback_that_fails_hides_no_error(
    host: FakeHost, manager: FakeNetworkManager, fail: Callable[..., Any]
) -> None:
    refuse, real = fail("Error: No such checkpoint"), manager.busctl
    host.on("nmcli --wait", fail("Error: Connection activation failed"))
    host.on("busctl call", lambda argv, stdin: refuse if "Rollback" in argv[5] else real(argv, stdin))
    expected = "Connection activation failed.*asking for the rollback failed.*within 50 s"
    with pytest.raises(ApplyError, match=expected):
        host.converge([rail()], fabric_allow_activation=True)


def test_a_run_that_outlasts_its_checkpoint_is_told_what_networkmanager_did(
    host: FakeHost, manager: FakeNetworkManager, fail: Callable[..., Any]
) -> None:
    refuse, real = fail("Error: No such checkpoint"), manager.busctl
    host.on("busctl call", lambda argv, stdin: refuse if "Destroy" in argv[5] else real(argv, stdin))
    with pytest.raises(ApplyError, match="has rolled back already: it took longer than 50 s"):
        host.converge([rail()], fabric_allow_activation=True)


def test_the_management_port_is_left_alone(host: FakeHost, manager: FakeNetworkManager) -> None:
    manager.link(P0, "192.0.2.1/30")
    host.file("/proc/self/environ", "HOME=/root\0")
    host.file("/proc/self/status", "Name:\tpython3\nPPid:\t41\n")
    host.file("/proc/41/environ", "A=1\0SSH_CONNECTION=192.0.2.9 5000 192.0.2.1 22\0")
    with pytest.raises(HostError, match=f"{P0} carries the SSH session"):
        host.converge([rail()], fabric_allow_activation=True)
    assert manager.writes() == []


def session(host: FakeHost, peer: str, local: str) -> None:
    host.file("/proc/self/environ", f"SSH_CONNECTION={peer} 5000 {local} 22\0")


MANAGEMENT = {"gateway": "198.51.100.1", "dev": "enP7s7"}


@pytest.mark.parametrize(
    "route",
    [
        {"dst": "default", "gateway": "192.0.2.2", "dev": P0},
        {"dst": "default", "nexthops": [MANAGEMENT, {"gateway": "192.0.2.2", "dev": P0}]},
        {"dst": "default", "gateway": "192.0.2.2", "dev": P0, "table": "100"},
        {"dst": "0.0.0.0/1", "dev": P0},
        {"dst": "128.0.0.0/1", "dev": P0},
        {"dst": "8000::/1", "dev": P0},
        {"dst": "2000::/3", "dev": P0},
    ],
)
def test_the_default_route_is_left_alone(host: FakeHost, manager: FakeNetworkManager, route: dict[str, Any]) -> None:
    manager.routes = [{"dst": "default", **MANAGEMENT}, route]
    with pytest.raises(HostError, match=f"{P0} carries a default route"):
        host.converge([rail()], fabric_allow_activation=True)
    assert manager.writes() == []


def test_other_routes_of_a_rail_are_no_lifeline(host: FakeHost, manager: FakeNetworkManager) -> None:
    manager.routes = [
        {"dst": "192.0.2.0/30", "dev": P0},
        {"dst": "2001:db8::/4", "dev": P0},
        {"type": "multicast", "dst": "ff00::/8", "dev": P0, "table": "local"},
        {"type": "unreachable", "dst": "default", "dev": "lo"},
    ]
    assert host.converge([rail()], fabric_allow_activation=True).changes != []


@pytest.mark.parametrize(
    ("peer", "local"),
    [("2001:db8::9", "2001:db8::beef"), ("192.0.2.9", "203.0.113.5"), ("UNKNOWN", "UNKNOWN"), ("route", "get")],
)
def test_a_session_is_told_by_every_address_and_by_the_way_back_or_nothing_changes(
    host: FakeHost, manager: FakeNetworkManager, peer: str, local: str
) -> None:
    session(host, peer, local)
    with pytest.raises(HostError, match=f"{peer} to {local}.* is at an address of no interface.*management port"):
        host.converge([rail()], fabric_allow_activation=True)
    assert manager.writes() == []


def test_a_temporary_address_may_carry_the_session(host: FakeHost, manager: FakeNetworkManager) -> None:
    manager.link(P0, "2001:db8::1/64", "2001:db8::beef/64")
    manager.temporary = {"2001:db8::beef/64"}
    session(host, "2001:db8::9", "2001:db8::beef")
    with pytest.raises(HostError, match=f"{P0} carries the SSH session"):
        host.converge([rail()], fabric_allow_activation=True)


def test_the_way_back_to_the_peer_is_left_alone(host: FakeHost, manager: FakeNetworkManager) -> None:
    session(host, "203.0.113.9", "198.51.100.7")
    manager.ways = {"203.0.113.9 from 198.51.100.7": P0}
    with pytest.raises(HostError, match=f"{P0} carries the SSH session"):
        host.converge([rail()], fabric_allow_activation=True)
    manager.ways = {"203.0.113.9 from 198.51.100.7": "enP7s7"}
    assert host.converge([rail()], fabric_allow_activation=True).changes != []


def test_a_host_without_networkmanager_is_told_so(host: FakeHost, manager: FakeNetworkManager) -> None:
    host.on("nmcli --terse --fields UUID", failed("nmcli: No such file or directory", 127))
    with pytest.raises(HostError, match=r"NetworkManager is not installed.*leave fabric out of gb10_roles"):
        host.converge(PAIR, fabric_allow_activation=True)
    host.on("nmcli --terse --fields UUID", failed("Error: NetworkManager is not running.", 8))
    with pytest.raises(HostError, match=r"`nmcli connection show`: Error: NetworkManager is not running"):
        host.converge(PAIR, fabric_allow_activation=True)


@pytest.mark.parametrize(
    ("management", "told"),
    [
        ({"addresses": ["198.51.100.7/24"]}, True),
        ({"addresses": ["198.51.100.7/24"], "carrier": "0"}, False),
        ({"addresses": ["fe80::1/64"]}, False),
        ({"addresses": []}, False),
    ],
)
def test_a_session_through_a_tunnel_needs_another_interface(
    host: FakeHost, manager: FakeNetworkManager, management: dict[str, Any], told: bool
) -> None:
    """`ssh -R`, cloudflared: the session ends at lo, and nobody knows what the tunnel goes by."""
    manager.link("lo", "127.0.0.1/8")
    manager.link(P0_TWIN, "203.0.113.1/24")
    manager.link("enP7s7", *management.pop("addresses"), **management)
    host.file("/sys/class/net/docker0/carrier", "1\n")
    manager.addresses["docker0"] = ["172.17.0.1/16"]
    manager.ways = {"127.0.0.1 from 127.0.0.1": "lo"}
    session(host, "127.0.0.1", "127.0.0.1")
    if told:
        assert host.converge(PAIR, fabric_allow_activation=True).changes != []
        return
    with pytest.raises(HostError, match="comes through a tunnel, and nothing but the rails has a cable and an address"):
        host.converge(PAIR, fabric_allow_activation=True)
    assert manager.writes() == []


def test_where_nothing_changes_no_session_is_in_the_way(host: FakeHost, manager: FakeNetworkManager) -> None:
    host.converge([rail()], fabric_allow_activation=True)
    session(host, "UNKNOWN", "UNKNOWN")
    assert host.converge([rail()]).changes == []


def test_what_carries_a_lifeline_is_left_alone(host: FakeHost, manager: FakeNetworkManager) -> None:
    host.file(f"/sys/class/net/vlan7/lower_{P0}", "")
    host.file("/sys/class/net/br0/lower_vlan7", "")
    manager.routes = [{"dst": "default", "gateway": "192.0.2.2", "dev": "br0"}]
    with pytest.raises(HostError, match=f"{P0} carries a default route"):
        host.converge([rail()], fabric_allow_activation=True)


def test_a_foreign_profile_is_refused_by_name_or_replaced(host: FakeHost, manager: FakeNetworkManager) -> None:
    manager.foreign(f"netplan-{P0}", P0, device=P0)
    with pytest.raises(HostError, match=f"belongs to the profile 'netplan-{P0}' already"):
        host.converge([rail()], fabric_allow_activation=True)

    resources = [rail(replace_foreign=True)]
    outcome = host.both(resources, fabric_allow_activation=True)

    assert f"'netplan-{P0}' gives up the interface" in outcome.changes[0]["detail"]
    assert manager.profiles[f"foreign-netplan-{P0}"]["connection.autoconnect"] == "no"
    assert host.converge(resources, fabric_allow_activation=True).changes == []


def names_its_port(host: FakeHost, manager: FakeNetworkManager, key: str, value: str) -> None:
    """A foreign profile `site`, for a port by something else than connection.interface-name."""
    host.file(f"/sys/class/net/{P0}/address", "4c:bb:47:00:00:01\n")
    manager.foreign("site", "")
    manager.profiles["foreign-site"][key] = value


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("802-3-ethernet.mac-address", "4C\\:BB\\:47\\:00\\:00\\:01"),
        ("match.interface-name", "enp1*"),
        ("match.interface-name", "eth*, |enp1s0f0np?"),
    ],
)
def test_a_profile_that_names_its_port_otherwise_is_switched_off_too(
    host: FakeHost, manager: FakeNetworkManager, key: str, value: str
) -> None:
    names_its_port(host, manager, key, value)
    with pytest.raises(HostError, match="belongs to the profile 'site' already"):
        host.converge([rail()], fabric_allow_activation=True)

    host.both([rail(replace_foreign=True)], fabric_allow_activation=True)

    assert manager.profiles["foreign-site"]["connection.autoconnect"] == "no"
    gone = [{key: rail()[key] for key in ("nm_profile", "uuid", "interface", "consent")} | {"state": "absent"}]
    assert host.both(gone, fabric_allow_activation=True).changes != []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("802-3-ethernet.mac-address", "4C\\:BB\\:47\\:00\\:00\\:02"),
        ("match.interface-name", "enP7*"),
        ("match.interface-name", "!enp1*"),
        ("match.interface-name", "en*, !enp1*"),
    ],
)
def test_a_profile_for_other_ports_is_left_alone(
    host: FakeHost, manager: FakeNetworkManager, key: str, value: str
) -> None:
    names_its_port(host, manager, key, value)
    host.both([rail(replace_foreign=True)], fabric_allow_activation=True)
    assert manager.profiles["foreign-site"]["connection.autoconnect"] == "yes"


@pytest.mark.parametrize("device", ["enP7s7", ""])
def test_a_profile_that_brings_up_management_as_well_is_not_switched_off(
    host: FakeHost, manager: FakeNetworkManager, device: str
) -> None:
    manager.routes = [{"dst": "default", **MANAGEMENT}]
    manager.foreign("site", "", device=device)
    manager.profiles["foreign-site"]["match.interface-name"] = "en*"
    with pytest.raises(HostError, match=f"'site' is for {P0} and for enP7s7 as well"):
        host.converge([rail(replace_foreign=True)], fabric_allow_activation=True)
    assert manager.writes() == []


def test_a_profile_that_names_no_port_gives_way_and_is_left_to_the_others(
    host: FakeHost, manager: FakeNetworkManager
) -> None:
    """The usual DHCP profile may carry management as well: to switch it off would cut us off at the next boot."""
    manager.foreign("dhcp", "", device=P0)
    host.both([rail()], fabric_allow_activation=True)
    assert manager.profiles["foreign-dhcp"]["connection.autoconnect"] == "yes"
    assert manager.profiles[UUID_P0]["device"] == P0


def test_a_profile_that_networkmanager_made_up_gives_way(host: FakeHost, manager: FakeNetworkManager) -> None:
    manager.foreign("Wired connection 1", P0, device=P0, filename="/run/NetworkManager/system-connections/x")
    host.both([rail()], fabric_allow_activation=True)
    assert manager.profiles["foreign-Wired connection 1"]["connection.autoconnect"] == "yes"
    manager.foreign("Wired connection 2", P0_TWIN)  # stored on disk: somebody's
    with pytest.raises(HostError, match="Wired connection 2"):
        host.converge([rail(P0_TWIN, UUID_TWIN, "192.0.2.5/30")], fabric_allow_activation=True)


def test_a_profile_that_netplan_keeps_is_somebodys_whatever_its_name(
    host: FakeHost, manager: FakeNetworkManager
) -> None:
    stored = "/run/NetworkManager/system-connections/netplan-NM-11111111-2222.nmconnection"
    manager.foreign("Wired connection 2", P0, device=P0, filename=stored)
    with pytest.raises(HostError, match="belongs to the profile 'Wired connection 2' already"):
        host.converge([rail()], fabric_allow_activation=True)
    host.both([{**rail(), "replace_foreign": True}], fabric_allow_activation=True)
    assert manager.profiles["foreign-Wired connection 2"]["connection.autoconnect"] == "no"


@pytest.mark.parametrize("times", [1, 99])
def test_a_profile_that_vanishes_between_two_questions(host: FakeHost, manager: FakeNetworkManager, times: int) -> None:
    """A container's bridge: NetworkManager makes its profile up, and forgets it with the bridge."""
    real, left = manager.listing, [times]

    def listing(argv: list[str], stdin: str | None) -> str:
        left[0] -= 1
        manager.foreign("br-1234", "br-1234", device="br-1234")
        said = real(argv, stdin)
        if left[0] >= 0:
            del manager.profiles["foreign-br-1234"]
        return said

    host.on("nmcli --terse --fields UUID", listing)
    if times == 1:
        assert [change["action"] for change in host.both([rail()], fabric_allow_activation=True).changes] == ["create"]
        return
    with pytest.raises(HostError, match=r"cannot be read \(.*foreign-br-1234.*at each of 5 readings .*run again"):
        host.converge([rail()])
    assert len(host.commands("nmcli")) == 10


def test_a_networkmanager_that_does_not_run_is_asked_once(
    host: FakeHost, manager: FakeNetworkManager, fail: Callable[..., Any]
) -> None:
    manager.foreign("dhcp", "")
    host.on("nmcli --terse --fields connection.uuid", fail("Error: NetworkManager is not running.", 8))
    with pytest.raises(HostError, match=r"cannot be read \(Error: NetworkManager is not running.\)$"):
        host.converge([rail()])
    assert len(host.commands("nmcli")) == 2


def test_a_line_break_in_a_name_is_no_profile_of_its_own(host: FakeHost, manager: FakeNetworkManager) -> None:
    manager.foreign("Office\nLAN", "enP7s7", device="enP7s7")
    manager.foreign("a:b", P0)
    with pytest.raises(HostError, match="belongs to the profile 'a:b' already"):
        host.converge([rail()])
    del manager.profiles["foreign-a-b"]
    host.both([rail()], fabric_allow_activation=True)
    assert manager.profiles["foreign-Office-LAN"]["connection.autoconnect"] == "yes"


@pytest.mark.parametrize("named", [UUID_P0, UUID_TWIN])
def test_a_line_break_in_a_name_says_nothing_of_another_profile(
    host: FakeHost, manager: FakeNetworkManager, named: str
) -> None:
    """Who sits at the host may make profiles of his own, and ours are before and behind it."""
    host.both(PAIR, fabric_allow_activation=True)
    manager.foreign(f"x\nconnection.uuid:{named}\n802-3-ethernet.mtu:1500", "enP7s7")
    first, second, *his = manager.profiles.items()
    manager.profiles = dict([first, *his, second])
    outcome = host.converge(PAIR)
    differs = [*outcome.changes, *outcome.pending]
    tally("a profile speaks for another one by a line break in its name", 1, int(bool(differs)))
    assert differs == []


def test_a_missing_interface_is_named(host: FakeHost, manager: FakeNetworkManager) -> None:
    with pytest.raises(HostError, match="the host has no interface enp9s0"):
        host.converge([rail("enp9s0")])


def test_the_port_of_a_bridge_is_left_alone(host: FakeHost, manager: FakeNetworkManager) -> None:
    host.path(f"/sys/class/net/{P0}/master").symlink_to("../br0")
    with pytest.raises(HostError, match=f"{P0} is a port of br0, .* take it out of br0"):
        host.converge([rail()], fabric_allow_activation=True)
    assert manager.writes() == []


def test_a_run_killed_before_the_end_of_its_checkpoint_is_waited_out(
    host: FakeHost, manager: FakeNetworkManager
) -> None:
    """All looks well, and NetworkManager is about to roll it back."""
    real = manager.busctl

    def killed(argv: list[str], stdin: str | None) -> str:
        if argv[5].startswith("CheckpointDestroy"):
            raise KeyboardInterrupt
        return "" if argv[5] == "CheckpointRollback" else real(argv, stdin)

    host.on("busctl call", killed)
    with pytest.raises(KeyboardInterrupt):
        host.converge([rail()], fabric_allow_activation=True)
    host.on("busctl call", real)

    def roll_back() -> None:
        manager.checkpoints.clear()
        manager.profiles.clear()
        manager.link(P0)

    host.clock.at_sleep = roll_back
    assert [change["action"] for change in host.converge([rail()], fabric_allow_activation=True).changes] == ["create"]
    assert not host.path(MARK).exists()


def test_an_old_mark_of_a_checkpoint_costs_nothing(host: FakeHost, manager: FakeNetworkManager) -> None:
    host.converge([rail()], fabric_allow_activation=True)
    host.file(MARK, json.dumps({"id": "0" * 16, "checkpoint": "/checkpoint/1", "until": 0, "timer": "x"}))
    host.clock.time = 1000
    host.calls.clear()
    host.converge([rail()])
    assert host.commands("busctl") == []


def test_a_profile_is_taken_away_only_with_consent(host: FakeHost, manager: FakeNetworkManager) -> None:
    host.converge([rail()], fabric_allow_activation=True)
    gone = [{key: rail()[key] for key in ("nm_profile", "uuid", "interface", "consent")} | {"state": "absent"}]
    assert [wait["action"] for wait in host.both(gone).pending] == ["remove"]
    assert UUID_P0 in manager.profiles
    host.both(gone, fabric_allow_activation=True)
    assert UUID_P0 not in manager.profiles
    assert host.converge(gone).changes == []


def test_the_profile_of_an_interface_that_is_gone_goes_without_a_checkpoint(
    host: FakeHost, manager: FakeNetworkManager
) -> None:
    host.converge([rail()], fabric_allow_activation=True)
    for name in ("mtu", "carrier"):
        host.path(f"/sys/class/net/{P0}/{name}").unlink()
    manager.profiles[UUID_P0]["device"] = ""
    host.calls.clear()
    gone = [{key: rail()[key] for key in ("nm_profile", "uuid", "interface", "consent")} | {"state": "absent"}]
    host.converge(gone, fabric_allow_activation=True)
    assert UUID_P0 not in manager.profiles
    assert host.commands("busctl call") == []  # a checkpoint of no interface is one of all


def test_a_checkpoint_of_a_killed_run_is_waited_out(host: FakeHost, manager: FakeNetworkManager) -> None:
    manager.checkpoints = ["/checkpoint/9"]
    host.clock.at_sleep = manager.checkpoints.clear
    host.both([rail()], fabric_allow_activation=True)
    assert host.clock.time > 0
    manager.checkpoints = ["/checkpoint/9"]
    manager.profiles.clear()
    host.clock.at_sleep = lambda: None
    with pytest.raises(HostError, match="checkpoint of NetworkManager open"):
        host.converge([rail()])


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("u:d:f:name", ["u", "d", "f", "name"]),
        (r"u:::a\:b\\c", ["u", "", "", r"a:b\c"]),
        ("u:d::", ["u", "d", "", ""]),
    ],
)
def test_terse_lines(line: str, fields: list[str]) -> None:
    assert parse_terse(line) == fields
