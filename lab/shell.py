"""What every part of the lab needs: where files lie, running a command, telling the user, failing with a way out."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lab.architecture import AMD64, Architecture

CHECKOUT = Path(__file__).resolve().parent.parent
STATE = CHECKOUT / ".lab"
CACHE = Path(os.environ.get("GB10_LAB_CACHE", "/var/cache/gb10-lab"))

# command, or file by its path -> Debian package that brings it
TOOLS = {
    "qemu-img": "qemu-utils",
    "mmdebstrap": "mmdebstrap",
    "systemd-nspawn": "systemd-container",
    "ip": "iproute2",
    "mkfs.ext4": "e2fsprogs",
    "ssh": "openssh-client",
    "dpkg-deb": "dpkg",
    "apt-ftparchive": "apt-utils",
    "gpg": "gnupg",
    # keys by which mmdebstrap trusts Debian's packages: there on Debian, a package of its own on Ubuntu
    "/usr/share/keyrings/debian-archive-keyring.gpg": "debian-archive-keyring",
}


class LabError(Exception):
    """Something the user can act on: the message says what is wrong and the way out."""


def say(message: str) -> None:
    print(f"lab: {message}", flush=True)


@contextmanager
def step(message: str) -> Iterator[None]:
    """Announces work that takes a while, and says afterwards how long it took."""
    say(f"{message} ...")
    begun = time.monotonic()
    yield
    say(f"  done in {time.monotonic() - begun:.0f} s")


def not_installed(program: str) -> LabError:
    return LabError(f"{program} is not installed; `python3 -m lab deps`, for arm64 with --arch arm64, installs it")


def run(argv: Sequence[str | Path], *, stdin: str | None = None, log: Path | None = None) -> str:
    """Runs a command to its end and returns its output; a failure shows the output's last lines."""
    try:
        done = subprocess.run(
            [str(word) for word in argv],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    except FileNotFoundError as error:
        raise not_installed(str(error.filename)) from error
    if log:
        log.write_text(done.stdout)
    if done.returncode:
        tail = "\n".join(done.stdout.strip().splitlines()[-15:])
        where = f" (all of it: {log})" if log else ""
        raise LabError(f"{Path(argv[0]).name} failed with status {done.returncode}{where}:\n{tail}")
    return done.stdout


def missing_packages(architecture: Architecture) -> list[str]:
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    tools = {**TOOLS, **architecture.tools}
    there = {tool for tool in tools if (Path(tool).exists() if tool.startswith("/") else shutil.which(tool, path=path))}
    return sorted({tools[tool] for tool in tools.keys() - there})


def require_root() -> None:
    if os.geteuid() != 0:
        raise LabError("the lab needs root (bridges, mounts, containers): run it as root, for example with `sudo -E`")


def require_packages(architecture: Architecture) -> None:
    """Building and booting take a handful of Debian's tools. What ends a host or asks it does without."""
    if missing := missing_packages(architecture):
        more = "" if architecture is AMD64 else f" --arch {architecture.debian}"
        raise LabError(f"missing Debian packages: {' '.join(missing)}; install them with `python3 -m lab deps{more}`")


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
