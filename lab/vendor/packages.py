# SPDX-License-Identifier: GPL-3.0-or-later
"""The packages of the lab's apt repository, as data: names, versions and dependency shapes of a DGX Spark's.

Nothing here is NVIDIA's or Docker's own: a package is empty, or carries a simulated part of `files/`, or Debian's build
of the same program (`repack`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from lab.vendor.kernel_module import stand_in
from lab.vendor.releases import CHECKER, RELEASES, recipe_files

FILES = Path(__file__).parent / "files"

DRIVER = "580.142"  # what DGX OS 7.5.0 (OTA 26.04.1) ships
LATER_DRIVER = "580.178.04"  # in Ubuntu's archive since; fixes published CVEs
NEXT_DRIVER = "590.44.01"  # the branch a Spark must not drift to
DOCKER = "5:29.2.1-1~ubuntu.24.04~noble"
CONTAINERD = "2.2.1-1~ubuntu.24.04~noble"
TOOLKIT = "1.19.0"


@dataclass(frozen=True)
class File:
    path: str  # absolute, on the host
    content: bytes = b""
    mode: int = 0o644
    link_to: str | None = None


@dataclass(frozen=True)
class Package:
    name: str
    version: str
    depends: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)  # further control fields: Conflicts, Provides, ...
    files: tuple[File, ...] = ()
    units: tuple[str, ...] = ()  # enabled on installation
    scripts: Mapping[str, str] = field(default_factory=dict)  # maintainer scripts in POSIX sh, and `triggers`
    repack: tuple[str, ...] = ()  # Debian packages whose files and maintainer scripts it carries
    description: str = "stand-in of the gb10 lab"


def carried(name: str, path: str, mode: int = 0o644, **substitutions: str) -> File:
    """`files/<name>` installed at `path`, with each @KEY@ replaced."""
    text = (FILES / name).read_text()
    for key, value in substitutions.items():
        text = text.replace(f"@{key}@", value)
    return File(path, text.encode(), mode)


# ---------------------------------------------------------------------------------------------------- NVIDIA driver

# {b}: branch, {u}: upstream version, {v}: package version. Ubuntu ties the parts of a driver together by a strict `=`,
# except nvidia-kernel-common and libnvidia-common: these can move alone, which makes half-held hosts drift.
DRIVER_SET = {
    "nvidia-driver-{b}-open": (
        "libnvidia-gl-{b} (= {v}), libnvidia-compute-{b} (= {v}), libnvidia-extra-{b} (= {v}), "
        "libnvidia-decode-{b} (= {v}), libnvidia-encode-{b} (= {v}), libnvidia-cfg1-{b} (= {v}), "
        "libnvidia-fbc1-{b} (= {v}), nvidia-compute-utils-{b} (= {v}), nvidia-utils-{b} (= {v}), "
        "nvidia-kernel-source-{b}-open (= {v}), xserver-xorg-video-nvidia-{b} (= {v}), "
        "nvidia-kernel-common-{b} (>= {u})"
    ),
    "nvidia-kernel-common-{b}": "nvidia-firmware-{b}-{u} (= {v}), nvidia-modprobe (>= {u})",
    "nvidia-kernel-source-{b}-open": "",
    "nvidia-firmware-{b}-{u}": "",
    "libnvidia-common-{b}": "",
    "libnvidia-compute-{b}": "",
    "libnvidia-gl-{b}": "libnvidia-common-{b}",
    "libnvidia-extra-{b}": "",
    "libnvidia-cfg1-{b}": "",
    "libnvidia-decode-{b}": "libnvidia-compute-{b} (= {v})",
    "libnvidia-encode-{b}": "libnvidia-decode-{b} (= {v})",
    "libnvidia-fbc1-{b}": "libnvidia-gl-{b} (= {v})",
    "nvidia-compute-utils-{b}": "libnvidia-compute-{b} (= {v})",
    "nvidia-utils-{b}": "libnvidia-compute-{b} (= {v}), python3:any",
    "xserver-xorg-video-nvidia-{b}": "libnvidia-cfg1-{b} (= {v})",
}
# Two branches cannot be installed side by side: each part also provides, and conflicts with, its unbranched name.
EXCLUSIVE = {
    "nvidia-driver-{b}-open": "nvidia-driver-binary",
    "nvidia-kernel-common-{b}": "nvidia-kernel-common",
    "libnvidia-compute-{b}": "libnvidia-compute",
    "libnvidia-gl-{b}": "libnvidia-gl",
    "nvidia-utils-{b}": "nvidia-utils",
}


def nvidia_smi(upstream: str) -> File:
    return carried("nvidia-smi", "/usr/bin/nvidia-smi", 0o755, DRIVER_VERSION=upstream)


def exclusive(name: str) -> dict[str, str]:
    return {"Provides": name, "Conflicts": name, "Replaces": name}


def driver_set(upstream: str, revision: str = "0ubuntu0.24.04.1") -> list[Package]:
    branch, version = upstream.split(".", maxsplit=1)[0], f"{upstream}-{revision}"
    words = {"b": branch, "u": upstream, "v": version}
    packages = [
        Package(
            name.format(**words),
            version,
            depends.format(**words),
            fields=exclusive(EXCLUSIVE[name]) if name in EXCLUSIVE else {},
            files=(nvidia_smi(upstream),) if name == "nvidia-utils-{b}" else (),
        )
        for name, depends in DRIVER_SET.items()
    ]
    return [*packages, Package("nvidia-modprobe", version)]


def transitional_driver_set(old_branch: str, upstream: str) -> list[Package]:
    """The old branch's names as dummies that pull in the new branch: how Ubuntu ended 460, 495 and 575."""
    words = {"b": upstream.split(".", maxsplit=1)[0], "u": upstream, "v": f"{upstream}-0ubuntu0.24.04.1"}
    return [
        Package(
            name.format(**{**words, "b": old_branch}),
            words["v"],
            name.format(**words),
            description="transitional dummy package",
        )
        for name in DRIVER_SET
        if "{u}" not in name
    ]


