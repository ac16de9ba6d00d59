"""A host on which documents are applied and taken back, and killed in between."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.engine.remote import answer
from ansible_collections.gb10.fleet.plugins.module_utils.system import manifest as manifests
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import TEMPORARY_PREFIX, Completed, System

from tests.support.apt import FakeApt
from tests.support.fake_host import FakeHost
from tests.support.systemd import FakeSystemd

DOCUMENTS: list[dict[str, Any]] = [
    {
        "role": "docker",
        "resources": [
            {"file": "/etc/apt/sources.list.d/docker.sources", "content": "Types: deb\n"},
            {"package": "docker-ce", "version": "29.1", "consent": "docker_allow_restart"},
            {"hold": "docker-ce"},
            {"file": "/etc/gb10-fleet", "state": "directory"},
            {"file": "/etc/docker/daemon.json", "merge_json": {"features": {"cdi": True}}},
            {
                "unit": "docker.service",
                "enabled": True,
                "state": "started",
                "restart_on": ["/etc/docker/daemon.json", "package:docker-ce"],
                "consent": "docker_allow_restart",
            },
        ],
    },
    {
        "role": "serving",
        "resources": [
            {"package": "perftest"},
            {"file": "/etc/gb10-fleet", "state": "directory"},
            {"file": "/etc/gb10-fleet/deep/er/serving.env", "content": "KEY=1\n", "secret": True},
            {"file": "/etc/motd", "content": "ours\n"},
            {"kernel_module": "rdma_cm"},
            {"sysctl": "net.ipv4.conf.all.arp_ignore", "value": 1},
            {"file": "/etc/systemd/system/serving.service", "content": "[Service]\nExecStart=/bin/x\n"},
            {
                "unit": "serving.service",
                "enabled": True,
                "state": "started",
                "restart_on": ["/etc/systemd/system/serving.service", "/etc/gb10-fleet/deep/er/serving.env"],
                "consent": "serving_allow_restart",
            },
        ],
    },
]

CONSENTS = {"docker_allow_restart": True, "serving_allow_restart": True}


class Apt(FakeApt):
    """docker-ce needs containerd, which brings its own folder, and starts its service."""

    NEEDS = {"docker-ce": "containerd (>= 1.7) | other-containerd", "containerd": "runc"}  # noqa: RUF012
    residual: tuple[str, ...] = ()

    def __init__(self, host: FakeHost, systemd: FakeSystemd, **installed: str) -> None:
        self.systemd = systemd
        self.manual: set[str] = set()
        super().__init__(host, {"docker-ce": ["29.1", "28.0"], "perftest": ["24.01"]}, **installed)

    def write(self) -> None:
        blocks = ["Package: dpkg\nStatus: install ok installed\nArchitecture: arm64\nVersion: 1.22\n"]
        for name, version in self.packages.items():
            needs = f"Depends: libc6, {self.NEEDS[name]}\n" if name in self.NEEDS else ""
            status = f"{self.want.get(name, 'install')} ok {self.state.get(name, 'installed')}"
            blocks.append(f"Package: {name}\nStatus: {status}\nArchitecture: all\nVersion: {version}\n{needs}")
        residual = set(self.residual) - self.packages.keys()
        blocks += [f"Package: {name}\nStatus: deinstall ok config-files\nVersion: 1\n" for name in residual]
        self.host.file("/var/lib/dpkg/status", "\n".join(blocks))
        along = [name for name in ("containerd", "runc") if name in self.packages]
        marks = [f"Package: {name}\nAuto-Installed: {int(name not in self.manual)}\n" for name in along]
        self.host.file("/var/lib/apt/extended_states", "\n".join(marks))

    def install(self, argv: list[str], stdin: str | None) -> Any:
        arriving = any(word.startswith("docker-ce=") for word in argv)
        self.along = {"containerd": "1.7", "runc": "1.2"} if arriving and "containerd" not in self.packages else {}
        said = super().install(argv, stdin)
        if "--simulate" in argv:
            return said
        if "docker-ce" in self.packages and "docker.service" not in self.systemd.units:
            self.host.file("/etc/docker/key.json", "{}")
            self.systemd.add("docker.service", active="active", file="enabled")
        if "docker-ce" not in self.packages:
            self.systemd.units.pop("docker.service", None)
            self.host.path("/etc/docker/key.json").unlink(missing_ok=True)
        return said


class Killed(BaseException):
    """What SIGKILL is to a process; nothing of ours may catch it."""


class Mortal(System):
    """A system that dies at the `life`-th thing it does to the host."""

    life = 10**9
    spent = 0

    def step(self) -> None:
        self.spent += 1
        if self.spent >= self.life:
            raise Killed

    def run(self, *arguments: Any, **options: Any) -> Completed:
        self.step()
        done = super().run(*arguments, **options)
        self.step()
        return done

    def write(self, absolute: str, content: bytes, **access: Any) -> None:
        self.step()
        target = self.path(absolute)
        if self.spent + 1 >= self.life and target.parent.exists():
            target.with_name(TEMPORARY_PREFIX + target.name).write_bytes(content[: len(content) // 2])
        self.step()
        super().write(absolute, content, **access)
        self.step()


class World:
    """A host with packages, units and kernel settings, and the requests that a controller sends to it."""

    def __init__(self, root: Path) -> None:
        self.host = FakeHost(root)
        self.systemd = FakeSystemd(self.host)
        self.apt = Apt(self.host, self.systemd, bash="5")
        self.host.file("/etc/motd", "theirs\n", 0o600)
        self.host.file("/etc/apt/sources.list", "")
        for folder in ("/etc/sysctl.d", "/etc/modules-load.d", "/etc/systemd/system"):
            self.host.path(folder).mkdir(parents=True)
        self.host.path("/etc/apt/sources.list.d").mkdir()
        self.host.file("/proc/sys/net/ipv4/conf/all/arp_ignore", "0\n")
        self.host.file("/proc/modules", "")
        self.host.on("modprobe", self.modprobe)
        self.spent = 0

    def modprobe(self, argv: list[str], stdin: str | None) -> str:
        self.host.file("/proc/modules", "" if argv[1] == "-r" else "rdma_cm 1 0 - Live 0x0\n")
        return ""

    def ask(self, verb: str, life: int = 10**9, **more: Any) -> dict[str, Any]:
        system = Mortal(self.host.root, self.host.run, self.host.clock, privileged=True)
        system.life = life
        given = {"documents": DOCUMENTS} if verb == "converge" else {}
        request = {"verb": verb, "check": False, "consents": CONSENTS, "project": "0.2.0", "run": "me", **given, **more}
        try:
            return answer(request, system)
        finally:
            self.spent = system.spent

    def done(self, verb: str, **more: Any) -> dict[str, Any]:
        said = self.ask(verb, **more)
        assert said["error"] is None, said["error"]
        return said

    def digest(self) -> dict[str, Any]:
        """All that lasts of the host: not when something started, nor that systemd has looked at an idle unit."""
        units = {
            name: (unit["ActiveState"], unit["UnitFileState"])
            for name, unit in self.systemd.units.items()
            if (unit["ActiveState"], unit["UnitFileState"]) != ("inactive", "disabled")
        }
        files = self.host.digest()
        return {"files": files, "units": units, "packages": dict(self.apt.packages), "holds": sorted(self.held())}

    def held(self) -> list[str]:
        return [name for name, want in self.apt.want.items() if want == "hold"]

    def manifest(self) -> dict[str, Any]:
        raw: dict[str, Any] = json.loads(self.host.path(manifests.MANIFEST).read_text())
        for entry in raw["resources"].values():
            for owner in entry["roles"].values():
                owner["applied"] = ""
        return raw

    def leftovers(self) -> list[str]:
        return [str(path) for path in self.host.root.rglob(f"{TEMPORARY_PREFIX}*")]


def documents_of(*resources: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "docker", "resources": list(resources)}]
