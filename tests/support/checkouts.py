"""A checkout of git, with one commit."""

from __future__ import annotations

import subprocess
from pathlib import Path


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *identity, "-C", str(folder), *words], check=True, capture_output=True)


def checkout(folder: Path) -> Path:
    folder.mkdir()
    (folder / "setup.py").write_text("1")
    git(folder, "init")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "x", "--no-gpg-sign")
    return folder


def traps(folder: Path, hook: str) -> None:
    """Git runs these words of a shell whenever it looks which files of this checkout have changed."""
    program = folder / "hook"
    program.write_text(f"#!/bin/sh\n{hook}\n")
    program.chmod(0o755)
    git(folder, "config", "core.fsmonitor", str(program))
