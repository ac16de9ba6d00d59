from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.engine.engine import ApplyError
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.common import DocumentError
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.file_paths import unit_pattern
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.units import LOADED, OWED_RESTARTS, SETTLE_S
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import NOT_ENDED, Completed, HostError

from tests.support.systemd import DOCUMENT, UNIT_FILE, FakeSystemd

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.fake_host import FakeHost


@pytest.fixture
def systemd(host: FakeHost) -> FakeSystemd:
    return FakeSystemd(host)


def test_a_new_unit_is_loaded_enabled_and_started_without_consent(host: FakeHost, systemd: FakeSystemd) -> None:
    outcome = host.both(DOCUMENT)

    assert [change["action"] for change in outcome.changes] == ["create", "create", "enable", "start"]
    assert outcome.pending == []
    # A restart, because the package of a unit may have started it meanwhile with its old inputs.
    assert systemd.acts() == [
        "systemctl enable --no-reload demo.service",
        "systemctl daemon-reload",
        "systemctl reset-failed demo.service",
        "systemctl restart demo.service",
    ]
    host.calls.clear()
    assert host.converge(DOCUMENT).changes == []
    assert len(host.calls) == 1


def test_many_new_units_cost_one_reload_and_are_told_in_the_order_of_the_plan(
    host: FakeHost, systemd: FakeSystemd
) -> None:
    names = ("a", "b", "c")
    files = [{"file": f"/etc/systemd/system/{name}.service", "content": "[Service]\n"} for name in names]
    outcome = host.both([*files, *({"unit": f"{name}.service", "enabled": True, "state": "started"} for name in names)])

    assert [change["action"] for change in outcome.changes] == ["create"] * 3 + ["enable", "start"] * 3
    acts = systemd.acts()
    assert acts.count("systemctl daemon-reload") == 1
    assert acts[:4] == [*(f"systemctl enable --no-reload {name}.service" for name in names), "systemctl daemon-reload"]


def test_what_was_done_before_a_unit_failed_is_told(
    host: FakeHost, systemd: FakeSystemd, fail: Callable[..., Completed]
) -> None:
    systemd.add("a.service")
    systemd.add("b.service")
    host.on("systemctl start b.service", fail("no"))
    with pytest.raises(ApplyError, match=r"unit:b\.service: systemctl start failed") as caught:
        host.converge([{"unit": f"{name}.service", "enabled": True, "state": "started"} for name in "ab"])
    told = [(change["resource"], change["action"]) for change in caught.value.changes]
    assert told == [("unit:a.service", "enable"), ("unit:a.service", "start"), ("unit:b.service", "enable")]


def test_a_unit_that_cannot_be_enabled_holds_back_none_before_it(
    host: FakeHost, systemd: FakeSystemd, fail: Callable[..., Completed]
) -> None:
    systemd.add("a.service")
    systemd.add("b.service")
    systemd.add("other.service", active="active", file="enabled")
    host.on("systemctl enable --no-reload b.service", fail("Failed to enable unit: File b.service already exists"))
    with pytest.raises(ApplyError, match=r"unit:b\.service: systemctl enable failed") as caught:
        host.converge([{"unit": f"{name}.service", "enabled": True, "state": "started"} for name in "ab"])
    told = [(change["resource"], change["action"]) for change in caught.value.changes]
    assert told == [("unit:a.service", "enable"), ("unit:a.service", "start")]
    assert systemd.units["a.service"]["ActiveState"] == "active"
    assert host.converge([{"unit": "other.service", "state": "started"}]).changes == []


@pytest.mark.parametrize(("unit", "waited_s"), [("demo.service", SETTLE_S), ("demo.timer", 0), ("demo.path", 0)])
def test_only_a_program_is_given_the_time_to_fail(
    host: FakeHost, systemd: FakeSystemd, unit: str, waited_s: float
) -> None:
    systemd.add(unit)
    host.converge([{"unit": unit, "state": "started"}])
    assert host.clock.time == waited_s


def unit_reads(host: FakeHost, content: str) -> None:
    """The file says this, and nobody knows what the unit has read, as where somebody else has started it."""
    host.file("/etc/demo.conf", content)
    host.path(LOADED).unlink()


