"""The lab's package table and what is written from it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from lab.vendor import packages, repository
from lab.vendor.kernel_module import stand_in
from lab.vendor.packages import File, Package

ROOT = Path(__file__).parents[3]
SUITES = {name: list(listed) for name, listed in packages.suites().items()}
# Names that the carried Debian packages provide.
FROM_DEBIAN = {
    "kmod",
    "iproute2",
    "mount",
    "python3",
    "iptables",
    "adduser",
    "libsystemd0",
    "tini",
    "libc6",
    "libseccomp2",
}


def depended_on(package: Package) -> set[str]:
    return {re.split(r"[ :(]", part.strip())[0] for part in package.depends.split(",") if part.strip()}


@pytest.mark.parametrize("suite", SUITES)
def test_every_dependency_is_offered(suite: str) -> None:
    names = {package.name for package in SUITES["base"] + SUITES[suite]} | FROM_DEBIAN
    missing = {(package.name, name) for package in SUITES[suite] for name in depended_on(package) - names}
    assert not missing


@pytest.mark.parametrize("suite", SUITES)
def test_no_package_twice(suite: str) -> None:
    known = [(package.name, package.version) for package in SUITES[suite]]
    assert len(known) == len(set(known))


@pytest.mark.parametrize("names", [packages.PREINSTALLED, packages.DELIVERED])
def test_what_a_host_comes_with_is_in_base(names: list[str]) -> None:
    assert set(names) <= {package.name for package in SUITES["base"]}


def test_a_machine_comes_with_the_versions_that_the_roles_accept() -> None:
    base = {package.name: package.version for package in SUITES["base"]}
    for role in ("docker", "container_toolkit"):
        accepted = yaml.safe_load((ROOT / f"roles/{role}/defaults/main.yml").read_text())[f"{role}_version"]
        assert accepted in {base[name] for name in packages.DELIVERED}, role


def test_driver_parts_are_tied_together_but_for_the_two_that_can_drift() -> None:
    driver = {package.name: package for package in SUITES["base"]}["nvidia-driver-580-open"]
    loose = [part.strip() for part in driver.depends.split(",") if "(= 580.142-0ubuntu0.24.04.1)" not in part]
    assert loose == ["nvidia-kernel-common-580 (>= 580.142)"]


def test_transitional_names_pull_in_the_next_branch() -> None:
    offer = {package.name: package for package in SUITES["offer-transitional"]}
    assert offer["nvidia-driver-580-open"].depends == "nvidia-driver-590-open"
    assert offer["nvidia-driver-580-open"].version > "590"
    assert "linux-modules-nvidia-590-open-6.17.0-1020-nvidia" in offer


def test_kernel_without_modules_offers_none() -> None:
    names = [p.name for p in SUITES["offer-kernel-without-modules"]]
    assert [name for name in names if "modules-nvidia" in name and "-fs-" not in name] == []


def test_modules_take_the_userland_they_were_built_for_and_no_other() -> None:
    modules = {p.name: p for p in SUITES["base"]}["linux-modules-nvidia-580-open-6.17.0-1014-nvidia"]
    assert "nvidia-kernel-common-580 (>= 580.142), nvidia-kernel-common-580 (<= 580.142-1)" in modules.depends


def test_a_kernel_lays_down_what_grub_boots() -> None:
    image = {package.name: package for package in SUITES["base"]}["linux-image-6.17.0-1014-nvidia"]
    assert [file.path for file in image.files] == [
        *("/boot/vmlinuz-6.17.0-1014-nvidia", "/boot/initrd.img-6.17.0-1014-nvidia"),
    ]
    assert all(file.content for file in image.files), "an empty one would not boot"


def test_every_offer_has_the_updates_that_must_arrive() -> None:
    for suite in SUITES.keys() - {"base"}:
        versions = {package.name: package.version for package in SUITES[suite]}
        assert (versions["gb10-lab-unrelated"], versions["libnvidia-egl-wayland1"]) == ("2.0-1", "1:2.0-1"), suite


def test_phased_updates_are_all_phased_together() -> None:
    fields = [package.fields for package in SUITES["offer-phased"] if "2.0-1" not in package.version]
    assert {field["Phased-Update-Percentage"] for field in fields} == {"0", "10"}
    assert len({field["Source"] for field in fields}) == 1


@pytest.mark.parametrize(("default", "shown"), [("0", 'set default="0"'), ("saved", 'set default="${saved_entry}"')])
def test_update_grub_writes_the_menu_newest_first(tmp_path: Path, default: str, shown: str) -> None:
    (tmp_path / "boot").mkdir()
    for release in ("6.17.0-1014-nvidia", "6.17.0-1032-nvidia", "6.12.1-amd64"):
        (tmp_path / "boot" / f"vmlinuz-{release}").touch()
    (tmp_path / "default").write_text(f"GRUB_DEFAULT={default}\n")
    script = (packages.FILES / "update-grub").read_text()
    script = script.replace("/etc/default/grub", str(tmp_path / "default"))
    script = script.replace("here=/boot", f"here={tmp_path}/boot").replace("find /boot", f"find {tmp_path}/boot")
    script = script.replace("s|^/boot/", f"s|^{tmp_path}/boot/")
    for _ in range(2):  # the second run finds an environment block
        subprocess.run(["sh", "-c", script], check=True)
    menu = (tmp_path / "boot/grub/grub.cfg").read_text()
    assert re.findall(r"linux\t/boot/vmlinuz-(\S+)", menu) == [
        *["6.17.0-1032-nvidia"] * 3,
        *["6.17.0-1014-nvidia"] * 2,
    ]
    assert shown in menu and menu.count("{") == menu.count("}")
    block = (tmp_path / "boot/grub/grubenv").read_bytes()
    assert len(block) == 1024 and block.startswith(b"# GRUB Environment Block\n")


def test_versions_are_written_into_the_simulated_tools() -> None:
    for suite in SUITES.values():
        for file in (file for package in suite for file in package.files):
            assert not re.search(rb"@[A-Z_]+@", file.content), file.path


@pytest.mark.skipif(not shutil.which("modinfo"), reason="needs modinfo")
def test_modinfo_reads_the_stand_in(tmp_path: Path) -> None:
    module = tmp_path / "nvidia.ko"
    module.write_bytes(stand_in("580.142"))
    for field, value in (("version", "580.142"), ("license", "Dual MIT/GPL")):
        shown = subprocess.run(["modinfo", "-F", field, module], capture_output=True, text=True, check=True)
        assert shown.stdout.strip() == value


def test_control_leaves_out_what_is_empty() -> None:
    text = repository.control(Package("a", "1", fields={"Conflicts": "b"}), "arm64")
    assert "Conflicts: b\n" in text
    assert "Depends" not in text
    assert "Architecture: all\n" in text


def test_units_are_enabled_stopped_and_forgotten() -> None:
    scripts = repository.maintainer_scripts(Package("a", "1", units=("a.service",), scripts={"postinst": "true"}))
    assert scripts["postinst"].startswith("#!/bin/sh\nset -e\ntrue\n")
    assert 'deb-systemd-helper enable "$unit"' in scripts["postinst"]
    assert set(scripts) == {"postinst", "prerm", "postrm"}


@pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="needs dpkg-deb")
def test_a_package_that_repacks_keeps_files_and_scripts(tmp_path: Path) -> None:
    original = Package(
        "old", "1", files=(File("/usr/bin/tool", b"#!/bin/sh\n", 0o755),), scripts={"postinst": "echo old"}
    )
    repository.build_packages([original], tmp_path / "debian", tmp_path, "arm64")
    new = Package("new", "2", files=(File("/etc/new.conf", b"x\n"), File("/etc/link", link_to="/x")), repack=("old",))
    repository.build_packages([new], tmp_path / "pool", tmp_path / "debian", "arm64")

    (deb,) = (tmp_path / "pool").iterdir()
    subprocess.run(["dpkg-deb", "-R", deb, tmp_path / "out"], check=True)
    assert deb.name == "new_2_arm64.deb"
    assert (tmp_path / "out/usr/bin/tool").stat().st_mode & 0o777 == 0o755
    assert "echo old" in (tmp_path / "out/DEBIAN/postinst").read_text()
    assert (tmp_path / "out/DEBIAN/conffiles").read_text() == "/etc/new.conf\n"
    assert (tmp_path / "out/etc/link").readlink() == Path("/x")
