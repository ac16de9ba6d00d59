"""An apt and a dpkg that keep their packages in memory."""

from __future__ import annotations

from fnmatch import fnmatch
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Completed

from tests.support.fake_host import FakeHost


class FakeApt:
    """dpkg's status file and an apt that knows some versions and installs what it is told."""

    def __init__(self, host: FakeHost, offers: dict[str, list[str]], **installed: str) -> None:
        self.host = host
        self.offers = offers
        self.after_update: dict[str, list[str]] = {}
        self.along: dict[str, str] = {}  # what every installation brings along
        self.removed: list[str] = []  # what every installation takes away
        self.packages = {name.replace("_", "-"): version for name, version in installed.items()}
        self.want: dict[str, str] = {}
        self.state: dict[str, str] = {}
        self.depends: dict[str, str] = {}
        self.repair: Any = ""  # what apt says it would do to mend broken dependencies
        self.write()
        host.on("apt-cache policy", self.policy)
        host.on("apt-cache show", "")
        host.on("apt-get update", self.update)
        host.on("apt-get install", self.install)
        host.on("apt-get install --fix-broken", "")
        host.on("apt-get install --simulate --fix-broken", lambda argv, stdin: self.repair)
        host.on("dpkg --set-selections", self.select)
        host.on("dpkg --force-confdef", self.configure)

    def write(self) -> None:
        blocks = ["Package: dpkg\nStatus: install ok installed\nArchitecture: arm64\nVersion: 1.22\n"]
        for name, version in self.packages.items():
            status = f"{self.want.get(name, 'install')} ok {self.state.get(name, 'installed')}"
            blocks.append(f"Package: {name}\nStatus: {status}\nArchitecture: all\nVersion: {version}\n")
            blocks[-1] += f"Depends: {self.depends.get(name, 'x')}\n"
        self.host.file("/var/lib/dpkg/status", "\n".join(blocks))

    def policy(self, argv: list[str], stdin: str | None) -> str:
        lines = []
        for name in argv[2:]:
            if name in self.offers:
                lines += [f"{name}:", "  Installed: (none)", f"  Candidate: {self.offers[name][0]}", "  Version table:"]
                for version in self.offers[name]:
                    lines += [f"     {version} 500", "        500 file:/repo stable/main arm64 Packages"]
        return "\n".join(lines)

    def update(self, argv: list[str], stdin: str | None) -> str:
        self.offers.update(self.after_update)
        return ""

    def install(self, argv: list[str], stdin: str | None) -> Any:
        words = [word for word in argv[2:] if not word.startswith("-")]
        if "--download-only" in argv:
            return ""
        if "--simulate" in argv:
            moved = {word[:-1] if word.endswith("-") else word.partition("=")[0] for word in words}
            held = sorted(name for name in moved if self.want.get(name) == "hold")
            if held and "--allow-change-held-packages" not in argv:
                return Completed((), 100, stderr="E: Held packages were changed and -y was used without the option")
            inst = [f"Inst {word.partition('=')[0]} (1 repo [all])" for word in words if not word.endswith("-")]
            inst += [f"Inst {name} (1 repo [all])" for name in self.along]
            gone = [f"Remv {word[:-1]} [1]" for word in words if word.endswith("-")]
            return "\n".join([*inst, *gone, *(f"Remv {name} [1]" for name in self.removed)])
        for word in words:
            name, _, version = word.partition("=")
            if word.endswith("-"):
                del self.packages[word[:-1]]
                self.want.pop(word[:-1], None)
            elif version or name not in self.packages:
                self.packages[name] = version or self.offers[name][0]
        self.packages.update(self.along)
        self.write()
        return ""

    def select(self, argv: list[str], stdin: str | None) -> str:
        for line in (stdin or "").splitlines():
            name, word = line.split()
            self.want[name] = word
        self.write()
        return ""

    def configure(self, argv: list[str], stdin: str | None) -> str:
        self.state.clear()
        self.write()
        return ""


SET = {"hold": "driver-set", "match": ["^(lib)?nvidia-"], "except": ["^(lib)?nvidia-container"]}


class RealApt(FakeApt):
    """Takes the hold of what it exchanges, as apt with --allow-change-held-packages does, and understands `1.2*`."""

    def install(self, argv: list[str], stdin: str | None) -> Any:
        if "--simulate" not in argv and "--download-only" not in argv:
            words = [word for word in argv[2:] if not word.startswith("-")]
            held = [word for word in words if self.want.get(word.rstrip("-").partition("=")[0]) == "hold"]
            assert not held or "--allow-change-held-packages" in argv
            for word in words:
                self.want.pop(word.rstrip("-").partition("=")[0], None)
            argv = [self.resolved(word) for word in argv]
        return super().install(argv, stdin)

    def resolved(self, word: str) -> str:
        name, _, wanted = word.partition("=")
        if not wanted.endswith("*"):
            return word
        return f"{name}={next(version for version in self.offers[name] if fnmatch(version, wanted))}"
