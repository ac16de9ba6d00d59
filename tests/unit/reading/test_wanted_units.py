"""Units that a role wants started and that stand still, by manifest and systemd."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.reading.wanted_units import read_stopped
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import Unknown

from tests.support.fake_host import FakeHost
from tests.support.systemd import DOCUMENT, FakeSystemd


def test_a_unit_that_stands_still_is_told_and_one_that_runs_is_not(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    reader = HostReader(host.system)
    assert read_stopped(reader) == []
    systemd = FakeSystemd(host)
    host.converge(DOCUMENT)
    assert read_stopped(HostReader(host.system)) == []
    for soon in ("auto-restart", "auto-restart-queued"):
        systemd.units["demo.service"].update(ActiveState="activating", SubState=soon)
        assert read_stopped(HostReader(host.system)) == [], "systemd is about to start it, and no run of ours needs to"
    systemd.units["demo.service"].update(ActiveState="failed", SubState="failed", UnitFileState="disabled")
    assert read_stopped(HostReader(host.system)) == [
        {"unit": "demo.service", "role": "demo", "state": "failed", "file_state": "disabled", "wish": None}
    ]


def test_a_manifest_that_nobody_can_read_is_a_reason_and_no_clean_bill(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    host.file("/var/lib/gb10-fleet/manifest.json", "{")
    with pytest.raises(Unknown, match="manifest"):
        read_stopped(HostReader(host.system))
