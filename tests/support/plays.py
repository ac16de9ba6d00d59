"""ansible-playbook runs over an ssh that plays every kind of host, with an engine that says what the test wrote down.

The collection is the real one, file by file, except for the entry of the engine, `module_utils/engine/remote.py`.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import yaml
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import last_facts

from tests.support import starter
from tests.support.proofs import facts

ROOT = Path(__file__).parents[2]
HOST_PYTHON = Path(__file__).with_name("host_python")

# The destination names the kind of host, and its folder. What is left of the arguments is run here. A host that answers
# reads what it is sent, which Ansible ends and we do not: a pipe that broke a moment before ssh ended means to Ansible
# that the host is out of reach.
SSH = """#!/bin/bash
for word in "$@"; do case $word in kind-*) kind=${word#*@}; kind=${kind#kind-};; esac; command=$word; done
case $kind in
  away) printf 'ssh: connect to host 192.0.2.9 port 22: No route to host\\r\\n' >&2; exit 255;;
  key) echo "Host key verification failed." >&2; exit 255;;
  nosudo) timeout 3 cat >/dev/null; echo "sudo: a password is required" >&2; exit 1;;
  once) if [ -e "${0%/*}/gone" ]; then exit 255; fi; touch "${0%/*}/gone";;
  nopython) timeout 3 cat >/dev/null; echo "/bin/sh: 1: /usr/bin/python3: not found" >&2; exit 127;;
  garbled) timeout 3 cat >/dev/null; echo "Welcome to a host that says much"; exit 0;;
esac
echo "Welcome!"
export GB10_TEST_HOST="${0%/*}/hosts/$kind" SSH_CONNECTION="192.0.2.1 50000 192.0.2.11 22"
exec /bin/sh -c "$command"
"""
# Says the facts in host.json, and of every other key of it what the real engine would say; keeps the requests.
ENGINE = """
import hashlib, json, os
def answer(request, system):
    folder = os.environ["GB10_TEST_HOST"]
    with open(f"{folder}/requests", "a") as log:
        log.write(json.dumps(request) + "\\n")
    with open(f"{folder}/host.json") as file:
        host = json.load(file)
    facts = host.pop("facts")
    digest = lambda value: hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    stale = [key for key, wanted in request["expect"].items() if digest(facts.get(key)) != wanted]
    said = {"changes": [], "pending": [], "orphans": [], "diff": [], "known": True, "recorded": True, "subprocesses": 3,
            "wishes": [], "ends": [], "guard": None, "error": None}
    if not stale and request["documents"]:
        said.update(host)
    return {**said, "facts": None if said.pop("no_facts", False) else facts, "stale": stale}
"""


def put_ssh(folder: Path, script: str) -> None:
    """The program that stands in for ssh in `run_playbook`."""
    (folder / "ssh").write_text(script)
    (folder / "ssh").chmod(0o755)


def environment(folder: Path, collections: Path = ROOT / "collections") -> dict[str, str]:
    """Of a command that runs playbooks in a folder of its own: nothing of the user's, but PATH."""
    path = os.pathsep.join(filter(None, [str(HOST_PYTHON), os.environ.get("PYTHONPATH")]))
    return {
        **os.environ, "PYTHONPATH": path,
        "ANSIBLE_CONFIG": str(folder / "ansible.cfg"), "ANSIBLE_LOCAL_TEMP": str(folder / "local"),
        "ANSIBLE_COLLECTIONS_PATH": str(collections), "ANSIBLE_NOCOLOR": "1", "ANSIBLE_PIPELINING": "1",
        "ANSIBLE_SSH_RETRIES": "0", "ANSIBLE_HOST_KEY_CHECKING": "1", "ANSIBLE_INJECT_FACT_VARS": "0",
        "HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache"),
    }  # fmt: skip


