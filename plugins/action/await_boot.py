# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits until a host has booted anew, and says every minute how it stands.

Every question comes over a new connection: an SSH master of the old boot would only be waited for.
"""

from __future__ import annotations

import contextlib
import re
import time
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.utils.display import Display
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import bounds
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.own_action import OwnAction

POLL_S = 5.0
TELL_S = 60.0
_BOOT_ID = re.compile(r"^([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\s*\Z", re.MULTILINE)


class ActionModule(OwnAction):
    """Wait for a boot id that is not the given one."""

    def _act(self, task_vars: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        host, limit = task_vars.get("inventory_hostname"), options["timeout"]
        before = _boot_id_in(options["boot_id"])
        if before is None:
            raise AnsibleActionFail(f"boot_id: expected a boot id, found {options['boot_id']!r}")
        begun = told = time.monotonic()
        while True:
            boot_id = self._boot_id(str(host))
            now = time.monotonic()
            elapsed = int(now - begun)
            if boot_id not in (None, before):
                known = {"boot_id": boot_id, "elapsed": elapsed, "answered_s": time.time()}
                return {"changed": False, **known}
            state = "does not answer" if boot_id is None else "still runs as before"
            if elapsed >= limit:
                msg = f"{host} {state}, {elapsed} s after it was told to reboot"
                return {"failed": True, "msg": msg, "boot_id": boot_id, "elapsed": elapsed}
            if now - told >= TELL_S:
                told = now
                Display().display(f"{host}: {state} ({elapsed} of {limit} s)", stderr=True)
            time.sleep(POLL_S)

    def _boot_id(self, host: str) -> str | None:
        """None while the host does not answer. One that sends without end will not stop because of a wait."""
        with contextlib.suppress(AnsibleError):
            self._connection.reset()
        try:
            with bounds.named(host):
                done = self._low_level_execute_command("cat /proc/sys/kernel/random/boot_id", sudoable=False)
        except AnsibleActionFail:  # of bounds
            raise
        except AnsibleError:
            return None
        return _boot_id_in(str(done["stdout"])) if done["rc"] == 0 else None


def _boot_id_in(said: str) -> str | None:
    """The last line. A host may greet whoever comes, and that is no boot id."""
    found = _BOOT_ID.search(said)
    return found[1] if found else None
