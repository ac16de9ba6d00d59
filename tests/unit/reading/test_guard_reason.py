"""What the host guard left on the disk, and which rails are planned: read, and refused where they are damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.reading import guard_reason, planned_rails
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import System
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import Unknown

KEPT = {"at_s": 1000.5, "boot": "5b0a0a44-6a51-4b21", "full_percent": 98.0, "found": "wedged", "reboots": True}


def host_with(root: Path, text: str | None) -> HostReader:
    folder = root / guard_reason.FOLDER.lstrip("/")
    folder.mkdir(parents=True)
    if text is not None:
        (folder / guard_reason.LAST).write_text(text)
    return HostReader(System(root))


def test_the_reason_of_the_last_boot(tmp_path: Path) -> None:
    found = guard_reason.read_guard_reason(host_with(tmp_path, json.dumps(KEPT)))
    assert found == {"at_s": 1000.5, "boot": "5b0a0a446a51", "full_percent": 98.0, "reboots": True}


def test_a_host_without_a_guard_has_none(tmp_path: Path) -> None:
    assert guard_reason.read_guard_reason(host_with(tmp_path, None)) is None


@pytest.mark.parametrize("text", ["{", "[]", "{}", json.dumps({**KEPT, "full_percent": 1e9})])
def test_a_damaged_reason_is_unknown(tmp_path: Path, text: str) -> None:
    with pytest.raises(Unknown):
        guard_reason.read_guard_reason(host_with(tmp_path, text))


def test_a_host_that_nobody_has_changed_has_no_plan(tmp_path: Path) -> None:
    assert planned_rails.read_planned_rails(HostReader(System(tmp_path))) is None