def test_a_change_restarts_a_running_unit_with_consent(host: FakeHost, systemd: FakeSystemd) -> None:
    host.converge(DOCUMENT)
    unit_reads(host, "old\n")

    outcome = host.both(DOCUMENT, demo_allow_restart=True)

    assert [change["action"] for change in outcome.changes] == ["update", "restart"]
    assert systemd.acts()[-1] == "systemctl restart demo.service"
    assert json.loads(host.path(OWED_RESTARTS).read_text()) == {}
    assert host.converge(DOCUMENT, demo_allow_restart=True).changes == []


def test_a_file_put_back_to_what_the_unit_has_read_needs_no_restart(host: FakeHost, systemd: FakeSystemd) -> None:
    host.converge(DOCUMENT)
    host.file("/etc/demo.conf", "somebody's\n")
    host.path(UNIT_FILE).chmod(0o600)
    outcome = host.both(DOCUMENT)
    assert [change["resource"] for change in outcome.changes] == [f"file:{UNIT_FILE}", "file:/etc/demo.conf"]
    assert outcome.pending == []
    assert systemd.starts == 1


@pytest.mark.parametrize(
    "meanwhile",
    [
        lambda host, systemd: systemd.act(["systemctl", "restart", "demo.service"], None),
        lambda host, systemd: systemd.units["demo.service"].update(StateChangeTimestampMonotonic="9"),  # a reload
        lambda host, systemd: host.path(LOADED).unlink(),  # a reboot
        lambda host, systemd: host.file(LOADED, "{"),
    ],
)
def test_what_has_been_read_since_is_read_again(
    host: FakeHost, systemd: FakeSystemd, meanwhile: Callable[[Any, Any], Any]
) -> None:
    host.converge(DOCUMENT)
    systemd.units["demo.service"].update(CanReload="yes", StateChangeTimestampMonotonic="5")
    host.path(LOADED).unlink()
    host.file("/etc/demo.conf", "other\n")
    assert host.converge(DOCUMENT, demo_allow_restart=True).changes[-1]["action"] == "restart"
    host.file("/etc/demo.conf", "somebody's\n")
    meanwhile(host, systemd)
    assert [change["action"] for change in host.both(DOCUMENT, demo_allow_restart=True).changes] == [
        "update",
        "restart",
    ]


def test_a_restart_that_is_owed_is_not_when_the_former_content_comes_back(host: FakeHost, systemd: FakeSystemd) -> None:
    host.converge(DOCUMENT)
    newer = [DOCUMENT[0], {**DOCUMENT[1], "content": "b\n"}, DOCUMENT[2]]
    assert [item["action"] for item in host.both(newer).pending] == ["restart"]
    outcome = host.both(DOCUMENT)
    assert ([change["action"] for change in outcome.changes], outcome.pending) == (["update"], [])


def test_the_layout_of_json_is_no_content(host: FakeHost, systemd: FakeSystemd) -> None:
    path = "/etc/docker/daemon.json"
    host.file(path, '{\n  "theirs": 1,\n  "a": 1\n}')
    systemd.add("docker.service", active="active", file="enabled")
    unit = {"unit": "docker.service", "restart_on": [path], "consent": "demo_allow_restart"}
    merged = [{"file": path, "merge_json": {"a": 2}}, unit]
    host.converge(merged, demo_allow_restart=True)
    host.file(path, '{"a": 9, "theirs": 1}')
    outcome = host.both(merged)
    assert ([change["action"] for change in outcome.changes], outcome.pending) == (["update"], [])


NEW_VERSION = [
    {"file": UNIT_FILE, "content": "[Service]\nExecStart=/usr/local/sbin/demo\n"},
    {"file": "/usr/local/sbin/demo", "content": "one\n"},
    {"file": "/etc/demo.json", "content": '{"serves": "a", "words": ["x"], "more": 1}'},
    {
        "unit": "demo.service",
        "state": "started",
        "restart_on": [UNIT_FILE, "/etc/demo.json"],
        "at_next_start": ["/usr/local/sbin/demo", "/etc/demo.json#words", "/etc/demo.json#more"],
    },
]
ANOTHER = [
    NEW_VERSION[0],
    {**NEW_VERSION[1], "content": "two\n"},
    {**NEW_VERSION[2], "content": '{"serves": "a", "words": ["x", "y"]}'},
    NEW_VERSION[3],
]


