"""`python -m scripts.hashes`: requirements-hashed.txt, the exact packages of a controller with their checksums.

uv resolves what pyproject.toml asks for, for all Pythons and platforms at once, and takes the checksums from the
package index. It comes into an environment of its own.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.gates import ROOT, WORK

FILE = ROOT / "requirements-hashed.txt"
EXTRAS = ("run",)  # what a controller needs; `dev` is for who changes this
HEAD = """\
# The packages of a controller with Python 3.11 to 3.13, and the SHA-256 of each file of them. Made by: make hashes
# How to install them: docs/security.md
"""


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def wanted(content: dict[str, Any]) -> list[str]:
    """All that a controller installs: what the project needs, its extras, and what builds it."""
    extras = content["project"]["optional-dependencies"]
    of_extras = [text for extra in EXTRAS for text in extras[extra]]
    return [*content["project"]["dependencies"], *of_extras, *content["build-system"]["requires"]]


def resolved(uv: Path, requirements: Sequence[str]) -> str:
    """As text for pip. Neither a command nor an index is in it: whoever installs it has his own."""
    argv: list[str | Path] = [uv, "pip", "compile", "-", "--quiet", "--upgrade", "--universal"]
    argv += ["--python-version", "3.11", "--generate-hashes", "--no-header", "--no-annotate", "--no-emit-index-url"]
    lines = "".join(f"{line}\n" for line in requirements)
    return subprocess.run(argv, input=lines, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> int:
    environment = WORK / "uv"
    if not (environment / "bin/uv").exists():
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        subprocess.run([environment / "bin/pip", "install", "--quiet", "uv"], check=True)
    FILE.write_text(HEAD + resolved(environment / "bin/uv", wanted(project())), encoding="utf-8")
    print(FILE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
