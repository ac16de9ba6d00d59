"""A systemd that keeps its units in memory."""

from __future__ import annotations

import fnmatch
import re
from typing import Any

from tests.support.fake_host import FakeHost

UNIT_FILE = "/etc/systemd/system/demo.service"


class FakeSystemd:
    """Units with the properties that matter; one without a file is not found."""

    def __init__(self, host: FakeHost) -> None:
        self.host = host
        self.units: dict[str, dict[str, str]] = {}
        self.starts = 0
        self.failures = 0  # since the last reset; systemd refuses to start a unit with too many
        self.after_no_block = {"ActiveState": "activating", "SubState": "start"}
        self.seen: dict[str, dict[str, bytes]] = {}  # the files of each unit as they were when systemd read them
        host.on("systemctl show", self.show)
        host.on("systemctl daemon-reload", self.reload)
        for verb in ("enable", "disable", "mask", "unmask", "start", "stop", "restart", "reset-failed"):
            host.on(f"systemctl {verb}", self.act)
        host.on("systemctl reload", self.read_again)
        host.on("journalctl", "")

    def add(self, name: str, active: str = "inactive", file: str = "disabled") -> dict[str, str]:
        self.units[name] = {
            "LoadState": "loaded",
            "ActiveState": active,
            "SubState": "running" if active == "active" else "dead",
            "UnitFileState": file,
            "NeedDaemonReload": "no",
            "InvocationID": "first" if active == "active" else "",
        }
        self.seen[name] = self.files(name)
        return self.units[name]

    def show(self, argv: list[str], stdin: str | None) -> str:
        missing = {"LoadState": "not-found", "ActiveState": "inactive", "UnitFileState": "", "InvocationID": ""}
        blocks = []
        for name in (word for word in argv[3:] if word != "--"):
            if "*" in name:  # a pattern is for what systemd has loaded, and no more
                blocks += [self.live(unit) for unit in fnmatch.filter(self.units, name)]
                continue
            if name not in self.units and self.host.path(f"/etc/systemd/system/{name}").exists():
                self.add(name)  # systemd reads the file of a unit when it is first asked for it
            blocks.append(self.live(name) if name in self.units else missing)
        properties = argv[2].partition("=")[2].split(",")
        return "\n\n".join(
            "\n".join(f"{key}={value}" for key, value in block.items() if key in properties) for block in blocks
        )

    def live(self, name: str) -> dict[str, str]:
        stale = self.files(name) != self.seen[name]
        return {**self.units[name], **({"NeedDaemonReload": "yes"} if stale else {})}

    def files(self, name: str) -> dict[str, bytes]:
        """Unit file and drop-ins; those of a template are for its instances too."""
        root = self.host.path("/etc/systemd/system")
        names = {name, re.sub(r"@[^.]*", "@", name)}
        paths = [path for each in names for path in (root / each, *root.glob(f"{each}.d/*")) if path.exists()]
        return {str(path): path.read_bytes() for path in paths}

    def reload(self, argv: list[str], stdin: str | None) -> str:
        for name, unit in self.units.items():
            unit["NeedDaemonReload"] = "no"
            self.seen[name] = self.files(name)
        for path in self.host.path("/etc/systemd/system").glob("*.service"):
            if path.name not in self.units:
                self.add(path.name)
        return ""

    def read_again(self, argv: list[str], stdin: str | None) -> str:
        assert self.units[argv[-1]]["ActiveState"] == "active", "a unit that is down reads nothing"
        return ""

    def act(self, argv: list[str], stdin: str | None) -> str:
        self.show(["systemctl", "show", "--property=", argv[-1]], None)  # a file is enough to know a unit
        unit = self.units[argv[-1]]
        if "--no-reload" in argv:
            for known in self.units.values():
                known["NeedDaemonReload"] = "yes"  # any new link in its folders may concern any unit
        assert unit["LoadState"] != "masked" or argv[1] not in ("enable", "start", "restart"), f"{argv[2]} is masked"
        if argv[1] in ("enable", "disable"):
            unit["UnitFileState"] = argv[1] + "d"
        elif argv[1] == "reset-failed":
            self.failures = 0
        elif argv[1] == "mask":
            unit.update(LoadState="masked", UnitFileState="masked")
        elif argv[1] == "unmask":
            unit.update(LoadState="loaded", UnitFileState="disabled")
        elif argv[1] == "stop":
            unit["ActiveState"] = "inactive"
        elif argv[1] == "restart" or unit["ActiveState"] != "active":
            assert self.failures == 0, "start request repeated too quickly"
            self.starts += 1
            unit.update(ActiveState="active", SubState="running", InvocationID=f"start{self.starts}")
            if "--no-block" in argv:
                unit.update(self.after_no_block)
        return ""

    def acts(self) -> list[str]:
        return [line for line in self.host.commands("systemctl") if "show" not in line]


DOCUMENT: list[dict[str, Any]] = [
    {"file": UNIT_FILE, "content": "[Service]\nExecStart=/bin/x\n"},
    {"file": "/etc/demo.conf", "content": "a\n"},
    {
        "unit": "demo.service",
        "enabled": True,
        "state": "started",
        "restart_on": [UNIT_FILE, "/etc/demo.conf"],
        "consent": "demo_allow_restart",
    },
]