@pytest.mark.parametrize("known", [True, False])
def test_what_can_wait_for_the_next_start_restarts_no_unit_that_is_up(
    host: FakeHost, systemd: FakeSystemd, known: bool
) -> None:
    host.converge(NEW_VERSION)
    if not known:  # as an engine that had no such word left it
        host.path(LOADED).unlink()
    outcome = host.both(ANOTHER)
    assert [change["action"] for change in outcome.changes] == ["update", "update"] and systemd.starts == 1
    assert not host.path(OWED_RESTARTS).exists() and host.converge(ANOTHER).changes == []


@pytest.mark.parametrize("content", ['{"serves": "b", "words": ["x"], "more": 1}', '["words"]', "no JSON"])
def test_what_else_changes_beside_it_restarts(host: FakeHost, systemd: FakeSystemd, content: str) -> None:
    host.converge(NEW_VERSION)
    outcome = host.both([*ANOTHER[:2], {**ANOTHER[2], "content": content}, ANOTHER[3]])
    assert outcome.changes[-1]["detail"] == "changed: file:/etc/demo.json" and systemd.starts == 2


@pytest.mark.parametrize("changed", [1, 2])
def test_a_unit_on_its_way_up_restarts_for_what_could_wait(host: FakeHost, systemd: FakeSystemd, changed: int) -> None:
    """It waits for other hosts with its former program, and they may have the new one."""
    host.converge(NEW_VERSION)
    systemd.units["demo.service"].update(ActiveState="activating", SubState="start")
    document = [*NEW_VERSION]
    document[changed] = ANOTHER[changed]
    assert [change["action"] for change in host.both(document).changes] == ["update", "restart"]


def test_what_can_wait_is_declared_before_its_unit(host: FakeHost) -> None:
    with pytest.raises(DocumentError, match=r"at_next_start\[0\]: file:/usr/local/sbin/demo is not declared before"):
        host.converge([NEW_VERSION[0], NEW_VERSION[2], NEW_VERSION[3]])


def test_without_consent_the_restart_is_owed_until_it_happened(host: FakeHost, systemd: FakeSystemd) -> None:
    host.converge(DOCUMENT)
    unit_reads(host, "old\n")
    owed = [{"role": "demo", "resource": "unit:demo.service", "action": "restart", "consent": "demo_allow_restart"}]

    assert host.both(DOCUMENT).pending == owed
    again = host.both(DOCUMENT)
    assert (again.changes, again.pending) == ([], owed)
    (change,) = host.both(DOCUMENT, demo_allow_restart=True).changes
    assert (change["action"], change["detail"]) == ("restart", "changed: in an earlier run")
    assert host.converge(DOCUMENT).pending == []


def test_a_restart_by_hand_settles_what_was_owed(host: FakeHost, systemd: FakeSystemd) -> None:
    host.converge(DOCUMENT)
    host.file("/etc/demo.conf", "old\n")
    host.converge(DOCUMENT)
    systemd.act(["systemctl", "restart", "demo.service"], None)
    assert host.converge(DOCUMENT).pending == []


def test_a_run_killed_before_the_restart_is_made_up_for(host: FakeHost, systemd: FakeSystemd) -> None:
    host.converge(DOCUMENT)
    unit_reads(host, "old\n")

    def killed(argv: list[str], stdin: str | None) -> str:
        raise KeyboardInterrupt

    host.on("systemctl restart", killed)
    with pytest.raises(KeyboardInterrupt):
        host.converge(DOCUMENT, demo_allow_restart=True)
    host.on("systemctl restart", systemd.act)

    assert [change["action"] for change in host.both(DOCUMENT, demo_allow_restart=True).changes] == ["restart"]


READS = [DOCUMENT[0], DOCUMENT[1], {**DOCUMENT[2], "restart_on": [UNIT_FILE], "reload_on": ["/etc/demo.conf"]}]


def test_what_a_unit_reads_again_stops_nothing_and_needs_no_consent(host: FakeHost, systemd: FakeSystemd) -> None:
    host.converge(READS)
    began = systemd.starts
    newer = [READS[0], {**READS[1], "content": "b\n"}, READS[2]]
    host.calls.clear()
    outcome = host.both(newer)
    assert ([change["action"] for change in outcome.changes], outcome.pending) == (["update", "read again"], [])
    assert (systemd.acts(), systemd.starts) == (["systemctl reload demo.service"], began)
    assert host.converge(newer).changes == []


