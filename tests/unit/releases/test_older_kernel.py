"""Leaving a kernel for the one of before the update, so that the set can move back."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.releases import update
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError, System

from tests.unit.releases.test_trial import NEW, OLD, Host

pytestmark = pytest.mark.skipif(shutil.which("grub-editenv") is None, reason="needs grub-editenv, of grub-common")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """It was updated, and runs the newer kernel, which has the only module that fits the driver."""
    monkeypatch.setattr(
        System, "account_id", lambda self, database, name: os.getuid() if database == "passwd" else os.getgid()
    )
    found = Host(tmp_path)
    update.keep(found.system, {"kernel": OLD}, "OTA2607")
    found.put("/proc/sys/kernel/osrelease", f"{NEW}\n")
    del found.modules[OLD]
    return found


def test_it_boots_once_also_without_a_gpu(host: Host) -> None:
    assert update.boot_before(host.system, NEW, check=True) == OLD
    assert "next_entry" not in host.environment(), "a check arms nothing"
    assert update.boot_before(host.system, NEW, check=False) == OLD
    assert (host.boot(), host.boot()) == (OLD, NEW)


def test_where_grub_cannot_clear_its_entry_the_second_call_does(host: Host) -> None:
    update.boot_before(host.system, NEW, check=False)
    host.put("/proc/sys/kernel/osrelease", f"{OLD}\n")
    assert "next_entry" in host.environment()
    assert update.boot_before(host.system, NEW, check=False) is None
    assert "next_entry" not in host.environment()


def test_a_host_that_never_came_to_the_new_kernel_stays(host: Host) -> None:
    """What an earlier update has kept counts for nothing then."""
    host.put("/proc/sys/kernel/osrelease", "6.17.0-1008-nvidia\n")
    assert update.boot_before(host.system, NEW, check=False) is None
    assert host.environment() == {}


def test_an_update_on_one_kernel_needs_no_boot(host: Host) -> None:
    update.keep(host.system, {"kernel": NEW}, "OTA2604.Computex")
    assert update.boot_before(host.system, NEW, "OTA2604.Computex", check=False) is None
    assert host.environment() == {}


@pytest.mark.parametrize(
    ("kernel", "to", "release"),
    [
        (NEW, "", ""),
        (NEW, "", "OTA2607"),
        (NEW, "OTA2608", ""),
        (NEW, "OTA2608", "OTA2607"),
        ("6.17.0-1008-nvidia", "OTA2608", "OTA2607"),
    ],
)
def test_what_was_kept_for_another_update_is_no_kernel_of_before(
    host: Host, kernel: str, to: str, release: str
) -> None:
    """The running kernel would stay, and the set could not move back."""
    (host.root / update.BEFORE.lstrip("/")).unlink()
    update.keep(host.system, {"kernel": kernel}, to)
    with pytest.raises(HostError, match="does not name the kernel of before"):
        update.boot_before(host.system, NEW, release, check=False)
    assert "next_entry" not in host.environment()


def test_a_host_that_boots_before_its_packages_came_still_knows_the_kernel_of_before(host: Host) -> None:
    """The set has moved, the controller has died, and the host has booted: the rollout is gone on with."""
    host.put("/proc/sys/kernel/random/boot_id", "another\n")
    update.keep(host.system, {"kernel": NEW}, "OTA2607")
    assert update.boot_before(host.system, NEW, "OTA2607", check=False) == OLD


def test_an_update_that_was_taken_back_begins_anew(host: Host) -> None:
    assert update.boot_before(host.system, NEW, "OTA2607", check=False) == OLD
    host.put("/proc/sys/kernel/osrelease", f"{OLD}\n")
    assert update.boot_before(host.system, NEW, "OTA2604", check=True) is None
    update.keep(host.system, {"kernel": "x"}, "OTA2607")
    assert (update.kept(host.system) or {})["kernel"] == OLD, "a check has taken nothing back"
    assert update.boot_before(host.system, NEW, "OTA2607", check=False) is None
    update.keep(host.system, {"kernel": "x"}, "OTA2607")
    assert (update.kept(host.system) or {})["kernel"] == "x"


def test_without_a_name_or_a_menu_entry_it_is_refused(host: Host) -> None:
    (host.root / "boot" / f"vmlinuz-{OLD}").unlink()
    host.update_grub()
    with pytest.raises(HostError, match=f"{OLD} is not in GRUB's menu"):
        update.boot_before(host.system, NEW, check=False)
    (host.root / update.BEFORE.lstrip("/")).unlink()
    with pytest.raises(HostError, match="does not name the kernel of before"):
        update.boot_before(host.system, NEW, check=False)
