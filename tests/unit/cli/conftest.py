"""Each answer with --json is held to its schema."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.held import held

__all__ = ["held"]


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No network, and no cache of the hub but an empty one."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