def test_a_changed_unit_file_restarts_and_reads_everything(host: FakeHost, systemd: FakeSystemd) -> None:
    host.converge(READS)
    newer = [{**READS[0], "content": "[Service]\nExecStart=/bin/y\n"}, {**READS[1], "content": "b\n"}, READS[2]]
    outcome = host.both(newer, demo_allow_restart=True)
    assert [change["action"] for change in outcome.changes] == ["update", "update", "restart"]


def test_what_was_not_read_again_is_made_up_for_by_a_restart(host: FakeHost, systemd: FakeSystemd) -> None:
    host.converge(READS)

    def killed(argv: list[str], stdin: str | None) -> str:
        raise KeyboardInterrupt

    host.on("systemctl reload", killed)
    newer = [READS[0], {**READS[1], "content": "b\n"}, READS[2]]
    with pytest.raises(KeyboardInterrupt):
        host.converge(newer)
    host.on("systemctl reload", systemd.read_again)
    assert [change["action"] for change in host.both(newer, demo_allow_restart=True).changes] == ["restart"]


def test_a_run_killed_before_the_reload_is_made_up_for(host: FakeHost, systemd: FakeSystemd) -> None:
    host.converge(DOCUMENT)
    systemd.units["demo.service"]["NeedDaemonReload"] = "yes"
    assert [change["action"] for change in host.both(DOCUMENT).changes] == ["reload"]


@pytest.mark.parametrize(
    ("unit", "file"),
    [
        ("docker.service", "docker.service.d/x.conf"),
        ("docker.service", "docker.service"),
        ("demo@a.service", "demo@.service"),
        ("demo@a.service", "demo@.service.d/x.conf"),
    ],
)
def test_a_changed_file_of_a_loaded_unit_alone_reloads_systemd(
    host: FakeHost, systemd: FakeSystemd, unit: str, file: str
) -> None:
    systemd.add(unit, active="active")
    host.converge([{"file": f"/etc/systemd/system/{file}", "content": "[Service]\n"}])
    assert systemd.acts() == ["systemctl daemon-reload"]


@pytest.mark.parametrize(
    "file", ["new.service", "new.service.d/x.conf", "new@.service", "new@.timer.d/x.conf", "notes.txt"]
)
def test_a_new_unit_that_nobody_starts_needs_no_reload(host: FakeHost, systemd: FakeSystemd, file: str) -> None:
    systemd.add("docker.service", active="active")
    host.converge([{"file": f"/etc/systemd/system/{file}", "content": "[Service]\n"}])
    assert systemd.acts() == []


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("/etc/systemd/system/a.service", "a.service"),
        ("/etc/systemd/system/a.b.timer.d/x.conf", "a.b.timer"),
        ("/etc/systemd/system/a@.service", "a@*.service"),
        ("/etc/systemd/system/a@b.service", "a@b.service"),
        ("/etc/systemd/system/a-.service.d/x.conf", "a-*.service"),
        ("/etc/systemd/system/service.d/x.conf", "*.service"),
        ("/usr/local/lib/systemd/system/a.mount", "a.mount"),
        ("/etc/systemd/system/multi-user.target.wants/a.service", ""),
        ("/etc/systemd/network/a.service", ""),
    ],
)
def test_the_units_of_a_unit_file(path: str, pattern: str) -> None:
    assert unit_pattern(path) == pattern


PROBED = [{**resource, "probe": ["demo", "holds"]} if "unit" in resource else resource for resource in DOCUMENT]
LOST = Completed(("demo",), 1, stderr="no table")


def test_a_unit_whose_work_is_gone_is_restarted(host: FakeHost, systemd: FakeSystemd) -> None:
    standing = [True]

    def restart(argv: list[str], stdin: str | None) -> str:
        standing[0] = True
        return systemd.act(argv, stdin)

    host.on("demo holds", lambda argv, stdin: "" if standing[0] else LOST)
    host.on("systemctl restart", restart)
    host.converge(PROBED)
    assert host.converge(PROBED).changes == []
    standing[0] = False
    assert [item["action"] for item in host.both(PROBED).pending] == ["repair"], "it has a consent"
    (change,) = host.both(PROBED, demo_allow_restart=True).changes
    assert (change["action"], change["detail"]) == ("repair", "it is up, and what it has set up is not: no table")
    assert host.converge(PROBED).changes == []


