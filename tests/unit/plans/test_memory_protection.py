"""Which services that kill by memory are stopped."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import memory_protection

BOTH = {"earlyoom": "1.7-1", "systemd-oomd": "255.4-1", "vim": "9"}
OOMD = ("systemd-oomd.service", "systemd-oomd.socket")


@pytest.mark.parametrize(
    ("packages", "consent", "stopped"),
    [
        (BOTH, True, (*OOMD, "earlyoom.service")),
        (BOTH, "true", (*OOMD, "earlyoom.service")),
        (BOTH, "no", ()),
        ({"earlyoom": "1.7-1"}, True, ("earlyoom.service",)),
        ({"vim": "9"}, True, ()),
    ],
)
def test_with_consent_the_installed_ones_are_stopped(packages: dict[str, str], consent: Any, stopped: Any) -> None:
    view = View("spark-a", {"packages": packages}, {"memory_protection_allow_stop": consent})
    assert memory_protection.plan(view).stopped == stopped


def test_without_consent_the_plan_depends_on_nothing() -> None:
    view = View("spark-a", {"packages": BOTH})
    assert memory_protection.plan(view).stopped == ()
    assert view.touched == set()
