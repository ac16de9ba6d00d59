"""A person who has Sparks and a terminal, and knows no Ansible: `gb10 up` by pexpect, from a laptop or on a Spark.

The laptop is this machine with a home of its own: no key of SSH, no known host, no inventory. On a Spark runs what a
wheel would have brought there, with the Python of this machine.
"""

from __future__ import annotations

import importlib.metadata
import io
import json
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pexpect
import yaml

from lab.inventory import OVERRIDES
from tests.fleet.fleet import HERE, Fleet
from tests.fleet.typist import CLEAR, MARK, PREPARE, SUDO
from tests.support.rig import ROOT, Rig

KEYS, PASSWORD, SET_UP = (
    r"(?:Are these your Sparks|Is this your Spark)[^\n]*: $",
    r"Password[^\n]*: $",
    r"Set up[^\n]*: $",
)
ANSWERS = {KEYS: "y", PASSWORD: SUDO, SET_UP: "1"}
RAILS = ("enp1s0f0np0", "enP2p1s0f0np0")
# What the lab's hosts need and real Sparks do not.
OF_LAB = (
    "gb10_accept", "gb10_minimum_free_gib", "docker_daemon_options", "vllm_image", "vllm_version", "vllm_accept",
    "vllm_memory_gate_gib", "fabric_test", "fabric_thresholds",
)  # fmt: skip
# As much memory as a Spark has, for the models that it is offered. What is available is a part of what is free or
# cached: else the lines contradict each other, and nobody can say what memory is in use.
SPARK_MEMINFO = " ".join(
    f"-e 's/^{name}:.*/{name}: {kib} kB/'"
    for name, kib in (("MemTotal", 127535808), ("MemFree", 125000000), ("MemAvailable", 120000000))
)
MEMORY = f"""
if ! mountpoint -q /proc/meminfo; then
	sed {SPARK_MEMINFO} /proc/meminfo >/run/meminfo
	chmod 644 /run/meminfo
	mount --bind /run/meminfo /proc/meminfo
fi
"""
# As much room as a Spark has, which takes memory only for what is in it.
DISK = """
if ! mountpoint -q /var/cache; then
	mkdir -p /run/disk
	mount -t tmpfs -o size=1000g,mode=755 tmpfs /run/disk
	cp -a /var/cache/. /run/disk
	mount --bind /run/disk /var/cache
	umount /run/disk
fi
"""
NO_MEMORY = """
! mountpoint -q /proc/meminfo || umount /proc/meminfo
! mountpoint -q /var/cache || umount -l /var/cache
rm -f /usr/local/bin/ib_write_bw
"""
PYTHON_TESTS = f"python{sysconfig.get_python_version()}/test"  # 30 MB of its own
COMMANDS = {"gb10": "gb10_fleet.cli", "ansible-playbook": "ansible.cli.playbook"}
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


