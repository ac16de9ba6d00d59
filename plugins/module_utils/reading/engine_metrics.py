# SPDX-License-Identifier: GPL-3.0-or-later
"""The metrics of a server under the names that vLLM has for them: rules, dashboards and detectors know these.

What a server calls them its unit's settings say. A series that vLLM has no name for stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple


class Naming(NamedTuple):
    """Where a server says its metrics, and of its names those that vLLM has others for. All begin with `prefix`."""

    path: str = "/metrics"
    prefix: str = "vllm:"
    names: Mapping[str, str] = {}
    without: str = ""  # a pattern: series behind the prefix that mean another thing than vLLM's of that name
    key_variable: str = ""  # where nobody is shown them without the key of the service: its name in the environment


VLLM = Naming()


def in_names_of_vllm(text: str, naming: Naming) -> str:
    """Return the same text with the series of this server renamed."""
    if not naming.names:
        return text
    prefix = re.escape(naming.prefix)
    if naming.without:
        text = re.sub(rf"^{prefix}(?:{naming.without})[^\n]*\n?", "", text, flags=re.MULTILINE)

    def renamed(found: re.Match[str]) -> str:
        stem, part = found[1], found[2] or ""
        whole, family = naming.names.get(stem + part), naming.names.get(stem)
        if whole is None and family is None:
            return found[0]
        return f"vllm:{whole or f'{family}{part}'}"

    return re.sub(rf"^{prefix}(\w+?)(_bucket|_sum|_count)?(?=[{{ ])", renamed, text, flags=re.MULTILINE)
