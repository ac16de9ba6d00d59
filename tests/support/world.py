"""A simulated host for the engine: files below a folder, and commands that read and write what stands there."""

from __future__ import annotations

import fnmatch
import os
import random
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.engine.remote import answer
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Clock, Completed, System

from tests.support.kinds import EXAMPLES
from tests.support.rooted import held, place
from tests.unit.engine.resources.conftest import FakeHost
from tests.unit.engine.resources.test_profiles import FakeNetworkManager

PATHS = ("/etc/a.conf", "/etc/b/c.json", "/etc/gb10-fleet", "/etc/systemd/system/one.service", "/usr/local/sbin/tool")
PACKAGES, VERSIONS = ("alpha", "beta", "gamma", "nvidia-x"), ("1.0", "1.1", "2.0-1")
UNITS = ("one.service", "two.service", "three.path")
SYSCTLS = ("net.ipv4.conf.all.arp_ignore", "net.ipv4.ip_forward")
MODULES = ("ib_core", "rdma_cm")
# What an example of a kind may say of its host, and of what somebody does there: tests/support/kinds.py.
HOST = frozenset({"files", "packages", "offers", "units", "network", "commands"})
MEDDLE = frozenset({"files", "run", "stdin", "as_before"})
CONSENTS = ("demo_allow_restart", "demo_allow_exchange")


def request(documents: Any, **more: Any) -> dict[str, Any]:
    return {
        "verb": "converge",
        "check": False,
        "documents": documents,
        "consents": {},
        "expect": {},
        "facts": None,
        "project": "0.2.0",
        "run": "somebody@controller 1 2026-11-21T00:00:00Z",
        "orphans": "show",
        "roles": None,
        **more,
    }


def refuse_unknown(said: Mapping[str, Any], known: Collection[str]) -> None:
    assert set(said) <= set(known), f"the simulated host does not know {sorted(set(said) - set(known))}"


