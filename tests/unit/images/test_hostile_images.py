"""Who owns what a build or the X-ray reads runs nothing as root, and makes nobody wait."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.images import ingredients
from ansible_collections.gb10.fleet.plugins.module_utils.images.errors import ImageError

from tests.support.attacker import tally
from tests.support.checkouts import checkout, git, traps


def test_a_checkout_is_no_source_and_its_configuration_runs_nothing(tmp_path: Path) -> None:
    ran, folder = tmp_path / "ran", checkout(tmp_path / "checkout")
    traps(folder, f"echo >>{ran}")
    git(folder, "status")
    assert ran.exists(), "this git does not look at core.fsmonitor, so nothing is proven"
    ran.unlink()
    for path in (folder, folder / ".git"):
        with pytest.raises(ImageError, match="no_source"):
            ingredients.source({"path": str(path), "sha256": "0" * 64})
    tally("a program in the configuration of somebody's checkout, run by root", 2, int(ran.exists()))
    assert not ran.exists()
