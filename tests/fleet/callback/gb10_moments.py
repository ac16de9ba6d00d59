"""Writes down when each play of a wave begins, for the campaign that kills it.

A line is `[run and attempt, process, step, seconds]`. Only where GB10_TEST_MOMENTS names a file.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: gb10_moments
type: notification
short_description: Writes down when each play of a wave begins
description: For tests.
author: gb10-fleet contributors
"""
_WORK = ("doctor", "refuse")


class CallbackModule(CallbackBase):
    """One line for each play."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "gb10_moments"

    def v2_playbook_on_play_start(self, play: Any) -> None:
        name, file = play.get_name().strip(), os.environ.get("GB10_TEST_MOMENTS")
        if file is None or name.startswith("Hosts:"):
            return
        step = play.vars.get("__gb10_step") or ("proof" if name.startswith("Validate") else "work")
        line = [os.environ["GB10_ROLLOUT"], os.getpid(), "work" if step in _WORK else step, time.time()]
        with Path(file).open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(line) + "\n")
