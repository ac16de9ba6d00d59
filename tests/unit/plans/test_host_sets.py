"""The role driver's document where a host set is named: what moves, what goes, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render import Rendered, render
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View

from tests.support.role_documents import content, declared, facts, rendered

GOLDEN = Path(__file__).parents[2] / "fixtures/apt/10-gb10-nvidia"
PREFERENCES = "/etc/apt/preferences.d/10-gb10-nvidia"
OLD, NEW = "580.142-0ubuntu0.24.04.1", "580.178.04-0ubuntu0.24.04.1"
REFERENCE, FLOOR = "ubuntu24.04-580.142-6.17.0-1014", "ubuntu24.04-580.178.04-6.17.0-1032"
META = "linux-modules-nvidia-580-open-nvidia-hwe-24.04"
# As on a Spark of DGX OS 7.5.0.
INSTALLED = {
    **dict.fromkeys(("nvidia-driver-580-open", "nvidia-kernel-common-580", "libnvidia-compute-580"), OLD),
    **dict.fromkeys(("nvidia-firmware-580-580.142", "xserver-xorg-video-nvidia-580", "nvidia-modprobe"), OLD),
    "linux-image-6.17.0-1014-nvidia": "6.17.0-1014.14",
    "linux-modules-6.17.0-1014-nvidia": "6.17.0-1014.14",
    "linux-headers-6.17.0-1014-nvidia": "6.17.0-1014.14",
    "linux-modules-nvidia-580-open-6.17.0-1014-nvidia": "6.17.0-1014.14+1",
    "linux-image-nvidia-hwe-24.04": "6.17.0-1014.14",
    "linux-nvidia-hwe-24.04": "6.17.0-1014.14",
    META: "6.17.0-1014.14+1000",
    "linux-modules-nvidia-fs-6.17.0-1014-nvidia": "6.17.0-1014.14",
    "linux-modules-nvidia-fs-nvidia-hwe-24.04": "6.17.0-1014.14",
    "nvidia-container-toolkit": "1.19.0-1",
    "libnvidia-egl-wayland1": "1:1.1.13-1build1",
}
MOVED = {
    **{name: NEW for name, version in INSTALLED.items() if version == OLD},
    "nvidia-firmware-580-580.142": OLD,
    "nvidia-firmware-580-580.178.04": NEW,
    "linux-image-6.17.0-1014-nvidia": "6.17.0-1014.14",
    "linux-modules-6.17.0-1014-nvidia": "6.17.0-1014.14",
    "linux-headers-6.17.0-1014-nvidia": "6.17.0-1014.14",
    "linux-image-6.17.0-1032-nvidia": "6.17.0-1032.32",
    "linux-modules-6.17.0-1032-nvidia": "6.17.0-1032.32",
    "linux-headers-6.17.0-1032-nvidia": "6.17.0-1032.32",
    "linux-modules-nvidia-580-open-6.17.0-1032-nvidia": "6.17.0-1032.32+1",
    "linux-image-nvidia-hwe-24.04": "6.17.0-1032.32",
    "linux-nvidia-hwe-24.04": "6.17.0-1032.32",
    META: "6.17.0-1032.32+1000",
    "linux-modules-nvidia-fs-6.17.0-1014-nvidia": "6.17.0-1014.14",
    "linux-modules-nvidia-fs-6.17.0-1032-nvidia": "6.17.0-1032.32",
    "linux-modules-nvidia-fs-nvidia-hwe-24.04": "6.17.0-1032.32",
}


OTHER_KERNELS = ("6.11.0-1016", "6.17.0-1008", "6.17.0-1022", "6.17.0-1029", "6.17.0-1031", "7.0.0-1019")
PARTS_OF_A_KERNEL = ("image", "headers", "tools", "modules", "modules-nvidia-fs")


def driver(packages: dict[str, str] | None = None, host_set: str = FLOOR, allow: bool = True, **other: Any) -> Rendered:
    spark = facts(packages=INSTALLED if packages is None else packages, **other)
    return rendered("driver", spark=spark, driver_host_set=host_set, driver_allow_move=allow)


def packages(document: Rendered) -> dict[str, str]:
    """{name: version, or "absent"} of what the document says about packages."""
    assert document.refusals == []
    found = [resource for resource in document.resources if "package" in resource]
    assert {resource["consent"] for resource in found} <= {"driver_allow_move"}
    return {resource["package"]: resource.get("version") or resource["state"] for resource in found}


def refusal(document: Rendered) -> str:
    (found,) = document.refusals
    assert document.resources == []
    return found


def test_the_set_as_it_stands_names_no_package() -> None:
    assert packages(driver(host_set="installed", allow=False)) == {}


def test_the_preferences_of_a_spark() -> None:
    assert content(driver(host_set="installed"), PREFERENCES) == GOLDEN.read_text()


def test_a_move_names_what_comes_and_what_goes() -> None:
    kernel = "6.17.0-1032.32*"
    assert packages(driver()) == {
        "nvidia-driver-580-open": NEW,
        "nvidia-kernel-common-580": NEW,
        "libnvidia-compute-580": NEW,
        "xserver-xorg-video-nvidia-580": NEW,
        "nvidia-modprobe": NEW,
        "nvidia-firmware-580-580.178.04": NEW,
        "linux-image-6.17.0-1032-nvidia": kernel,
        "linux-modules-6.17.0-1032-nvidia": kernel,
        "linux-headers-6.17.0-1032-nvidia": kernel,
        "linux-modules-nvidia-580-open-6.17.0-1032-nvidia": kernel,
        "linux-image-nvidia-hwe-24.04": kernel,
        "linux-nvidia-hwe-24.04": kernel,
        META: kernel,
        # Of the kernel's own source, and of no driver: the one of the kernel that stays does too.
        "linux-modules-nvidia-fs-6.17.0-1032-nvidia": kernel,
        "linux-modules-nvidia-fs-nvidia-hwe-24.04": kernel,
        # They were built for the driver that goes; their kernel stays.
        "linux-modules-nvidia-580-open-6.17.0-1014-nvidia": "absent",
        # So would those of the other sets, and a newer kernel that the catalog knows.
        **{f"linux-modules-nvidia-580-open-{kernel}-nvidia": "absent" for kernel in OTHER_KERNELS},
        **{f"linux-{part}-7.0.0-1019-nvidia": "absent" for part in PARTS_OF_A_KERNEL},
    }


def test_what_the_host_does_not_have_of_a_driver_does_not_come() -> None:
    without = {name: version for name, version in INSTALLED.items() if not name.startswith(("nvidia-firmware", META))}
    assert not [name for name in packages(driver(without)) if name.startswith(("nvidia-firmware", META))]


def test_pins_come_first_and_holds_last() -> None:
    kinds = [next(iter(resource)) for resource in driver().resources]
    assert kinds[:2] == ["file", "file"]
    assert kinds[-1] == "hold"
    assert set(kinds[2:-1]) == {"package"}
    text = content(driver(), PREFERENCES)
    assert f"Pin: version {NEW}\n" in text
    assert OLD not in text
    assert "Pin: version 6.17.0-1032.32*\n" in text


def test_the_document_stays_the_same_when_the_move_is_done() -> None:
    """Or the next run would find orphans and work."""
    assert packages(driver(MOVED)) == packages(driver())
    assert content(driver(MOVED), PREFERENCES) == content(driver(), PREFERENCES)
    assert packages(driver(MOVED, allow=False)) == packages(driver())


@pytest.mark.parametrize("gone", ["nvidia-driver-580-open", "nvidia-kernel-common-580"])
def test_an_interrupted_move_goes_on(gone: str) -> None:
    half = {name: version for name, version in (INSTALLED | MOVED).items() if name != gone}
    left = packages(driver(half))
    assert left.items() <= packages(driver()).items() | {("linux-modules-nvidia-580-open-6.17.0-1014-nvidia", "absent")}
    assert left["libnvidia-compute-580"] == NEW


def test_back_to_the_older_set_takes_the_newer_kernel_away() -> None:
    back = packages(driver(MOVED, host_set=REFERENCE))
    for part in ("image", "modules", "headers", "modules-nvidia-580-open"):
        assert back[f"linux-{part}-6.17.0-1032-nvidia"] == "absent"
        assert back[f"linux-{part}-6.17.0-1014-nvidia"] == "6.17.0-1014.14*"
    assert back["nvidia-driver-580-open"] == OLD
    assert back["nvidia-firmware-580-580.142"] == OLD


def test_a_newer_kernel_of_no_set_goes_as_well() -> None:
    stray = INSTALLED | {"linux-image-7.0.0-1025-nvidia": "7.0.0-1025.25"}
    assert packages(driver(stray))["linux-image-7.0.0-1025-nvidia"] == "absent"


def test_the_running_kernel_is_not_taken_away() -> None:
    text = refusal(driver(MOVED, host_set=REFERENCE, kernel="6.17.0-1032-nvidia"))
    assert "the host runs kernel 6.17.0-1032-nvidia" in text
    assert "Boot 6.17.0-1014-nvidia once" in text


def test_modules_of_an_older_kernel_stay_where_the_driver_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    sets = catalog.load("host_sets")
    kernel_only = {"a": sets["host_sets"][REFERENCE], "b": sets["host_sets"][FLOOR] | {"userland": OLD}}
    monkeypatch.setattr(catalog, "load", lambda name: sets | {"host_sets": kernel_only})
    moved = packages(driver(host_set="b"))
    assert "absent" not in moved.values()
    assert moved["nvidia-driver-580-open"] == OLD


@pytest.mark.parametrize(("built_for", "refused"), [("580.142", False), ("580.178.04", True), (None, False)])
def test_a_driver_beside_modules_of_another_one_is_not_adopted(built_for: str | None, refused: bool) -> None:
    """As after `dpkg -i`, which no pin and no hold can stop."""
    kernels = [
        {"release": "6.17.0-1032-nvidia", "module": "580.1"},
        {"release": "6.17.0-1014-nvidia", "module": built_for},
    ]
    document = driver(host_set="installed", driver={"kernels": kernels})
    if not refused:
        assert document.refusals == []
        return
    text = refusal(document)
    assert f"driver {OLD} stands beside kernel 6.17.0-1014, whose modules were built for driver 580.178.04" in text
    assert driver(driver={"kernels": kernels}).refusals == []


def test_parts_of_several_versions_are_not_adopted_and_move_together() -> None:
    mixed = INSTALLED | {"nvidia-kernel-common-580": "580.159.03-0ubuntu0.24.04.1"}
    text = refusal(driver(mixed, host_set="installed"))
    assert "several versions: " in text
    assert "580.159.03-0ubuntu0.24.04.1" in text
    assert packages(driver(mixed)) == packages(driver())
    other_revision = INSTALLED | {"nvidia-kernel-common-580": "580.142-1"}
    assert driver(other_revision, host_set="installed").refusals == []


def test_what_counts_for_itself_stays_and_is_pinned_as_it_is() -> None:
    own = INSTALLED | {"nvidia-modprobe": "610.43.02-1ubuntu1", "libnvidia-nscq": "580.142-1"}
    for document in (driver(own), driver(own, host_set="installed")):
        assert not {"nvidia-modprobe", "libnvidia-nscq"} & set(packages(document))
        text = content(document, PREFERENCES)
        assert "Package: libnvidia-nscq\nPin: version 580.142-1\nPin-Priority: 990\n" in text
        assert "nvidia-modprobe" not in text, "a helper of a newer branch belongs to a release"
        assert not any(
            re.search(pattern, "nvidia-modprobe") for pattern in declared(document, "hold", "driver-set")["match"]
        )


def test_old_kernels_of_a_real_machine_may_go_with_their_firmware() -> None:
    """Names and versions of a GX10, September 2026 (tests/fixtures/releases)."""
    release = "6.17.0-{}-nvidia".format
    parts = ("linux-image-{}-nvidia", "linux-nvidia-6.17-headers-{}", "linux-modules-nvidia-580-open-{}-nvidia")
    kernels = {"6.17.0-1014": "580.142", "6.17.0-1022": "580.159.03", "6.17.0-1029": "580.173.02"}
    installed = {part.format(abi): f"{abi}.{abi[-2:]}" for abi in kernels for part in parts}
    installed |= {f"nvidia-firmware-580-{driver}": f"{driver}-0ubuntu0.24.04.1" for driver in kernels.values()}
    installed |= {"nvidia-driver-580-open": "580.173.02-0ubuntu0.24.04.1", META: "6.17.0-1029.29+1"}
    told = {
        "userland": "580.173.02",
        "module_loaded": "580.173.02",
        "next_kernel": release("1029"),
        "kernels": [{"release": f"{abi}-nvidia", "module": module} for abi, module in kernels.items()],
    }
    document = driver(installed, host_set="installed", kernel=release("1029"), driver=told)
    patterns = declared(document, "hold", "driver-set")["free"]
    freed = {name for name in installed if any(re.search(pattern, name) for pattern in patterns)}
    assert freed == {
        name for name in installed if re.search(r"-(6\.17\.0-10(14|22)(-nvidia)?|580\.(142|159\.03))$", name)
    }


def test_without_consent_a_move_is_refused_with_the_command() -> None:
    text = refusal(driver(allow=False))
    assert f"the host has driver {OLD} on kernel 6.17.0-1014" in text
    assert """site.yml -i INVENTORY --limit spark-a --tags driver -e '{"driver_allow_move": true}'""" in text


def test_the_command_of_a_refusal_names_the_whole_cluster() -> None:
    """A part of one is refused by the doctor."""
    spark = facts(packages=INSTALLED)
    context = View("spark-b", spark, {"driver_host_set": FLOOR}, ("spark-a", "spark-b"))
    assert " --limit spark-a,spark-b " in refusal(render("driver", context))


def test_a_set_that_the_host_has_needs_no_consent() -> None:
    assert driver(host_set=REFERENCE, allow=False).refusals == []


def test_a_set_that_nobody_knows_is_refused() -> None:
    text = refusal(driver(host_set="580"))
    assert "Use 'installed' or one of " in text
    assert all(name in text for name in catalog.load("host_sets")["host_sets"])


@pytest.mark.parametrize("host_set", ["installed", FLOOR])
def test_a_host_without_a_580_driver_is_refused(host_set: str) -> None:
    other = {META: "6.17.0-1014.14+1000", "nvidia-driver-590-open": "590.44.01-0ubuntu0.24.04.1"}
    assert "userland is none" in refusal(driver(other, host_set))


def row(package: str, pin: str, priority: int = 990) -> dict[str, Any]:
    return {"file": "/etc/apt/preferences.d/00-local", "package": package, "pin": pin, "priority": priority}


@pytest.mark.parametrize(
    "opposed",
    [
        row("nvidia-driver-580-open", "version 580.*"),
        row("nvidia-utils-580", "release o=graphics-ppa", 1001),
        row("linux-nvidia-hwe-24.04", "version 6.17.0-10140.1"),
        row("src:nvidia-graphics-drivers-580", "version *", 500),
    ],
)
def test_preferences_that_decide_otherwise_are_named_first(opposed: dict[str, Any]) -> None:
    text = refusal(driver(host_set="installed", apt_preferences=[opposed]))
    assert text.startswith("/etc/apt/preferences.d/00-local comes before this role's preferences")
    assert opposed["package"] in text
    assert opposed["pin"] in text


def test_preferences_that_agree_or_only_refuse_are_adopted() -> None:
    harmless = [
        row("nvidia-driver-580-open", f"version {OLD}", 1001),
        row("linux-nvidia-hwe-24.04", "version 6.17.0-1014*"),
        row("nvidia-driver-580-open", "release o=NVIDIA", -1),  # as DGX OS pins the CUDA repository
        row("libnvidia-egl-wayland1", "version *", 990),
        row("nvidia-container-toolkit", "version 1.19.*", 990),
    ]
    assert driver(host_set="installed", apt_preferences=harmless).refusals == []


def test_the_vendors_pin_of_the_branch_is_adopted_and_that_of_another_is_not() -> None:
    ours = INSTALLED | {"nvidia-driver-pinning-580": "580-1"}
    assert "nvidia-driver-pinning-580" not in packages(driver(ours))
    text = refusal(driver(INSTALLED | {"nvidia-driver-pinning-590": "590-1"}, host_set="installed"))
    assert "apt-get remove nvidia-driver-pinning-590" in text


def test_the_sets_of_the_catalog_are_of_one_branch_and_one_kernel_each() -> None:
    content_ = catalog.load("host_sets")
    assert content_["host_sets"]
    for name, entry in content_["host_sets"].items():
        upstream = entry["userland"].partition("-")[0]
        assert upstream.startswith(f"{content_['driver_branch']['value']}.")
        assert entry["modules"].startswith(f"{entry['kernel']}.")
        assert name == f"ubuntu24.04-{upstream}-{entry['kernel']}"
        assert all(entry[key] for key in catalog.EVIDENCE)


def held(document: Rendered) -> set[str]:
    hold = declared(document, "hold", "driver-set")
    return {
        name
        for name in MOVED
        if any(re.search(pattern, name) for pattern in hold["match"])
        and not any(re.search(pattern, name) for pattern in hold["free"])
    }


def test_holds_cover_both_sets_after_a_move() -> None:
    assert held(driver(MOVED)) == set(MOVED)


OLD_KERNEL = {name for name in MOVED if name.endswith("-6.17.0-1014-nvidia")}
BUILT = {"release": "6.17.0-1014-nvidia", "module": "580.178.04"}


@pytest.mark.parametrize(
    ("kernel", "next_kernel", "kernels", "freed"),
    [
        ("6.17.0-1032-nvidia", "6.17.0-1032-nvidia", [{**BUILT, "module": None}], OLD_KERNEL),
        ("6.17.0-1032-nvidia", "6.17.0-1032-nvidia", [BUILT], set()),  # it has a GPU: something to fall back to
        ("6.17.0-1014-nvidia", "6.17.0-1032-nvidia", [], set()),  # it runs
        ("6.17.0-1032-nvidia", "6.17.0-1014-nvidia", [], set()),  # it boots next
        ("6.17.0-1032-nvidia", None, [], set()),  # GRUB does not tell
        ("6.12.0-generic", "6.17.0-1032-nvidia", [], set()),  # what runs is of no installed kernel
    ],
)
def test_an_old_kernel_without_a_gpu_may_go(
    kernel: str, next_kernel: str | None, kernels: list[dict[str, Any]], freed: set[str]
) -> None:
    runs = {"release": kernel if kernel.endswith("nvidia") else "6.17.0-1032-nvidia", "module": "580.178.04"}
    told = {"userland": "580.178.04", "module_loaded": "580.178.04", "kernels": [*kernels, runs]}
    told["next_kernel"] = next_kernel
    document = driver(MOVED, host_set="installed", kernel=kernel, driver=told)
    assert document.refusals == []
    assert set(MOVED) - held(document) == freed
