# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether driver, kernel modules and the kernel that boots next belong together. It judges, and repairs nothing.

The failure that it looks for is quiet: an upgrade moves the kernel without its prebuilt NVIDIA modules, or the userland
without the kernel. Everything goes on, and the next boot has no GPU.

The role `coherence` installs this folder on the host as the program of a timer. So it imports the standard library
only, itself by relative imports, and nothing of the rest of the project.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.checks.coherence import (
    against_the_next_boot,
    coherent,
    judge,
    judge_candidates,
)
from ansible_collections.gb10.fleet.plugins.module_utils.reading.driver import read_driver
from ansible_collections.gb10.fleet.plugins.module_utils.reading.driver_pins import (
    Run,
    preference_files,
    read_candidates,
)
from ansible_collections.gb10.fleet.plugins.module_utils.system.root_files import read_text

COMMAND_DEADLINE_S = 30.0
# States of dpkg in which the files of a package are there; a test compares them with the engine's.
PRESENT = ("installed", "unpacked", "half-configured", "triggers-awaited", "triggers-pending")


def read_packages(root: Path) -> tuple[dict[str, str], list[str]]:
    """Installed packages with their versions, and those on hold, out of dpkg's status file."""
    text = (root / "var/lib/dpkg/status").read_text(encoding="utf-8", errors="replace")
    packages, holds = {}, []
    for block in text.split("\n\n"):
        fields = dict(re.findall(r"(?m)^(Package|Status|Version): (.*)$", block))
        want, __, state = (fields.get("Status", "").split() + [""] * 3)[:3]
        if fields.get("Package") and state in PRESENT:
            packages[fields["Package"]] = fields.get("Version", "")
            if want == "hold":
                holds.append(fields["Package"])
    return packages, holds


def gate(root: Path, run: Run) -> dict[str, Any]:
    """Everything about one host: `coherent`, `verdicts`, and what they follow from. OSError without dpkg."""
    installed, holds = read_packages(root)
    packages = {name: version for name, version in installed.items() if re.search(r"nvidia|^linux-|^cuda-", name)}
    facts = {
        "kernel": read_text(root, "/proc/sys/kernel/osrelease").strip(),
        "packages": packages,
        "driver": read_driver(root, packages, holds, run),
    }
    files = [path for path in preference_files(root) if (root / path.lstrip("/")).exists()]
    verdicts = judge(facts, judge_candidates(read_candidates(root, packages, run), files))
    return {
        "coherent": coherent(verdicts),
        "verdicts": verdicts,
        "against_a_boot": against_the_next_boot(facts),
        **facts,
    }


def _run(argv: Sequence[str]) -> str:
    import subprocess

    try:
        done = subprocess.run(  # pylint: disable=ansible-bad-function
            list(argv),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMMAND_DEADLINE_S,
            env={**os.environ, "LC_ALL": "C", "LANGUAGE": ""},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def read_gate() -> dict[str, Any]:
    """The gate of this host."""
    return gate(Path("/"), _run)


def main() -> int:
    """One line of JSON; 0: coherent, 1: not, 2: it cannot be told."""
    try:
        said = read_gate()
    except OSError as error:
        sys.stderr.write(f"gb10-driver-coherence: {error}\n")
        return 2
    sys.stdout.write(json.dumps({key: said[key] for key in ("coherent", "verdicts")}, ensure_ascii=False) + "\n")
    return 0 if said["coherent"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
