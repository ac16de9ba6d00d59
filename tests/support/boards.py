"""Sparks of several makers, as they name themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.releases.read import TABLE, read_release
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Clock, Completed, System

from lab.vendor import releases
from lab.vendor.packages import FILES
from lab.vendor.releases import RELEASES, Release

MARCH, APRIL, JULY, _ = RELEASES


def spark(folder: Path, board: str, has: Release, **changed: Any) -> dict[str, Any]:
    """What the module returns of a host: `has` is its release, but for what is changed.

    `knows`: the recipes; `firmware`, `packages`, `kernel`, `driver`; `offers` of fwupd; `held` names; `files` more.
    """
    firmware = {**has.firmware, **changed.get("firmware", {})}
    packages = {**has.packages, **changed.get("packages", {})}
    held = changed.get("held", ())
    files: dict[str, str | bytes] = {
        **releases.recipe_files(changed.get("knows", (MARCH, APRIL, JULY))),
        TABLE: releases.smbios(firmware),
        "/sys/class/dmi/id/board_vendor": releases.VENDORS[board],
        "/sys/class/infiniband/rocep1s0f0/fw_ver": "28.45.4028",
        "/proc/sys/kernel/osrelease": f"{changed.get('kernel', has.kernel)}-nvidia",
        "/sys/module/nvidia/version": changed.get("driver", has.driver),
        "/var/lib/dpkg/status": status(packages, held),
        "/run/gb10-lab/fwupd.json": json.dumps(releases.fwupd(board, firmware, changed.get("offers"))),
        **changed.get("files", {}),
    }
    for path, content in files.items():
        place = folder / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
    found = read_release(HostReader(System(folder, programs(folder), Clock())))
    return {"release": found, "cluster": changed.get("cluster", "")}


def status(packages: dict[str, str], held: Sequence[str]) -> str:
    rows = {"dpkg": "1.22", **packages}
    return "\n\n".join(
        f"Package: {name}\nStatus: {'hold' if name in held else 'install'} ok installed\nArchitecture: arm64\n"
        f"Version: {version}"
        for name, version in rows.items()
    )


def programs(folder: Path) -> Any:
    """Runs the simulated fwupdmgr as a host would."""

    def run(argv: Sequence[str], stdin: str | None, timeout: float) -> Completed:
        assert argv[0] == "fwupdmgr", argv
        done = subprocess.run(
            [sys.executable, str(FILES / "fwupdmgr"), *argv[1:]],
            env={**os.environ, "GB10_LAB_RUN": str(folder / "run/gb10-lab")},
            capture_output=True,
            text=True,
            check=False,
        )
        return Completed(tuple(argv), done.returncode, done.stdout, done.stderr)

    return run
