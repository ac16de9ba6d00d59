"""The one word that the upgrade matrix has for what happened to a host."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from lab.vendor import packages
from tests.fleet.upgrades import outcome
from tests.fleet.upgrades.outcome import Host

KERNEL = "6.17.0-1014-nvidia"
OPEN = "Dual MIT/GPL"
SET = {
    **{package.name: package.version for package in packages.driver_set(packages.DRIVER)},
    **{package.name: package.version for package in packages.kernel("6.17.0-1014", "6.17.0-1014.14", packages.DRIVER)},
}


def host(
    changed: Mapping[str, str | None] | None = None, broken: str = "", modules: Mapping[str, str] | None = None
) -> Host:
    merged = {**SET, **(changed or {})}
    kernels = {KERNEL: "580.142", **(modules or {})}
    return Host(
        packages={name: version for name, version in merged.items() if version},
        broken=frozenset(broken.split()),
        holds=frozenset(SET),
        modules={release: (version, OPEN if version else "") for release, version in kernels.items()},
    )


MODULES = f"linux-modules-nvidia-580-open-{KERNEL}"
RENAMED = {package.name: package.version for package in packages.renamed_driver_set(packages.NEXT_DRIVER)}
ALL_590 = {
    **dict.fromkeys(SET),
    **{package.name: package.version for package in packages.driver_set(packages.NEXT_DRIVER)},
    "linux-modules-nvidia-590-open-6.17.0-1014-nvidia": "6.17.0-1014.14+2",
}


@pytest.mark.parametrize(
    ("after", "word"),
    [
        (host(), "kept"),
        (host({"gb10-lab-unrelated": "2.0-1"}), "kept"),
        (host({MODULES: "6.17.0-1014.14+2"}), "moved"),
        (host({"nvidia-kernel-common-580": "580.178.04-0ubuntu0.24.04.1"}), "MIXED"),
        (host(broken="nvidia-utils-580"), "MIXED"),
        (host({name: version.replace("580.142", "580.178.04") for name, version in SET.items()}), "MIXED"),
        (host({"linux-image-7.0.0-1025-nvidia": "7.0.0-1025.25"}, modules={"7.0.0-1025-nvidia": ""}), "NO MODULE"),
        (host(dict.fromkeys(name for name in SET if "nvidia-driver" in name)), "REMOVED"),
        (host({MODULES: None, MODULES.replace("-open", ""): "6.17.0-1014.14+1"}), "CLOSED"),
        (host(ALL_590, modules={KERNEL: "590.44.01"}), "590"),
    ],
)
def test_the_worst_is_said(after: Host, word: str) -> None:
    assert outcome.word(host(), after) == word


def test_foreign_are_other_branches_and_the_other_flavour() -> None:
    closed = MODULES.replace("-open", "")
    foreign = host({**RENAMED, closed: "1", "linux-modules-nvidia-590-open-x": "1", "libnvidia-egl-wayland1": "1:2"})
    assert foreign.foreign == sorted(
        [
            *(f"{name}={version}" for name, version in RENAMED.items()),
            f"{closed}=1",
            "linux-modules-nvidia-590-open-x=1",
        ]
    )
    assert host().foreign == []


def test_a_kernel_with_modules_of_another_branch_is_bare() -> None:
    assert host(modules={"6.17.0-1020-nvidia": "590.44.01"}).bare_kernels == ["6.17.0-1020-nvidia"]


def test_parse_reads_what_the_host_prints() -> None:
    read = outcome.parse(
        "noise\npackage|hi |nvidia-utils-580|580.142-0\npackage|ii |curl|8\npackage|rc |gone|1\npackage|iU |half|1\n"
        f"kernel|{KERNEL}|580.142|{OPEN}\nkernel|7.0.0-1025-nvidia||\n"
    )
    assert read.packages == {"nvidia-utils-580": "580.142-0", "curl": "8"}
    assert read.holds == {"nvidia-utils-580"}
    assert read.broken == {"half"}
    assert read.modules == {KERNEL: ("580.142", OPEN), "7.0.0-1025-nvidia": ("", "")}
    assert read.bare_kernels == ["7.0.0-1025-nvidia"]
    assert not read.updated
