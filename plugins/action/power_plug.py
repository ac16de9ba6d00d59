# SPDX-License-Identifier: GPL-3.0-or-later
"""Front of plugin_utils/power: asks the plug of a host, switches it, and waits until the host behind it has halted.

The plug is taken from the variables of the host, never from the arguments of the task: it may hold a secret.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import printable
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import bounds
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.own_action import OwnAction
from ansible_collections.gb10.fleet.plugins.plugin_utils.power import plug as plugs
from ansible_collections.gb10.fleet.plugins.plugin_utils.power import setting as settings

POLL_S = 2.0


class ActionModule(OwnAction):
    """One of four verbs, on the plug of this host."""

    def _act(self, task_vars: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        host = str(task_vars["inventory_hostname"])
        try:
            setting = settings.parse(self._templar.template(task_vars.get(settings.VARIABLE)))
            if setting is None:
                raise AnsibleActionFail(f"{host} has no {settings.VARIABLE}; docs/power.md says how it is written")
            return self._done(host, setting, options)
        except (settings.WrongPlug, plugs.PlugError) as error:
            return {"failed": True, "msg": printable(f"{host}: {error}")}

    def _done(self, host: str, setting: settings.Setting, options: dict[str, Any]) -> dict[str, Any]:
        one, verb, changed = plugs.plug(setting), options["verb"], False
        if verb == "halted":
            self._await_halt(host, one, options["sharing"])
        elif verb != "read":
            wanted = verb == "restore"
            changed = one.state() is not wanted if self._task.check_mode else plugs.turn(one, setting, on=wanted)
        return {"changed": changed, "on": one.state(), "watts": one.watts()}

    def _await_halt(self, host: str, one: plugs.Plug, sharing: int) -> None:
        """Wait until the host is silent and takes no power; where the plug has no meter, until it is silent long."""
        known = {name: catalog.load("plugs")[name]["value"] for name in ("halt_s", "silent_s", "halted_w")}
        begun = time.monotonic()
        silent_since: float | None = None
        while True:
            silent = not self._answers(host)
            now = time.monotonic()
            silent_since = (silent_since or now) if silent else None
            watts = one.watts() if silent else None
            if silent_since and watts is not None and watts < known["halted_w"] * sharing:
                return
            if silent_since and watts is None and now - silent_since >= known["silent_s"]:
                return
            if now - begun >= known["halt_s"]:
                state = "still answers" if not silent else f"gives no answer, and its plug says {watts:.0f} W"
                raise plugs.PlugError(
                    f"it {state} {int(now - begun)} s after the order to halt, so its power stays on; look at its "
                    "console, then run the same again, or with --hard, which cuts the power as it is"
                )
            time.sleep(POLL_S)

    def _answers(self, host: str) -> bool:
        """Over a new connection: that of before would only be waited for."""
        with contextlib.suppress(AnsibleError):
            self._connection.reset()
        try:
            with bounds.named(host):
                return bool(self._low_level_execute_command("true", sudoable=False)["rc"] == 0)
        except AnsibleActionFail:  # of bounds: whoever says too much is there
            return True
        except AnsibleError:
            return False
