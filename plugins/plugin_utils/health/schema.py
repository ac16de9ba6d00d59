# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a reading of gb10.fleet.health_facts looks like; `problem` compares an answer with these types on arrival."""

from __future__ import annotations

from ansible_collections.gb10.fleet.plugins.module_utils.reading.types import Reading
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import facts_schema


def problem(reading: object) -> str | None:
    """The first value that is missing or of another type than it must be, in words; None where all are sound."""
    wrong = facts_schema.differs(reading, Reading, "health")
    if wrong is None and not reading["samples"]:  # type: ignore[index]
        return "health.samples is empty"
    return wrong
