"""Hosts of the lab that play Sparks of a release: recipes, a board with its firmware, and a boot by GRUB's menu."""

from __future__ import annotations

import base64
from pathlib import PurePosixPath

from lab.vendor import releases
from lab.vendor.releases import BOARD, METADATA, Release

SOURCES = "/etc/apt/sources.list.d/dgx.sources"
SOURCE = "/etc/apt/sources.list.d/release.sources"
BOOTS_BY_GRUB = "/etc/gb10-lab/boots-by-grub"


def become(board: str, has: Release, offered: Release | None) -> str:
    """A script for root: the host has that release's firmware, and its archive offers the packages of the other one.

    `offered`: what fwupd offers, too. The host's checker knows no release that is newer than those two.
    """
    newest = offered or has
    unknown = [each for each in releases.RELEASES if each.date > newest.date]
    lines = [
        "apt-get -qq update",
        "DEBIAN_FRONTEND=noninteractive apt-get -qq install -y fwupd nvidia-spark-ota-check >/dev/null",
        *(f"rm -f {path}" for path in releases.recipe_files(unknown)),
        *(_written(f"{BOARD}/{name}", text) for name, text in releases.board_files(board, has, offered).items()),
        f"mkdir -p {PurePosixPath(BOOTS_BY_GRUB).parent} && touch {BOOTS_BY_GRUB}",
        "systemctl restart lab-gpu.service lab-board.service",
    ]
    return "\n".join(lines)


def offers(release: Release) -> str:
    """The same for the archive."""
    return f"sed 's/^Suites: .*/Suites: {release.suite}/' {SOURCES} >{SOURCE}; apt-get -qq update"


def _written(path: str, content: bytes) -> str:
    text = base64.b64encode(content).decode()
    return f"mkdir -p {PurePosixPath(path).parent} && echo {text} | base64 -d >{path}"


# As it was before: no recipe, no board, Debian's kernel runs, and of the release nothing is left.
LEAVE = f"""
rm -rf {BOARD} {BOOTS_BY_GRUB} {SOURCE} /run/gb10-lab/fwupd.json /run/gb10-lab/osrelease
for place in /sys/class /sys/firmware /sys/module /proc/sys/kernel/osrelease; do
	while umount -l $place 2>/dev/null; do :; done
done
rm -rf /run/gb10-lab/board
apt-get -qq update
apt-get -qq purge -y --allow-change-held-packages fwupd nvidia-spark-ota-check >/dev/null
apt-get -qq install -y --allow-downgrades --allow-change-held-packages \\
    gb10-lab-unrelated=1.0-1 libnvidia-egl-wayland1=1:1.0-1 >/dev/null
rm -rf {METADATA} /var/lib/gb10-fleet/release-before.json
systemctl restart lab-gpu.service
"""
