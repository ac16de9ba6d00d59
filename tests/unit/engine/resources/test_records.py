"""Each kind says how a resource stands and what brings that back; here without the manifest, in one go."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.engine.engine import parse_documents
from ansible_collections.gb10.fleet.plugins.module_utils.engine.kinds import KINDS
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.common import Pending, Plan, Progress, Step
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.packages import Package, purged
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.units import settle_unit_files
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError

from tests.unit.engine.resources.test_packages import SET, FakeApt
from tests.unit.engine.resources.test_profiles import P0, UUID_P0, FakeNetworkManager, rail
from tests.unit.engine.resources.test_units import DOCUMENT, UNIT_FILE, FakeSystemd

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.common import Resource

    from tests.unit.engine.resources.conftest import FakeHost

Records = dict[str, dict[str, Any]]


def parsed(resources: list[dict[str, Any]], consents: Mapping[str, bool]) -> Sequence[Resource]:
    document = parse_documents([("demo", resources)], dict(consents))
    return [resource for resource in document.resources if resource.KIND != "dpkg"]


def by_kind(resources: Sequence[Resource]) -> dict[str, list[Any]]:
    groups = {name: [resource for resource in resources if name == resource.KIND] for name in KINDS}
    return {name: group for name, group in groups.items() if group}


def stand(host: FakeHost, resources: list[dict[str, Any]]) -> Records:
    """How everything stands, as it comes back out of a file."""
    system, records = host.system, {}
    for name, group in by_kind(parsed(resources, {})).items():
        state = KINDS[name].read(system, group)
        for resource in group:
            record = KINDS[name].record(resource, state)
            records[resource.label] = dict(KINDS[name].before(resource, record, state))
    loaded: Records = json.loads(json.dumps(records, sort_keys=True))
    assert loaded == records
    return loaded


def plan_of(host: FakeHost, document: Sequence[Resource], consents: Mapping[str, bool]) -> tuple[Plan, dict[str, Any]]:
    system, plan = host.system, Plan(consents=consents, document=document)
    states = {name: KINDS[name].read(system, group) for name, group in by_kind(document).items()}
    for name, group in by_kind(document).items():
        KINDS[name].plan(group, states[name], plan)
    plan.steps.sort(key=lambda step: step.resource.index)
    return plan, states


def put_back(
    host: FakeHost,
    resources: list[dict[str, Any]],
    records: Records,
    brought: Mapping[str, list[str]] | None = None,
    **consents: bool,
) -> tuple[list[Step[Any]], list[Pending]]:
    document: list[Resource] = []
    for resource in reversed(parsed(resources, consents)):
        document += KINDS[resource.KIND].restore(resource, records[resource.label])
        if isinstance(resource, Package):
            document += [purged(resource, name) for name in (brought or {}).get(resource.name, [])]
    document = [replace(resource, index=index) for index, resource in enumerate(document)]
    plan, states = plan_of(host, document, consents)
    system, progress = host.system, Progress()
    for name in states:
        KINDS[name].prepare(system, plan, states[name])
    for name, group in itertools.groupby(plan.steps, key=lambda step: step.resource.KIND):
        KINDS[name].apply(system, list(group), states[name], progress)
    settle_unit_files(system, progress)
    left, _states = plan_of(host, document, consents)
    assert left.steps == []
    return progress.done, plan.pending


# ---------------------------------------------------------------------------------------------------------------- files


def etc(host: FakeHost) -> dict[str, Any]:
    return {path: entry for path, entry in host.digest().items() if path.startswith("etc/")}


FILES: list[dict[str, Any]] = [
    {"file": "/etc/new", "content": "x\n"},
    {"file": "/etc/text", "content": "x\n", "mode": "0600"},
    {"file": "/etc/bytes", "content": "x\n"},
    {"file": "/etc/d.json", "merge_json": {"a": 1}},
    {"file": "/etc/link", "state": "absent"},
    {"file": "/etc/gone", "state": "absent"},
    {"file": "/etc/empty", "state": "absent"},
    {"file": "/etc/dir", "state": "directory", "mode": "0700"},
    {"file": "/etc/own", "state": "directory"},
    {"file": "/etc/own/deep", "state": "directory"},
    {"file": "/etc/own/deep/a.conf", "content": "x\n"},
    {"file": "/etc/key", "content": "hunter2\n", "secret": True},
]


@pytest.fixture
def files(host: FakeHost) -> FakeHost:
    host.file("/etc/text", "before\n", mode=0o640)
    host.path("/etc/bytes").write_bytes(b"\xff\x00\xfe")
    host.file("/etc/d.json", '{ "foreign": true }')
    host.path("/etc/link").symlink_to("../srv/target")
    host.file("/etc/gone", "here\n")
    host.path("/etc/empty").mkdir()
    host.path("/etc/dir").mkdir(mode=0o711)
    return host


def test_files_go_back_to_the_byte(files: FakeHost) -> None:
    before, records = etc(files), stand(files, FILES)
    assert records["file:/etc/new"] == {}
    assert records["file:/etc/link"]["target"] == "../srv/target"
    files.converge(FILES)
    assert etc(files) != before

    put_back(files, FILES, records)

    assert etc(files) == before
    assert files.path("/etc/link").is_symlink()
    assert put_back(files, FILES, records) == ([], [])


def test_a_directory_that_somebody_uses_stays(files: FakeHost) -> None:
    records = stand(files, FILES)
    files.converge(FILES)
    files.file("/etc/own/theirs", "x")
    steps, _pending = put_back(files, FILES, records)
    assert "file:/etc/own/deep" in {step.resource.label for step in steps}
    assert files.path("/etc/own/theirs").exists()
    with pytest.raises(HostError, match="is a directory with something in it"):
        files.converge([{"file": "/etc/own", "state": "absent"}])


def test_of_a_secret_there_is_only_a_digest_and_no_way_back(host: FakeHost) -> None:
    host.file("/etc/key", "hunter1\n", mode=0o600)
    resources = [{"file": "/etc/key", "content": "hunter2\n", "secret": True}]
    records = stand(host, resources)
    host.converge(resources)
    assert "hunter" not in json.dumps([records, stand(host, resources)])
    assert records["file:/etc/key"]["sha256"] != stand(host, resources)["file:/etc/key"]["sha256"]
    with pytest.raises(HostError, match="file:/etc/key: what stood there cannot be brought back") as caught:
        put_back(host, resources, records)
    assert "hunter" not in str(caught.value)
    assert put_back(host, resources, stand(host, resources)) == ([], [])  # what nobody changed needs no way back
    host.path("/etc/key").unlink()
    with pytest.raises(HostError, match="cannot be brought back"):
        put_back(host, resources, records)


def test_a_secret_whose_mode_alone_we_changed_gets_it_back(host: FakeHost) -> None:
    host.file("/etc/key", "hunter2\n", mode=0o640)
    resources = [{"file": "/etc/key", "content": "hunter2\n", "secret": True}]
    records = stand(host, resources)
    host.converge(resources)
    steps, _pending = put_back(host, resources, records)
    assert [step.detail for step in steps] == ["mode 0600 -> 0640"]
    assert host.path("/etc/key").read_text() == "hunter2\n"


def test_what_is_too_large_for_the_manifest_has_no_way_back(host: FakeHost) -> None:
    host.file("/etc/a", "x" * 1_100_000)
    resources = [{"file": "/etc/a", "content": ""}]
    assert set(stand(host, resources)["file:/etc/a"]) == {"type", "owner", "group", "mode", "sha256"}


def test_the_digest_of_a_secret_is_enough_to_see_that_it_changed(host: FakeHost) -> None:
    resources = [{"file": "/etc/key", "content": "hunter2\n", "secret": True}]
    host.converge(resources)
    digest = stand(host, resources)["file:/etc/key"]["sha256"]
    declared = [{"file": "/etc/key", "content": {"sha256": digest}, "secret": True}]
    assert host.converge(declared).changes == []
    host.file("/etc/key", "", mode=0o600)
    assert [change["detail"] for change in host.converge(declared, check_mode=True).changes] == ["content"]
    host.file("/etc/key", "other\n", mode=0o600)
    outcome = host.converge(declared, check_mode=True)
    assert [change["detail"] for change in outcome.changes] == ["content"]
    assert "other" not in json.dumps(outcome.diff)
    with pytest.raises(HostError, match="only the digest of its content is known"):
        host.converge(declared)
    assert host.path("/etc/key").read_text() == "other\n"


# ------------------------------------------------------------------------------------------------------------- packages


def test_packages_go_with_those_that_came_along_and_their_configuration(host: FakeHost) -> None:
    apt = FakeApt(host, {"docker-ce": ["29"], "perftest": ["24", "23"]}, perftest="23", bash="5")
    apt.along = {"containerd.io": "2"}
    resources: list[dict[str, Any]] = [
        {"package": "docker-ce", "consent": "docker_allow_restart"},
        {"package": "perftest", "version": "24"},
    ]
    records = stand(host, resources)
    assert records == {"package:docker-ce": {"version": None}, "package:perftest": {"version": "23"}}
    host.converge(resources)
    apt.along = {}

    brought = {"docker-ce": ["containerd.io"]}
    steps, pending = put_back(host, resources, records, brought, docker_allow_restart=True)

    assert [step.action for step in steps] == ["exchange", "remove", "remove"]
    assert pending == []
    assert apt.packages == {"perftest": "23", "bash": "5"}
    real = [call for call in host.calls if call[:2] == ["apt-get", "install"] and "--simulate" not in call][-1]
    assert "--purge" in real and "containerd.io-" in real


def test_nothing_else_goes_and_nothing_without_consent(host: FakeHost) -> None:
    apt = FakeApt(host, {"docker-ce": ["29"]}, theirs="1")
    resources = [{"package": "docker-ce", "consent": "docker_allow_restart"}]
    records = stand(host, resources)
    host.converge(resources)
    assert [wait.action for wait in put_back_pending(host, resources, records)] == ["remove"]
    apt.removed = ["theirs"]
    with pytest.raises(HostError, match="apt would also remove theirs"):
        put_back(host, resources, records, docker_allow_restart=True)
    assert apt.packages["docker-ce"] == "29"


def put_back_pending(host: FakeHost, resources: list[dict[str, Any]], records: Records) -> list[Pending]:
    document = [
        replace(restored, index=index)
        for index, resource in enumerate(reversed(parsed(resources, {})))
        for restored in KINDS[resource.KIND].restore(resource, records[resource.label])
    ]
    return plan_of(host, document, {})[0].pending


def test_holds_are_as_before_and_do_not_keep_what_they_held(host: FakeHost) -> None:
    apt = FakeApt(host, {"nvidia-utils": ["580"]}, nvidia_driver="580", libnvidia_compute="580", bash="5")
    apt.want["nvidia-driver"] = "hold"
    apt.write()
    resources: list[dict[str, Any]] = [{"package": "nvidia-utils"}, SET, {"hold": "bash"}]
    records = stand(host, resources)
    assert records["hold:driver-set"] == {"libnvidia-compute": False, "nvidia-driver": True}
    host.converge(resources)
    assert set(apt.want.values()) == {"hold"}

    steps, _pending = put_back(host, resources, records)

    assert [(step.resource.label, step.detail) for step in steps] == [
        ("hold:bash", "bash"),
        ("hold:driver-set", "libnvidia-compute, nvidia-utils"),
        ("package:nvidia-utils", "580"),
    ]
    assert "nvidia-utils" not in apt.packages
    assert {name for name, word in apt.want.items() if word == "hold"} == {"nvidia-driver"}


def test_a_hold_of_somebody_else_keeps_the_package(host: FakeHost) -> None:
    apt = FakeApt(host, {"nvidia-utils": ["580"]}, bash="5")
    resources = [{"package": "nvidia-utils"}]
    records = stand(host, resources)
    host.converge(resources)
    apt.want["nvidia-utils"] = "hold"
    apt.write()
    with pytest.raises(HostError, match="package:nvidia-utils: 580 is on hold"):
        put_back(host, resources, records)


def test_holds_of_packages_that_have_gone_are_no_error(host: FakeHost) -> None:
    apt = FakeApt(host, {}, nvidia_driver="580")
    records = stand(host, [SET])
    host.converge([SET])
    del apt.packages["nvidia-driver"]
    apt.write()
    assert put_back(host, [SET], records) == ([], [])


# ---------------------------------------------------------------------------------------------------------------- units


@pytest.fixture
def systemd(host: FakeHost) -> FakeSystemd:
    return FakeSystemd(host)


def test_a_unit_that_we_brought_is_stopped_and_disabled_before_its_file_goes(
    host: FakeHost, systemd: FakeSystemd
) -> None:
    records = stand(host, DOCUMENT)
    assert records["unit:demo.service"] == {"load": "not-found", "file_state": "", "active": "inactive"}
    host.converge(DOCUMENT)
    steps, _pending = put_back(host, DOCUMENT, records, demo_allow_restart=True)
    assert [(step.resource.KIND, step.action) for step in steps] == [
        ("unit", "disable"),
        ("unit", "stop"),
        ("file", "remove"),
        ("file", "remove"),
    ]
    assert not host.path(UNIT_FILE).exists()


def test_to_stop_what_runs_needs_the_consent_of_the_unit(host: FakeHost, systemd: FakeSystemd) -> None:
    records = stand(host, DOCUMENT)
    host.converge(DOCUMENT)
    assert [(wait.action, wait.consent) for wait in put_back_pending(host, DOCUMENT, records)] == [
        ("stop", "demo_allow_restart")
    ]


@pytest.mark.parametrize(
    "before",
    [
        {"LoadState": "loaded", "UnitFileState": "disabled", "ActiveState": "inactive"},
        {"LoadState": "loaded", "UnitFileState": "disabled", "ActiveState": "active"},
        {"LoadState": "loaded", "UnitFileState": "enabled", "ActiveState": "inactive"},
        {"LoadState": "masked", "UnitFileState": "masked", "ActiveState": "inactive"},
        {"LoadState": "masked", "UnitFileState": "masked", "ActiveState": "active"},
    ],
)
@pytest.mark.parametrize(
    "wish",
    [{}, {"enabled": True}, {"state": "started"}, {"enabled": True, "state": "started"}, {"state": "stopped"}],
    ids=str,
)
def test_units_are_as_before(
    host: FakeHost, systemd: FakeSystemd, before: dict[str, str], wish: dict[str, Any]
) -> None:
    systemd.add("old.service").update(before)
    resources = [{"unit": "old.service", **wish}]
    records = stand(host, resources)
    host.converge(resources)
    put_back(host, resources, records)
    assert {key: systemd.units["old.service"][key] for key in before} == before


def test_a_unit_that_has_gone_is_no_error(host: FakeHost, systemd: FakeSystemd) -> None:
    systemd.add("old.service", active="active", file="enabled")
    resources = [{"unit": "old.service", "enabled": False, "state": "stopped"}]
    records = stand(host, resources)
    host.converge(resources)
    del systemd.units["old.service"]
    assert put_back(host, resources, records) == ([], [])


def test_what_a_oneshot_service_does_at_the_moment_is_no_record(host: FakeHost, systemd: FakeSystemd) -> None:
    unit = systemd.add("job.service")
    unit["Type"] = "oneshot"
    resources = [{"unit": "job.service", "enabled": True}]
    idle = stand(host, resources)
    unit["ActiveState"] = "active"
    assert stand(host, resources) == idle


def test_a_unit_that_keeps_running_restarts_with_its_old_inputs(host: FakeHost, systemd: FakeSystemd) -> None:
    systemd.add("old.service", active="active", file="enabled")
    host.file("/etc/old.conf", "old\n")
    resources: list[dict[str, Any]] = [
        {"file": "/etc/old.conf", "content": "new\n"},
        {"unit": "old.service", "restart_on": ["/etc/old.conf"], "consent": "allow"},
    ]
    records = stand(host, resources)
    host.converge(resources, allow=True)
    steps, _pending = put_back(host, resources, records, allow=True)
    assert "restart" in [step.action for step in steps]


# --------------------------------------------------------------------------------------------------------------- kernel


def test_kernel_state_goes_back(host: FakeHost) -> None:
    host.file("/proc/sys/net/ipv4/conf/all/arp_ignore", "0\n")
    host.file("/proc/modules", "")

    def modprobe(argv: list[str], stdin: str | None) -> str:
        host.file("/proc/modules", "" if argv[1] == "-r" else "rdma_cm 1 0 - Live 0x0\n")
        return ""

    host.on("modprobe", modprobe)
    resources: list[dict[str, Any]] = [
        {"kernel_module": "rdma_cm"},
        {"sysctl": "net.ipv4.conf.all.arp_ignore", "value": 1},
    ]
    before, records = host.digest(), stand(host, resources)
    host.converge(resources)
    steps, _pending = put_back(host, resources, records)
    assert [step.action for step in steps] == ["remove", "remove", "update", "unload"]
    after = host.digest()
    assert {path: after[path] for path in before} == before
    assert [path for path in after if path not in before and not path.endswith(".d")] == []


def test_a_setting_that_went_with_its_module_is_no_error(host: FakeHost) -> None:
    resources = [{"sysctl": "net.rdma.max", "value": 1}]
    assert stand(host, resources)["sysctl:net.rdma.max"] == {"value": None}
    put_back(host, resources, {**stand(host, resources), "sysctl:net.rdma.max": {"value": "5"}})


# ------------------------------------------------------------------------------------------------------------- profiles


@pytest.fixture
def manager(host: FakeHost) -> FakeNetworkManager:
    return FakeNetworkManager(host)


def network(manager: FakeNetworkManager) -> dict[str, Any]:
    mtu = manager.host.path(f"/sys/class/net/{P0}/mtu").read_text()
    profiles = {identity: dict(profile) for identity, profile in manager.profiles.items()}
    return {"profiles": profiles, "addresses": list(manager.addresses[P0]), "mtu": mtu}


@pytest.mark.parametrize("device", ["", P0])
def test_a_rail_is_given_back_to_whom_it_belonged(host: FakeHost, manager: FakeNetworkManager, device: str) -> None:
    manager.foreign("theirs", P0, device=device)
    manager.profiles["foreign-theirs"].update({"ipv4.addresses": "198.51.100.1/24", "802-3-ethernet.mtu": "1500"})
    if device:
        manager.link(P0, "198.51.100.1/24")
    resources = [rail(replace_foreign=True)]
    before, records = network(manager), stand(host, resources)
    host.converge(resources, fabric_allow_activation=True)
    left = stand(host, resources)
    assert left != records

    steps, _pending = put_back(host, resources, records, fabric_allow_activation=True)

    assert [step.action for step in steps] == ["remove"]
    assert network(manager) == before
    assert manager.ended == ["CheckpointDestroy"] * 2
    assert stand(host, resources) == records


def test_what_keeps_another_profile_from_coming_up_does_not_keep_ours(
    host: FakeHost, manager: FakeNetworkManager, fail: Callable[..., Any]
) -> None:
    manager.foreign("dhcp", P0, device=P0)
    resources = [rail(replace_foreign=True)]
    records = stand(host, resources)
    host.converge(resources, fabric_allow_activation=True)
    host.on("nmcli --wait", fail("Error: Connection activation failed: IP configuration could not be reserved"))
    put_back(host, resources, records, fabric_allow_activation=True)
    assert list(manager.profiles) == ["foreign-dhcp"]
    assert manager.profiles["foreign-dhcp"]["connection.autoconnect"] == "yes"


def test_what_networkmanager_made_up_is_for_it_to_make_up_again(host: FakeHost, manager: FakeNetworkManager) -> None:
    manager.foreign("Wired connection 1", P0, device=P0, filename="/run/NetworkManager/system-connections/x")
    records = stand(host, [rail()])
    assert (records[f"nm_profile:gb10-{P0}"]["active"], records[f"nm_profile:gb10-{P0}"]["others"]) == (None, {})
    host.converge([rail()], fabric_allow_activation=True)
    del manager.profiles["foreign-Wired connection 1"]
    put_back(host, [rail()], records, fabric_allow_activation=True)
    assert manager.profiles == {}


def test_a_link_gets_its_mtu_back_where_networkmanager_does_not_give_it(
    host: FakeHost, manager: FakeNetworkManager
) -> None:
    before, records = network(manager), stand(host, [rail()])
    host.converge([rail()], fabric_allow_activation=True)
    manager.keeps_mtu = True
    put_back(host, [rail()], records, fabric_allow_activation=True)
    assert network(manager) == before
    assert host.commands("ip link") == [f"ip link set dev {P0} mtu 1500"]


def test_a_profile_of_ours_gets_its_former_settings_back(host: FakeHost, manager: FakeNetworkManager) -> None:
    host.converge([rail(address="192.0.2.9/30")], fabric_allow_activation=True)
    before, records = network(manager), stand(host, [rail()])
    host.converge([rail()], fabric_allow_activation=True)
    steps, _pending = put_back(host, [rail()], records, fabric_allow_activation=True)
    assert [step.detail for step in steps] == ["ipv4.addresses 192.0.2.1/30 -> 192.0.2.9/30"]
    assert network(manager) == before


def test_a_profile_that_was_taken_away_comes_back(host: FakeHost, manager: FakeNetworkManager) -> None:
    host.converge([rail()], fabric_allow_activation=True)
    stored = {key: value for key, value in manager.profiles[UUID_P0].items() if "." in key}
    gone = [{key: rail()[key] for key in ("nm_profile", "uuid", "interface", "consent")} | {"state": "absent"}]
    records = stand(host, gone)
    assert [change["action"] for change in host.both(gone, fabric_allow_activation=True).changes] == ["remove"]
    assert UUID_P0 not in manager.profiles
    put_back(host, gone, records, fabric_allow_activation=True)
    assert {key: value for key, value in manager.profiles[UUID_P0].items() if "." in key} == stored


def test_a_rail_that_cannot_be_given_back_is_rolled_back(
    host: FakeHost, manager: FakeNetworkManager, fail: Callable[..., Any]
) -> None:
    records = stand(host, [rail()])
    host.converge([rail()], fabric_allow_activation=True)
    host.on("nmcli connection delete", fail("Error: no"))
    with pytest.raises(HostError, match="Error: no"):
        put_back(host, [rail()], records, fabric_allow_activation=True)
    assert manager.ended[-1] == "CheckpointRollback"


def test_a_cable_that_is_plugged_in_or_out_is_no_change(host: FakeHost, manager: FakeNetworkManager) -> None:
    host.converge([rail()], fabric_allow_activation=True)
    left = stand(host, [rail()])
    manager.profiles[UUID_P0]["device"] = ""
    manager.link(P0, carrier="0")
    assert stand(host, [rail()]) == left