def renamed_driver_set(upstream: str) -> list[Package]:
    """NVIDIA's CUDA repository from 590 on: no branch number in the names, so holds on the old names do not see it."""
    version = f"{upstream}-1ubuntu1"

    def replaces(*names: str) -> dict[str, str]:
        return exclusive(", ".join(names))

    return [
        Package(
            "nvidia-driver-open",
            version,
            f"libnvidia-compute (= {version})",
            fields=replaces("nvidia-driver-580-open", "nvidia-driver-binary", "nvidia-utils-580", "nvidia-utils"),
            files=(nvidia_smi(upstream),),
        ),
        Package("libnvidia-compute", version, fields=replaces("libnvidia-compute-580")),
        Package("cuda-drivers", version, f"nvidia-driver-open (= {version})"),
    ]


def cuda(driver: str) -> list[Package]:
    """CUDA 13.1, whose metapackages bring the driver along; the toolkit alone does not."""
    return [
        Package("cuda-toolkit-13-1", "13.1.0-1"),
        Package("cuda-13-1", "13.1.0-1", f"cuda-toolkit-13-1 (>= 13.1.0), cuda-drivers (>= {driver})"),
        Package("cuda", "13.1.0-1", "cuda-13-1 (>= 13.1.0)"),
    ]


# ------------------------------------------------------------------------------------------------------------ kernel


def modules(abi: str, upload: str, driver: str, flavour: str = "-open", build: int = 1) -> list[Package]:
    """NVIDIA's modules for one kernel, prebuilt from one driver; `build` counts Canonical's rebuilds for later drivers.

    They take that driver's userland only: the upper bound keeps a newer one from being installed beside them. The
    metapackage has a version line of its own (+1000) because it comes from another source than the kernel's.
    """
    branch, release = driver.split(".", maxsplit=1)[0], f"{abi}-nvidia"
    module = stand_in(driver, "Dual MIT/GPL" if flavour == "-open" else "NVIDIA")
    other = "" if flavour == "-open" else "-open"
    return [
        Package(
            f"linux-modules-nvidia-{branch}{flavour}-{release}",
            f"{upload}+{build}",
            f"linux-image-{release}, "
            f"nvidia-kernel-common-{branch} (>= {driver}), nvidia-kernel-common-{branch} (<= {driver}-1)",
            fields={"Conflicts": f"linux-modules-nvidia-{branch}{other}-{release}"},
            files=(File(f"/lib/modules/{release}/kernel/nvidia-{branch}{flavour}/nvidia.ko", module),),
            scripts={"postinst": f"depmod {release}"},
        ),
        Package(
            f"linux-modules-nvidia-{branch}{flavour}-nvidia-hwe-24.04",
            f"{upload}+{1000 + build - 1}",
            f"linux-modules-nvidia-{branch}{flavour}-{release}",
        ),
    ]


