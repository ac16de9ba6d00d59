# SPDX-License-Identifier: GPL-3.0-or-later
"""How an action plugin hands an event to the hook of its host's variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents import render as documents
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import notify, run


def value(action: ActionBase, variables: Mapping[str, Any]) -> Any:
    return documents.plain(action._templar.template(variables.get(notify.VARIABLE)))


def tell(action: ActionBase, variables: Mapping[str, Any], told: dict[str, Any]) -> list[str]:
    """Tell of what a task found out. Returns warnings."""
    if action._task.check_mode or run.ROLLOUT in os.environ:  # a rollout tells of itself, once
        return []
    try:
        target = value(action, variables)
    except AnsibleError:  # its text may quote the value
        return [f"{notify.VARIABLE} cannot be evaluated, so nobody was told; {notify.TRY}"]
    fault = None if target is None else notify.send(target, told)
    return [fault] if fault else []
