"""Whether what our own modules answer is of the type that the controller judges it by."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import schema
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import advice, answers


def misfit(module: str, answer: Mapping[str, Any]) -> str | None:
    """Return what the controller would say against it, as it arrives there: as JSON. Each way out is ours."""
    arrived = json.loads(json.dumps(answer))
    assert advice.ours("h", arrived) == arrived
    return schema.problem(arrived, answers.BY_MODULE[module], "answer")