def kernel(abi: str, upload: str, driver: str | None) -> list[Package]:
    """One `-nvidia` kernel and the metapackages that point at it; `driver`: whose prebuilt modules come along, if any.

    `abi` is e.g. `6.17.0-1014`, `upload` its package version `6.17.0-1014.14`. Image and modules can move apart.
    """
    release = f"{abi}-nvidia"
    tree = f"/lib/modules/{release}"
    grub = "! command -v update-grub >/dev/null || update-grub"
    return [
        Package(
            f"linux-image-{release}",
            upload,
            f"linux-modules-{release} (= {upload})",
            # On a Spark the initrd is made by the package's postinst; its menu entry names both.
            files=tuple(
                File(f"/boot/{name}-{release}", b"nothing to boot\n", 0o600) for name in ("vmlinuz", "initrd.img")
            ),
            scripts={"postinst": grub, "postrm": grub},
        ),
        Package(
            f"linux-modules-{release}",
            upload,
            "kmod",
            files=tuple(File(f"{tree}/modules.{name}") for name in ("order", "builtin", "builtin.modinfo")),
            scripts={"postinst": f"depmod {release}", "postrm": f"rm -f {tree}/modules.*"},
        ),
        # GPUDirect Storage. Sparks have it, some without its metapackage: that another one asks for it is inferred.
        Package(f"linux-modules-nvidia-fs-{release}", upload, f"linux-modules-{release}"),
        Package("linux-modules-nvidia-fs-nvidia-hwe-24.04", upload, f"linux-modules-nvidia-fs-{release}"),
        Package(f"linux-headers-{release}", upload),
        Package(f"linux-tools-{release}", upload),
        Package("linux-image-nvidia-hwe-24.04", upload, f"linux-image-{release}, linux-modules-nvidia-fs-{release}"),
        Package("linux-headers-nvidia-hwe-24.04", upload, f"linux-headers-{release}"),
        Package("linux-tools-nvidia-hwe-24.04", upload, f"linux-tools-{release}"),
        Package(
            "linux-nvidia-hwe-24.04",
            upload,
            f"linux-image-nvidia-hwe-24.04 (= {upload}), linux-headers-nvidia-hwe-24.04 (= {upload})",
        ),
        *(modules(abi, upload, driver) if driver else ()),
    ]


# -------------------------------------------------------------------------------------------------------- containers


def docker() -> list[Package]:
    """Docker's names and versions over Debian's engine (26.1.5), which is what `docker version` will say."""
    debian = {
        "docker-ce": exclusive("docker.io"),
        "docker-ce-cli": exclusive("docker-cli"),
        "containerd.io": exclusive("containerd, runc"),
    }
    return [
        Package(
            "docker-ce",
            DOCKER,
            "containerd.io (>= 1.7.27), docker-ce-cli, iptables, adduser, libsystemd0, tini",
            fields=debian["docker-ce"],
            repack=("docker.io",),
        ),
        Package("docker-ce-cli", DOCKER, fields=debian["docker-ce-cli"], repack=("docker-cli",)),
        Package(
            "containerd.io",
            CONTAINERD,
            "libc6, libseccomp2",
            fields=debian["containerd.io"],
            repack=("containerd", "runc"),
        ),
        Package("docker-buildx-plugin", "0.31.1-1~ubuntu.24.04~noble"),
        Package("docker-compose-plugin", "5.0.2-1~ubuntu.24.04~noble"),
    ]


def toolkit(upstream: str) -> list[Package]:
    """NVIDIA's container toolkit: four packages that only move together."""
    version = f"{upstream}-1"
    runtime = File("/usr/bin/nvidia-container-runtime", b'#!/bin/sh\nexec runc "$@"\n', 0o755)
    hook = File("/usr/bin/nvidia-container-runtime-hook", b"#!/bin/sh\nexit 0\n", 0o755)
    units = ("nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service")
    return [
        Package(
            "nvidia-container-toolkit",
            version,
            f"nvidia-container-toolkit-base (= {version}), libnvidia-container-tools (= {version})",
            files=(hook,),
        ),
        Package(
            "nvidia-container-toolkit-base",
            version,
            "python3:any",
            files=(
                carried("nvidia-ctk", "/usr/bin/nvidia-ctk", 0o755, TOOLKIT_VERSION=upstream),
                runtime,
                *(carried(unit, f"/usr/lib/systemd/system/{unit}") for unit in units),
            ),
            units=units,
        ),
        Package("libnvidia-container-tools", version, f"libnvidia-container1 (>= {version})"),
        Package("libnvidia-container1", version),
    ]


