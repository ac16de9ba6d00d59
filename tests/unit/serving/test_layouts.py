"""Layouts: which services run together, what a switch does, and what a budget adds up."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import layouts
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.layouts import LayoutError, Switch

SERVICES = ("chat", "embed", "big", "rerank")
RAW = {"split": ["chat", "embed"], "cluster": ["big"]}
KNOWN = layouts.parse(RAW, SERVICES)


def test_services_of_different_layouts_never_run_together() -> None:
    assert layouts.together(KNOWN, SERVICES) == {"split": ("chat", "embed", "rerank"), "cluster": ("big", "rerank")}
    assert layouts.together({}, SERVICES) == {"": SERVICES}


@pytest.mark.parametrize(
    ("name", "running", "expected"),
    [
        ("cluster", ["chat", "embed", "rerank"], Switch(("chat", "embed"), ("big",), ())),
        ("split", ["big", "rerank"], Switch(("big",), ("chat", "embed"), ())),
        ("split", ["chat", "rerank"], Switch((), ("embed",), ("chat",))),
        ("split", ["chat", "embed"], Switch((), (), ("chat", "embed"))),
        ("cluster", [], Switch((), ("big",), ())),
    ],
)
def test_a_switch_stops_what_another_layout_has_and_leaves_the_rest_alone(
    name: str, running: list[str], expected: Switch
) -> None:
    assert layouts.switch(KNOWN, name, running, running) == expected


@pytest.mark.parametrize(
    ("running", "name"),
    [
        (["chat", "embed"], "split"),
        (["big", "rerank"], "cluster"),
        (["chat"], ""),
        (["chat", "embed", "big"], ""),
        ([], ""),
    ],
)
def test_which_layout_runs(running: list[str], name: str) -> None:
    assert layouts.current(KNOWN, running, running) == name


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (["chat"], "write a mapping"),
        ({"split": "chat"}, "gb10_layouts.split: write a list"),
        ({"split": []}, "gb10_layouts.split: write a list"),
        ({"split": ["chat", "chta"]}, "no service is called chta; there are big, chat, embed, rerank"),
        ({"split": ["chat", "chat"]}, "names a service twice"),
        ({"split": ["chat", ["embed"]]}, r"gb10_layouts.split: \['embed'\] is no name of a service; write a list"),
        ({"split": [{"chat": 1}]}, "gb10_layouts.split: {'chat': 1} is no name"),
        ({"split": [None]}, "gb10_layouts.split: None is no name"),
    ],
)
def test_a_layout_that_is_none_is_refused(raw: Any, said: str) -> None:
    with pytest.raises(LayoutError, match=said):
        layouts.parse(raw, SERVICES)


def test_a_list_in_a_list_is_refused_without_knowing_the_services_too() -> None:
    raw = {"split": [["chat"]]}
    assert "is no name of a service" in layouts.fault({"spark-a": raw}, "split")
    assert "is no name of a service" in layouts.of_host(raw).mistakes[0]


def test_an_unknown_layout_is_refused_with_those_there_are() -> None:
    with pytest.raises(LayoutError, match="no layout is called both; there are split, cluster"):
        layouts.switch(KNOWN, "both", [], [])


@pytest.mark.parametrize(
    ("raw", "name", "fault"),
    [
        (RAW, "cluster", ""),
        (RAW, "clutser", "no layout is called clutser; there are split, cluster. The nearest is cluster"),
        (RAW, "night", "no layout is called night; there are split, cluster"),
        ({}, "night", "no layout is called night; there are none: docs/services.md says how to write gb10_layouts"),
        (["chat"], "chat", "gb10_layouts: write a mapping, as {split: [chat, embed], cluster: [big]}"),
    ],
)
def test_the_inventory_alone_says_that_there_is_no_such_layout(raw: Any, name: str, fault: str) -> None:
    assert layouts.fault({"spark-a": {}, "spark-b": raw}, name) == fault


def test_the_first_layout_runs_at_first() -> None:
    sets = layouts.of_host(RAW)
    assert sets.resting(SERVICES) == ["big"]
    assert sets.resting(["big", "rerank"]) == ["big"]  # chat and embed are on other hosts
    assert layouts.of_host(None).resting(SERVICES) == []


def test_what_is_no_layout_is_told_and_counts_for_nothing() -> None:
    sets = layouts.of_host(["chat"])
    assert "gb10_layouts: write a mapping" in sets.mistakes[0]
    assert sets.together(SERVICES) == {"": SERVICES}
