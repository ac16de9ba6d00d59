"""The survey of the rails: three readings in one call, and the proof of a pair that makes it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gb10.fleet.plugins.module_utils.fabric import neighbours, rail_ping
from ansible_collections.gb10.fleet.plugins.modules import rail_survey

PROVE = Path(__file__).parents[3] / "roles/fabric/tasks/prove.yml"
PING = {
    "name": "p0 to spark-b", "interface": "enp1s0f0np0", "source": "192.168.100.10", "peer": "192.168.100.11",
    "size_bytes": 8972, "count": 3,
}  # fmt: skip
CALL = {"netdev": "enp1s0f0np0", "port": "p0", "expect": ["spark-b"]}
HEARD = [{"netdev": "enp1s0f0np0", "port": "p0", "host": "spark-b"}]


class Ended(Exception):
    """Of a module: what it said."""


def run(monkeypatch: pytest.MonkeyPatch, **given: Any) -> dict[str, Any]:
    class Module:
        def __init__(self, argument_spec: dict[str, dict[str, Any]], supports_check_mode: bool) -> None:
            asked = {"token": "t", "host": "spark-a", **given}
            assert asked.keys() <= argument_spec.keys()
            self.params = {name: asked.get(name, option.get("default")) for name, option in argument_spec.items()}

        def get_bin_path(self, name: str) -> str:
            return name

        def exit_json(self, **said: Any) -> None:
            raise Ended(said)

        def fail_json(self, **said: Any) -> None:
            raise Ended({"failed": True, **said})

    monkeypatch.setattr(rail_survey, "AnsibleModule", Module)
    order: list[str] = []

    def talk(token: str, host: str, rails: Any, seconds: float) -> tuple[list[dict[str, str]], list[str]]:
        order.append("listen")
        return HEARD, []

    @contextlib.contextmanager
    def started(pings: Any, ping: str) -> Iterator[Any]:
        order.append("ping")
        yield lambda: [{"name": one.name, "ok": True} for one in pings]
        order.append("pinged")

    monkeypatch.setattr(neighbours, "talk", talk)
    monkeypatch.setattr(rail_ping, "started", started)
    with pytest.raises(Ended) as ended:
        rail_survey.main()
    said: dict[str, Any] = ended.value.args[0]
    json.dumps(said)
    assert "listen" not in order or order == ["ping", "listen", "pinged"]  # at the same time
    return said


def test_one_call_has_all_three(monkeypatch: pytest.MonkeyPatch) -> None:
    said = run(monkeypatch, calls=[CALL], pings=[PING], rails={"enp1s0f0np0": "192.168.100.10"})
    assert said["heard"] == HEARD and said["pings"] == [{"name": "p0 to spark-b", "ok": True}]
    assert said["gids"]["rails"][0]["netdev"] == "enp1s0f0np0"


def test_where_nobody_is_to_be_called_nobody_was_listened_to(monkeypatch: pytest.MonkeyPatch) -> None:
    said = run(monkeypatch)
    assert (said["heard"], said["pings"]) == (None, [])


@pytest.mark.parametrize(
    "wrong",
    [
        {"address_range": "192.168.100.1/99"}, {"rails": {"enp1s0f0np0": "no"}}, {"calls": [{"netdev": "a"}]},
        {"pings": [{**PING, "peer": "x"}]}, {"pings": [{"surprise": 1}]},
    ],
)  # fmt: skip
def test_wrong_arguments_are_a_failure_and_no_traceback(monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any]) -> None:
    said = run(monkeypatch, **wrong)
    assert said["failed"] and "gb10.fleet.plan" in said["msg"]


def test_the_proof_of_the_fabric_is_the_survey_and_a_task_for_each_round() -> None:
    """Each task costs a host seconds. The others of the proof run on the controller."""
    tasks = yaml.safe_load(PROVE.read_text())
    rounds = yaml.safe_load(PROVE.with_name("round.yml").read_text())
    ours = [next(key for key in task if key.startswith("gb10.")) for task in tasks + rounds if "gb10." in str([*task])]
    assert ours == ["gb10.fleet.rail_survey", "gb10.fleet.ib_write_bw", "gb10.fleet.ib_write_bw"]
    assert "when" in rounds[1], "the second one is for what broke in the first"
