# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The root image: overlay layers in the cache, each named by the digest of its recipe.

`debian-<digest>` is what mmdebstrap makes of PACKAGES. `spark-<digest>` is the upper layer that customize.sh leaves
over it: lab/root's files, the driver and the kernel of a Spark, from the lab's own repository. A machine has one layer
more, `delivered-<digest>`: Docker and the container toolkit, which DGX OS comes with. Installed here they cost
seconds, on an emulated CPU minutes. A container has no Docker, so it shows their installation from nothing (molecule).
A host adds a layer of its own (lab.identity).

Everything is mounted inside a private mount namespace (`unshare --mount`), so mounts end with the process that needs
them, however it ends.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import vendor
from lab.shell import CACHE, run, step

HERE = Path(__file__).resolve().parent
INITRAMFS = HERE / "root/etc/initramfs-tools"
CUSTOMIZE, INSTALL = HERE / "customize.sh", HERE / "install.sh"
RELEASE = "trixie"
PACKAGES = (
    # a host that Ansible can manage
    *("systemd-sysv", "dbus", "udev", "network-manager", "openssh-server", "sudo", "kmod", "procps"),
    *("python3", "python3-apt", "python3-debian", "apt-utils", "unattended-upgrades", "gpgv", "ca-certificates"),
    # fabric: RDMA userland and the tools that people reach for
    *("rdma-core", "ibverbs-utils", "ibverbs-providers", "iproute2", "iputils-ping", "ethtool", "pciutils", "curl"),
    # what the lab's docker-ce and perftest stand on; lab hosts have no other source of packages
    *("iptables", "nftables", "libibumad3", "linux-sysctl-defaults", "librdmacm1t64", "libpci3"),
    # grub-editenv, which a trial boot writes GRUB's environment with; nothing here boots by GRUB
    "grub-common",
    # the generic kernel, not the cloud one: that one lacks rdma_rxe
    *("linux-image-amd64", "initramfs-tools", "zstd"),
)
KEEP = 2  # images, and sets of snapshots, that stay in the cache


@dataclass(frozen=True)
class Image:
    digest: str
    layers: tuple[Path, ...]  # uppermost first, as overlayfs wants them

    @property
    def kernel(self) -> Path:
        return self.layers[-1] / "vmlinuz"

    @property
    def initrd(self) -> Path:
        return self.layers[-1] / "initrd.img"

    def save(self, path: Path) -> None:
        path.write_text(json.dumps({"digest": self.digest, "layers": [str(layer) for layer in self.layers]}))

    @staticmethod
    def load(path: Path) -> Image:
        known = json.loads(path.read_text())
        return Image(known["digest"], tuple(Path(layer) for layer in known["layers"]))


def digest(words: Iterable[str], files: Iterable[Path] = ()) -> str:
    """Of a recipe: its words, and the names below lab/, contents and executable bits of its files."""
    total = hashlib.sha256()
    for word in words:
        total.update(f"{word}\0".encode())
    for path in sorted(files):
        total.update(f"{path.relative_to(HERE)}\0{path.stat().st_mode & 0o100}\0".encode() + path.read_bytes() + b"\0")
    return total.hexdigest()[:16]


def overlay(layers: Iterable[Path], upper: Path, command: str) -> list[str]:
    """argv that runs a shell command in a private mount namespace in which $root is the layers with `upper` on top."""
    work, root = upper.with_name(f"{upper.name}.work"), upper.with_name(f"{upper.name}.root")
    for folder in (upper, work, root):
        folder.mkdir(parents=True, exist_ok=True)
    options = f"lowerdir={':'.join(map(str, layers))},upperdir={upper},workdir={work}"
    mount = f"root={shlex.quote(str(root))}; mount -t overlay overlay -o {shlex.quote(options)}"
    script = f'{mount} "$root" && {command}'
    return ["unshare", "--mount", "sh", "-c", script]


def vendor_tree() -> vendor.VendorTree:
    """The lab's package repository and its simulated vLLM image."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with step("Vendor packages and vLLM image (about 1 min the first time)"):
        return vendor.build(CACHE / "vendor")


def build(tree: vendor.VendorTree, kind: str) -> Image:
    """Today's root image for a kind of host, `machine` or `container`: from the cache, or built (about a minute)."""
    base = CACHE / f"debian-{digest((RELEASE, *PACKAGES), _files(INITRAMFS))}"
    if not base.is_dir():
        with step("Debian root by mmdebstrap (about 1 min)"):
            _debian(base)
    name = digest((base.name, tree.digest), [INSTALL, CUSTOMIZE, *_files(HERE / "root")])
    spark = CACHE / f"spark-{name}"
    if not spark.is_dir():
        with step("Making a freshly imaged Spark of it (about 20 s)"):
            _run_over([base], spark, tree, CUSTOMIZE, tree.preinstalled, files=HERE / "root")
    for layer, kept in (("debian", base), ("spark", spark)):
        keep_newest(layer, kept)
    if kind == "container":
        return Image(name, (spark, base))
    return _deliver(spark, base, tree)


def _deliver(spark: Path, base: Path, tree: vendor.VendorTree) -> Image:
    name = digest((spark.name, *tree.delivered), [INSTALL])
    delivered = CACHE / f"delivered-{name}"
    if not delivered.is_dir():
        with step("Docker and the container toolkit, as DGX OS comes with them (about 10 s)"):
            _run_over([spark, base], delivered, tree, INSTALL, tree.delivered)
    keep_newest("delivered", delivered)
    return Image(name, (delivered, spark, base))


def keep_newest(kind: str, used: Path) -> None:
    """Marks an entry of the cache as used now, and drops all but the last KEEP of its kind."""
    used.touch()
    entries = sorted(CACHE.glob(f"{kind}-*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for stale in entries[KEEP:]:
        shutil.rmtree(stale)


def _debian(target: Path) -> None:
    partial = _scratch("new-debian")
    log = CACHE / "mmdebstrap.log"
    hook = f"--essential-hook=copy-in {INITRAMFS} /etc"  # before the kernel's package makes its initramfs
    run(["mmdebstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", hook, RELEASE, partial], log=log)
    partial.rename(target)


def _run_over(
    layers: Sequence[Path],
    target: Path,
    tree: vendor.VendorTree,
    script: Path,
    packages: Sequence[str],
    files: Path | None = None,
) -> None:
    """A new layer over others: `files`, and what a script leaves that runs in there with the names of packages."""
    scratch = _scratch(f"new-{target.name.partition('-')[0]}")
    upper = scratch / "upper"
    if files:
        shutil.copytree(files, upper)
        run(["chmod", "-R", "u=rwX,go=rX", upper])  # whatever umask the checkout was made under
    inside = [
        *("systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--pipe", "--machine=gb10-lab-build"),
        *("--resolv-conf=off", "--timezone=off", f"--bind-ro={tree.path / 'apt'}:/run/lab-apt"),
        *(f"--bind-ro={path}:/run/{path.name}" for path in (INSTALL, CUSTOMIZE)),
        *("sh", f"/run/{script.name}", *packages),
    ]
    command = f'{shlex.join(inside[:1])} --directory="$root" {shlex.join(inside[1:])}'
    run(overlay(layers, upper, command), log=CACHE / f"{script.stem}.log")
    upper.rename(target)
    shutil.rmtree(scratch)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _scratch(name: str) -> Path:
    """An empty folder for a build; what a killed one left there goes away."""
    path = CACHE / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    return path
