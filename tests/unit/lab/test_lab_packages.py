# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the lab asks apt for: tools that are missing, and Debian's keys where the machine is not Debian."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import shell


@pytest.mark.parametrize(
    ("there", "missing"), [(True, ["mmdebstrap"]), (False, ["debian-archive-keyring", "mmdebstrap"])]
)
def test_the_keys_of_debian_are_asked_for_where_they_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool, missing: list[str]
) -> None:
    keyring = tmp_path / "keyring.gpg"
    if there:
        keyring.touch()
    monkeypatch.setattr(shell, "KEYRING", keyring)
    monkeypatch.setattr(shell, "TOOLS", {"sh": "dash", "no-such-tool": "mmdebstrap"})
    assert shell.missing_packages() == missing
