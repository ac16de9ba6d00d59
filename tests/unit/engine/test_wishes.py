"""The operator's wish that a unit stands still: what runs, drift and undo make of it, and how it ends."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.engine import wishes
from ansible_collections.gb10.fleet.plugins.module_utils.engine.remote import answer
from ansible_collections.gb10.fleet.plugins.module_utils.reading.stop_requests import read_wishes
from ansible_collections.gb10.fleet.plugins.module_utils.system import manifest as manifests
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.manifest import MANIFEST, Wish
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError, System

from tests.support.world import NoClock, World, request

UNIT, OTHER = "gb10-vllm.service", "gb10-vllm-embed.service"
TIMER, SERVICE = "gb10-wish-gb10-vllm.timer", "gb10-wish-gb10-vllm.service"
FOLDER = "/etc/systemd/system"


def unit(name: str) -> list[dict[str, Any]]:
    return [
        {"file": f"{FOLDER}/{name}", "content": "[Service]\nExecStart=/bin/x\n"},
        {"unit": name, "enabled": True, "state": "started", "wait": False, "restart_on": [f"{FOLDER}/{name}"]},
    ]


DOCUMENTS = [{"role": "vllm", "resources": [*unit(UNIT), *unit(OTHER)]}]


class Dated(NoClock):
    """A clock that a test sets."""

    date = "2026-11-23T20:00:00Z"

    def utc(self) -> str:
        return self.date


class Host(World):
    documents = DOCUMENTS

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.clock = Dated()

    @property
    def system(self) -> System:
        return System(self.root, self.run, self.clock, privileged=True)

    def say(self, verb: str, **more: Any) -> dict[str, Any]:
        documents = self.documents if verb == "converge" else []
        said = dict(answer(request(documents, verb=verb, **more), self.system))
        assert said["error"] is None, said["error"]
        return said

    def wish(self, state: str, until: str = "", unit: str = UNIT, **more: Any) -> dict[str, Any]:
        return self.say("wish", wish={"unit": unit, "state": state, "until": until}, **more)

    def manifest(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.path(MANIFEST).read_text())
        return found

    def stands(self, name: str = UNIT) -> tuple[str, str]:
        return self.units[name]["UnitFileState"], self.units[name]["ActiveState"]

    def timer_fires(self) -> None:
        """What systemd does at the end: the lines of the service, one by one."""
        for line in self.path(f"{FOLDER}/{SERVICE}").read_text().splitlines():
            name, _, command = line.partition("=")
            if name in ("ExecStart", "ExecStartPost"):
                words = command.split()
                if words[0] == "/usr/bin/rm":
                    for path in words[2:]:
                        self.path(path).unlink(missing_ok=True)
                        self.units.pop(path.rpartition("/")[2], None)
                else:
                    assert self.run([words[0].rpartition("/")[2], *words[1:]], None, 1.0).rc == 0


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    host = Host(tmp_path)
    host.say("converge")
    yield host
    monkeypatch.undo()
    time.tzset()


def test_a_stopped_unit_stays_stopped_over_a_boot_and_over_the_next_run(host: Host) -> None:
    said = host.wish("stopped")
    assert {(each["resource"], each["action"]) for each in said["changes"]} == {
        (f"unit:{UNIT}", "disable"),
        (f"unit:{UNIT}", "stop"),
    }
    assert host.stands() == ("disabled", "inactive")
    for check in (True, False):
        again = host.say("converge", check=check)
        assert (again["changes"], again["pending"], again["recorded"]) == ([], [], True)
    assert host.stands() == ("disabled", "inactive")
    assert host.stands(OTHER) == ("enabled", "active")


def test_a_changed_file_does_not_start_it(host: Host) -> None:
    host.wish("stopped")
    host.file(f"{FOLDER}/{UNIT}", "somebody's\n")
    changes = host.say("converge")["changes"]
    assert [each["resource"] for each in changes] == [f"file:{FOLDER}/{UNIT}"]
    assert host.stands() == ("disabled", "inactive")


def test_drift_says_the_wish_and_is_none(host: Host) -> None:
    host.wish("stopped", "07:00")
    found = host.say("drift")
    assert (found["changes"], found["recorded"]) == ([], True)
    (wish,) = found["wishes"]
    assert wish == {
        "unit": UNIT,
        "who": "somebody@controller",
        "since": "2026-11-23T20:00:00Z",
        "until": "2026-11-24T06:00:00Z",
        "shown": "07:00 CET",
    }


def test_who_starts_it_by_hand_drifts_and_the_next_run_stops_it(host: Host) -> None:
    host.wish("stopped")
    assert host.run(["systemctl", "start", UNIT], None, 1.0).rc == 0
    assert [each["action"] for each in host.say("drift")["changes"]] == ["stop"]
    host.say("converge")
    assert host.stands() == ("disabled", "inactive")


def test_a_timer_that_somebody_removes_is_drift_and_comes_back(host: Host) -> None:
    host.wish("stopped", "+2h")
    host.path(f"{FOLDER}/{TIMER}").unlink()
    assert [each["resource"] for each in host.say("drift")["changes"]] == [f"file:{FOLDER}/{TIMER}"]
    host.say("converge")
    assert "OnCalendar=2026-11-23 22:00:00 UTC" in host.path(f"{FOLDER}/{TIMER}").read_text()


def test_the_timer_ends_the_wish_and_leaves_nothing(host: Host) -> None:
    host.path("/var/lib/systemd/timers").mkdir(parents=True)
    before = host.digest()
    host.wish("stopped", "07:00")
    assert host.stands(TIMER) == ("enabled", "active")
    assert "Persistent=true" in host.path(f"{FOLDER}/{TIMER}").read_text()
    host.file(f"/var/lib/systemd/timers/stamp-{TIMER}", "")
    host.clock.date = "2026-11-24T06:00:00Z"
    host.timer_fires()
    assert host.digest() == before
    found = host.say("drift")
    assert (found["changes"], found["wishes"]) == ([], [])
    assert host.say("converge")["changes"] == []
    assert host.say("undo", roles=None)["changes"] != []
    assert not host.path(MANIFEST).exists()


def test_a_wish_that_is_over_does_not_count_where_no_timer_came(host: Host) -> None:
    before = host.digest()
    host.wish("stopped", "07:00")
    host.clock.date = "2026-11-24T06:00:00Z"
    actions = {(each["resource"], each["action"]) for each in host.say("drift")["changes"]}
    assert {(f"unit:{UNIT}", "enable"), (f"unit:{UNIT}", "start"), (f"unit:{TIMER}", "stop")} <= actions
    host.say("converge")
    assert host.digest() == before
    assert "wishes" not in host.manifest()


def test_start_ends_the_wish_with_its_timer(host: Host) -> None:
    before = host.digest()
    host.wish("stopped", "07:00")
    host.wish("started")
    assert host.digest() == before
    assert "wishes" not in host.manifest()
    assert host.wish("started")["changes"] == []


def test_another_end_replaces_the_first(host: Host) -> None:
    host.wish("stopped", "07:00")
    host.clock.date = "2026-11-23T21:00:00Z"
    host.wish("stopped", "08:30")
    assert "OnCalendar=2026-11-24 07:30:00 UTC" in host.path(f"{FOLDER}/{TIMER}").read_text()
    assert host.manifest()["wishes"][f"unit:{UNIT}"]["since"] == "2026-11-23T20:00:00Z"
    host.wish("stopped")
    assert not host.path(f"{FOLDER}/{TIMER}").exists()
    assert host.say("drift")["wishes"][0]["shown"] == ""


def test_undo_takes_wish_and_timer_away(tmp_path: Path) -> None:
    host = Host(tmp_path)
    before = host.digest()
    host.say("converge")
    host.wish("stopped", "+1d")
    host.wish("stopped", unit=OTHER)
    host.say("undo", roles=["vllm"])
    assert host.digest() == before
    assert not host.path(MANIFEST).exists()


def test_a_service_that_its_role_gives_up_takes_its_wish_along(host: Host) -> None:
    host.wish("stopped", "+1d")
    less = [{"role": "vllm", "resources": unit(OTHER)}]
    said = answer(request(less, orphans="remove"), host.system)
    assert said["error"] is None, said["error"]
    assert not host.path(f"{FOLDER}/{TIMER}").exists() and not host.path(f"{FOLDER}/{UNIT}").exists()
    assert "wishes" not in host.manifest()


def test_a_unit_that_rests_is_put_there_and_not_started_until_somebody_does(tmp_path: Path) -> None:
    host = Host(tmp_path)
    before = host.digest()
    file, declared = unit(UNIT)
    documents = [{"role": "vllm", "resources": [file, {**declared, "resting": True}, *unit(OTHER)]}]

    def converge(check: bool = False) -> dict[str, Any]:
        return dict(answer(request(documents, check=check), host.system))

    assert (converge(check=True)["error"], converge()["error"]) == (None, None)
    assert (host.units.get(UNIT), host.stands(OTHER)) == (None, ("enabled", "active"))
    again = converge(check=True)
    assert (again["changes"], again["recorded"]) == ([], True)
    assert host.say("drift")["wishes"][0]["who"] == "gb10_layouts"
    host.wish("started")
    assert (host.stands(), converge()["changes"]) == (("enabled", "active"), [])
    host.say("undo", roles=["vllm"])
    assert host.digest() == before


@pytest.mark.parametrize(
    ("resting", "stands"), [(None, ("enabled", "active")), (False, (None, None)), (True, (None, None))]
)
def test_a_unit_that_rested_starts_when_no_layout_has_it(tmp_path: Path, resting: Any, stands: Any) -> None:
    """False: its layout is the first one now. Another one runs still, so both would want the memory."""
    host = Host(tmp_path)
    file, declared = unit(UNIT)

    def converge(rests: Any) -> dict[str, Any]:
        documents = [{"role": "vllm", "resources": [file, {**declared, "resting": rests}]}]
        return dict(answer(request(documents), host.system))

    assert converge(True)["error"] is None
    said = converge(resting)
    assert said["error"] is None and bool(said["wishes"]) is (resting is not None)
    assert host.units.get(UNIT) is None if stands == (None, None) else host.stands() == stands
    assert converge(resting)["changes"] == []


def test_what_a_person_stopped_stays_so_without_a_layout(host: Host) -> None:
    host.wish("stopped")
    assert host.say("converge")["error"] is None and host.stands() == ("disabled", "inactive")


def test_check_mode_says_it_and_changes_nothing(host: Host) -> None:
    before, manifest = host.digest(), host.manifest()
    said = host.wish("stopped", "07:00", check=True)
    assert len(said["changes"]) >= 4 and said["wishes"][0]["until"] == "2026-11-24T06:00:00Z"
    assert (host.digest(), host.manifest()) == (before, manifest)


def test_the_wish_is_on_the_disk_before_the_first_change(host: Host) -> None:
    class Killed(BaseException):
        pass

    def die(argv: Any, stdin: Any, timeout: float) -> Any:
        if argv[:2] == ["systemctl", "disable"]:
            raise Killed
        return host.run(argv, stdin, timeout)

    with pytest.raises(Killed):
        wishes.stop(System(host.root, die, host.clock, privileged=True), UNIT, "me", "", check_mode=False)
    assert host.stands() == ("enabled", "active")
    host.say("converge")
    assert host.stands() == ("disabled", "inactive")


def test_a_unit_of_nobody_is_refused(host: Host) -> None:
    wish = {"unit": "ssh.service", "state": "stopped", "until": ""}
    said = answer(request([], verb="wish", wish=wish), host.system)
    assert "ssh.service: no role has put this unit on this host" in said["error"]["message"]


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("07:00", "2026-11-24T06:00:00Z"),
        ("23:30", "2026-11-23T22:30:00Z"),
        ("21:00", "2026-11-24T20:00:00Z"),  # now
        ("+2h", "2026-11-23T22:00:00Z"),
        ("+1h30m", "2026-11-23T21:30:00Z"),
        ("+1d", "2026-11-24T20:00:00Z"),
        ("2026-11-25T07:00", "2026-11-25T06:00:00Z"),
        ("2026-11-25T07:00:00Z", "2026-11-25T07:00:00Z"),
        ("2027-06-01T07:00", "2027-06-01T05:00:00Z"),  # summer
    ],
)
def test_the_end_is_by_the_clock_of_the_host(host: Host, text: str, utc: str) -> None:
    assert wishes.end(text, host.clock.utc()) == utc


@pytest.mark.parametrize(
    ("now", "text", "utc"),
    [
        ("2026-10-25T01:10:00Z", "02:45", "2026-10-25T01:45:00Z"),  # 02:10, for the second time
        ("2026-10-25T00:50:00Z", "02:30", "2026-10-25T01:30:00Z"),  # 02:50, for the first time
        ("2026-10-25T00:10:00Z", "02:45", "2026-10-25T00:45:00Z"),
        ("2026-10-25T01:10:00Z", "02:05", "2026-10-26T01:05:00Z"),
        ("2026-03-29T00:40:00Z", "02:30", "2026-03-29T01:30:00Z"),  # 01:40, and 02:30 is left out
        ("2026-03-28T21:00:00Z", "02:30", "2026-03-29T01:30:00Z"),
    ],
)
def test_the_next_time_of_a_clock_that_is_set(host: Host, now: str, text: str, utc: str) -> None:
    assert wishes.end(text, now) == utc


@pytest.mark.parametrize("text", ["soon", "25:00", "+", "7", "+2w", "2026-11-22T07:00", "2026-11-23T20:00:00Z", "+0m"])
def test_what_is_no_time_to_come_is_refused(host: Host, text: str) -> None:
    with pytest.raises(HostError, match="until"):
        wishes.end(text, host.clock.utc())


def test_a_far_end_has_its_date() -> None:
    wish = Wish("me", "2026-11-23T20:00:00Z", "2026-11-26T06:00:00Z")
    (said,) = wishes.told({"unit:a.service": wish}, "2026-11-23T20:00:00Z")
    assert said["shown"].startswith("2026-11-26 ")


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59", "9999-12-31T23:59:59Z", "9999-01-02T00:00"])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Pacific/Kiritimati"])
def test_the_end_of_all_times_is_refused(host: Host, monkeypatch: pytest.MonkeyPatch, zone: str, text: str) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        with pytest.raises(HostError, match="until"):
            wishes.end(text, host.clock.utc())
    time.tzset()


@pytest.mark.parametrize(
    "time_of_it",
    [
        *("x", " ", "2099-01-01", "9999-99-99T00:00:00Z", "2026-11-24T07:00:00+00:00", "2026-11-24T07:00:00"),
        *("2026-1-4T7:00:00Z", "2026-11-24T07:00:00Z\nExecStart=/x", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"),
        *("\u0662026-11-24T07:00:00Z", 5, None, ["x"]),
    ],
)
@pytest.mark.parametrize("key", ["since", "until"])
def test_a_wish_whose_time_is_none_is_damage(key: str, time_of_it: Any) -> None:
    wish = {"who": "me", "since": "2026-11-23T20:00:00Z", "until": "", key: time_of_it}
    raw = {"format": 1, "resources": {}, "unfinished": None, "wishes": {"unit:a.service": wish}}
    with pytest.raises(HostError, match="is damaged"):
        manifests.parse(json.dumps(raw))


# -- a service that its first request starts

SOCKET = "gb10-wake@vllm-embed.socket"
ASLEEP = [
    {
        "role": "vllm",
        "resources": [
            *unit(UNIT),
            {"file": f"{FOLDER}/{SOCKET}", "content": "[Socket]\nListenStream=/run/x\n"},
            {"unit": SOCKET, "enabled": True, "state": "started"},
            {"file": f"{FOLDER}/{OTHER}", "content": "[Service]\nExecStart=/bin/x\n"},
            {"unit": OTHER, "enabled": False, "wait": False, "woken_by": SOCKET, "restart_on": [f"{FOLDER}/{OTHER}"]},
        ],
    }
]


class Sleepy(Host):
    documents = ASLEEP

    def stands(self, name: str = UNIT) -> tuple[str, str]:
        """systemd has not been told anything of one that is asleep."""
        return super().stands(name) if name in self.units else ("disabled", "inactive")

    @property
    def asleep(self) -> list[str]:
        return [wish["unit"] for wish in read_wishes(HostReader(system=self.system)) if wish["who"] == "on_demand"]

    def wakes(self) -> None:
        """What the first request does."""
        assert self.stands(SOCKET) == ("enabled", "active")
        assert self.run(["systemctl", "start", OTHER], None, 1.0).rc == 0


@pytest.fixture
def sleepy(tmp_path: Path) -> Sleepy:
    host = Sleepy(tmp_path)
    host.say("converge")
    return host


def test_no_run_starts_what_is_asleep_and_none_stops_what_was_asked(sleepy: Sleepy) -> None:
    assert (sleepy.stands(OTHER), sleepy.asleep) == (("disabled", "inactive"), [OTHER])
    assert sleepy.stands(SOCKET) == ("enabled", "active")
    for _ in range(2):
        again = sleepy.say("converge")
        assert (again["changes"], again["recorded"]) == ([], True)
        drift = sleepy.say("drift")
        assert drift["changes"] == [] and [wish["unit"] for wish in drift["wishes"]] == sleepy.asleep
        if sleepy.stands(OTHER)[1] == "inactive":
            sleepy.wakes()
            assert sleepy.asleep == []
    assert sleepy.stands(OTHER) == ("disabled", "active")


def test_a_changed_file_restarts_it_only_where_it_was_asked(sleepy: Sleepy) -> None:
    sleepy.file(f"{FOLDER}/{OTHER}", "somebody's\n")
    assert [each["action"] for each in sleepy.say("converge")["changes"]] == ["update"]
    sleepy.wakes()
    sleepy.file(f"{FOLDER}/{OTHER}", "somebody's\n")
    assert [each["action"] for each in sleepy.say("converge")["changes"]] == ["update", "restart"]


@pytest.mark.parametrize("asked", [False, True])
def test_a_stop_closes_the_socket_first_and_a_start_opens_it_and_starts_it(sleepy: Sleepy, asked: bool) -> None:
    if asked:
        sleepy.wakes()
    changes = sleepy.wish("stopped", unit=OTHER)["changes"]
    assert changes[0]["resource"] == f"unit:{SOCKET}", "no request may come between"
    assert sleepy.stands(SOCKET) == sleepy.stands(OTHER) == ("disabled", "inactive")
    assert sleepy.asleep == [] and sleepy.say("converge")["changes"] == sleepy.say("drift")["changes"] == []
    sleepy.wish("started", unit=OTHER)
    assert sleepy.stands(SOCKET) == ("enabled", "active") and sleepy.stands(OTHER) == ("disabled", "active")
    assert sleepy.say("drift")["changes"] == [] and sleepy.say("converge")["changes"] == []


def test_the_end_of_a_wish_has_it_sleep_and_not_run(sleepy: Sleepy) -> None:
    sleepy.wish("stopped", "+2h", unit=OTHER)
    lines = sleepy.path(f"{FOLDER}/gb10-wish-gb10-vllm-embed.service").read_text()
    assert (
        f"enable {SOCKET}" in lines and f"start {SOCKET}" in lines and f" {OTHER}\n" not in lines.split("[Service]")[1]
    )
    sleepy.clock.date = "2026-11-23T22:00:01Z"
    sleepy.say("converge")
    assert sleepy.stands(SOCKET) == ("enabled", "active") and sleepy.asleep == [OTHER]


@pytest.mark.parametrize("asked", [False, True])
def test_an_undo_takes_socket_and_service_away(sleepy: Sleepy, asked: bool) -> None:
    if asked:
        sleepy.wakes()
    sleepy.say("undo")
    assert not [name for name in (SOCKET, OTHER) if sleepy.path(f"{FOLDER}/{name}").exists()]


@pytest.mark.parametrize("more", [{"state": "started"}, {"enabled": True}, {"woken_by": "a.service"}])
def test_what_a_request_starts_no_run_starts(tmp_path: Path, more: dict[str, Any]) -> None:
    declared = {"unit": OTHER, "enabled": False, "woken_by": SOCKET, **more}
    said = answer(request([{"role": "vllm", "resources": [declared]}]), Host(tmp_path).system)
    assert "woken_by" in said["error"]["message"]
