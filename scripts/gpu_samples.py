"""`python3 scripts/gpu_samples.py [--load]`: what nvidia-smi of this machine says, and what our parser makes of it.

For a machine with an NVIDIA GPU and nothing of ours installed: Python, and torch for --load. It changes no setting.
What it prints is a fixture for tests/fixtures/health: the fields have no serial number and no id of a GPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "plugins/module_utils/programs/gpu_load.py"


def samples(count: int, every_s: float) -> list[dict[str, Any]]:
    """Each with the line as it came, and as values with the reasons of those that are missing."""
    from ansible_collections.gb10.fleet.plugins.module_utils.reading import gpu
    from ansible_collections.gb10.fleet.plugins.module_utils.reading.gpu_identity import GPU_DEADLINE_S
    from ansible_collections.gb10.fleet.plugins.module_utils.system.system import run_command

    taken = []
    for left in range(count, 0, -1):
        began = time.monotonic()
        done = run_command(gpu.argv(gpu.FIELDS), None, GPU_DEADLINE_S)
        values, reasons = gpu.parse(done)
        taken.append({"rc": done.rc, "stdout": done.stdout, "gpu": values, "unknown": reasons})
        if left > 1:
            time.sleep(max(0.0, every_s - (time.monotonic() - began)))
    return taken


def loaded(count: int, every_s: float, size: int) -> dict[str, Any]:
    """The same under the load of `gb10 why --load`, as its container would run it."""
    argv = [sys.executable, "-", str(count * every_s), str(size)]
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None and child.stdout is not None  # noqa: S101  we asked for pipes
    child.stdin.write(PROGRAM.read_text(encoding="utf-8"))
    child.stdin.close()
    began, first = time.monotonic(), child.stdout.readline().strip()
    start_s = time.monotonic() - began
    taken = samples(count, every_s) if first else []
    rest = child.stdout.read().strip()
    return {"samples": taken, "said": [first, rest], "status": child.wait(), "start_s": round(start_s, 1)}


def main(argv: list[str] | None = None) -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--samples", type=int, default=10)
    words.add_argument("--every", type=float, default=1.0, metavar="SECONDS")
    words.add_argument("--load", action="store_true", help="also under a load of matrix products (needs torch)")
    words.add_argument("--size", type=int, default=8192, help="rows of the matrices")
    asked = words.parse_args(argv)
    sys.path.insert(0, str(ROOT / "collections"))
    found: dict[str, Any] = {"idle": samples(asked.samples, asked.every)}
    if asked.load:
        found["loaded"] = loaded(asked.samples, asked.every, asked.size)
    print(json.dumps(found, indent=1))
    return found.get("loaded", {}).get("status", 0)  # type: ignore[no-any-return]


if __name__ == "__main__":
    sys.exit(main())