def test_a_probe_that_has_no_time_says_nothing_of_what_stands(host: FakeHost, systemd: FakeSystemd) -> None:
    host.on("demo holds", "")
    host.converge(PROBED)
    host.on("demo holds", Completed(("demo",), NOT_ENDED, stderr="demo did not end within 30 s"))
    (change,) = host.converge(PROBED, check_mode=True, demo_allow_restart=True).changes
    assert change["detail"] == "it is up, and what it has set up cannot be seen: demo did not end within 30 s"


def test_a_restart_that_does_not_help_has_failed(host: FakeHost, systemd: FakeSystemd) -> None:
    host.on("demo holds", "")
    host.converge(PROBED)
    host.on("demo holds", LOST)
    with pytest.raises(ApplyError, match="still needs repair"):
        host.converge(PROBED, demo_allow_restart=True)


def test_a_unit_that_stands_still_is_not_probed(host: FakeHost, systemd: FakeSystemd) -> None:
    host.converge(PROBED, check_mode=True)
    assert host.commands("demo") == []


def test_a_unit_that_is_stopped_has_no_probe(host: FakeHost, systemd: FakeSystemd) -> None:
    with pytest.raises(DocumentError, match=r"probe: a unit that is stopped"):
        host.converge([{"unit": "demo.service", "state": "stopped", "probe": ["demo"]}])


@pytest.mark.parametrize(
    ("drift", "actions"),
    [
        ({"LoadState": "masked", "UnitFileState": "masked"}, ["unmask", "enable"]),
        ({"UnitFileState": "disabled"}, ["enable"]),
        ({"UnitFileState": "enabled-runtime"}, ["enable"]),
        ({"ActiveState": "inactive"}, ["start"]),
        ({"ActiveState": "failed"}, ["start"]),
        ({"ActiveState": "activating", "SubState": "auto-restart"}, ["start"]),
        ({"ActiveState": "activating", "SubState": "auto-restart-queued"}, ["start"]),
        ({"ActiveState": "refreshing", "SubState": "refresh-extensions"}, []),
        ({"ActiveState": "activating", "SubState": "start"}, []),
    ],
)
def test_each_drift_is_named_and_repaired(
    host: FakeHost, systemd: FakeSystemd, drift: dict[str, str], actions: list[str]
) -> None:
    host.converge(DOCUMENT)
    systemd.units["demo.service"].update(drift)
    systemd.failures = 5
    assert [change["action"] for change in host.both(DOCUMENT).changes] == actions
    assert host.converge(DOCUMENT).changes == []


def test_a_masked_unit_that_still_runs_is_not_restarted(host: FakeHost, systemd: FakeSystemd) -> None:
    systemd.add("old.service", active="active").update(LoadState="masked", UnitFileState="masked")
    resources: list[dict[str, Any]] = [
        {"file": "/etc/old.conf", "content": "new\n"},
        {"unit": "old.service", "restart_on": ["/etc/old.conf"]},
    ]
    assert [change["action"] for change in host.both(resources).changes] == ["create"]


def test_stopped_and_disabled(host: FakeHost, systemd: FakeSystemd) -> None:
    systemd.add("old.service", active="active", file="enabled")
    resources: list[dict[str, Any]] = [
        {"unit": "old.service", "enabled": False, "state": "stopped"},
        {"unit": "gone.timer", "state": "stopped"},
    ]
    assert [change["action"] for change in host.both(resources).changes] == ["disable", "stop"]


def test_a_unit_that_nothing_brings_is_refused_before_anything_is_touched(host: FakeHost, systemd: FakeSystemd) -> None:
    with pytest.raises(HostError, match=r"unit:nosuch\.service: systemd has no such unit"):
        host.converge([{"file": "/etc/a", "content": ""}, {"unit": "nosuch.service", "state": "started"}])
    assert not host.path("/etc/a").exists()


