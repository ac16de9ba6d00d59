"""The action power_plug: what it waits for before a power is cut, on a host and a plug that answer as told."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.gb10.fleet.plugins.action import power_plug
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

KNOWN = catalog.load("plugs")
SAID = {"kind": "shelly", "address": "192.0.2.50", "secret": "s3cret"}


class World:
    """A plug, the host behind it, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.is_on, self.power, self.switched = 0.0, True, [48.0], list[str]()
        self.answers: list[bool] = [True]
        self.options: dict[str, Any] = {"verb": "read", "sharing": 1}
        self.variables: dict[str, Any] = {"inventory_hostname": "spark-a", "gb10_power_plug": SAID}
        self.action = power_plug.ActionModule.__new__(power_plug.ActionModule)
        self.action._connection = self
        self.action._templar, self.action._task, self.check_mode = self, self, False
        monkeypatch.setattr("ansible.plugins.action.ActionBase.run", lambda *_: {})
        monkeypatch.setattr(self.action, "validate_argument_spec", lambda **_: (None, self.options))
        monkeypatch.setattr(self.action, "_low_level_execute_command", self.ask)
        monkeypatch.setattr("time.monotonic", lambda: self.now)
        monkeypatch.setattr("time.sleep", self.pass_time)
        monkeypatch.setattr("ansible_collections.gb10.fleet.plugins.plugin_utils.power.plug.plug", lambda _: self)

    def template(self, said: Any) -> Any:
        return said

    def reset(self) -> None:
        raise AnsibleConnectionFailure("there is no master")

    def ask(self, _command: str, sudoable: bool) -> dict[str, Any]:
        if not (self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]):
            raise AnsibleConnectionFailure("timed out")
        return {"rc": 0, "stdout": ""}

    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    def state(self) -> bool:
        return self.is_on

    def off(self) -> None:
        self.switched.append("off")
        self.is_on = False

    def on(self) -> None:
        self.switched.append("on")
        self.is_on = True

    def watts(self) -> float | None:
        return self.power.pop(0) if len(self.power) > 1 else self.power[0]

    def run(self, verb: str, sharing: int = 1) -> dict[str, Any]:
        self.options = {"verb": verb, "sharing": sharing}
        return self.action.run(task_vars=self.variables)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_it_switches_once_and_says_how_it_is(world: World) -> None:
    assert world.run("read") == {"changed": False, "on": True, "watts": 48}
    assert world.run("cut")["changed"] and not world.run("cut")["changed"]
    assert world.run("restore") == {"changed": True, "on": True, "watts": 48}
    assert world.switched == ["off", "on"]


def test_a_check_switches_nothing(world: World) -> None:
    world.check_mode = True
    assert world.run("cut") == {"changed": True, "on": True, "watts": 48} and not world.switched


def test_a_host_that_is_silent_and_takes_nothing_has_halted(world: World) -> None:
    world.answers, world.power = [True, True, False], [40, 30, 3]  # type: ignore[list-item]
    assert "failed" not in world.run("halted")
    assert world.now == 4 * power_plug.POLL_S


def test_one_that_answers_has_not_halted_whatever_the_meter_says(world: World) -> None:
    world.power = [1]
    said = world.run("halted")
    assert said["failed"] and "still answers" in said["msg"] and "--hard" in said["msg"]
    assert world.now >= KNOWN["halt_s"]["value"] and not world.switched


def test_one_that_is_silent_and_takes_power_has_not_halted(world: World) -> None:
    world.answers = [False]
    assert "its plug says 48 W" in world.run("halted")["msg"]


def test_the_power_of_two_counts_as_that_of_two(world: World) -> None:
    world.answers, world.power = [False], [1.5 * KNOWN["halted_w"]["value"]]
    assert "failed" not in world.run("halted", sharing=2) and world.run("halted")["failed"]


def test_without_a_meter_silence_alone_has_to_last(world: World) -> None:
    world.answers, world.power = [False, True, False], [None]  # type: ignore[list-item]
    assert "failed" not in world.run("halted")
    assert world.now == KNOWN["silent_s"]["value"] + 2 * power_plug.POLL_S


def test_a_wrong_plug_fails_by_host_and_field(world: World) -> None:
    world.variables["gb10_power_plug"] = {**SAID, "kind": "x"}
    said = world.run("cut")
    assert said["failed"] and said["msg"].startswith("spark-a: gb10_power_plug.kind") and "s3cret" not in str(said)
