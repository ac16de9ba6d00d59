"""Maintenance windows: when a wave may begin.

22:00-06:00                      every day, UTC; it ends on the next morning
Sat,Sun 00:00-24:00              the days on which it begins
Mon-Fri 22:00-04:00 Europe/Oslo  the wall clock of a place, summer time included
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_FORM = re.compile(
    r"((?P<days>[A-Z][a-z]{2}([,-][A-Z][a-z]{2})*) )?"
    r"(?P<begin>\d\d:\d\d)-(?P<end>\d\d:\d\d)( (?P<zone>[A-Za-z][\w+-]*(/[\w+-]+){0,2}))?"
)


@dataclass(frozen=True)
class Window:
    """`days` on which it begins, 0 is Monday; both times in minutes after midnight; the end may be after 24:00."""

    days: frozenset[int]
    begin: int
    end: int
    zone: ZoneInfo

    def spans(self, around: datetime) -> list[tuple[datetime, datetime]]:
        """The openings that may hold this moment or follow it, in order: those of yesterday and of two weeks more.

        Where clocks are set, a day may leave a whole opening out.
        """
        day = around.astimezone(self.zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
        dates = [day + timedelta(days=offset) for offset in range(-1, 15)]
        spans = [
            (self._at(date, self.begin), self._at(date, self.end)) for date in dates if date.weekday() in self.days
        ]
        return [(begin, end) for begin, end in spans if begin < end]

    def _at(self, date: datetime, minutes: int) -> datetime:
        return (date + timedelta(minutes=minutes)).replace(tzinfo=self.zone).astimezone(UTC)


def parse(text: str) -> Window:
    """Read one; ValueError says what it should look like."""
    found = _FORM.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r}: expected [DAYS] HH:MM-HH:MM [ZONE], as in Sat,Sun 22:00-06:00 Europe/Oslo")
    try:
        zone = ZoneInfo(found["zone"] or "UTC")
    except (ZoneInfoNotFoundError, OSError):
        raise ValueError(f"{text!r}: no time zone is called {found['zone']}") from None
    begin, end = _minutes(text, found["begin"]), _minutes(text, found["end"])
    return Window(_days(text, found["days"]), begin, end if end > begin else end + 24 * 60, zone)


def opening(windows: Sequence[str], now: datetime) -> datetime:
    """`now` where a window is open or none was said, else when the next one opens (UTC)."""
    spans = sorted(span for text in windows for span in parse(text).spans(now))
    return next((max(begin, now) for begin, end in spans if now < end), now)


def _minutes(text: str, clock: str) -> int:
    hours, minutes = map(int, clock.split(":"))
    if minutes > 59 or hours * 60 + minutes > 24 * 60:
        raise ValueError(f"{text!r}: {clock} is no time of a day")
    return hours * 60 + minutes


def _days(text: str, days: str | None) -> frozenset[int]:
    found: set[int] = set()
    for part in (days or "Mon-Sun").split(","):
        first, _, last = part.partition("-")
        if first not in _DAYS or (last or first) not in _DAYS:
            raise ValueError(f"{text!r}: {part} names no days; days are {', '.join(_DAYS)}")
        begin, end = _DAYS.index(first), _DAYS.index(last or first)
        found |= {day % 7 for day in range(begin, end + 1 if end >= begin else end + 8)}
    return frozenset(found)