def put_playbook(folder: Path, hosts: Mapping[str, Mapping[str, Any]], play: str, **variables: Any) -> None:
    """inventory.yml, whose hosts are reached by the folder's `ssh`, and play.yml."""
    base = {"ansible_ssh_executable": str(folder / "ssh"), "ansible_python_interpreter": sys.executable}
    inventory = {"sparks": {"hosts": dict(hosts), "vars": {**base, **variables}}}
    (folder / "inventory.yml").write_text(yaml.safe_dump(inventory, sort_keys=False))
    (folder / "play.yml").write_text(play)
    (folder / "ansible.cfg").touch()


def run_playbook(
    folder: Path,
    hosts: Mapping[str, Mapping[str, Any]],
    play: str,
    *args: str,
    collections: Path = ROOT / "collections",
    **variables: Any,
) -> tuple[int, str]:
    """Exit code and output of ansible-playbook in a folder of its own, whose `ssh` plays the hosts."""
    put_playbook(folder, hosts, play, **variables)
    return starter.run(folder, environment(folder, collections), "-i", "inventory.yml", "play.yml", *args)


def recap(output: str) -> dict[str, str]:
    """The state of each host in Ansible's recap: changed, failed, ok, unreachable, or more than one of these."""
    lines = output.rpartition("PLAY RECAP")[2].splitlines()[1:]
    counts = {line.split()[0]: dict(re.findall(r"(\w+)=(\d+)", line)) for line in lines if " : ok=" in line}
    words = ("unreachable", "failed", "changed")
    return {host: "+".join(word for word in words if own[word] != "0") or "ok" for host, own in counts.items()}


class Plays:
    """ansible-playbook in a directory of its own."""

    def __init__(self, tmp_path: Path) -> None:
        self.tmp_path = tmp_path
        put_ssh(tmp_path, SSH)
        collection = tmp_path / "collections" / "ansible_collections" / "gb10" / "fleet"
        (collection / "plugins" / "module_utils" / "engine").mkdir(parents=True)
        for source in (ROOT, ROOT / "plugins", ROOT / "plugins" / "module_utils", ROOT / "plugins/module_utils/engine"):
            for path in source.iterdir():
                target = collection / path.relative_to(ROOT)
                if not path.name.startswith((".", "__", "collections", "remote.py")) and not target.exists():
                    target.symlink_to(path)
        (collection / "plugins" / "module_utils" / "engine" / "remote.py").write_text(ENGINE)
        self.host("ok")

    def host(self, kind: str, *, facts: dict[str, Any] | None = None, **says: Any) -> None:
        """What the host at the address kind-<kind> is (`facts` replaces some), and what the engine says of it."""
        folder = self.tmp_path / "hosts" / kind
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "requests").unlink(missing_ok=True)
        (folder / "host.json").write_text(json.dumps({"facts": {**FACTS, **(facts or {})}, **says}))

    def known(self, hosts: Mapping[str, Mapping[str, Any]]) -> None:
        """The facts that these hosts say now are those that a run before remembers: a play less."""
        for name, variables in hosts.items():
            address = variables["ansible_host"]
            folder = self.tmp_path / "hosts" / address.removeprefix("kind-")
            if folder.is_dir():  # one that answers
                facts = json.loads((folder / "host.json").read_text())["facts"]
                with mock.patch.dict(os.environ, {"XDG_CACHE_HOME": str(self.tmp_path / "cache")}):
                    last_facts.write(name, address, facts)

    def requests(self, kind: str = "ok") -> list[dict[str, Any]]:
        """What the host was asked since it was last described."""
        path = self.tmp_path / "hosts" / kind / "requests"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def play(self, hosts: dict[str, dict[str, Any]], play: Any, *args: str, **variables: Any) -> tuple[int, str]:
        """Exit code and output of a playbook, given as text or data."""
        served = {"vllm_model": "m", "vllm_image": f"i@sha256:{'0' * 64}"}
        text = play if isinstance(play, str) else yaml.safe_dump(play)
        return run_playbook(
            self.tmp_path, hosts, text, *args, collections=self.tmp_path / "collections", **{**served, **variables}
        )


FACTS: dict[str, Any] = {**facts(), "cdi": ["/var/run/cdi/nvidia.yaml"]}
