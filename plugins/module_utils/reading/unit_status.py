# SPDX-License-Identifier: GPL-3.0-or-later
"""The status.json of a unit: how far it has come, and its last failure. programs/vllm_unit/status.py writes it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.reading.unit_names import SHORT, status_of
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import Part, Unknown, checked, quoted

if TYPE_CHECKING:  # a host may have Python 3.9
    from typing import NotRequired

READY = "ready"  # the last phase
_MOST_FAILURES = 10**6  # what is above is no count


class UnitStatus(TypedDict):
    phase: str
    since: str | None
    failures: int
    verdict: str | None
    text: str | None
    at: str | None
    remark: NotRequired[str | None]  # a verdict: what is not as it should be, though it runs
    remark_text: NotRequired[str | None]


def parse_status(text: str, path: str = status_of(SHORT)) -> Part:
    """Return the phase of the unit, and its last failure; Unknown where one of them is not what the unit writes."""
    try:
        said: Any = json.loads(checked(text, path))
        failure, remark = said.get("failure") or None, said.get("remark") or None
        values = {
            "phase": quoted(said["phase"]),
            "since": quoted(said.get("since") or "") or None,
            "failures": _failures(said.get("failures") or 0),
            "verdict": quoted(failure["verdict"]) if failure else None,
            "text": quoted(failure.get("text") or "") or None if failure else None,
            "at": quoted(failure.get("at") or "") or None if failure else None,
            "remark": quoted(remark["verdict"]) if remark else None,
            "remark_text": quoted(remark["text"]) if remark else None,
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise (error if isinstance(error, Unknown) else Unknown(f"{path} is not what the unit writes")) from None
    return values, {}


def _failures(said: object) -> int:
    if isinstance(said, bool) or not isinstance(said, (int, float)) or not 0 <= said <= _MOST_FAILURES:
        raise ValueError("no number of failures")
    return int(said)
