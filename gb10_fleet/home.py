"""The places of a fleet that `gb10 up` set up: its inventory, which every command takes where nobody names one."""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.system.folders import is_public, planted_above
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import document_in

# What ssh would give to a host by the operator's own configuration: who is root there uses it on all others.
NOT_GIVEN = {
    **dict.fromkeys(("ForwardAgent", "ForwardX11", "GSSAPIDelegateCredentials", "PermitLocalCommand", "Tunnel"), "no"),
    "ClearAllForwardings": "yes",
}
KNOWN_HOSTS = "known_hosts.txt"  # Ansible reads no .txt in the folder of an inventory
_NAME = "gb10-fleet"


def inventory() -> Path:
    """A folder: hosts.yml, the host keys beside it, and nothing else."""
    return _base("XDG_CONFIG_HOME", ".config") / "inventory"


def is_there(name: str) -> bool:
    """Tell whether an inventory is a file or a folder: a list of many hosts is longer than any name of one may be."""
    try:
        return Path(name).exists()
    except OSError:
        return False


def folder_of(inventory: str) -> Path:
    """The folder that it is, or lies in: what belongs to a fleet is beside its inventory."""
    path = Path(inventory)
    return path if path.is_dir() else path.parent


def resolved(inventories: Iterable[str]) -> list[str]:
    """The inventories of an order, from wherever it is looked at later."""
    return [str(Path(name).resolve()) if is_there(name) else name for name in inventories]


def known_hosts_option(file: Path) -> str:
    """As the words of an option of ssh, which would take a blank for the end of a name and a % for a token."""
    text = str(file)
    if re.search(r'[\s"\'\\]', text):
        text = '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'
    return "UserKnownHostsFile=" + text.replace("%", "%%")


def host_keys(inventories: Iterable[str]) -> Path | None:
    """Return the file of host keys that lies beside one of these inventories."""
    folders = map(folder_of, filter(is_there, inventories))
    return next((file.resolve() for folder in folders if (file := folder / KNOWN_HOSTS).is_file()), None)


def document_here(file: Path) -> dict[str, Any]:
    """A document that is looked for by its name in the current folder, where any login may have put one."""
    return {} if planted_above(file) else document_in(file)


def evidence() -> Path:
    """Where the proofs of that inventory go."""
    return _base("XDG_STATE_HOME", ".local/state") / "evidence"


def _base(variable: str, usual: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / usual) / _NAME


def default() -> list[str]:
    """Return what a command without -i works on: the project's own inventory, else ours; empty where neither is."""
    if named := _of_the_project():
        return [named]
    return [str(inventory())] if (inventory() / "hosts.yml").is_file() else []


def ssh_extra_args() -> str:
    """Return those of the operator, and then what we add: of two that say one thing ssh takes the first."""
    ours = [f"-o {name}={value}" for name, value in NOT_GIVEN.items()]
    usual = [Path("~/.ansible.cfg").expanduser(), Path("/etc/ansible/ansible.cfg")]
    file = next((file for file in (_project_file(), *usual) if file and file.is_file()), None)
    theirs = os.environ.get("ANSIBLE_SSH_EXTRA_ARGS") or _setting(file, "ssh_connection", "ssh_extra_args")
    return " ".join([*([theirs] if theirs else []), *ours])


def _project_file() -> Path | None:
    """As Ansible: what the environment names, else the one here, where not any login may have put it."""
    said = os.environ.get("ANSIBLE_CONFIG")
    if not said:
        return None if is_public(Path()) else Path("ansible.cfg")
    return Path(said, "ansible.cfg") if Path(said).is_dir() else Path(said)


def _setting(file: Path | None, section: str, name: str) -> str:
    settings = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        settings.read([file] if file else [], encoding="utf-8")
    except (OSError, configparser.Error, UnicodeDecodeError):
        return ""
    return settings.get(section, name, fallback="")


def _of_the_project() -> str | None:
    """As Ansible would find it: the environment, then ansible.cfg of the current folder. It may be a program."""
    if named := os.environ.get("ANSIBLE_INVENTORY"):
        return named
    if not (file := _project_file()):
        return None
    named = _setting(file, "defaults", "inventory")
    return str(file.parent / Path(named).expanduser()) if named and "," not in named else named or None
