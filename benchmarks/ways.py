"""The ways to bring hosts to the same state, or to see whether they are: command line and environment of each."""

from __future__ import annotations

import configparser
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from benchmarks import desired
from gb10_fleet.playbook import Outcome

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "benchmarks"
AT_ONCE = "50"  # connections of the floor and of pyinfra; what performance work on this project has used from the start


@dataclass(frozen=True)
class Way:
    """One way, as README.md names it. `most`: the largest fleet that is worth its time. `slow`: two runs say enough.

    `ends`: the exit status of a run that went well.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    converges: bool = True
    most: int = 1000
    slow: bool = False
    ends: int = 0


class Workplace:
    """The folder with everything that the ways need for one size of fleet."""

    def __init__(self, folder: Path, sockets: Path, inventory: Mapping[str, Any], hosts: int) -> None:
        self.folder, self.sockets = folder / f"{hosts}", sockets
        self.folder.mkdir(parents=True, exist_ok=True)
        self.rivals, self.cache = folder, folder / "cache"
        self.variables = {**inventory["all"]["vars"], "gb10_roles": list(desired.ROLES), "fabric_topology": "none"}
        every = inventory["all"]["children"]["sparks"]["hosts"]
        self.hosts: dict[str, str] = {name: every[name]["ansible_host"] for name in list(every)[:hosts]}
        self.inventory = self._write(
            "inventory/hosts.yml",
            yaml.safe_dump(
                {
                    "all": {
                        "vars": self.variables,
                        "children": {"sparks": {"hosts": {name: every[name] for name in self.hosts}}},
                    }
                }
            ),
        ).parent

    def _write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    @property
    def environment(self) -> dict[str, str]:
        """Of every Ansible run: nothing of the user's own, facts and ssh's sockets in folders of ours."""
        return {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(Path.home()),
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.sockets),
            "XDG_CACHE_HOME": str(self.cache),
        }

    def ours(self) -> list[Way]:
        """Needs nothing but the hosts: the first to run on fresh ones."""
        play = ("ansible-playbook", "-i", str(self.inventory))
        evidence = f"gb10_evidence_directory={self.folder / 'evidence'}"
        return [
            Way("ours", (*play, "site.yml", "--skip-tags", "validate"), self.environment),
            Way("drift", (*play, "playbooks/drift.yml", "-e", evidence), self.environment, converges=False),
        ]

    def glances(self) -> list[Way]:
        """`gb10 status --hosts`, and what its connections alone cost: a login and sudo on each host."""
        status = ("gb10", "status", "--hosts", "--json", "-i", str(self.inventory))
        services = ("gb10", "ps", "-i", str(self.inventory))
        bare = self._in_parallel("ssh", dict.fromkeys(self.hosts, "true\n"))
        return [
            Way("status", status, self.environment, converges=False),
            Way("ps", services, self.environment, converges=False),
            Way("ssh", bare, self.environment, converges=False),
        ]

    def beside_dead(self) -> list[Way]:
        """Two that an operator types, where some hosts give no answer: they say so, and end with that status."""
        inventory = ("-i", str(self.inventory))
        evidence = ("--", "-e", f"gb10_evidence_directory={self.folder / 'evidence'}")
        ends = int(Outcome.unreachable)
        return [
            Way("drift-dead", ("gb10", "drift", *inventory, *evidence), self.environment, converges=False, ends=ends),
            Way("ps-dead", ("gb10", "ps", *inventory), self.environment, converges=False, ends=ends),
        ]

    def ours_left_out(self) -> list[Way]:
        """Ours, where unchanged hosts have no line in Ansible's recap, so no task of their own."""
        return [
            replace(way, name=f"{way.name}-changed", argv=(*way.argv, "-e", "gb10_recap=changed"))
            for way in self.ours()
        ]

    def others(self, wanted: Mapping[str, desired.Desired]) -> list[Way]:
        """The floor and the rivals, for the state that our documents ask of each host."""
        same = desired.as_variables(next(iter(wanted.values())))
        differing = [host for host, state in wanted.items() if desired.as_variables(state) != same]
        if differing:
            raise ValueError(f"{differing[0]} is asked for another state than the others; the ways know one for all")
        state = self._write("desired.json", json.dumps(same))
        floor = self._in_parallel("floor", {host: desired.floor(state) for host, state in wanted.items()})
        pyinfra = self._pyinfra()
        play = ("ansible-playbook", "-i", str(self.inventory), "-e", f"@{state}", str(HERE / "idiomatic.yml"))
        nothing = self._write("defaults.cfg", f"[defaults]\ncollections_path = {ROOT / 'collections'}\n")
        plugins = self.rivals / "mitogen" / "ansible_mitogen" / "plugins" / "strategy"
        mitogen = {"ANSIBLE_STRATEGY_PLUGINS": str(plugins), "ANSIBLE_STRATEGY": "mitogen_linear"}
        plain = {**self.environment, "ANSIBLE_CONFIG": str(nothing)}
        return [
            Way("floor", floor, self.environment, converges=False),
            Way(
                "pyinfra",
                pyinfra,
                {**self.environment, "GB10_BENCH_DESIRED": str(state)},
            ),
            Way("mitogen", play, {**self.environment, **mitogen}, most=10),
            Way("tuned", play, self.environment, most=10, slow=True),
            Way("idiomatic", play, plain, most=10, slow=True),
        ]

    def packages_alone(self, wanted: Mapping[str, desired.Desired]) -> Way:
        """On fresh hosts, the packages and nothing else."""
        scripts = {host: desired.packages_alone(state) for host, state in wanted.items()}
        return Way("apt", self._in_parallel("apt", scripts), self.environment)

    def _in_parallel(self, name: str, scripts: Mapping[str, str]) -> tuple[str, ...]:
        folder = self.folder / name
        for host, address in self.hosts.items():
            self._write(f"{name}/{address}", scripts[host])
        addresses = self._write("addresses", "".join(f"{address}\n" for address in self.hosts.values()))
        ssh = shlex.join(["ssh", *self.ssh_options(), "-l", self.variables["ansible_user"]])
        one = f"exec {ssh} {{}} 'sudo -n sh -s' <{shlex.quote(str(folder))}/{{}}"
        return ("xargs", "-a", str(addresses), f"-P{AT_ONCE}", "-I{}", "sh", "-c", one)

    def ssh_options(self) -> list[str]:
        """Those of our ansible.cfg and of the inventory, with what Ansible adds by itself."""
        config = configparser.ConfigParser(interpolation=None)
        config.read(ROOT / "ansible.cfg")
        key = self.variables["ansible_ssh_private_key_file"]
        return [
            *shlex.split(config["ssh_connection"]["ssh_args"]),
            *shlex.split(self.variables["ansible_ssh_common_args"]),
            *("-o", f"ControlPath={self.sockets}/%C", "-o", f"ConnectTimeout={config['defaults']['timeout']}"),
            *("-o", "BatchMode=yes", "-i", key),
        ]

    def _pyinfra(self) -> tuple[str, ...]:
        options = dict(option.removeprefix("-o").split("=", 1) for option in self._common())
        data = {
            "ssh_user": self.variables["ansible_user"],
            "ssh_key": self.variables["ansible_ssh_private_key_file"],
            "ssh_known_hosts_file": options["UserKnownHostsFile"],
            "ssh_strict_host_key_checking": "yes",
        }
        hosts = [(address, data) for address in self.hosts.values()]
        inventory = self._write("pyinfra_inventory.py", f"sparks = {hosts!r}\n")
        command = str(self.rivals / "pyinfra" / "bin" / "pyinfra")
        return (command, "-y", "--parallel", AT_ONCE, str(inventory), str(HERE / "pyinfra_deploy.py"))

    def _common(self) -> list[str]:
        return shlex.split(self.variables["ansible_ssh_common_args"])


def fetch_rivals(folder: Path) -> dict[str, str]:
    """The newest pyinfra in a virtual environment of its own, the newest Mitogen as files; their versions."""
    folder.mkdir(parents=True, exist_ok=True)
    pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade")
    environment, mitogen = folder / "pyinfra", folder / "mitogen"
    if not (environment / "bin" / "python").exists():
        _run([sys.executable, "-m", "venv", str(environment)])
    _run([str(environment / "bin" / "python"), *pip, "pyinfra"])
    shutil.rmtree(mitogen, ignore_errors=True)
    _run([sys.executable, *pip, "--no-deps", "--target", str(mitogen), "mitogen"])
    return {"pyinfra": _version(environment, "pyinfra"), "mitogen": _version(mitogen, "mitogen")}


def _version(folder: Path, name: str) -> str:
    found = next(folder.rglob(f"{name}-*.dist-info"))
    return found.name.removeprefix(f"{name}-").removesuffix(".dist-info")


def _run(argv: Sequence[str]) -> None:
    subprocess.run(argv, check=True)
