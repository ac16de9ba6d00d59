"""Which of the vendor's own updates can still act, by systemd's files."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.reading.vendor_updates import (
    DASHBOARD,
    UPGRADE_ONCE,
    read_vendor_updates,
)
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import System


def link(root: Path, path: str, to: str = "/usr/lib/systemd/system/x.service") -> None:
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(to)


WANTS = "etc/systemd/system/multi-user.target.wants"


@pytest.mark.parametrize("folder", [WANTS, "usr/lib/systemd/system/multi-user.target.wants"])
def test_enabled_units_can_act(tmp_path: Path, folder: str) -> None:
    host = HostReader(System(tmp_path))
    assert read_vendor_updates(host) == []
    for name in (UPGRADE_ONCE, DASHBOARD):
        link(tmp_path, f"{folder}/{name}.service")
    assert read_vendor_updates(host) == [UPGRADE_ONCE, DASHBOARD]


def test_one_that_has_run_or_is_masked_cannot(tmp_path: Path) -> None:
    for name in (UPGRADE_ONCE, DASHBOARD):
        link(tmp_path, f"{WANTS}/{name}.service")
    link(tmp_path, f"etc/systemd/system/{DASHBOARD}.service", "/dev/null")
    mark = tmp_path / f"var/lib/{UPGRADE_ONCE}/done"
    mark.parent.mkdir(parents=True)
    mark.touch()
    assert read_vendor_updates(HostReader(System(tmp_path))) == []
