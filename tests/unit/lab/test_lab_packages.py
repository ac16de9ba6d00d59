"""What the lab asks apt for: tools that are missing, and Debian's keys where the machine is not Debian."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lab import shell
from lab.architecture import AMD64, ARM64


@pytest.mark.parametrize(
    ("there", "missing"), [(True, ["mmdebstrap"]), (False, ["debian-archive-keyring", "mmdebstrap"])]
)
def test_the_keys_of_debian_are_asked_for_where_they_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool, missing: list[str]
) -> None:
    keyring = tmp_path / "keyring.gpg"
    if there:
        keyring.touch()
    tools = {"sh": "dash", "no-such-tool": "mmdebstrap", str(keyring): "debian-archive-keyring"}
    monkeypatch.setattr(shell, "TOOLS", tools)
    assert shell.missing_packages(replace(AMD64, tools={})) == missing


def test_each_architecture_asks_for_its_own_qemu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "TOOLS", {})
    monkeypatch.setattr(shell.shutil, "which", lambda *_, **__: None)
    monkeypatch.setattr(shell.Path, "exists", lambda _: False)
    assert shell.missing_packages(AMD64) == ["qemu-system-x86"]
    assert shell.missing_packages(ARM64) == ["qemu-efi-aarch64", "qemu-system-arm", "qemu-user-static"]
    with pytest.raises(shell.LabError, match=r"install them with `python3 -m lab deps --arch arm64`"):
        shell.require_packages(ARM64)
