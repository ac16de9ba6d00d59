"""The root image: overlay layers in the cache, each named by the digest of its recipe.

`debian-<digest>` is what mmdebstrap makes of PACKAGES. `spark-<digest>` is the upper layer that customize.sh leaves
over it: lab/root's files, the driver and the kernel of a Spark, from the lab's own repository. A machine has one layer
more, `delivered-<digest>`: Docker and the container toolkit, which DGX OS comes with. Installed here they cost
seconds, on an emulated CPU minutes. A container has no Docker, so it shows their installation from nothing (molecule).
A host adds a layer of its own (lab.identity).

Where this machine's CPU is another one, the programs of the root run by qemu-user while a layer is built.

Everything is mounted inside a private mount namespace (`unshare --mount`), so mounts end with the process that needs
them, however it ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shlex
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import vendor
from lab.architecture import ARCHITECTURES, Architecture
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
    *("linux-image-{architecture}", "initramfs-tools", "zstd"),
)
KEEP = 2  # images, and sets of snapshots, that stay in the cache
# Where the kernel knows which program runs those of another CPU, and what Debian would tell it.
BINFMT, BINFMT_RULES = Path("/proc/sys/fs/binfmt_misc"), Path("/usr/lib/binfmt.d")


@dataclass(frozen=True)
class Image:
    digest: str
    layers: tuple[Path, ...]  # uppermost first, as overlayfs wants them
    architecture: Architecture

    @property
    def kernel(self) -> Path:
        return self.layers[-1] / "vmlinuz"

    @property
    def initrd(self) -> Path:
        return self.layers[-1] / "initrd.img"

    def save(self, path: Path) -> None:
        layers = [str(layer) for layer in self.layers]
        known = {"digest": self.digest, "layers": layers, "architecture": self.architecture.debian}
        path.write_text(json.dumps(known))

    @staticmethod
    def load(path: Path) -> Image:
        known = json.loads(path.read_text())
        layers = tuple(Path(layer) for layer in known["layers"])
        return Image(known["digest"], layers, ARCHITECTURES[known["architecture"]])


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


def vendor_tree(architecture: Architecture) -> vendor.VendorTree:
    """The lab's package repository and its simulated vLLM image."""
    cache(architecture).mkdir(parents=True, exist_ok=True)
    minutes = 4 if architecture.foreign else 1
    with step(f"Vendor packages and vLLM image (about {minutes} min the first time)"), programs_of(architecture):
        return vendor.build(CACHE / "vendor", architecture.debian)


def cache(architecture: Architecture) -> Path:
    """Where its images and snapshots lie: one architecture's do not drive out the other's."""
    return CACHE / architecture.cache


@contextlib.contextmanager
def programs_of(architecture: Architecture) -> Iterator[None]:
    """Lets this machine's kernel run an architecture's programs, and has it forget them afterwards.

    Debian's packages do that by themselves, but not in a container, nor on a machine without systemd.
    """
    known = BINFMT / f"qemu-{architecture.kernel}"
    if not architecture.foreign or known.exists():
        yield
        return
    if not (BINFMT / "register").exists():
        run(["mount", "-t", "binfmt_misc", "binfmt_misc", BINFMT])
    (BINFMT / "register").write_text((BINFMT_RULES / f"{known.name}.conf").read_text())
    try:
        yield
    finally:
        known.write_text("-1")


def build(tree: vendor.VendorTree, kind: str) -> Image:
    """Today's root image for a kind of host, `machine` or `container`: from the cache, or built (about a minute)."""
    architecture = ARCHITECTURES[tree.architecture]
    packages = [package.format(architecture=architecture.debian) for package in PACKAGES]
    base = cache(architecture) / f"debian-{digest((RELEASE, *packages), _files(INITRAMFS))}"
    with programs_of(architecture):
        if not base.is_dir():
            with step(f"Debian root by mmdebstrap (about {12 if architecture.foreign else 1} min)"):
                _debian(base, packages, architecture)
        name = digest((base.name, tree.digest), [INSTALL, CUSTOMIZE, *_files(HERE / "root")])
        spark = base.with_name(f"spark-{name}")
        if not spark.is_dir():
            with step(f"Making a freshly imaged Spark of it (about {120 if architecture.foreign else 20} s)"):
                _run_over([base], spark, tree, CUSTOMIZE, tree.preinstalled, files=HERE / "root")
        for layer in (base, spark):
            keep_newest(layer)
        if kind == "container":
            return Image(name, (spark, base), architecture)
        return _deliver(spark, base, tree, architecture)


def _deliver(spark: Path, base: Path, tree: vendor.VendorTree, architecture: Architecture) -> Image:
    name = digest((spark.name, *tree.delivered), [INSTALL])
    delivered = base.with_name(f"delivered-{name}")
    if not delivered.is_dir():
        seconds = 60 if architecture.foreign else 10
        with step(f"Docker and the container toolkit, as DGX OS comes with them (about {seconds} s)"):
            _run_over([spark, base], delivered, tree, INSTALL, tree.delivered)
    keep_newest(delivered)
    return Image(name, (delivered, spark, base), architecture)


def keep_newest(used: Path) -> None:
    """Marks an entry of the cache as used now, and drops all but the last KEEP of its kind: `kind-digest`."""
    used.touch()
    kind = used.name.rpartition("-")[0]
    entries = sorted(used.parent.glob(f"{kind}-*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for stale in entries[KEEP:]:
        shutil.rmtree(stale)


def _debian(target: Path, packages: Sequence[str], architecture: Architecture) -> None:
    partial = _scratch("new-debian")
    log = CACHE / "mmdebstrap.log"
    hook = f"--essential-hook=copy-in {INITRAMFS} /etc"  # before the kernel's package makes its initramfs
    start = vendor.debian.mmdebstrap(architecture.debian)
    run([*start, "--variant=minbase", f"--include={','.join(packages)}", hook, RELEASE, partial], log=log)
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
