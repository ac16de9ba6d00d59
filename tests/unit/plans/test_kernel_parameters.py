"""Which kernel parameters a host gets."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import kernel_parameters
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.view import View

IGNORE, ANNOUNCE = "net.ipv4.conf.all.arp_ignore", "net.ipv4.conf.all.arp_announce"


@pytest.mark.parametrize(
    ("extra", "sysctls"),
    [
        ({}, [(IGNORE, "1"), (ANNOUNCE, "2")]),
        ({"vm.swappiness": 10}, [(IGNORE, "1"), (ANNOUNCE, "2"), ("vm.swappiness", "10")]),
        ({IGNORE: 0}, [(ANNOUNCE, "2"), (IGNORE, "0")]),
        ({"kernel.core_pattern": "a b", "x": 1.5}, [
            (IGNORE, "1"), (ANNOUNCE, "2"), ("kernel.core_pattern", "a b"), ("x", "1.5")
        ]),
    ],
)  # fmt: skip
def test_the_operators_own_come_last_and_may_replace_ours(extra: dict[str, Any], sysctls: list[Any]) -> None:
    made = kernel_parameters.plan(View("spark-a", {}, {"kernel_parameters_extra": extra}))
    assert list(made.sysctls.items()) == sysctls
