"""Seven bad images are refused, each with its verdict. The images are archives; what runs in them is made up here."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.images.ingredients import Builder, Source, Wheel
from ansible_collections.gb10.fleet.plugins.plugin_utils.images import acceptance, build_plan
from ansible_collections.gb10.fleet.plugins.plugin_utils.images.acceptance import Trial
from ansible_collections.gb10.fleet.plugins.plugin_utils.images.build_plan import BuildPlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.images.recipes import Wish

from tests.support import images
from tests.support.attacker import tally
from tests.support.fatbins import A, entry, extension
from tests.support.image_trials import BASE_FACTS, INSIDE, MOE, NATIVE, SERVED, STOCK, VLLM, C, trial


def a_plan(**changes: Any) -> BuildPlan:
    base = {**BASE_FACTS, "versions": {**BASE_FACTS["versions"], "cuda": "13.0.2"}}
    builder = Builder(120 << 30, 100 << 30, 20, 500 << 30, "0.31.1")
    made = build_plan.plan(base, Wish("kernels", "lab/vllm", source=Source("x.tar", "0", version="0.33.0")), builder)
    assert made.verdict == build_plan.BUILD, made.refusals
    return made


def without(name: str) -> dict[str, images.Content]:
    return {path: content for path, content in NATIVE.items() if path != name}


def test_what_the_recipe_builds_is_accepted() -> None:
    verdict = acceptance.judge(a_plan(), trial())
    assert (verdict.id, verdict.lines) == ("accepted", [])


CASES: list[tuple[str, Trial, str, str]] = [
    (
        "version drift",
        trial({**NATIVE, **images.package("transformers", "5.9.0")}),
        "versions",
        "transformers 5.2.0 -> 5.9.0",
    ),
    ("extra file", trial({**NATIVE, f"{VLLM}/config.py": "x = 1"}), "files", f"/{VLLM}/config.py"),
    ("missing .so", trial(without(MOE)), "libraries", f"the build did not bring /{MOE}"),
    (
        "wrong architecture",
        trial({**NATIVE, C: extension(*[entry(120, suffix=A)] * 85)}),
        "architecture",
        "_C_stable_libtorch has no kernels that a GB10 loads (locked to another chip: 85 sm_120a)",
    ),
    (
        "broken import",
        trial(inside={"imports": {**INSIDE["imports"], "vllm._C_stable_libtorch": "undefined symbol: _Z3foo"}}),
        "imports",
        "vllm._C_stable_libtorch: undefined symbol",
    ),
    (
        "garbage answers",
        trial(served={"verdict": "garbage", "text": "arithmetic: the answer is not 42", "tokens_per_s": 48.0}),
        "sense",
        "garbage: arithmetic: the answer is not 42",
    ),
    ("slower than base", trial(served={**SERVED, "tokens_per_s": 12.5}), "speed", "12.5 tok/s, and the base 13.3"),
]


@pytest.mark.parametrize(("case", "given", "verdict", "says"), CASES, ids=[each[0] for each in CASES])
def test_a_bad_image_is_refused_by_its_verdict(case: str, given: Trial, verdict: str, says: str) -> None:
    found = acceptance.judge(a_plan(), given)
    assert (found.accepted, found.id) == (False, verdict)
    assert says in found.lines[0]


@pytest.mark.parametrize(
    ("given", "verdict", "says"),
    [
        (trial({**NATIVE, "etc/.wh.nccl.conf": ""}), "files", "/etc/nccl.conf"),
        (trial({**NATIVE, f"{VLLM}/.wh..wh..opq": ""}), "files", f"/{VLLM}/"),
        (trial(below=images.layer({**STOCK, "etc/x": "1"})), "files", "not built on the base"),
        (
            trial(config={**images.CONFIG, "config": {**images.CONFIG["config"], "Entrypoint": ["sh"]}}),
            "files",
            "Entrypoint",
        ),
        (
            trial(inside={"libraries": {f"/{C}": ["libcuda.so.1", "libfoo.so.2"]}}),
            "libraries",
            "asks for libfoo.so.2",
        ),
        (trial(inside={"versions": {"vllm": "0.32.0", "torch": "2.11.0"}}), "versions", "vllm says 0.32.0"),
        (trial({**NATIVE, C: extension(*[entry(120)] * 84)}), "architecture", "84 kernels of SM12x, and the released"),
        (trial(inside={"operators": INSIDE["operators"][:1]}), "operators", "not in it: _moe_C::topk"),
        (trial(inside={"operators": [*INSIDE["operators"], "_C::x()"]}), "operators", "not in the base: _C::x()"),
        (trial(served=None), "sense", "no model was asked"),
        (trial(served={**SERVED, "tokens_per_s": None}), "speed", "the image was not measured"),
    ],
)
def test_each_check_has_more_than_one_way_to_fail(given: Trial, verdict: str, says: str) -> None:
    found = acceptance.judge(a_plan(), given)
    assert found.id == verdict and says in " ".join(found.lines)


def test_an_import_that_fails_in_the_base_with_the_same_words_says_nothing() -> None:
    given = trial()
    faults = {"imports": {"vllm": "libcuda.so.1: cannot open"}}
    both = Trial(**{**given.__dict__, "inside": {**INSIDE, **faults}, "base_inside": {**INSIDE, **faults}})
    assert acceptance.judge(a_plan(), both).accepted


def test_what_fails_without_a_model_is_not_started() -> None:
    given = trial({**NATIVE, "usr/bin/x": ""}, served=None)
    assert acceptance.quick(a_plan(), given).id == "files"
    assert acceptance.quick(a_plan(), trial(served=None)).accepted


def test_figures_go_into_labels_which_are_text() -> None:
    plan = a_plan()
    told = acceptance.labels(plan, "lab/vllm@sha256:1", acceptance.judge(plan, trial()), "2026-11-23T12:00:00Z")
    assert told["gb10-fleet.image.verdict"] == "accepted"
    assert told["gb10-fleet.image.inputs"] == plan.inputs
    assert told["gb10-fleet.image.tokens_per_s"] == "48.6"
    assert told["gb10-fleet.image.base_tokens_per_s"] == "13.3"
    assert told["gb10-fleet.image.cubins"] == "_C_stable_libtorch=85,_moe_C_stable_libtorch=27"
    assert json.loads(json.dumps(told)) == told


@pytest.mark.parametrize(
    ("path", "allowed", "within"),
    [
        ("/s/vllm/a.py", "/s/vllm/", True),
        ("/s/vllm2/a.py", "/s/vllm/", False),
        ("/s/x-1.0.dist-info/RECORD", "/s/x-*.dist-info/", True),
        ("/s/x-1/0.dist-info/RECORD", "/s/x-*.dist-info/", False),
        ("/s/a.so", "/s/a.so", True),
        ("/s/a.so.1", "/s/a.so", False),
        ("/s/vllm/", "/s/vllm/", True),
    ],
)
def test_what_may_differ_is_a_file_or_a_folder(path: str, allowed: str, within: bool) -> None:
    assert acceptance._within(path, allowed) is within


@pytest.mark.parametrize(
    "mine",
    [
        {"wheels": [Wheel("x.whl", "0" * 64, 1, "x", "1.0", ["*", "x"])]},
        {"wheels": [Wheel("x.whl", "0" * 64, 1, "*", "1.0", ["x"])]},
        {"wheels": [Wheel("x.whl", "0" * 64, 1, "x", "1.0", ["[t]orch"])]},
    ],
)
def test_a_name_of_a_wheel_is_no_pattern(mine: dict[str, Any]) -> None:
    """Else its maker lets it change all that the base has, as by a folder `*`."""
    wish = Wish("overlay", "base", **mine)
    plan = build_plan.BuildPlan("build", "", may_differ=tuple(build_plan._of_overlay("/site", wish)))
    changed = ["/site/torch/__init__.py", "/site/numpy-2.0.dist-info/RECORD"]
    found = acceptance._files(plan, {"on_base": True, "changed": changed, "removed": [], "settings": []}).fault
    won = sum(path not in found for path in changed)
    tally("a wheel that changes the base", 2, won)
    assert not won
