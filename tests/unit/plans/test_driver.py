"""What the driver role decides: the set that a host keeps, what comes and goes for another one, what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import driver
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.driver import DriverPlan

OLD, NEW = "580.142-0ubuntu0.24.04.1", "580.178.04-0ubuntu0.24.04.1"
REFERENCE, FLOOR = "ubuntu24.04-580.142-6.17.0-1014", "ubuntu24.04-580.178.04-6.17.0-1032"
META = "linux-modules-nvidia-580-open-nvidia-hwe-24.04"
MODULES = "linux-modules-nvidia-580-open-6.17.0-{}-nvidia"
SPARK = {
    "nvidia-driver-580-open": OLD,
    "nvidia-modprobe": OLD,
    "linux-image-6.17.0-1014-nvidia": "6.17.0-1014.14",
    MODULES.format(1014): "6.17.0-1014.14+1",
    META: "6.17.0-1014.14+1000",
}


def planned(packages: Mapping[str, str] = SPARK, facts: Mapping[str, Any] | None = None, **settings: Any) -> DriverPlan:
    known = {"packages": packages, "kernel": "6.17.0-1014-nvidia", "driver": {"kernels": []}, "apt_preferences": []}
    return driver.plan(View("spark-a", {**known, **(facts or {})}, settings))


@pytest.mark.parametrize(
    ("packages", "kernel", "userland", "abi"),
    [
        (SPARK, "6.17.0-1014-nvidia", OLD, "6.17.0-1014"),
        (SPARK, "6.8.0-31-generic", OLD, "6.17.0-1014"),  # the metapackage counts, not what runs
        ({"nvidia-driver-580-open": OLD}, "6.17.0-1032-nvidia", OLD, "6.17.0-1032"),
        ({"nvidia-kernel-common-580": NEW, "libnvidia-compute-580": OLD}, "6.17.0-1032-nvidia", NEW, "6.17.0-1032"),
        ({"libnvidia-compute-580": OLD}, "rescue", OLD, ""),
        ({"nvidia-driver-590-open": "590.1-1"}, "rescue", "", ""),
    ],
)
def test_the_installed_set_is_kept(packages: Mapping[str, str], kernel: str, userland: str, abi: str) -> None:
    made = planned(packages, {"kernel": kernel})
    assert (made.userland, made.kernel, made.branch) == (userland, abi, "580")
    assert (made.installs, made.removes) == ({}, ())


@pytest.mark.parametrize(
    ("more", "comes"),
    [
        ({}, set()),
        ({"libnvidia-gl-580": OLD}, {"libnvidia-gl-580"}),
        ({"nvidia-firmware-580-580.142": OLD}, {"nvidia-firmware-580-580.178.04"}),
        ({"nvidia-driver-pinning-580": "580-1", "libnvidia-egl-wayland1": "1:1.1", "libnvidia-gl-590": "590.1"}, set()),
        ({"nvidia-persistenced": "610.1-1"}, set()),  # a numbering of its own
        ({"linux-tools-6.17.0-1014-nvidia": "6.17.0-1014.14"}, {"linux-tools-6.17.0-1032-nvidia"}),
        ({"linux-tools-nvidia-hwe-24.04": "6.17.0-1014.14"}, {"linux-tools-nvidia-hwe-24.04"}),
        ({"linux-image-nvidia-64k-hwe-24.04": "6.17.0-1014.14"}, set()),
    ],
)
def test_a_move_brings_what_the_host_has_of_it(more: Mapping[str, str], comes: set[str]) -> None:
    made = planned({**SPARK, **more}, driver_host_set=FLOOR, driver_allow_move=True)
    always = {"nvidia-driver-580-open", "nvidia-modprobe", "linux-image-6.17.0-1032-nvidia", MODULES.format(1032), META}
    assert set(made.installs) == always | comes
    versions = {name: "6.17.0-1032.32*" if name.startswith("linux-") else NEW for name in made.installs}
    assert made.installs == versions
    assert made.refusals == ()


@pytest.mark.parametrize(
    ("host_set", "more", "goes"),
    [
        (FLOOR, {}, [MODULES.format(1014)]),
        (REFERENCE, {}, ["linux-image-6.17.0-1032-nvidia", MODULES.format(1032)]),
        (FLOOR, {"linux-image-7.0.0-1025-nvidia": "7"}, ["linux-image-7.0.0-1025-nvidia", MODULES.format(1014)]),
        (FLOOR, {"linux-image-7.0.0-nvidia": "7", "linux-image-7.0.0-1025-generic": "7"}, [MODULES.format(1014)]),
        (FLOOR, {"linux-modules-nvidia-590-open-6.17.0-1014-nvidia": "1"}, [
            MODULES.format(1014), "linux-modules-nvidia-590-open-6.17.0-1014-nvidia"
        ]),
    ],
)  # fmt: skip
def test_a_move_takes_away_what_would_break_the_set(host_set: str, more: Mapping[str, str], goes: list[str]) -> None:
    removes = planned({**SPARK, **more}, driver_host_set=host_set, driver_allow_move=True).removes
    assert set(goes) <= set(removes)
    named = {name for name in removes if name in {**SPARK, **more}}
    assert named == {name for name in goes if name in {**SPARK, **more}}
    assert not {MODULES.format(host_set[-4:]), f"linux-image-6.17.0-{host_set[-4:]}-nvidia"} & set(removes)


def test_the_versions_that_differ_from_the_drivers_are_pinned_as_they_are() -> None:
    kept = planned({**SPARK, "nvidia-persistenced": "610.1-1"})
    assert kept.module_pins == {MODULES.format(1014): "6.17.0-1014.14+1", META: "6.17.0-1014.14+1000"}
    assert kept.staying == {}, "a helper of a newer branch is not pinned back"
    assert planned({**SPARK, "nvidia-imex": "580.1-1"}).staying == {"nvidia-imex": "580.1-1"}
    bare = planned({"nvidia-driver-580-open": OLD})
    assert bare.module_pins == {MODULES.format(1014): "6.17.0-1014.*", META: "6.17.0-1014.*"}
    moved = planned(driver_host_set=FLOOR, driver_allow_move=True)
    assert moved.module_pins == dict.fromkeys((MODULES.format(1032), META), "6.17.0-1032.32*")


CONSENT = {"driver_allow_move": True}
TORN = {"driver": {"kernels": [{"release": "6.17.0-1014-nvidia", "module": "580.178.04"}]}}
OPPOSED = {"apt_preferences": [{"file": "/x", "package": "nvidia-open", "pin": "version *", "priority": 1}]}


@pytest.mark.parametrize(
    ("packages", "facts", "settings", "says"),
    [
        (SPARK, {}, {}, []),
        (SPARK, {}, {"driver_host_set": REFERENCE}, []),
        (SPARK, {}, {"driver_host_set": "580"}, ["Use 'installed' or one of"]),
        ({META: "6.17.0-1014.14"}, {}, {}, ["userland is none; this role keeps branch 580"]),
        ({"nvidia-driver-580-open": OLD}, {"kernel": "rescue"}, {}, ["(running kernel rescue, package linux-modules-"]),
        (SPARK, {}, {"driver_host_set": FLOOR}, [f"the host has driver {OLD} on kernel 6.17.0-1014. To move it"]),
        (SPARK, {}, CONSENT | {"driver_host_set": FLOOR}, []),
        (SPARK, TORN, {}, ["whose modules were built for driver 580.178.04"]),
        (SPARK, TORN, CONSENT | {"driver_host_set": FLOOR}, []),
        ({**SPARK, "libnvidia-gl-580": NEW}, {}, {}, [f"several versions: {OLD}, {NEW}"]),
        (SPARK, {"kernel": "6.17.0-1032-nvidia"}, {"driver_host_set": REFERENCE}, ["Boot 6.17.0-1014-nvidia once"]),
        ({**SPARK, "nvidia-driver-pinning-590": "1"}, {}, {}, ["apt-get remove nvidia-driver-pinning-590"]),
        (SPARK, OPPOSED, {}, ["/x comes before this role's preferences and gives nvidia-open to version *"]),
        ({}, {"kernel": "rescue"}, {}, ["userland is none", "no kernel"]),
    ],
)
def test_refusals(packages: Any, facts: Any, settings: Any, says: list[str]) -> None:
    refusals = planned(packages, facts, **settings).refusals
    assert len(refusals) == len(says)
    assert [text for text, part in zip(refusals, says, strict=True) if part not in text] == []


@pytest.mark.parametrize(
    ("settings", "read"),
    [
        ({}, {"packages", "driver", "apt_preferences"}),
        ({"driver_host_set": FLOOR, **CONSENT}, {"packages", "kernel", "driver", "apt_preferences"}),
    ],
)
def test_a_plan_depends_on_these_facts_alone(settings: Any, read: set[str]) -> None:
    facts = {"packages": SPARK, "kernel": "6.17.0-1014-nvidia", "driver": {"kernels": []}, "apt_preferences": []}
    view = View("spark-a", {**facts, "rails": []}, settings)
    driver.plan(view)
    assert view.touched == read


@pytest.mark.parametrize(
    ("packages", "kernel"),
    [
        ({**SPARK, "linux-image-7.0.0-1019-nvidia-64k": "7.0.0-1019.19"}, "6.17.0-1014-nvidia"),
        (SPARK, "7.0.0-1019-nvidia-64k"),
    ],
)
def test_a_kernel_of_another_flavour_is_named_before_a_move(packages: Mapping[str, str], kernel: str) -> None:
    moved = planned(packages, {"kernel": kernel}, driver_host_set=FLOOR, driver_allow_move=True)
    assert "linux-image-7.0.0-1019-nvidia-64k is a kernel of another flavour" in moved.refusals[0]
    assert planned(packages, {"kernel": kernel}).refusals == (), "what is there may stay"
