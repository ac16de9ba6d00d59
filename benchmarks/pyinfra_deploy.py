"""The desired state of our roles as pyinfra operations; run by pyinfra's own interpreter."""

# mypy: disable-error-code="import-not-found"

import json
import os
from io import StringIO
from pathlib import Path

from pyinfra import host
from pyinfra.facts.server import Command
from pyinfra.operations import apt, files, server, systemd

desired = json.loads(Path(os.environ["GB10_BENCH_DESIRED"]).read_text())

for file in desired["desired_files"]:
    mode = file["mode"].lstrip("0")
    files.put(src=StringIO(file["content"]), dest=file["path"], user="root", group="root", mode=mode, _sudo=True)

for path in desired["desired_absent"]:
    files.file(path=path, present=False, _sudo=True)

for sysctl in desired["desired_sysctls"]:
    server.sysctl(
        key=sysctl["name"],
        value=sysctl["value"],
        persist=True,
        persist_file="/etc/sysctl.d/90-gb10-kernel_parameters.conf",
        _sudo=True,
    )

apt.packages(packages=[package["spec"] for package in desired["desired_packages"]], _sudo=True)

# pyinfra has no operation for holds.
held = set((host.get_fact(Command, "apt-mark showhold") or "").split())  # None: it printed nothing
if free := [name for name in desired["desired_holds"] if name not in held]:
    server.shell(commands=[f"apt-mark hold {' '.join(free)}"], _sudo=True)

for unit in desired["desired_units"]:
    systemd.service(service=unit["name"], running=unit["started"] or None, enabled=unit["enabled"], _sudo=True)