# ---------------------------------------------------------------------------------------------------------- hardware


def hardware() -> Package:
    """What a lab host has in the place of a Spark's hardware and firmware."""
    units = ("lab-gpu.service", "lab-rails.service")
    libexec = "/usr/libexec/gb10-lab"
    return Package(
        "gb10-lab-hardware",
        "7.5.0",
        "iproute2, kmod, mount, python3:any",
        files=(
            carried("dgx-release", "/etc/dgx-release"),
            carried("preferences-gb10-lab", "/etc/apt/preferences.d/gb10-lab"),
            carried("default-grub", "/etc/default/grub"),
            carried("update-grub", "/usr/sbin/update-grub", 0o755),
            carried("lab-gpu", f"{libexec}/lab-gpu", 0o755),
            carried("lab-rails", f"{libexec}/lab-rails", 0o755),
            *(carried(unit, f"/usr/lib/systemd/system/{unit}") for unit in units),
            # rdma-core would rename the rxe devices after the PCI function below; they must keep the Spark's names
            File("/etc/udev/rules.d/60-rdma-persistent-naming.rules", link_to="/dev/null"),
        ),
        units=units,
        # A kernel may be installed after this package: the trigger fires for each one that comes.
        scripts={
            "postinst": f"{libexec}/lab-gpu image\nupdate-grub",
            "triggers": "interest-noawait /usr/lib/modules\n",
        },
    )


def releases() -> list[Package]:
    """The vendor's recipes, and fwupd: on no host from the start, for a probe does not read them."""
    recipes = tuple(File(path, text.encode()) for path, text in recipe_files().items())
    return [
        Package("nvidia-spark-ota-check", CHECKER, files=recipes),
        Package(
            "fwupd",
            "1.9.30-0ubuntu5",
            "mount, python3:any",
            files=(
                carried("fwupdmgr", "/usr/bin/fwupdmgr", 0o755),
                carried("lab-board", "/usr/libexec/gb10-lab/lab-board", 0o755),
                carried("lab-board.service", "/usr/lib/systemd/system/lab-board.service"),
            ),
            units=("lab-board.service",),
        ),
    ]


# ------------------------------------------------------------------------------------------------------------ suites

# What a host in the lab has before anybody touches it.
PREINSTALLED = [
    "gb10-lab-hardware",
    "nvidia-driver-580-open",
    "linux-nvidia-hwe-24.04",
    "linux-tools-nvidia-hwe-24.04",
    "linux-modules-nvidia-580-open-nvidia-hwe-24.04",
    "linux-modules-nvidia-fs-nvidia-hwe-24.04",
    "gb10-lab-unrelated",
    "libnvidia-egl-wayland1",
]
# What DGX OS comes with besides, in these versions: a machine has it from the start, a container never.
DELIVERED = [
    "docker-ce",
    "docker-ce-cli",
    "containerd.io",
    "docker-buildx-plugin",
    "docker-compose-plugin",
    "nvidia-container-toolkit",
]
# Origin and label of the suites that are not the lab's own archive.
ORIGINS = {
    "offer-security": ("gb10-lab", "gb10-lab-security"),
    "offer-third-party": ("graphics-ppa", "graphics-ppa"),
    # The labels by which the vendor's own preferences know these sources of a Spark.
    "offer-vendor-spark": ("NVIDIA", "NVIDIA Spark Updates Repository"),
    "offer-vendor-cuda": ("NVIDIA", "NVIDIA CUDA"),
    "offer-vendor-edge": ("LP-PPA-canonical-nvidia-nvidia-desktop-edge", "nvidia-desktop-edge"),
}


def unrelated(version: str) -> list[Package]:
    """Updates that must arrive, whatever else is offered; one is NVIDIA's, but no part of the driver."""
    return [Package("gb10-lab-unrelated", version), Package("libnvidia-egl-wayland1", f"1:{version}")]


