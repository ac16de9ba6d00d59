"""The upgrade offers of the matrix, and the verbs with which they are taken.

Each offer is a suite of the lab's repository, added to the host's sources; lab/vendor/README.md says what is in it.
"""

from __future__ import annotations

from dataclasses import dataclass

from lab.vendor.packages import LATER_DRIVER, TOOLKIT, driver_set

TOOLKIT_PARTS = ("nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container-tools",
                 "libnvidia-container1")  # fmt: skip
# Whatever the automatic upgrade is configured to take on some host: everything.
EVERY_ORIGIN = """\
cat >/etc/apt/apt.conf.d/99-every-origin <<'CONF'
Unattended-Upgrade::Origins-Pattern { "origin=*"; };
CONF
"""
# None: what a user types for the offer.
VERBS = {
    "upgrade": "apt-get -y upgrade",
    "dist-upgrade": "apt-get -y dist-upgrade",
    "full-upgrade": "apt -y full-upgrade",
    "unattended-upgrade": f"{EVERY_ORIGIN}unattended-upgrade -v",
    "explicit install": None,
}


@dataclass(frozen=True)
class Offer:
    name: str
    suite: str  # or several, with blanks between
    explicit: str  # arguments of `apt-get -y`
    before: str = ""  # what stands on the host already, as shell script; the offer's suite is not known yet
    after: str = ""  # what happens when it is


def install(*names: str) -> str:
    return f"apt-get -qqy install {' '.join(names)}\n"


def preferences(name: str, text: str) -> str:
    return f"cat >/etc/apt/preferences.d/{name} <<'PIN'\n{text}PIN\n"


def vendor_pins() -> str:
    """What DGX OS has in preferences.d, by file (anakronox/spark-fleet-updates at 69129d4, reference/node-sparky)."""
    cuda, ubuntu = "release l=NVIDIA CUDA", "origin *ubuntu" + ".com*"  # no file here names a package registry's host
    of_580 = ("libnvidia-*580", "nvidia-*580", "nvidia-*580*-open", "xserver-xorg-video-nvidia-580")
    others = ("nvidia-fabricmanager", "nvidia-imex", "nvidia-persistenced", "libnvidia-nscq")
    files = {
        "nvidia-spark-repo": [("*", "release l=NVIDIA Spark Updates Repository", 700)],
        "cuda-compute-repo-lowpri": [
            ("cuda-drivers*", cuda, -1),
            *((name, ubuntu, -1) for name in ("nsight-compute", "nsight-systems")),
        ],
        "cuda-compute-repo-lowpri2": [(name, cuda, -1) for name in (*of_580, *others)],
    }

    def stanza(row: tuple[str, str, int]) -> str:
        return f"Package: {row[0]}\nPin: {row[1]}\nPin-Priority: {row[2]}\n"

    return "".join(preferences(name, "\n".join(map(stanza, rows))) for name, rows in files.items())


VENDOR = "vendor-spark vendor-cuda vendor-edge"
DOWNLOADED = " ".join(f"{package.name}={package.version}" for package in driver_set(LATER_DRIVER))

OFFERS = [
    Offer("minor 580", "minor", "install --allow-change-held-packages nvidia-driver-580-open"),
    Offer("590 transitional", "transitional", "install nvidia-driver-590-open"),
    Offer("590 renamed", "renamed", "install nvidia-driver-open"),
    Offer("kernel with modules", "kernel-with-modules", "install linux-image-6.17.0-1032-nvidia"),
    Offer("kernel without modules", "kernel-without-modules", "install linux-image-7.0.0-1025-nvidia"),
    Offer("modules of 590", "modules-590", "install linux-modules-nvidia-590-open-nvidia-hwe-24.04"),
    Offer("CUDA metapackage", "cuda", "install cuda-13-1", before=install("cuda")),
    Offer(
        "container toolkit",
        "toolkit",
        "install nvidia-container-toolkit",
        before=install(*(f"{name}={TOOLKIT}-1" for name in TOOLKIT_PARTS)),
    ),
    Offer(
        "needs a held package",
        "held",
        "install --allow-change-held-packages gpu-monitor",
        before=install("gpu-monitor"),
    ),
    Offer(
        "beside an invalid pin",
        "transitional",
        "install nvidia-driver-590-open",
        before=preferences(
            "99-operator", "Package: /^nvidia-(?!container).*/\nPin: version 580.*\nPin-Priority: 1001\n"
        ),
    ),
    Offer("phased update", "phased", "install nvidia-driver-580-open linux-nvidia-hwe-24.04"),
    Offer(
        "third-party repository",
        "third-party",
        "install nvidia-driver-590-open",
        # as NVIDIA's own CUDA repository asks its users to do
        before=preferences("graphics-ppa-pin-600", "Package: *\nPin: release o=graphics-ppa\nPin-Priority: 600\n"),
    ),
    Offer("security suite", "security", "install nvidia-driver-580-open linux-nvidia-hwe-24.04"),
    Offer(
        "vendor's sources and pins",
        VENDOR,
        "install nvidia-driver-580-open linux-nvidia-hwe-24.04",
        before=vendor_pins(),
    ),
    Offer("vendor's, CUDA by name", VENDOR, "install cuda-13-1", before=vendor_pins() + install("cuda")),
    Offer("proprietary flavour", "proprietary", "install linux-modules-nvidia-580-6.17.0-1014-nvidia"),
]
# No pin and no hold keeps dpkg from installing a file: what counts is that it is told and that apt makes nothing worse.
BY_HAND = Offer(
    "dpkg -i",
    "minor",
    "install --fix-broken",  # what apt advises in this state
    after=f"cd /tmp && apt-get -qq download {DOWNLOADED} && dpkg -i ./*.deb || true\n",
)
