"""A rollout to a release: its steps, its consents, and what takes it back."""

from __future__ import annotations

from pathlib import Path

import pytest

from gb10_fleet import known_bad
from gb10_fleet.rollout import recipes
from gb10_fleet.rollout.waves import Refused

SET = "ubuntu24.04-580.159.03-6.17.0-1022"


def test_a_release_is_its_set_the_rest_of_the_packages_and_one_boot() -> None:
    recipe = recipes.forward("site", ["hosts.yml"], to=["OTA2607"])
    plays = {step.name: [play["import_playbook"] for play in step.plays] for step in recipe.steps}
    assert list(plays) == ["release", "move", "packages", "reboot", "work"]
    assert plays["release"] == ["gb10.fleet.release_check"] and plays["packages"] == ["gb10.fleet.release_update"]
    assert [name for names in plays.values() for name in names].count("gb10.fleet.reboot") == 1
    assert recipe.to["release_update_to"] == "OTA2607" and recipe.to["driver_host_set"] == SET
    assert recipe.to["driver_allow_move"] is True and recipe.to["gb10_release_evidence"] is True


def test_firmware_has_a_consent_of_its_own() -> None:
    assert recipes.forward("site", [], to=["OTA2607"]).to["release_update_firmware"] is False
    assert recipes.forward("site", [], to=["OTA2607"], firmware=True).to["release_update_firmware"] is True


@pytest.mark.parametrize("more", [{"firmware": True}, {"accept": {"x": "y"}}])
def test_its_options_go_with_a_release(more: dict[str, object]) -> None:
    with pytest.raises(Refused, match="go with --to RELEASE"):
        recipes.forward("site", [], to=[SET], **more)  # type: ignore[arg-type]


def test_a_release_goes_by_either_name() -> None:
    assert recipes.targets(["July 2026"]) == recipes.targets(["OTA2607"])


@pytest.mark.parametrize(
    ("to", "says"),
    [
        (["OTA2607", SET], "one of its kind was said before it"),
        (["OTA2607", "OTA2604"], "one of its kind was said before it"),
        (["OTA1"], "no host set of this release is known; docs/driver.md"),
        (["newest"], "a rollout goes to a release by its name; `gb10 release` says which"),
        (["OTA9999"], "a release nor a host set: OTA0.1, "),
    ],
)
def test_a_release_without_a_set_or_beside_another_is_refused(to: list[str], says: str) -> None:
    with pytest.raises(Refused, match="--to") as refused:
        recipes.targets(to)
    assert says in str(refused.value)


def test_a_rollback_leaves_out_what_nothing_takes_back() -> None:
    recipe = recipes.forward("site", [], to=["OTA2607"])
    host = {"host": "spark-a", "started": "x", "state": "done", "changes": [{"role": "driver"}]}
    record = {
        "run": "r2", "kind": "rollout", "of": None, "outcome": "done", "attempt": 1, "ended": "x",
        "waves": [{"hosts": [host]}],
        "order": {**vars(recipe), "steps": [vars(step) for step in recipe.steps]},
    }  # fmt: skip
    to = {"driver_host_set": "ubuntu24.04-580.142-6.17.0-1014", "driver_allow_move": True}
    earlier = {**record, "run": "r1", "order": {**record["order"], "to": to}}
    back = recipes.back(record, [earlier])
    assert [step.name for step in back.steps] == ["older kernel", "move", "reboot", "work"]
    assert back.steps[0].plays[0]["vars"] == {
        "reboot_allow": True, "reboot_leave": "6.17.0-1022-nvidia", "reboot_leave_release": "OTA2607",
    }  # fmt: skip
    assert back.to == to
    undone = recipes.back(record, [])
    assert [step.name for step in undone.steps] == ["older kernel", "undo", "reboot"], "the first move there was"


def test_what_is_accepted_is_known() -> None:
    own = [{"id": "our_own"}]
    with pytest.raises(Refused, match=r"--accept foo: no such trouble is known: slow_on_7\.6, our_own"):
        recipes.forward("site", [], to=["OTA2607"], accept={"our_own": "x", "foo": "bar"}, known_bad=own)
    accepted = {"slow_on_7.6": "x", "our_own": "y"}
    to = recipes.forward("site", [], to=["OTA2607"], accept=accepted, known_bad=own).to
    assert to["release_update_accept"] == accepted


def test_what_is_accepted_has_a_reason(tmp_path: Path) -> None:
    assert known_bad.of_rollout(tmp_path, ["a=b=c"]) == {"known_bad": [], "accept": {"a": "b=c"}}
    for word in ("a", "a=", "=b", "a= "):
        with pytest.raises(known_bad.NotTrusted, match="write ID=REASON"):
            known_bad.of_rollout(tmp_path, [word])