class Owner:
    """Of these Sparks. `home` is where the inventory and the evidence go."""

    limit_s = 900  # between two questions, or to the end

    def __init__(self, fleet: Rig, home: Path) -> None:
        self.rig, self.home = fleet, home
        self.asked: list[str] = []
        known = yaml.safe_load((fleet.inventory / "hosts.yml").read_text())["all"]["vars"]
        assert set(OF_LAB) <= known.keys(), OVERRIDES
        self.lab = {name: known[name] for name in OF_LAB}

    @property
    def fleet(self) -> Fleet:
        assert isinstance(self.rig, Fleet), "begin and end are for containers"
        return self.rig

    def shell(self, host: str, script: str) -> str:
        """A shell script, as root."""
        return self.fleet.shell(host, script)

    def begin(self, hosts: Sequence[str], *, cable: bool) -> None:
        """Untouched machines: a user with a password, Docker's needs in a container, a cable where there is one."""
        for host in hosts:
            self.fleet.shell(host, PREPARE + (HERE / "images/begin.sh").read_text() + MEMORY + DISK)
        for netdev in RAILS if cable else ():
            one, other = (f"netns gb10-{host}" for host in hosts)
            words = f"link add {netdev} mtu 9000 {one} type veth peer name {netdev} mtu 9000 {other}"
            subprocess.run(["ip", *words.split()], check=True)
        for number, host in enumerate(hosts if cable else ()):
            for netdev in RAILS:
                self.fleet.shell(host, f"ip link set {netdev} up")
            self.fleet.root(host, "python3", "-", str(number), program=(HERE / "images/rails.py").read_bytes())
            self.fleet.root(host, "tee", "/usr/local/bin/ib_write_bw", program=(HERE / "up/ib_write_bw").read_bytes())
            self.fleet.shell(host, "chmod 755 /usr/local/bin/ib_write_bw")

    def end(self, hosts: Sequence[str]) -> None:
        for host in hosts:
            said = self.fleet.engine(host, "undo")
            self.fleet.shell(host, NO_MEMORY + "\n" + CLEAR)
            self.fleet.shell(host, (HERE / "images/end.sh").read_text())
            assert said["error"] is None, f"{host}: undo: {said['error']}"

    # -- the terminal

    def up(self, *words: str, until: str = "", answers: Mapping[str, str] = ANSWERS) -> tuple[int, str]:
        """`gb10 up` to its end, or killed when `until` is on the screen. The exit status, and the screen."""
        argv = [str(Path(sys.executable).with_name("gb10")), "up", "-u", "typist", *words, "--", *self.words]
        return self._run(argv, self._environment, until, answers)

    @property
    def words(self) -> list[str]:
        file = self.home / "lab.json"
        file.write_text(json.dumps(self.lab))
        return ["-e", f"@{file}"]

    @property
    def _environment(self) -> dict[str, str]:
        folders = {f"XDG_{name}_HOME": str(self.home / name.lower()) for name in ("CONFIG", "STATE", "CACHE")}
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "SSH_"))}
        # A connection that another command kept needs no password, and the questions are what is counted here.
        # Not below `home`: a socket's name has at most 107 characters.
        sockets = tempfile.mkdtemp(prefix="gb10-ssh-")
        own = {
            "ANSIBLE_SSH_ARGS": f"-o ControlMaster=auto -o ControlPersist=60s -o ControlPath={sockets}/%C",
            "ANSIBLE_TIMEOUT": "180",  # seconds; an emulated machine is slow to ask for a password
        }
        return {**kept, **folders, **own, "HOME": str(self.home)}

    def _run(
        self, argv: Sequence[str], environment: dict[str, str], until: str, answers: Mapping[str, str]
    ) -> tuple[int, str]:
        screen = io.StringIO()
        spawn: Any = pexpect.spawn
        child = spawn(
            argv[0], [*argv[1:]], env=environment, cwd=self.home, encoding="utf-8", timeout=self.limit_s,
            dimensions=(50, 500),
        )  # fmt: skip
        child.logfile_read = screen
        patterns = [*answers, *([re.escape(until)] if until else []), pexpect.EOF]
        self.asked = []
        while (found := child.expect(patterns)) < len(answers):
            self.asked.append(patterns[found])
            child.sendline(answers[patterns[found]])
        if patterns[found] is not pexpect.EOF:
            child.kill(9)
        child.close(force=True)
        assert MARK.decode() not in screen.getvalue(), "a password is on the screen"
        return child.exitstatus if child.exitstatus is not None else -1, screen.getvalue()

    def gb10(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Any other command, where no inventory is named."""
        argv = [str(Path(sys.executable).with_name("gb10")), *words]
        return subprocess.run(
            argv, env=self._environment, cwd=self.home, input=f"{SUDO}\n" * 2, capture_output=True, text=True,
            check=False, start_new_session=True,
        )  # fmt: skip

    def tool_call(self, host: str) -> Any:
        """Ask the model on this host a question for which it needs a tool; the call."""
        models = json.loads(self.shell(host, "curl -sf http://127.0.0.1:8000/v1/models"))
        question = {
            "model": models["data"][0]["id"],
            "messages": [{"role": "user", "content": "Is it warm in Paris?"}],
            "tools": [TOOL],
        }
        body = shlex.quote(json.dumps(question))
        where = "http://127.0.0.1:8000/v1/chat/completions"
        ask = f"curl -sf {where} -H 'Content-Type: application/json' -d {body}"
        return json.loads(self.shell(host, ask))["choices"][0]["message"]["tool_calls"][0]["function"]


class OwnerOnSpark(Owner):
    """At the terminal of a Spark itself, with no other machine."""

    folder = "/opt/gb10"

    def __init__(self, fleet: Fleet, home: Path, host: str) -> None:
        super().__init__(fleet, home)
        self.host = host

    def bring(self) -> None:
        """What a wheel and its dependencies would have brought, and the Python that runs them."""
        self.fleet.root(self.host, "tar", "-xC", "/", program=_carried(self.folder))
        self.fleet.root(self.host, "tee", f"{self.folder}/lab.json", program=json.dumps(self.lab).encode())

    def up(self, *words: str, until: str = "", answers: Mapping[str, str] = ANSWERS) -> tuple[int, str]:
        command = (
            f"TERM=dumb {self.folder}/bin/gb10 {shlex.join(['up', *words, '--', '-e', f'@{self.folder}/lab.json'])}"
        )
        argv = [*self.fleet._ssh(self.host), f"sudo -n -u typist -i sh -c {shlex.quote(command)}"]
        return self._run([argv[0], "-tt", *argv[1:]], dict(os.environ), until, answers)


def _carried(folder: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        standard = Path(sysconfig.get_paths()["stdlib"])
        library = (
            f"{folder}/python/lib/{standard.name}"  # the one folder that it looks into with no word in its environment
        )
        tar.add(standard, library, filter=_no_cache)
        for distribution in _needed("gb10-fleet", {}).values():
            for file in distribution.files or ():
                path = Path(str(file.locate()))
                if path.is_file() and ".." not in file.parts and path.suffix != ".pyc":
                    tar.add(path, f"{library}/{file}")
        for name in ("gb10_fleet", "plugins", "roles", "playbooks", "meta", "catalog", "galaxy.yml"):
            where = library if name == "gb10_fleet" else f"{library}/ansible_collections/gb10/fleet"
            tar.add(ROOT / name, f"{where}/{name}", filter=_no_cache)
        python = Path(sys.executable).resolve()
        tar.add(python, f"{folder}/python/bin/{python.name}")
        for command, module in COMMANDS.items():
            call = f"import sys; sys.argv[0] = '{command}'; from {module} import main; main()"
            _add(tar, f"{folder}/bin/{command}", f'#!/bin/sh\nexec {folder}/bin/python3 -c "{call}" "$@"\n'.encode())
        link = tarfile.TarInfo(f"{folder}/bin/python3")
        link.type, link.linkname = tarfile.SYMTYPE, f"../python/bin/{python.name}"
        tar.addfile(link)
    return packed.getvalue()


def _needed(name: str, found: dict[str, importlib.metadata.Distribution]) -> dict[str, importlib.metadata.Distribution]:
    """A distribution and all that it depends on."""
    distribution = importlib.metadata.distribution(name)
    if found.setdefault(distribution.metadata["Name"], distribution) is distribution:
        for text in _requirements(distribution):
            try:
                _needed(text, found)
            except importlib.metadata.PackageNotFoundError:  # of another Python or system
                continue
    return found


def _requirements(distribution: importlib.metadata.Distribution) -> Iterator[str]:
    for text in distribution.requires or ():
        if "extra ==" not in text and (match := re.match(r"[\w.-]+", text)):
            yield match[0]


def _no_cache(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "__pycache__" in Path(entry.name).parts or f"/{PYTHON_TESTS}" in entry.name else entry


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o755
    tar.addfile(entry, io.BytesIO(content))
