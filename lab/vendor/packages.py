# SPDX-License-Identifier: GPL-3.0-or-later
"""The packages of the lab's apt repository, as data: names, versions and dependency shapes of a DGX Spark's.

Nothing here is NVIDIA's or Docker's own: a package is empty, or carries a simulated part of `files/`, or Debian's build
of the same program (`repack`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lab.vendor.kernel_module import stand_in

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

    @property
    def architecture(self) -> str:
        return "amd64" if self.repack else "all"


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


def driver_set(upstream: str) -> list[Package]:
    branch, version = upstream.split(".", maxsplit=1)[0], f"{upstream}-0ubuntu0.24.04.1"
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
        Package("cuda-toolkit-13-1", "13.1.0-1"),
        Package("cuda-13-1", "13.1.0-1", f"cuda-toolkit-13-1 (>= 13.1.0), cuda-drivers (>= {upstream})"),
    ]


# ------------------------------------------------------------------------------------------------------------ kernel


def kernel(abi: str, upload: str, driver: str | None) -> list[Package]:
    """One `-nvidia` kernel and the metapackages that point at it; `driver`: whose prebuilt modules come along, if any.

    `abi` is e.g. `6.17.0-1014`, `upload` its package version `6.17.0-1014.14`. The modules metapackage has its own
    version line (+1000) because it comes from another source than the image: the two can move apart.
    """
    release = f"{abi}-nvidia"
    tree = f"/lib/modules/{release}"
    depmod = {"postinst": f"depmod {release}"}
    packages = [
        Package(f"linux-image-{release}", upload, f"linux-modules-{release} (= {upload})"),
        Package(
            f"linux-modules-{release}",
            upload,
            "kmod",
            files=tuple(File(f"{tree}/modules.{name}") for name in ("order", "builtin", "builtin.modinfo")),
            scripts={**depmod, "postrm": f"rm -f {tree}/modules.*"},
        ),
        Package(f"linux-headers-{release}", upload),
        Package(f"linux-tools-{release}", upload),
        Package("linux-image-nvidia-hwe-24.04", upload, f"linux-image-{release}"),
        Package("linux-headers-nvidia-hwe-24.04", upload, f"linux-headers-{release}"),
        Package("linux-tools-nvidia-hwe-24.04", upload, f"linux-tools-{release}"),
        Package(
            "linux-nvidia-hwe-24.04",
            upload,
            f"linux-image-nvidia-hwe-24.04 (= {upload}), linux-headers-nvidia-hwe-24.04 (= {upload})",
        ),
    ]
    if driver:
        branch = driver.split(".", maxsplit=1)[0]
        packages += [
            Package(
                f"linux-modules-nvidia-{branch}-open-{release}",
                f"{upload}+1",
                f"linux-image-{release}, nvidia-kernel-common-{branch} (>= {driver})",
                files=(File(f"{tree}/kernel/nvidia-{branch}-open/nvidia.ko", stand_in(driver)),),
                scripts=depmod,
            ),
            Package(
                f"linux-modules-nvidia-{branch}-open-nvidia-hwe-24.04",
                f"{upload}+1000",
                f"linux-modules-nvidia-{branch}-open-{release}",
            ),
        ]
    return packages


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
            carried("lab-gpu", f"{libexec}/lab-gpu", 0o755),
            carried("lab-rails", f"{libexec}/lab-rails", 0o755),
            *(carried(unit, f"/usr/lib/systemd/system/{unit}") for unit in units),
            # rdma-core would rename the rxe devices after the PCI function below; they must keep the Spark's names
            File("/etc/udev/rules.d/60-rdma-persistent-naming.rules", link_to="/dev/null"),
        ),
        units=units,
        # A kernel may be installed after this package: the trigger fires for each one that comes.
        scripts={"postinst": f"{libexec}/lab-gpu image", "triggers": "interest-noawait /usr/lib/modules\n"},
    )


# ------------------------------------------------------------------------------------------------------------ suites

# What a host in the lab has before anybody touches it.
PREINSTALLED = [
    "gb10-lab-hardware",
    "nvidia-driver-580-open",
    "linux-nvidia-hwe-24.04",
    "linux-tools-nvidia-hwe-24.04",
    "linux-modules-nvidia-580-open-nvidia-hwe-24.04",
]


def suites() -> Mapping[str, Iterable[Package]]:
    """Suite -> packages. A default host sees `base` only; each upgrade offer is a suite to be added to its sources."""
    return {
        "base": [
            hardware(),
            *driver_set(DRIVER),
            *kernel("6.17.0-1014", "6.17.0-1014.14", DRIVER),
            *docker(),
            *toolkit(TOOLKIT),
        ],
        "offer-minor": driver_set(LATER_DRIVER),
        "offer-transitional": [
            *driver_set(NEXT_DRIVER),
            *transitional_driver_set("580", NEXT_DRIVER),
            *kernel("6.17.0-1020", "6.17.0-1020.20", NEXT_DRIVER),
            Package(
                "linux-modules-nvidia-580-open-nvidia-hwe-24.04",
                "6.17.0-1020.20+1000",
                "linux-modules-nvidia-590-open-nvidia-hwe-24.04",
                description="transitional dummy package",
            ),
        ],
        "offer-renamed": renamed_driver_set(NEXT_DRIVER),
        "offer-kernel-with-modules": kernel("6.17.0-1032", "6.17.0-1032.32", DRIVER),
        "offer-kernel-without-modules": kernel("7.0.0-1025", "7.0.0-1025.25", None),
        "offer-toolkit": [*toolkit("1.19.1"), *toolkit("1.20.0")],
    }