def test_a_unit_that_fails_to_start_brings_its_last_words(
    host: FakeHost, systemd: FakeSystemd, fail: Callable[..., Any]
) -> None:
    host.on("systemctl restart", fail("Job for demo.service failed."))
    host.on("journalctl", "demo: no such model\n")
    with pytest.raises(ApplyError, match=r"Job for demo\.service failed\.\s.*\s.*no such model"):
        host.converge(DOCUMENT)


def test_a_unit_that_dies_a_moment_later_is_no_success(host: FakeHost, systemd: FakeSystemd) -> None:
    def die() -> None:
        systemd.units["demo.service"].update(ActiveState="activating", SubState="auto-restart")

    host.clock.at_sleep = die
    with pytest.raises(ApplyError, match=r"unit:demo\.service: does not hold"):
        host.converge(DOCUMENT)


def test_a_unit_that_dies_at_once_is_no_success(host: FakeHost, systemd: FakeSystemd) -> None:
    host.on("systemctl restart", "")  # says yes and does nothing
    host.on("journalctl", "demo: out of memory\n")
    with pytest.raises(
        ApplyError, match=r"unit:demo\.service: does not hold, it still needs start[^$]*out of memory"
    ) as caught:
        host.converge(DOCUMENT)
    assert len(caught.value.changes) == 4


PATIENT = [*DOCUMENT[:2], {**DOCUMENT[2], "wait": False}]


@pytest.mark.parametrize(
    "found",
    [
        {"ActiveState": "activating", "SubState": "start"},  # as long as its peers are missing
        {"ActiveState": "inactive", "SubState": "dead", "Job": "4711"},  # behind a unit that is still starting
        {"ActiveState": "active", "SubState": "running"},
    ],
)
def test_a_unit_that_is_not_waited_for_need_not_be_up(
    host: FakeHost, systemd: FakeSystemd, found: dict[str, str]
) -> None:
    systemd.after_no_block = found
    assert [change["action"] for change in host.both(PATIENT).changes] == ["create", "create", "enable", "start"]
    assert systemd.acts()[-2:] == ["systemctl stop demo.service", "systemctl start --no-block demo.service"]
    assert host.converge(PATIENT).changes == []

    unit_reads(host, "old\n")
    outcome = host.both(PATIENT, demo_allow_restart=True)
    assert [change["action"] for change in outcome.changes] == ["update", "restart"]
    assert host.converge(PATIENT).pending == []


@pytest.mark.parametrize(
    "found",
    [
        {"ActiveState": "activating", "SubState": "auto-restart"},
        {"ActiveState": "activating", "SubState": "auto-restart-queued"},
        {"ActiveState": "failed", "SubState": "failed"},
        {"ActiveState": "inactive", "SubState": "dead", "Job": "0"},
    ],
)
def test_a_unit_that_is_not_waited_for_must_be_on_its_way(
    host: FakeHost, systemd: FakeSystemd, found: dict[str, str]
) -> None:
    systemd.after_no_block = found
    with pytest.raises(ApplyError, match=r"unit:demo\.service: does not hold, it still needs start"):
        host.converge(PATIENT)


def test_a_start_that_is_refused_is_an_error_without_waiting_as_well(
    host: FakeHost, systemd: FakeSystemd, fail: Callable[..., Any]
) -> None:
    host.on("systemctl start --no-block", fail("Unit docker.service not found."))
    with pytest.raises(ApplyError, match=r"systemctl start failed: Unit docker\.service not found"):
        host.converge(PATIENT)


@pytest.mark.parametrize(
    ("path", "forgets"),
    [
        ("/etc/systemd/system/demo.service", ["systemctl reset-failed -- demo.service"]),
        ("/etc/systemd/system/guard@.service", ["systemctl reset-failed -- guard@*.service"]),
        ("/etc/systemd/system/demo.service.d/50-x.conf", []),
        ("/etc/demo.conf", []),
    ],
)
def test_a_unit_that_has_failed_is_forgotten_with_its_file(host: FakeHost, path: str, forgets: list[str]) -> None:
    """Nobody declares the state of a static unit, so nobody else would."""
    FakeSystemd(host)
    host.on("systemctl reset-failed --", "")
    host.converge([{"file": path, "content": "[Service]\n"}])
    assert host.commands("systemctl reset-failed") == []
    host.converge([{"file": path, "state": "absent"}])
    assert host.commands("systemctl reset-failed") == forgets
