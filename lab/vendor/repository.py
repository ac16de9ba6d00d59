# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the lab's apt repository: builds the packages of the table, indexes each suite and signs it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from lab.vendor.debian import run
from lab.vendor.packages import ORIGINS, Package, suites

ORIGIN = "gb10-lab"
KEYRING = "gb10-lab-archive.gpg"
POSTINST_UNITS = """\
if [ "$1" = configure ]; then
	for unit in {units}; do
		deb-systemd-helper enable "$unit" >/dev/null
	done
	if [ -d /run/systemd/system ]; then
		systemctl daemon-reload
		deb-systemd-invoke start {units} >/dev/null || true
	fi
fi
"""
PRERM_UNITS = """\
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
	deb-systemd-invoke stop {units} >/dev/null || true
fi
"""
POSTRM_UNITS = """\
if [ "$1" = remove ] || [ "$1" = purge ]; then
	! command -v deb-systemd-helper >/dev/null || deb-systemd-helper purge {units} >/dev/null
fi
"""


def control(package: Package, architecture: str) -> str:
    fields = {
        "Package": package.name,
        "Version": package.version,
        "Architecture": architecture if package.repack else "all",
        "Maintainer": "gb10-fleet contributors <lab@gb10.invalid>",
        "Depends": package.depends,
        **package.fields,
        "Section": "admin",
        "Priority": "optional",
        "Description": package.description,
    }
    return "".join(f"{name}: {value}\n" for name, value in fields.items() if value)


def maintainer_scripts(package: Package) -> dict[str, str]:
    """Script name -> text: those of the table, then what its units need."""
    scripts = dict(package.scripts)
    if package.units:
        units = " ".join(package.units)
        for name, text in (("postinst", POSTINST_UNITS), ("prerm", PRERM_UNITS), ("postrm", POSTRM_UNITS)):
            scripts[name] = scripts.get(name, "") + "\n" + text.format(units=units)
    return {
        name: text if name == "triggers" else f"#!/bin/sh\nset -e\n{text}"
        for name, text in scripts.items()
    }  # fmt: skip


def stage(package: Package, root: Path, debian: Path, architecture: str) -> None:
    """Lay out one package's tree under `root`, as dpkg-deb wants it."""
    meta = root / "DEBIAN"
    for name in package.repack:
        (original,) = debian.glob(f"{name}_*.deb")
        extracted = root.with_name(f"{root.name}.{name}")
        run(["dpkg-deb", "--raw-extract", str(original), str(extracted)])
        for stale in ("control", "md5sums"):
            (extracted / "DEBIAN" / stale).unlink(missing_ok=True)
        shutil.rmtree(extracted / "usr/share/doc", ignore_errors=True)
        shutil.rmtree(extracted / "usr/share/man", ignore_errors=True)
        shutil.copytree(extracted, root, symlinks=True, dirs_exist_ok=True)
        shutil.rmtree(extracted)
    meta.mkdir(parents=True, exist_ok=True)
    (meta / "control").write_text(control(package, architecture))
    for name, text in maintainer_scripts(package).items():
        (meta / name).write_text(text)
        (meta / name).chmod(0o644 if name == "triggers" else 0o755)
    for file in package.files:
        target = root / file.path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.link_to:
            target.symlink_to(file.link_to)
        else:
            target.write_bytes(file.content)
            target.chmod(file.mode)
    conffiles = [f.path for f in package.files if f.path.startswith("/etc/") and not f.link_to]
    if conffiles:
        (meta / "conffiles").write_text("".join(f"{path}\n" for path in conffiles))


def build_packages(packages: Iterable[Package], pool: Path, debian: Path, architecture: str) -> None:
    pool.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        for package in packages:
            root = Path(scratch) / f"{package.name}_{package.version}"
            root.mkdir(mode=0o755)
            stage(package, root, debian, architecture)
            # zstd, lightly: a machine without KVM unpacks it several times faster than xz
            run(["dpkg-deb", "--root-owner-group", "-Zzstd", "-z3", "--build", str(root), str(pool)])
            shutil.rmtree(root)


def index(apt: Path, suite: str, architecture: str) -> None:
    """Packages and Release of one suite."""
    binary = apt / "dists" / suite / "main" / f"binary-{architecture}"
    binary.mkdir(parents=True)
    listing = run(["apt-ftparchive", "packages", f"pool/{suite}"], cwd=apt)
    (binary / "Packages").write_text(listing)
    origin, label = ORIGINS.get(suite, (ORIGIN, ORIGIN))
    names = {"Origin": origin, "Label": label, "Suite": suite, "Codename": suite, "Components": "main",
             "Architectures": f"{architecture} all"}  # fmt: skip
    options = [word for name, value in names.items() for word in ("-o", f"APT::FTPArchive::Release::{name}={value}")]
    release = run(["apt-ftparchive", *options, "release", str(binary.parent.parent)])
    (apt / "dists" / suite / "Release").write_text(release)


def sign(apt: Path) -> None:
    """Sign every suite by a key that exists for this call only; its public half becomes the keyring."""
    with tempfile.TemporaryDirectory(prefix="gpg-") as home:  # in /tmp: the agent's socket wants a short path
        gpg = ["gpg", "--batch", "--yes", "--homedir", home, "--pinentry-mode", "loopback", "--passphrase", ""]
        run([*gpg, "--quick-generate-key", "gb10 lab archive", "ed25519", "sign", "never"])
        for release in sorted((apt / "dists").glob("*/Release")):
            run([*gpg, "--clearsign", "--output", str(release.with_name("InRelease")), str(release)])
        run([*gpg, "--output", str(apt / KEYRING), "--export"])
        run(["gpgconf", "--homedir", home, "--kill", "gpg-agent"])


def build(apt: Path, debian: Path, architecture: str) -> None:
    """Build the whole repository under `apt`, from the table and from the .deb files in `debian`."""
    repacked = {name for packages in suites().values() for package in packages for name in package.repack}
    for suite, packages in suites().items():
        build_packages(packages, apt / "pool" / suite, debian, architecture)
        if suite == "base":
            for deb in debian.glob("*.deb"):
                if deb.name.partition("_")[0] not in repacked:
                    os.link(deb, apt / "pool" / suite / deb.name)
        index(apt, suite, architecture)
    sign(apt)