class World:
    """A simulated host: files below a folder; packages, holds, units and modules as commands and files show them."""

    def __init__(self, root: Path, chance: random.Random | None = None) -> None:
        self.root = root
        self.calls: list[list[str]] = []
        self.offers: dict[str, list[str]] = {}
        self.packages: dict[str, str] = {}
        self.held: set[str] = set()
        self.units: dict[str, dict[str, str]] = {}
        self.invocations = 0
        self.file("/etc/passwd", f"root:x:{os.getuid()}:{os.getgid()}::/root:/bin/sh\n")
        self.file("/etc/group", f"root:x:{os.getgid()}:\n")
        self.file("/proc/modules", "")
        for folder in ("/run", "/var/lib"):
            self.path(folder).mkdir(parents=True)
        self.network: Any = None  # a fake NetworkManager, which answers for itself
        self.commands: dict[str, dict[str, Any]] = {}
        for found in EXAMPLES.values():
            self.commands.update(found.get("host", {}).get("commands", {}))
        if chance is not None:
            self.make_up(chance)
        self.write_status()

    def make_up(self, chance: random.Random) -> None:
        """Any state that a host may be in when the engine comes for the first time."""
        for found in EXAMPLES.values():
            if "random" in found:
                self.stand(found.get("host", {}))
        for path in PATHS:
            usual = "directory" if path == "/etc/gb10-fleet" else "json" if path.endswith(".json") else "other"
            odd = ("ours", "json", "binary", "directory", "link")
            what = chance.choice(("nothing", usual)) if chance.random() < 0.8 else chance.choice(odd)
            if what == "directory":
                self.path(path).mkdir(parents=True, exist_ok=True)
                if chance.random() < 0.5:
                    self.file(f"{path}/inside", "x")
            elif what == "link":
                self.path(path).parent.mkdir(parents=True, exist_ok=True)
                self.path(path).symlink_to("/nowhere")
            elif what != "nothing":
                text = {"ours": "a\n", "other": "b\n", "json": '{"a": {"x": 1}, "c": [1]}', "binary": "\xff\0"}[what]
                self.file(path, text, chance.choice((0o644, 0o600, 0o755)))
        for name in PACKAGES:
            self.offers[name] = chance.sample(VERSIONS, chance.choice((0, 3, 3, 3)))
            if chance.random() < 0.5:
                self.packages[name] = chance.choice(VERSIONS)
        self.held = {name for name in self.packages if chance.random() < 0.3}
        for name in UNITS:
            if chance.random() < 0.7:
                active = chance.choice(("active", "inactive", "failed"))
                self.units[name] = self._unit(chance.choice(("enabled", "disabled", "static", "masked")), active)
        for name in SYSCTLS:
            if chance.random() < 0.8:
                self.file("/proc/sys/" + name.replace(".", "/"), chance.choice(("0\n", "1\n", "2\n")))
        self.file("/proc/modules", "".join(f"{name} 1 0 - Live 0x0\n" for name in MODULES if chance.random() < 0.5))

    def stand(self, host: Mapping[str, Any]) -> None:
        """As an example of a kind says."""
        refuse_unknown(host, HOST)
        for path, content in host.get("files", {}).items():
            self.file(path, content)
        self.packages.update(host.get("packages", {}))
        self.offers.update(host.get("offers", {}))
        self.units.update({name: self._unit(*state) for name, state in host.get("units", {}).items()})
        if host.get("network"):
            self.network = FakeHost(self.root)
            FakeNetworkManager(self.network)
        self.write_status()

    def meddle(self, how: Mapping[str, Any]) -> None:
        """What somebody does, as an example of a kind says."""
        refuse_unknown(how, MEDDLE)
        for path, content in how.get("files", {}).items():
            self.file(path, content)
        if "run" in how:
            assert self.run(how["run"], how.get("stdin"), 1).rc == 0

    def path(self, absolute: str) -> Path:
        return place(self.root, absolute)

    def file(self, absolute: str, content: str, mode: int = 0o644) -> None:
        target = place(self.root, absolute, follow=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content, encoding="latin-1")
        target.chmod(mode)

    def digest(self) -> dict[str, Any]:
        """The whole host, without what the engine keeps for itself."""
        files = {
            str(path.relative_to(self.root)): (path.lstat().st_mode, held(path))
            for path in sorted(self.root.rglob("*"))
            if not str(path.relative_to(self.root)).startswith(("run/gb10-fleet", "var/lib/gb10-fleet"))
        }
        # A unit that failed stands as still as one that was never started; one of which nothing is said need not exist.
        units = {
            name: (unit["UnitFileState"], unit["ActiveState"] == "active")
            for name, unit in self.units.items()
            if unit["UnitFileState"] != "disabled" or unit["ActiveState"] == "active"
        }
        return {"files": files, "units": units, "held": sorted(self.held)}

    @property
    def system(self) -> System:
        return System(self.root, self.run, NoClock())

    def ask(self, documents: Any, **more: Any) -> dict[str, Any]:
        return dict(answer(request(documents, **more), self.system))

    # -- commands

    def run(self, argv: Sequence[str], stdin: str | None, timeout: float) -> Completed:
        self.calls.append(list(argv))
        line = " ".join(argv)
        for start in sorted(self.commands, key=len, reverse=True):
            if line.startswith(start):
                command = self.commands[start]
                for path, content in command.get("files", {}).items():
                    self.file(path, content)
                return Completed(tuple(argv), command.get("rc", 0), command.get("says", ""))
        if self.network and any(line.startswith(start) for start in self.network.answers):
            said: Completed = self.network.run(argv, stdin, timeout)
            return said
        words = [word for word in argv if not word.startswith("-")]
        method = getattr(self, "_" + "_".join(words[:2]).replace("-", "_"), None)
        method = method or getattr(self, "_" + words[0].replace("-", "_"), None)
        assert method is not None, f"unexpected command: {argv}"
        told = method(list(argv), stdin or "")
        return told if isinstance(told, Completed) else Completed(tuple(argv), 0, told)

    def _unit(self, file_state: str, active: str) -> dict[str, str]:
        return {
            "LoadState": "masked" if file_state == "masked" else "loaded",
            "ActiveState": active,
            "SubState": "running" if active == "active" else "dead",
            "UnitFileState": file_state,
            "NeedDaemonReload": "no",
            "InvocationID": f"i{self.invocations}" if active == "active" else "",
        }

    def _systemctl_show(self, argv: list[str], stdin: str) -> str:
        asked = next(word for word in argv if word.startswith("--property=")).partition("=")[2].split(",")
        nothing = {**self._unit("", "inactive"), "LoadState": "not-found"}
        blocks = []
        for name in argv[2:]:
            if name.startswith("-"):
                continue
            if "*" in name:
                blocks += [self.units[unit] for unit in fnmatch.filter(self.units, name)]
                continue
            blocks.append(self._known(name) or nothing)
        return "\n\n".join("\n".join(f"{key}={block.get(key, '')}" for key in asked) for block in blocks)

    def _known(self, name: str) -> dict[str, str] | None:
        """systemd reads the file of a unit when it is first asked for it."""
        there = self.path(f"/etc/systemd/system/{name}").is_file()
        return self.units.get(name) or (self._unit("disabled", "inactive") if there else None)

    def _systemctl(self, argv: list[str], stdin: str) -> str | Completed:
        verb, *names = [word for word in argv[1:] if not word.startswith("-")]
        for name in names:
            unit = self._known(name)
            if unit is None:
                return Completed(tuple(argv), 5, stderr=f"Unit {name} not found.")
            self.units[name] = unit
            if verb in ("enable", "disable") and unit["UnitFileState"] != "static":
                unit["UnitFileState"] = f"{verb}d"
            elif verb in ("mask", "unmask"):
                unit |= {"UnitFileState": "masked" if verb == "mask" else "disabled", "LoadState": "loaded"}
                if verb == "mask":
                    unit["LoadState"] = "masked"
            elif verb in ("start", "restart"):
                if unit["LoadState"] == "masked":
                    return Completed(tuple(argv), 1, stderr=f"Unit {name} is masked.")
                self.invocations += 1
                self.units[name] = self._unit(unit["UnitFileState"], "active")
            elif verb == "stop":
                self.units[name] = self._unit(unit["UnitFileState"], "inactive")
        return ""

    def write_status(self) -> None:
        blocks = []
        for name, version in sorted({"dpkg": "1.22", **self.packages}.items()):
            want = "hold" if name in self.held else "install"
            blocks.append(f"Package: {name}\nStatus: {want} ok installed\nArchitecture: arm64\nVersion: {version}\n")
        self.file("/var/lib/dpkg/status", "\n".join(blocks))

    def _apt_cache_policy(self, argv: list[str], stdin: str) -> str:
        lines = []
        for name in argv[2:]:
            if name in self.offers:
                lines += [f"{name}:", "  Installed: (none)", "  Version table:"]
                lines += [f"     {version} 500" for version in self.offers[name]]
        return "\n".join(lines)

    def _apt_get_update(self, argv: list[str], stdin: str) -> str:
        return ""

    def _apt_get(self, argv: list[str], stdin: str) -> str | Completed:
        verb = next(word for word in argv[1:] if not word.startswith("-"))
        lines = []
        for word in argv[1:]:
            name, _, version = word.partition("=")
            gone = name.removesuffix("-")
            if word.startswith("-") or word == verb:
                continue
            if verb in ("remove", "purge") or (name.endswith("-") and gone not in self.offers.get(name, [])):
                lines.append(("Remv", gone.removesuffix("+"), ""))
            elif not self.offers.get(name) or (version and version not in self.offers[name]):
                return Completed(tuple(argv), 100, stderr=f"E: Version '{version}' for '{name}' was not found")
            else:
                lines.append(("Inst", name, version or self.packages.get(name) or self.offers[name][0]))
        if "--simulate" not in argv and "-s" not in argv:
            for action, name, version in lines:
                if action == "Remv":
                    self.packages.pop(name, None)
                    self.held.discard(name)
                else:
                    self.packages[name] = version
            self.write_status()
        return "\n".join(f"{action} {name} ({version} repo [all])" for action, name, version in lines)

    def _dpkg(self, argv: list[str], stdin: str) -> str:
        for line in stdin.splitlines():
            name, want = line.split()
            (self.held.add if want == "hold" else self.held.discard)(name)
        self.write_status()
        return ""

    def _modprobe(self, argv: list[str], stdin: str) -> str:
        names = [line.split()[0] for line in self.path("/proc/modules").read_text().splitlines()]
        name = argv[-1].replace("-", "_")
        names = [known for known in names if known != name] if "-r" in argv else sorted({*names, name})
        self.file("/proc/modules", "".join(f"{name} 1 0 - Live 0x0\n" for name in names))
        return ""

    def _journalctl(self, argv: list[str], stdin: str) -> str:
        return ""


class NoClock(Clock):
    """Time that passes only when somebody waits."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
