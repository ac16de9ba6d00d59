"""Hosts of the lab that play Sparks of a release: recipes, a board with its firmware, and a boot by GRUB's menu."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from lab.vendor import releases
from lab.vendor.releases import BOARD, METADATA, RELEASES, Release

SOURCES = "/etc/apt/sources.list.d/dgx.sources"
SOURCE = "/etc/apt/sources.list.d/release.sources"
BOOTS_BY_GRUB = "/etc/gb10-lab/boots-by-grub"
_, APRIL, JULY, _ = RELEASES
# Driver, kernel, and a package of the rest.
SEEN = """dpkg-query -W -f '${Version} ' nvidia-driver-580-open
tr '\\n' ' ' </proc/sys/kernel/osrelease
dpkg-query -W -f '${Version}' gb10-lab-unrelated"""
BEFORE = f"{APRIL.driver}-0ubuntu0.24.04.1 {APRIL.kernel}-nvidia 1.0-1"
AFTER = f"{JULY.driver}-0ubuntu0.24.04.1 {JULY.kernel}-nvidia 2.0-1"
BACK = BEFORE.replace(" 1.0-1", " 2.0-1")  # packages of the rest stay


def become(board: str, has: Release, to: Release) -> str:
    """A script for root: the host has one release's firmware, and knows no release that is newer than the other.

    The maker of NVIDIA's board has published that one's firmware, and the partner has not.
    """
    unknown = [each for each in RELEASES if each.date > to.date]
    files = releases.board_files(board, has, to if board == "nvidia" else None)
    lines = [
        "apt-get -qq update",
        "DEBIAN_FRONTEND=noninteractive apt-get -qq install -y fwupd nvidia-spark-ota-check >/dev/null",
        *(f"rm -f {path}" for path in releases.recipe_files(unknown)),
        *(_written(f"{BOARD}/{name}", text) for name, text in files.items()),
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


# Mounts where a board or a kernel is played, sorted (each boot has another order of cgroups), and a container's /sys.
PLACES = "awk '$2 ~ \"^/sys|^/proc/sys\" { print $1, $2 }' /proc/mounts | sort; ls /sys"
# As it was before: no recipe, no board, Debian's kernel runs, and of the release nothing is left.
LEAVE = f"""
rm -rf {BOARD} {BOOTS_BY_GRUB} {SOURCE} /run/gb10-lab/fwupd.json /run/gb10-lab/osrelease
# The board's layers alone: in a container /sys/class is a mount of its own.
awk '$1 == "gb10-lab" {{ print $2 }}' /proc/mounts | sort -r | xargs -r -n 1 umount -l
while umount -l /proc/sys/kernel/osrelease 2>/dev/null; do :; done
if [ "$(stat -f -c %T /sys)" = tmpfs ]; then
	mount -o remount,rw /sys
	rm -rf /sys/firmware /sys/module
	mount -o remount,ro /sys
fi
rm -rf /run/gb10-lab/board
apt-get -qq update
apt-get -qq purge -y --allow-change-held-packages fwupd nvidia-spark-ota-check >/dev/null
apt-get -qq install -y --allow-downgrades --allow-change-held-packages \\
    gb10-lab-unrelated=1.0-1 libnvidia-egl-wayland1=1:1.0-1 >/dev/null
rm -rf {METADATA} /var/lib/gb10-fleet/release-before.json
systemctl restart lab-gpu.service
"""


def proofs(report: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The release of each host of a rollout, as the evidence of its wave has it."""
    found = {}
    for wave in report["waves"]:
        told = json.loads((Path(wave["evidence"]) / "evidence.json").read_text())
        found |= {host: told["hosts"][host]["release"] for host in (each["host"] for each in wave["hosts"])}
    return found


def judge(report: Mapping[str, Any], board: Callable[[str], str]) -> None:
    """From April to July, as the proof of each host says it; a partner's board has no newer firmware."""
    for host, now in proofs(report).items():
        before, told = now["before"], (host, now)
        wanted = {"nvidia": "current", "asus": "waiting_for_firmware"}[board(host)]
        assert (now["release"], now["state"]) == (JULY.name, wanted), told
        assert (before["release"], before["state"]) == (APRIL.name, "behind"), told
        assert now["recipe"] and before["recipe"], told
        assert wanted != "current" or (now["score"]["torn"], before["score"]["torn"]) == (0, 0), told
