# SPDX-License-Identifier: GPL-3.0-or-later
"""Front of health/carried.py, hosts/scan.py and hosts/stream.py: one task looks at all hosts of the play."""

from __future__ import annotations

import contextlib
import json
import os
import select
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import from_failure
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import reserved
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import printable
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.run import before_forks
from ansible_collections.gb10.fleet.plugins.plugin_utils.health import carried, looks
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import advice, scan, stream, target, transport
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.own_action import OwnAction
from ansible_collections.gb10.fleet.plugins.plugin_utils.power import setting as power_plug
from ansible_collections.gb10.fleet.plugins.plugin_utils.power.wall import Wall

AGAIN_S = 5.0  # until a host whose connection ended is asked again


class ActionModule(OwnAction):
    """Look at all hosts: once, or for as long as the reader of a pipe is there."""

    BYPASS_HOST_LOOP = True

    def _act(self, task_vars: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        for name in ("every_s", "concurrency", "timeout_s"):
            if not options[name] > 0:
                raise AnsibleActionFail(f"{name}: expected more than 0, found {options[name]}")
        target.refuse_inventory(task_vars)
        names: list[str] = list(task_vars["ansible_play_hosts_all"])
        if options["pipe"]:
            return {"changed": False, **self._follow(names, task_vars, options)}
        return {"changed": False, "hosts": self._once(names, task_vars, options)}

    def _once(self, names: list[str], task_vars: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        """What each host said: its looks, or the reason of its silence. The first are asked while ways are made."""
        routes, message = scan.Routes(self), carried.Message(services=options["services"])
        found: dict[str, Any] = {}
        clusters: dict[str, str] = {}

        def ways() -> Iterator[scan.Way]:
            for name in names:
                variables = task_vars["hostvars"].raw_get(name)
                try:
                    clusters[name] = str(routes.value(variables, "gb10_cluster") or name)
                    yield routes.way(name, variables, transport.command_of(routes, variables), message)
                except AnsibleError as error:
                    found[name] = {"looks": [], "silent": printable(str(error))}
                    if options["services"]:
                        found[name] = {"services": None, "error": printable(str(error)), "silent": None}

        limits = {"concurrency": options["concurrency"], "timeout_s": options["timeout_s"]}
        for reply in scan.ask(ways(), progress=lambda done, total: None, **limits):
            if options["services"]:
                found[reply.host] = _services(reply, clusters, options["timeout_s"])
            else:
                found[reply.host] = advice.plain(looks.of_reply(reply, options["timeout_s"]))
        wall = self._wall(routes, names, task_vars)
        if not options["services"]:
            wall.look()
        return {name: {**found[name], **self._reserved(routes, name, task_vars), **wall.of(name)} for name in names}

    def _wall(self, routes: scan.Routes, names: list[str], task_vars: dict[str, Any]) -> Wall:
        """The plugs of the inventory. The doctor says what is wrong with one."""
        plugs = {}
        for name in names:
            with contextlib.suppress(AnsibleError, power_plug.WrongPlug):
                said = routes.value(task_vars["hostvars"].raw_get(name), power_plug.VARIABLE)
                if setting := power_plug.parse(said):
                    plugs[name] = setting
        return Wall(plugs)

    def _reserved(self, routes: scan.Routes, name: str, task_vars: dict[str, Any]) -> dict[str, str]:
        """`reserved`, where somebody has the host for himself."""
        try:
            said = reserved.now_for(
                routes.value(task_vars["hostvars"].raw_get(name), reserved.VARIABLE), datetime.now(UTC)
            )
        except (AnsibleError, reserved.WrongReservation) as error:
            said = str(error)
        return {"reserved": printable(said)} if said else {}

    def _follow(self, names: list[str], task_vars: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        """Write what each host says into the pipe, and ask a host that is gone again; until its reader closes it."""
        routes, message = scan.Routes(self), carried.Message(options["every_s"])
        targets = []
        with Path(options["pipe"]).open("wb", buffering=0) as pipe:
            more = {name: self._reserved(routes, name, task_vars) for name in names}
            wall = self._wall(routes, names, task_vars)
            wall.follow()
            listener = _Listener(pipe.fileno(), options["every_s"] / 2, more, wall)
            for name in names:
                variables = task_vars["hostvars"].raw_get(name)
                try:
                    targets.append(routes.talk(name, variables, transport.command_of(routes, variables), message))
                except AnsibleError as error:
                    listener.gone(name, str(error))
            stream.Talks(targets, listener.line, listener.gone, AGAIN_S).listen(listener.there)
        return {}


def _services(reply: scan.Reply, clusters: Mapping[str, str], timeout_s: float) -> dict[str, Any]:
    """`services`; else the error of a host that answered, or the finding of one that did not."""
    said = {"services": None, "error": None, "silent": None, **advice.plain(looks.services_of(reply))}
    if said["services"] is not None or said["error"]:
        return said
    mine = clusters[reply.host]
    size = sum(cluster == mine for cluster in clusters.values())
    text = f"no answer within {timeout_s:g} s" if reply.status is None else f"{reply.stdout}\n{reply.stderr}"
    answered = reply.status not in (None, scan.SSH_FAILED)
    finding = from_failure(reply.host, printable(" ".join(text.split())), answered, mine, size, size < len(clusters))
    return {**said, "silent": finding.as_dict()}


class _Listener:
    """Who reads the pipe. Of each host it gets a look each `least_s` at most, by the controller's clock."""

    def __init__(self, pipe: int, least_s: float, more: Mapping[str, Mapping[str, str]], wall: Wall) -> None:
        """`more`: by host, what the inventory says of it."""
        self._more, self._wall = more, wall
        self._pipe, self._open, self._least_s = pipe, True, least_s
        self._told_s: dict[str, float] = {}
        self._poll = select.poll()
        self._poll.register(pipe, 0)  # an error alone: the reader has closed it

    def there(self) -> bool:
        self._open = self._open and not self._poll.poll(0)
        return self._open

    def tell(self, said: dict[str, Any]) -> bool:
        text = memoryview(json.dumps(said).encode() + b"\n")
        try:
            while self._open and text:
                text = text[os.write(self._pipe, text) :]
        except OSError:
            self._open = False
        return self._open

    def line(self, host: str, line: str) -> bool:
        now_s = time.monotonic()
        if now_s - self._told_s.get(host, -self._least_s) < self._least_s:
            return self._open
        look = advice.plain(looks.of_line(line))
        if look:
            self._told_s[host] = now_s
        more = {**self._more.get(host, {}), **self._wall.of(host)}
        return self.tell({"host": host, **look, **more}) if look else self._open

    def gone(self, host: str, why: str) -> bool:
        return self.tell({"host": host, "silent": printable(why), **self._more.get(host, {}), **self._wall.of(host)})


before_forks()
