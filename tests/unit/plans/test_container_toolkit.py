"""What the role container_toolkit decides about the CDI description; versions and sources: test_vendor_packages."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import container_toolkit
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.container_toolkit import ContainerToolkitPlan

OURS = "/var/run/cdi/nvidia.yaml"


def planned(userland: str | None = "580.142", loaded: str | None = "580.142", **facts: Any) -> ContainerToolkitPlan:
    known = {
        "packages": {},
        "driver": {"userland": userland, "module_loaded": loaded},
        "cdi": [OURS],
        "cdi_driver": "580.142",
        "apt_sources": {"entries": [], "conflicts": [], "offered": []},
    }
    return container_toolkit.plan(View("spark-a", {**known, **facts}, {}))


@pytest.mark.parametrize(
    ("userland", "loaded", "facts", "library"),
    [
        ("580.142", "580.142", {}, "/libcuda.so.580.142"),
        ("580.142", "580.142", {"cdi_driver": "580.126.09"}, "/libcuda.so.580.142"),
        ("580.178.04", "580.142", {}, None),  # a reboot is due
        (None, None, {}, None),
        ("580.142", "580.142", {"cdi_driver": None}, None),  # it names no library
        ("580.142", "580.142", {"cdi_driver": None, "cdi": []}, "/libcuda.so.580.142"),  # yet to come
    ],
)
def test_the_description_follows_the_driver(
    userland: str | None, loaded: str | None, facts: dict[str, Any], library: str | None
) -> None:
    assert planned(userland, loaded, **facts).library == library


@pytest.mark.parametrize(
    ("cdi", "named"),
    [
        ([], None),
        ([OURS, "/etc/cdi/nvidia.yaml.bak", "/etc/cdi/amd.yaml"], None),
        ([OURS, "/etc/cdi/nvidia.yaml", "/etc/cdi/nvidia-gpu.json"], "/etc/cdi/nvidia.yaml, /etc/cdi/nvidia-gpu.json"),
    ],
)
def test_a_description_made_by_hand_is_refused(cdi: list[str], named: str | None) -> None:
    refusals = planned(cdi=cdi).refusals
    assert [text.split(" fresh,")[0] for text in refusals] == ([f"Nobody keeps {named}"] if named else [])
