"""From a base to a verdict: which step follows from which answer of the builder. Nothing of Ansible starts."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.action import image_build
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import long_step
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import vllm_image

from tests.support.attacker import tally
from tests.support.image_trials import ARCHIVE, BASE_FACTS, BASE_SERVED, BUILDER, INSIDE, SERVED, SOURCE, trial

VARIABLES = {"vllm_image_base": "lab/vllm:1", "vllm_image_model": "/srv/model", "vllm_image_source": ARCHIVE}
GOOD = trial()


class Built:
    """A builder, as the module on it answers."""

    def __init__(self, states: list[dict[str, Any]], **changes: Any) -> None:
        facts = {**BASE_FACTS, "versions": {**BASE_FACTS["versions"], "cuda": "13.0.2"}}
        self.states = list(states)
        self.asked: list[str] = []
        self.given: dict[str, Any] = {}
        self.answers: dict[str, Any] = {
            "look": {"facts": facts, "builder": BUILDER, "source": [SOURCE], "wheels": [], "patches": []},
            "start": {},
            "examine": {
                "difference": GOOD.difference,
                "facts": GOOD.facts,
                "base_facts": GOOD.base_facts,
                "inside": INSIDE,
                "base_inside": INSIDE,
            },
            "serve": {"served": SERVED, "base_served": BASE_SERVED},
            "settle": {"image": "gb10-fleet/built:x", "digests": []},
            **changes,
        }

    def __call__(self, name: str, arguments: Any, *, background: bool = False) -> dict[str, Any]:
        step = arguments["step"]
        self.asked.append(step)
        self.given[step] = arguments["request"]
        return {"found": copy.deepcopy(self.states.pop(0) if step == "read" else self.answers[step])}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setattr(long_step, "POLL_S", (0.0,))

    def make(built: Built, *, check: bool = False) -> dict[str, Any]:
        action = object.__new__(image_build.ActionModule)
        action._name, action._vars, action._folder = "spark-a", {}, tmp_path
        action._plan = vllm_image.plan(View("spark-a", {}, VARIABLES))
        action._task = SimpleNamespace(check_mode=check, async_val=0)
        action._module = built  # type: ignore[method-assign,assignment]
        return action._made()

    return make


def refused(call: Any) -> str:
    with pytest.raises(image_build._Failed) as caught:
        call()
    return str(caught.value.said["msg"])


def test_a_build_is_begun_waited_for_judged_and_tagged(made: Any, tmp_path: Path) -> None:
    built = Built([{"state": "none"}, {"state": "running", "doing": "x"}, {"state": "built"}])
    said = made(built)
    assert built.asked == ["look", "read", "start", "read", "read", "examine", "serve", "settle"]
    assert (said["verdict"], said["changed"]) == ("accepted", True)
    assert built.given["settle"]["accepted"] is True
    assert built.given["settle"]["labels"]["gb10-fleet.image.tokens_per_s"] == "48.6"
    assert Path(said["json"]).parent == tmp_path and '"verdict": "accepted"' in Path(said["json"]).read_text()
    image = f"gb10-fleet/built:{built.given['settle']['tag']}"
    assert said["lines"][2:4] == [f"    vllm_image: {image}", "    vllm_version: 0.33.0"]
    assert "    vllm_allow_tag: true" in said["lines"][-1]


def test_where_the_store_knows_a_digest_it_is_what_serves(made: Any) -> None:
    name = f"gb10-fleet/built@sha256:{'1' * 64}"
    built = Built([{"state": "built"}], settle={"image": "gb10-fleet/built:x", "digests": [name]})
    lines = made(built)["lines"]
    assert f"    vllm_image: {name}" in lines and not [line for line in lines if "allow_tag" in line]


def test_the_builder_names_no_other_image_for_a_person_to_paste(made: Any) -> None:
    evil = f"evil.example/x@sha256:{'6' * 64}"
    built = Built([{"state": "built"}], settle={"image": "evil.example/x:1", "digests": [evil, f"{evil}`; reboot"]})
    said = [made(built)]
    command = "x`; reboot; `"
    said.append(made(Built([{"state": "refused", "image": command, "labels": {}}])))
    wrong = [line for each in said for line in each["lines"] if "evil" in line or "reboot" in line]
    tally("a builder names the image for the fleet", 3, len(wrong))
    assert not wrong and said[0]["digests"] == [] and "evil" not in str(said[0]["image"])
    name = f"gb10-fleet/built:refused-{built.given['settle']['tag']}"
    assert said[1]["image"] == name and f"`docker image rm {name}`" in said[1]["lines"][0]


@pytest.mark.parametrize("version", ["\"{{ lookup('pipe', 'id') }}\"", "1\n    ansible_user: x", "1 # x", "", None])
def test_the_builder_writes_no_line_for_a_person_to_paste(made: Any, version: str | None) -> None:
    built = Built([{"state": "built"}])
    facts = built.answers["examine"]["facts"]
    built.answers["examine"]["facts"] = {**facts, "versions": {**facts["versions"], "vllm": version}}
    said = made(built)
    assert said["verdict"] == "accepted" and not [line for line in said["lines"] if "vllm_version" in line]


def test_what_fails_without_a_model_is_tagged_as_refused_and_not_started(made: Any) -> None:
    built = Built([{"state": "built"}])
    built.answers["examine"]["inside"] = {**INSIDE, "imports": {"vllm": "ImportError: no"}}
    said = made(built)
    assert built.asked == ["look", "read", "examine", "settle"]
    assert said["verdict"] == "imports" and built.given["settle"]["accepted"] is False
    assert not [line for line in said["lines"] if "may serve" in line]


def test_a_slow_image_is_tagged_as_refused(made: Any) -> None:
    built = Built([{"state": "built"}], serve={"served": {**SERVED, "tokens_per_s": 1.0}, "base_served": BASE_SERVED})
    assert made(built)["verdict"] == "speed" and built.given["settle"]["accepted"] is False


@pytest.mark.parametrize("state", ["accepted", "refused"])
def test_the_same_inputs_are_built_and_judged_once(made: Any, state: str) -> None:
    labels = {"verdict": "speed" if state == "refused" else "accepted", "judged": "2026-11-23"}
    built = Built([{"state": state, "image": "gb10-fleet/built:y", "labels": labels}])
    said = made(built)
    assert built.asked == ["look", "read"] and said["verdict"] == labels["verdict"]


def test_a_build_that_runs_is_waited_for_although_the_disk_is_full_now(made: Any) -> None:
    built = Built([{"state": "running", "doing": "x"}, {"state": "built"}])
    built.answers["look"]["builder"] = {**BUILDER, "free_bytes": 0}
    assert made(built)["verdict"] == "accepted"


def test_a_full_disk_is_refused_before_anything_is_written(made: Any) -> None:
    built = Built([{"state": "none"}])
    built.answers["look"]["builder"] = {**BUILDER, "free_bytes": 0}
    assert "Docker's has 0 left" in refused(lambda: made(built))
    assert built.asked == ["look", "read"]


def test_a_build_that_failed_says_why_and_is_not_judged(made: Any) -> None:
    fault = {"state": "failed", "verdict": "disk_full", "text": "no space left on device", "way_out": "free some"}
    built = Built([{"state": "none"}, fault])
    assert refused(lambda: made(built)) == "spark-a: disk_full: no space left on device; free some"
    assert built.asked == ["look", "read", "start", "read"]


def test_check_mode_begins_nothing(made: Any) -> None:
    built = Built([{"state": "none"}])
    said = made(built, check=True)
    assert (said["verdict"], said["changed"], built.asked) == ("would_build", True, ["look", "read"])
    image, what = said["lines"]
    assert image.startswith("would build gb10-fleet/built:") and image.endswith(" from lab/vllm:1")
    assert " for 12.0 from vllm-0.33.0.tar.gz, " in what


def test_without_a_gap_nobody_is_asked_for_more(made: Any) -> None:
    built = Built([])
    built.answers["look"]["facts"] = GOOD.facts
    assert made(built)["verdict"] == "nothing" and built.asked == ["look"]
