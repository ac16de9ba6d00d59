"""Which host does which step for a warm cache. Nothing of Ansible starts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.action import warm_cache
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.fabric import planner as fabric
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import service as vllm_service
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.services import expand

from tests.unit.plans.test_services import CHAT, PAIR, view

ENTRIES = {"chat": CHAT | {"span": "host", "warm_cache_gib": 20}}
BARE: dict[str, Any] = {"key": "k", "why": "", "cache": None}
CACHE = {"sha256": "0" * 64, "size": 48_000_000, "cold_s": 92.0, "at": "2026-11-23T15:00:00Z"}
HELD = BARE | {"cache": CACHE}


class Step:
    """A step on one host of a pair, and what it asked of the module there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, host: str, check: bool = False, **variables: Any) -> None:
        context = view(ENTRIES, host, 2, **variables)
        self.asked: list[tuple[str, dict[str, Any], str]] = []
        action = object.__new__(warm_cache.ActionModule)
        action._plan = vllm_service.plan(expand(context)[0])
        assert action._plan.warm is not None
        action._name, action._vars, action._warm = host, {}, action._plan.warm
        action._fabric, action._port, action._password = context.plan(fabric.plan), 29502, "sesame"
        action._task = SimpleNamespace(check_mode=check)  # type: ignore[assignment]
        monkeypatch.setattr(action, "_long", self.long)
        monkeypatch.setattr(action, "_short", lambda step: self.long(step, {}, ""))
        self.action, self.answer = action, dict(HELD)

    def long(self, step: str, request: dict[str, Any], secret: str) -> dict[str, Any]:
        self.asked.append((step, request, secret))
        return self.answer

    def __call__(self, step: str, *given: dict[str, Any]) -> dict[str, Any]:
        self.action._given = dict(zip(PAIR, given, strict=True))
        self.action._source = self.action._sources().get(self.action._name, self.action._name)
        said: dict[str, Any] = getattr(self.action, f"_{step}")()
        return said


def test_the_first_host_makes_it_and_the_second_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (Step(monkeypatch, host) for host in PAIR)
    assert first("make", BARE, BARE)["cache"] == CACHE and second("make", BARE, BARE) == BARE
    ((_, made, _),) = first.asked
    assert made["container"] == "gb10-warm-cache" and "none" in made["argv"] and made["memory_gib"] > 0
    assert second.asked == []

    for step in ("offer", "take", "withdraw"):
        for one in (first, second):
            one(step, HELD, BARE)
    offered, withdrawn = first.asked[1:]
    assert (offered[0], offered[2], withdrawn[0]) == ("offer", "sesame", "withdraw")
    (way,) = offered[1]["ways"]
    ((step, taken, secret),) = second.asked
    assert (step, secret, taken["address"], taken["offered"]) == ("take", "sesame", way["at"], HELD)


def test_a_host_that_has_it_gives_it_whoever_is_first(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Step(monkeypatch, "spark-a")
    assert first("make", BARE, HELD) == BARE and first.asked == []
    first("take", BARE, HELD)
    assert [step for step, *_ in first.asked] == ["take"]


def test_another_key_is_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    second = Step(monkeypatch, "spark-b")
    other = BARE | {"key": "other"}
    second("make", HELD, other)
    assert [step for step, *_ in second.asked] == ["make"]
    assert second("take", HELD, other) == {}


def test_why_there_is_none_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Step(monkeypatch, "spark-a")
    first.answer = BARE | {"why": "96 GiB must be available to make one, and 12.3 are"}
    said = first("make", BARE, BARE)
    assert said["msg"] == "spark-a: no warm cache: 96 GiB must be available to make one, and 12.3 are"
    assert first("offer", BARE, BARE) == {}


def test_check_mode_makes_and_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (Step(monkeypatch, host, check=True) for host in PAIR)
    assert "would make" in first("make", BARE, BARE)["msg"]
    assert "would get the warm cache" in second("take", HELD, BARE)["msg"]
    assert first("offer", HELD, BARE) == first("withdraw", HELD, BARE) == {}
    assert first.asked == second.asked == []
