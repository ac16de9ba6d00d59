# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes down how ssh reaches a host: hosts/scan.py has Ansible's own plugins build the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

from ansible.errors import AnsibleError
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import printable
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import scan
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.own_action import OwnAction


class _Nothing:
    """Ask the host nothing."""

    def program(self) -> bytes:
        return b""

    def reply(self, line: str) -> bytes | None:
        return None


class ActionModule(OwnAction):
    """Write the command line of one host."""

    conditions: ClassVar = {
        "required_one_of": [["command", "forward"]],
        "mutually_exclusive": [["command", "forward"]],
    }

    def _act(self, task_vars: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        name = task_vars["inventory_hostname"]
        said: dict[str, Any] = {"key": options["key"]}
        try:
            variables, routes = task_vars["hostvars"].raw_get(name), scan.Routes(self)
            said["copy"] = routes.copies_key(variables)
            remote = options["command"] or options["look"] or "true"
            try:
                target = routes.target(name, variables, remote, _Nothing())
            except scan.NeedsPassword:  # of sudo, perhaps: nothing here needs root, or it asks sudo itself
                target = routes.target(name, {**variables, "ansible_become": False}, remote, _Nothing())
            said["command"] = _command(target.command, options["forward"])
            said["look"] = _command(target.command, None) if options["look"] else None
        except scan.NeedsPassword:
            said["problem"] = (
                "its password comes from the inventory or a file, and this command takes none from there. Fix: put"
                f" your key there: {said['copy']}, or take the password out and add -k"
            )
        except AnsibleError as error:
            said["problem"] = printable(str(error))
        file = Path(options["file"])
        file.touch(mode=0o600, exist_ok=False)
        file.write_text(json.dumps(said), encoding="utf-8")
        return {"changed": False}


def _command(words: tuple[str, ...], forward: str | None) -> list[str] | None:
    """Return the words to run here; None where the address is on this very machine.

    A connection of its own: a shared one would stay behind, and hold the pipes open.
    """
    ssh, *options = words
    if ssh == "/bin/sh":
        return None if forward else [*words]
    alone = [ssh, "-o", "ControlPath=none", "-o", "BatchMode=yes"]
    if not forward:
        return [*alone, *options]
    *options, host, _command = options
    return [*alone, *options, "-W", forward, host]
