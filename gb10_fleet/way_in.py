"""The way from this machine to a host of the inventory: the words of ssh, with the options that Ansible would take."""

from __future__ import annotations

import shlex
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gb10_fleet import passwords
from gb10_fleet.rollout import words as words_of_ansible


class NoWay(Exception):
    """The inventory does not say how to get there; the text names the host and why."""


@dataclass(frozen=True)
class WayIn:
    """`ssh`: the command without the remote part; empty where the host is this machine. `variables`: the host's."""

    host: str
    ssh: tuple[str, ...]
    variables: dict[str, Any]

    def command(self, *remote: str) -> list[str]:
        """Return what runs these words on the host."""
        return [*self.ssh, shlex.join(remote)] if self.ssh else [*remote]

    def there(self, path: str) -> bool:
        """Tell whether a file is on the host."""
        argv = self.command("test", "-e", path)
        return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0

    def connect(self, address: str, port: int) -> socket.socket:
        """Return a connection that begins on the host. No port is opened on this machine for it."""
        if not self.ssh:
            return socket.create_connection((address, port))
        ours, theirs = socket.socketpair()
        with theirs:
            where = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
            argv = [self.ssh[0], "-W", where, *self.ssh[1:]]
            subprocess.Popen(argv, stdin=theirs.fileno(), stdout=theirs.fileno())
        return ours


def to(host: str, inventories: Sequence[str], said: Sequence[str]) -> WayIn:
    """Return the way to a host. `said`: the words for ansible-playbook, among them where a vault's password is."""
    from ansible import constants as C
    from ansible.errors import AnsibleError
    from ansible.inventory.manager import InventoryManager
    from ansible.plugins.loader import connection_loader
    from ansible.template import Templar
    from ansible.vars.manager import VariableManager

    try:
        loader = _loader(tuple(said))
        inventory = InventoryManager(loader, sources=[*inventories])
        found = inventory.get_host(host)
        if found is None:
            raise NoWay(f"{host} is not in the inventory")
        variables = VariableManager(loader, inventory).get_vars(host=found)
        templar = Templar(loader, variables=variables)
        known = {name: templar.template(value) for name, value in variables.items() if name.startswith(_OURS)}
        if known.get("ansible_connection") == "local":
            return WayIn(host, (), known)
        connection_loader.get("ssh", class_only=True)  # its options are known from then on

        def option(name: str) -> Any:
            return C.config.get_config_value(name, plugin_type="connection", plugin_name="ssh", variables=known)

        argv = [str(option("ssh_executable"))]
        for name in ("ssh_args", "ssh_common_args", "ssh_extra_args"):
            argv += shlex.split(str(option(name) or ""))
        for name, letter in (("port", "-p"), ("remote_user", "-l"), ("private_key_file", "-i")):
            argv += [letter, str(option(name))] if option(name) else []
        return WayIn(host, (*argv, "--", str(known.get("ansible_host") or host)), known)
    except AnsibleError as error:
        raise NoWay(f"{host}: {error}") from None


_OURS = ("ansible_", "vllm_", "gateway_")


@cache
def _loader(said: tuple[str, ...]) -> Any:
    """Return what reads the inventory, with the vaults open. Ansible takes their passwords once in a process."""
    from ansible import constants as C
    from ansible.cli import CLI
    from ansible.parsing.dataloader import DataLoader
    from ansible.plugins.loader import init_plugin_loader

    init_plugin_loader()
    loader = DataLoader()
    options = words_of_ansible.read(said)
    files = [*(options.vault_password_files or ()), *(options.vault_ids or ())]
    with tempfile.TemporaryDirectory(prefix="gb10-") as private:
        if typed := passwords.typed.get(passwords.VAULT):
            file = Path(private, "vault")
            file.touch(mode=0o600)
            file.write_text(f"{typed}\n", encoding="utf-8")
            files.append(str(file))
        ids = [*C.config.get_config_value("DEFAULT_VAULT_IDENTITY_LIST")]
        secrets = CLI.setup_vault_secrets(loader, vault_ids=ids, vault_password_files=files, auto_prompt=False)
    loader.set_vault_secrets(secrets)
    return loader
