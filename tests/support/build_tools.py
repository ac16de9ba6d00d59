"""Real build tools for hosts of the lab, from Debian: BuildKit's client, and a C compiler that is small.

They are no part of the lab's own repository, whose Docker plugins are empty: only a test of builds needs them.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from lab.shell import CACHE
from lab.vendor import debian

PACKAGES = ("docker-buildx", "tcc")
DOWNLOAD = "apt-get clean && apt-get install -y --no-install-recommends --download-only"


def tools() -> Path:
    """A folder with a folder for each package, that has its files; kept in the lab's cache."""
    folder = CACHE / "vendor" / f"build-tools-{debian.key([debian.RELEASE, *PACKAGES])}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        debs, new = Path(scratch) / "debs", Path(scratch) / "new"
        debs.mkdir()
        new.mkdir()
        debian.run([
            *("mmdebstrap", "--variant=minbase", "--format=null"),
            f"--customize-hook=chroot \"$1\" sh -c '{DOWNLOAD} {' '.join(PACKAGES)}'",
            f"--customize-hook=sync-out /var/cache/apt/archives {debs}",
            *(debian.RELEASE, "-"),
        ])  # fmt: skip
        for name in PACKAGES:
            (deb,) = debs.glob(f"{name}_*.deb")
            debian.run(["dpkg-deb", "--extract", str(deb), str(new / name)])
            shutil.rmtree(new / name / "usr/share", ignore_errors=True)
        new.replace(folder)
    return folder
