"""A fleet of containers, and ways into them that are fast enough for hundreds of small tests.

A play costs seconds. Where the engine's own answer is meant, a test sends it the request that the action plugins would
send, with the same program over SSH.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import transport

from tests.support.kinds import FLEET
from tests.support.rig import ROOT, Play, Rig

HERE = Path(__file__).parent
PYTHON = "/usr/bin/python3"
MANIFEST = "/var/lib/gb10-fleet/manifest.json"
EXTRA: list[dict[str, Any]] = FLEET
CONSENTS = {"fabric_allow_activation": True, "docker_allow_restart": True}
# What the engine derives from sysctls and kernel modules: it is in the manifest, but in no document.
_DERIVED = ("file:/etc/sysctl.d/90-gb10-", "file:/etc/modules-load.d/gb10-")


class Fleet(Rig):
    # `make test` runs other tests beside these, on other hosts of the same fleet: each has an inventory of its own.
    inventory = ROOT / os.environ.get("GB10_FLEET_INVENTORY", "inventory/lab/fleet")
    playbook = "tests/fleet/site.yml"

    def __init__(self, count: int = 2, roles: Sequence[str] = ()) -> None:
        """`roles`: those alone, of the ones in vars.yml."""
        self.count = count
        self.sockets = Path(tempfile.mkdtemp(prefix="gb10-ssh-"))
        self._roles: tuple[str, ...] = ()
        if roles:  # in a file: a rollout takes no value on the command line
            file = self.sockets / "roles.json"
            file.write_text(json.dumps({"gb10_roles": list(roles)}))
            self._roles = ("-e", f"@{file}")

    def up(self) -> None:
        """A fleet of its own, or the last hosts of one that somebody has up already: that one stays up."""
        self._mine = not (self.inventory / "hosts.yml").exists()
        if self._mine:
            self.lab("up", "fleet", "--hosts", str(self.count))
        self.hosts = tuple(self._known["children"]["sparks"]["hosts"])[-self.count :]
        for host in self.hosts:
            self.prepare(host)

    def down(self) -> None:
        if self._mine:
            self.lab("down", "fleet")
        shutil.rmtree(self.sockets)

    def prepare(self, host: str) -> None:
        """What these tests need on a host that nothing of ours is on."""
        self.shell(host, (HERE / "on_host/prepare.sh").read_text())

    def clear(self, host: str) -> None:
        """Everything of ours undone, if there is anything; what a failed test has left would stop an undo."""
        if self.manifest(host) is not None:
            self.converge(host, self.documents(host))
            said = self.engine(host, "undo")
            assert said["error"] is None, f"{host}: undo: {said['error']}"
        self.prepare(host)

    @property
    def own_roles(self) -> bool:
        """Whether other roles were asked for than those in vars.yml."""
        return bool(self._roles)

    # -- in

    @cached_property
    def _known(self) -> dict[str, Any]:
        """The inventory: read once, as a test asks its hosts a hundred times."""
        said: dict[str, Any] = yaml.safe_load((self.inventory / "hosts.yml").read_text())["all"]
        return said

    def address(self, host: str) -> str:
        return str(self._known["children"]["sparks"]["hosts"][host]["ansible_host"])

    def _ssh(self, host: str, *words: str) -> list[str]:
        mine, all_ = self._known["children"]["sparks"]["hosts"][host], self._known["vars"]
        kept = ["-oControlMaster=auto", "-oControlPersist=60", f"-oControlPath={self.sockets}/%C"]
        return [
            *("ssh", "-oBatchMode=yes", *kept, "-i", all_["ansible_ssh_private_key_file"]),
            *shlex.split(all_["ansible_ssh_common_args"]),
            f"{all_['ansible_user']}@{mine['ansible_host']}",
            shlex.join(words),
        ]

    def start(self, host: str, *words: str, program: bytes) -> subprocess.Popen[bytes]:
        """A command as root with `program` on its standard input; its output can be read while it runs."""
        pipe = subprocess.PIPE
        argv = self._ssh(host, "sudo", "-n", *words)
        child = subprocess.Popen(argv, bufsize=0, stdin=pipe, stdout=pipe, stderr=pipe)
        assert child.stdin is not None
        child.stdin.write(program)
        child.stdin.close()
        child.stdin = None  # communicate() must not flush it again
        return child

    def root(self, host: str, *words: str, program: bytes, timeout: int = 300) -> str:
        argv = self._ssh(host, "sudo", "-n", *words)
        done = subprocess.run(argv, input=program, capture_output=True, timeout=timeout, check=False)
        output = done.stdout.decode(errors="replace")
        assert done.returncode == 0, f"{host}: {words}: {output}{done.stderr.decode(errors='replace')}"
        return output

    def shell(self, host: str, script: str) -> str:
        """A shell script, as root."""
        return self.root(host, "sh", "-eu", program=script.encode())

    # -- what is there

    def on_host(self, host: str, program: Path) -> str:
        """As any rig's, over the kept connection."""
        return self.root(host, PYTHON, "-", program=program.read_bytes())

    def manifest(self, host: str) -> dict[str, Any] | None:
        """What the host has for a manifest; json fails here if it is half of one."""
        text = self.shell(host, f"test ! -e {MANIFEST} || cat {MANIFEST}")
        return json.loads(text) if text else None

    def documents(self, host: str) -> list[dict[str, Any]]:
        """The documents that the host was last given: from its manifest, and ours, whose secret no manifest holds."""
        manifest = self.manifest(host)
        assert manifest is not None, f"{host} has no manifest"
        roles: dict[str, list[tuple[int, dict[str, Any]]]] = {}
        for label, entry in manifest["resources"].items():
            if not label.startswith(_DERIVED):
                for role in entry["roles"]:
                    roles.setdefault(role, []).append((entry["order"], entry["declared"]))
        rows = {role: sorted(items, key=lambda item: item[0]) for role, items in roles.items()}
        by_role = {role: [resource for _, resource in items] for role, items in rows.items()}
        by_role["extra"] = EXTRA
        return [{"role": role, "resources": resources} for role, resources in by_role.items()]

    # -- what is done

    def engine(self, host: str, verb: str, **more: Any) -> dict[str, Any]:
        """One request to the engine, as the action plugins send it."""
        request = {
            "verb": verb,
            "check": False,
            "documents": [],
            "consents": CONSENTS,
            "expect": {},
            "facts": None,
            "project": "test",
            "run": "tests@controller",
            "orphans": "show",
            "roles": None,
            **more,
        }
        command = shlex.split(transport.command(PYTHON))
        return transport.parse(self.root(host, *command, program=transport.program(request)))

    def converge(self, host: str, documents: Sequence[Mapping[str, Any]], **more: Any) -> dict[str, Any]:
        return self.engine(host, "converge", documents=list(documents), **more)

    def site(self, *args: str, playbook: str | None = None, **more: Any) -> Play:
        return self.play(*self.arguments, *args, playbook=playbook or self.playbook, **more)

    @property
    def arguments(self) -> tuple[str, ...]:
        return (*self.words, "--limit", ",".join(self.hosts))

    @property
    def words(self) -> tuple[str, ...]:
        return ("-e", f"@{HERE / 'vars.yml'}", *self._roles)


def named(rows: Iterable[Mapping[str, str]]) -> set[tuple[str, str]]:
    """Changes as the set of what they are about."""
    return {(row["role"], row["resource"]) for row in rows}