def phased(packages: Iterable[Package], percentage: int) -> list[Package]:
    """An update that Ubuntu hands out to so many percent of all machines; whether to this one goes by its source."""
    fields = {"Source": "phased (1)", "Phased-Update-Percentage": str(percentage)}
    return [replace(package, fields={**package.fields, **fields}) for package in packages]


def suites() -> Mapping[str, list[Package]]:
    """Suite -> packages. A default host sees `base` only; each upgrade offer is a suite to be added to its sources."""
    base = [
        hardware(),
        *driver_set(DRIVER),
        *kernel("6.17.0-1014", "6.17.0-1014.14", DRIVER),
        *docker(),
        *toolkit(TOOLKIT),
        *releases(),
        Package("gpu-monitor", "1.0-1", "nvidia-utils-580"),
        Package("cuda-toolkit-13-0", "13.0.2-1"),
        Package("cuda", "13.0.2-1", "cuda-toolkit-13-0"),
    ]
    dummies = {package.name: package for package in transitional_driver_set("580", NEXT_DRIVER)}
    minor = [*driver_set(LATER_DRIVER), *modules("6.17.0-1014", "6.17.0-1014.14", LATER_DRIVER, build=2)]
    floor = [*driver_set(LATER_DRIVER), *kernel("6.17.0-1032", "6.17.0-1032.32", LATER_DRIVER)]

    def modules_dummy(version: str) -> Package:
        name = "linux-modules-nvidia-{}-open-nvidia-hwe-24.04"
        return Package(name.format(580), version, name.format(590), description="transitional dummy package")

    offers = {
        "minor": minor,
        "transitional": [
            *driver_set(NEXT_DRIVER),
            *dummies.values(),
            *kernel("6.17.0-1020", "6.17.0-1020.20", NEXT_DRIVER),
            modules_dummy("6.17.0-1020.20+1000"),
        ],
        "renamed": renamed_driver_set(NEXT_DRIVER),
        "kernel-with-modules": kernel("6.17.0-1032", "6.17.0-1032.32", DRIVER),
        "kernel-without-modules": kernel("7.0.0-1025", "7.0.0-1025.25", None),
        "modules-590": [
            *driver_set(NEXT_DRIVER),
            dummies["nvidia-kernel-common-580"],
            *modules("6.17.0-1014", "6.17.0-1014.14", NEXT_DRIVER, build=2),
            modules_dummy("6.17.0-1014.14+1001"),
        ],
        "cuda": [*renamed_driver_set(NEXT_DRIVER), *cuda(NEXT_DRIVER)],
        "toolkit": [*toolkit("1.19.1"), *toolkit("1.20.0")],
        "held": [*minor, Package("gpu-monitor", "2.0-1", f"nvidia-utils-580 (>= {LATER_DRIVER})")],
        "phased": [*phased(minor, 10), *phased(kernel("7.0.0-1025", "7.0.0-1025.25", None), 0)],
        "third-party": [*driver_set("580.199.01", "0ppa1"), *driver_set(NEXT_DRIVER, "0ppa1")],
        "security": floor,
        "proprietary": modules("6.17.0-1014", "6.17.0-1014.14", DRIVER, flavour=""),
        "vendor-spark": floor,
        "vendor-cuda": [
            *driver_set("580.199.01", "1ubuntu1"),
            *driver_set(NEXT_DRIVER, "1ubuntu1"),
            *renamed_driver_set(NEXT_DRIVER),
            *cuda(NEXT_DRIVER),
        ],
        "vendor-edge": [
            *kernel("7.0.0-1019", "7.0.0-1019.19~24.04.2", LATER_DRIVER),
            *modules("6.17.0-1014", "6.17.0-1014.14", LATER_DRIVER, build=1000),
        ],
    }
    updates = unrelated("2.0-1")
    each_release = {
        release.suite: [*driver_set(release.driver), *kernel(release.kernel, release.upload, release.driver)]
        for release in RELEASES
    }
    return {
        "base": [*base, *unrelated("1.0-1")],
        **{f"offer-{name}": [*packages, *updates] for name, packages in offers.items()},
        **{name: [*packages, *updates] for name, packages in each_release.items()},
    }
