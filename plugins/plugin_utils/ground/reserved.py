# SPDX-License-Identifier: GPL-3.0-or-later
"""Read `gb10_reserved`: who has a host for himself, and until when. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

VARIABLE = "gb10_reserved"
_FORM = re.compile(r"(?P<who>\S.*?)\s+until\s+(?P<until>\d{4}-\d\d-\d\d(T\d\d:\d\d)?)")


class WrongReservation(ValueError):
    """Says what is wrong with it, and how it is written."""


def now_for(said: object, now: datetime) -> str:
    """Return `WHO until WHEN` while it holds; empty where nobody has reserved the host, or where the time is over.

    A day counts until its end, by UTC.
    """
    if not said:
        return ""
    found = _FORM.fullmatch(str(said).strip())
    try:
        moment = datetime.fromisoformat(found["until"]).replace(tzinfo=UTC) if found else None
    except ValueError:
        moment = None
    if not found or not moment:
        raise WrongReservation(
            f"{VARIABLE} is {said!r}; write WHO until DAY, as in: ada until 2026-12-24 (or 2026-12-24T18:00, UTC)"
        )
    since = now if "T" in found["until"] else now - timedelta(days=1)
    return f"{found['who']} until {found['until']}" if since < moment else ""
