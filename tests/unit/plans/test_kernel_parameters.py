"""Which kernel parameters a host gets."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render import render
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import kernel_parameters

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


@pytest.mark.parametrize(
    ("kernel", "off", "allowed", "written", "found"),
    [
        ("7.0.0-1019-nvidia", False, False, "", True),
        ("7.0.0-1019-nvidia", False, True, "kho=off", True),
        ("7.0.0-1019-nvidia", True, True, "kho=off", False),
        ("7.0.0-1019-nvidia", True, False, "", False),
        ("7.0.0-1019-nvidia", None, False, "", False),
        ("6.17.0-1032-nvidia", False, True, "", False),
        ("6.17.0-1032-nvidia", True, True, "", False),
    ],
)
def test_kho_off_is_for_kernel_7_0_alone(
    kernel: str, off: bool | None, allowed: bool, written: str, found: bool
) -> None:
    view = View("spark-a", {"kernel": kernel, "kho_off": off}, {"kernel_parameters_allow_kho_off": allowed})
    made = kernel_parameters.plan(view)
    assert made.kho_off == written
    assert [finding["id"] for finding in made.findings] == (["kho_on"] if found else [])
    resources = render("kernel_parameters", view).resources
    states = {entry.get("file", entry.get("unit")): entry.get("state") for entry in resources}
    assert (states["/etc/default/grub.d/90-gb10-kho.cfg"] == "absent") is not bool(written)
    assert states["gb10-grub-menu.service"] == ("started" if allowed else "stopped")
