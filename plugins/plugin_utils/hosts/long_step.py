# SPDX-License-Identifier: GPL-3.0-or-later
"""A step of a module that takes minutes or hours on its host: begun in the background, asked until it ends."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.utils.display import Display
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import printable
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.own_action import OwnAction

POLL_S = (1.0, 2.0, 3.0, 5.0)  # the last one from then on
TELL_S = 10.0
MARGIN_S = 60.0  # the host ends it after its time; one that does not say so is not waited for
PATIENCE = 12  # questions without an answer, one after the other, before a host counts as unreachable

Said = dict[str, Any]


class LongStepAction(OwnAction):
    """An action whose modules may take long."""

    _name: str  # of the host
    _vars: dict[str, Any]

    def _module(self, name: str, arguments: Mapping[str, Any], *, background: bool = False) -> Said:
        """What a module says."""
        return self._execute_module(
            module_name=name, module_args={**arguments}, task_vars=self._vars, wrap_async=background
        )

    def _in_background(
        self, name: str, arguments: Mapping[str, Any], limit_s: int, doing: Callable[[], str | None]
    ) -> Said:
        """What a module says at its end. An SSH session that breaks does not end it, and there is something to say."""
        self._task.async_val = limit_s
        try:
            job = self._module(name, arguments, background=True)
        finally:
            self._task.async_val = 0
        if "ansible_job_id" not in job:
            return job
        folder = posixpath.dirname(str(job.get("results_file", "")))
        status = {"jid": str(job["ansible_job_id"]), "_async_dir": folder}
        until = time.monotonic() + limit_s + MARGIN_S

        def ended(said: Said) -> object:
            return said.get("finished") or said.get("failed") or time.monotonic() > until

        said = self._until(lambda: self._status(status, "status"), ended, lambda __: doing())
        if not (said.get("finished") or said.get("failed")):
            return {"failed": True, "msg": f"{self._name}: it did not end within {limit_s} s"}
        self._status(status, "cleanup")
        return said

    def _status(self, job: Mapping[str, Any], mode: str) -> Said:
        return self._module("ansible.legacy.async_status", {**job, "mode": mode})

    def _until(
        self, ask: Callable[[], Said], ended: Callable[[Said], object], doing: Callable[[Said], str | None]
    ) -> Said:
        """The answer that ends it; until then says now and then what is done. A host may be away for some questions."""
        pauses, told, silent = list(POLL_S), time.monotonic(), 0
        while True:
            time.sleep(pauses.pop(0) if len(pauses) > 1 else pauses[0])
            try:
                said = ask()
            except AnsibleConnectionFailure:
                silent += 1
                if silent == PATIENCE:
                    raise
                continue
            silent = 0
            if ended(said):
                return said
            if time.monotonic() - told >= TELL_S and (text := doing(said)):
                self._tell(text)
                told = time.monotonic()

    def _tell(self, text: str) -> None:
        """On standard error: standard output belongs to what the run answers."""
        Display().display(printable(text), stderr=True)
