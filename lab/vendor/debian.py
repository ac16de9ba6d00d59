# SPDX-License-Identifier: GPL-3.0-or-later
"""What the lab takes from Debian 13 (trixie): packages with their dependencies, and a small root with Python.

Both come through mmdebstrap and its default mirror, and are cached by what was asked for.
"""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from pathlib import Path

RELEASE = "trixie"
# The engine beneath docker-ce, the real perftest, NGINX, HAProxy, rsync, and what a minimal root lacks of their needs.
CARRIED = ["containerd", "docker-cli", "docker.io", "haproxy", "ibverbs-utils", "iproute2", "iptables", "kmod",
           "nginx", "perftest", "prometheus", "prometheus-alertmanager", "prometheus-node-exporter", "python3",
           "rdma-core", "rsync", "runc", "xz-utils"]  # fmt: skip
# Real images bring their bytecode. Without it an emulated CPU compiles for half a minute at each start of Python.
# Checked by hash, because the image's files have no times.
BYTECODE = "python3.13 -m compileall -q -x '/(test|idlelib|ensurepip|lib2to3|turtledemo|pydoc_data)/'"
BYTECODE += " --invalidation-mode unchecked-hash /usr/lib/python3.13"
IMAGE_ROOT = ["base-files", "bash", "coreutils", "dash", "grep", "libc-bin", "python3", "sed"]


class VendorError(Exception):
    """A part of the build failed; the text says which and how to go on."""


def run(command: list[str], **options: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    if done.returncode:
        tail = "\n".join((done.stderr or done.stdout).splitlines()[-15:])
        raise VendorError(f"{command[0]} failed with code {done.returncode}:\n{tail}")
    return str(done.stdout)


def key(words: list[str]) -> str:
    return hashlib.sha256(" ".join(words).encode()).hexdigest()[:12]


def mmdebstrap(architecture: str) -> list[str]:
    """The start of its command line. That a foreign root's programs run here is the caller's care (lab.image)."""
    return ["mmdebstrap", f"--architectures={architecture}", "--skip=check/qemu"]


def packages(cache: Path, architecture: str) -> Path:
    """A folder with the .deb files of CARRIED and of all that these need in a minimal root."""
    folder = cache / f"debian-{key([*CARRIED, architecture])}"
    if folder.is_dir():
        return folder
    with tempfile.TemporaryDirectory(dir=cache) as partial:
        download = f"apt-get clean && apt-get install -y --no-install-recommends --download-only {' '.join(CARRIED)}"
        run([
            *mmdebstrap(architecture),
            "--variant=minbase",
            "--format=null",
            f"--customize-hook=chroot \"$1\" sh -c '{download}'",
            f"--customize-hook=sync-out /var/cache/apt/archives {partial}",
            RELEASE,
            "-",
        ])  # fmt: skip
        new = cache / f".{folder.name}.new"
        new.mkdir(exist_ok=True)
        for deb in Path(partial).glob("*.deb"):
            deb.replace(new / deb.name)
        new.replace(folder)
    return folder


def python_root(cache: Path, architecture: str) -> Path:
    """A tar archive of an unconfigured minimal root, Python's bytecode included: the simulated vLLM image's ground."""
    archive = cache / f"python-root-{key([*IMAGE_ROOT, BYTECODE, architecture])}.tar"
    if not archive.exists():
        partial = archive.with_suffix(".new.tar")
        compiled = f'--extract-hook=chroot "$1" {BYTECODE}'
        included = f"--include={','.join(IMAGE_ROOT)}"
        run([*mmdebstrap(architecture), "--variant=extract", included, compiled, RELEASE, str(partial)])
        partial.replace(archive)
    return archive
