"""What happens in a run, for the `gb10` that started it: a line of JSON each, into the pipe that GB10_EVENTS names.

The events have the names and fields of ansible-runner's own, as far as gb10 reads them. That one writes two files
for each task of each host, in Ansible's main process: an eighth of its time at 60 hosts that answer at once (profile of
2026-11-21, the update of benchmarks/rollout.py).
Loaded only from this folder, which is on the path of the runs that `gb10` starts.
"""

from __future__ import annotations

import json
import os
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: gb10_events
type: notification
short_description: Tells gb10 what happens in its run
description: Writes a line of JSON for each event into the pipe that the environment variable GB10_EVENTS names.
author: gb10-fleet contributors
"""

# Actions whose good results are read, as are those of a task with a step. Of others it is enough to know that there
# was one.
_STEP = "__gb10_step"  # the variable of a play or task of ours by which gb10 knows it
_HEARD = ("gb10.fleet.", "ansible.builtin.assert")


def _early(result: Any) -> bool:
    """Whether a variable of the connection ended the task. What a module says stands a link further down the chain."""
    error = getattr(result, "exception", None)
    return bool(error and error.event.chain and error.event.chain.event.msg.startswith("Error processing keyword"))


class CallbackModule(CallbackBase):
    """One line for each event; without a reader, none: the run goes on."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "gb10_events"

    def __init__(self) -> None:
        super().__init__()
        self._play, self._step = "", None
        self._of: Any = None  # the play
        self._pipe: int | None = None
        try:
            # Not blocking: a pipe that nobody reads is an error now, and no run that waits for ever.
            self._pipe = os.open(os.environ.get("GB10_EVENTS", ""), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.set_blocking(self._pipe, True)
        except OSError:
            self.disabled = True

    def _send(self, event: str, **data: Any) -> None:
        if self._pipe is None:
            return
        # Of bytes that are no UTF-8, in a banner of ssh, Ansible makes characters that no file and no database takes.
        text = json.dumps({"event": event, "event_data": data}, default=str, ensure_ascii=False)
        line = memoryview(text.encode(errors="replace") + b"\n")
        try:
            while line:
                line = line[os.write(self._pipe, line) :]
        except OSError:  # gb10 is gone
            self._pipe = None

    def _send_result(self, event: str, result: Any, heard: bool = True, **more: Any) -> None:
        task = result.task
        action = getattr(task, "resolved_action", None) or task.action
        self._send(
            event,
            play=self._play,
            task=task.name or task.action,
            step=task.vars.get(_STEP, self._step),
            resolved_action=action,
            host=result.host.get_name(),
            **({"res": result.result} if heard or _STEP in task.vars or action.startswith(_HEARD) else {}),
            **more,
        )

    def v2_playbook_on_play_start(self, play: Any) -> None:
        self._of, self._play, self._step = play, play.get_name().strip(), play.vars.get(_STEP)

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        self._send("playbook_on_task_start", play=self._play, task=task.name or task.action)

    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        self.v2_playbook_on_task_start(task, False)

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        self._send("runner_on_start", host=host.get_name())

    def v2_runner_on_ok(self, result: Any) -> None:
        self._send_result("runner_on_ok", result, heard=False)

    def v2_runner_on_skipped(self, result: Any) -> None:
        self._send_result("runner_on_skipped", result, heard=False)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        once = result.task.run_once is True
        self._send_result(
            "runner_on_failed", result, ignore_errors=ignore_errors, run_once=once, before_any_host=_early(result)
        )

    def v2_runner_item_on_failed(self, result: Any) -> None:
        self._send_result("runner_item_on_failed", result, ignore_errors=bool(result.task.ignore_errors))

    def v2_runner_on_unreachable(self, result: Any) -> None:
        # It may be another host that a task asks about this one, and does not need: this one has answered.
        another = bool(result.task.delegate_to and result.task.ignore_unreachable)
        self._send_result("runner_on_unreachable", result, ignore_errors=another, **self._around(result.host))

    def _around(self, host: Any) -> dict[str, Any]:
        """Return what a --limit names to leave the host out together with its cluster, and who else there is.

        A host without one is its own.
        """
        variables = self._of.get_variable_manager().get_vars(play=self._of, host=host)
        named = str(variables.get("gb10_cluster") or "")
        cluster = host.get_name() if not named or "{{" in named else named
        members = variables.get("groups", {}).get(cluster, [host.get_name()])
        others = any(name not in members for name in variables.get("ansible_play_hosts_all", ()))
        return {"cluster": cluster, "size": len(members), "others": others}

    def v2_playbook_on_stats(self, stats: Any) -> None:
        words = ("ok", "changed", "dark", "failures", "skipped", "rescued", "ignored")
        self._send("playbook_on_stats", **{word: dict(getattr(stats, word)) for word in words})
