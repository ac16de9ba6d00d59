"""Drivers that do not fit together, put on a host of the fleet."""

from __future__ import annotations

from lab.vendor.packages import LATER_DRIVER, driver_set
from tests.fleet.upgrades.offers import preferences

ABI = "6.17.0-1014"


def seen(suite: str) -> str:
    return f"""
sed 's/^Suites: .*/Suites: offer-{suite}/' /etc/apt/sources.list.d/dgx.sources >/etc/apt/sources.list.d/offer.sources
apt-get -qq update
"""


def offer(suite: str, *packages: str) -> str:
    """Packages of an offer by dpkg, which asks neither pins nor holds, nor here for dependencies."""
    return f"""
{seen(suite)}
cd /tmp
apt-get -qq -oDir::Etc::PreferencesParts=/none download {" ".join(packages)}
dpkg --force-depends --force-conflicts -i ./*.deb
"""


NEWER = " ".join(f"{package.name}={package.version}" for package in driver_set(LATER_DRIVER))
LATER = next(package.version for package in driver_set(LATER_DRIVER))
MODULES = f"linux-modules-nvidia-580-open-{ABI}-nvidia"
REBUILT = f"{MODULES}=6.17.0-1014.14+2"
SEEDS = {
    "userland_newer": offer("minor", NEWER),
    "module_newer": offer("minor", REBUILT),
    "next_kernel_without_module": offer(
        "kernel-without-modules", "linux-image-7.0.0-1025-nvidia", "linux-modules-7.0.0-1025-nvidia"
    ),
    "proprietary_flavour": f"dpkg --force-depends --remove {MODULES}\n"
    + offer("proprietary", f"linux-modules-nvidia-580-{ABI}-nvidia"),
    "hold_lost": "apt-mark unhold libnvidia-compute-580",
    "invalid_pin": preferences("9-x", "Package: /^nvidia-(?!x)/\nPin: version 580.*\nPin-Priority: 990\n"),
    "mixed_userland": offer("minor", f"nvidia-kernel-common-580={LATER}"),
    "pending_reboot": offer("minor", NEWER, REBUILT),
}
