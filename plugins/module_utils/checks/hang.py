# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether an engine hangs, from one look to the next. Pure.

An engine hangs where, for `after_s` and in every look, requests run, no token comes, no prompt is taken, and the GPU
takes less than `power_w`. A long prefill takes more power, an idle server runs nothing, a server that loads is not
ready. What is unknown speaks for nothing: the time begins anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

FINE, STILL, HUNG, OPEN = "fine", "still", "hung", "open"


class Rules(NamedTuple):
    after_s: float
    power_w: float
    gap_s: float  # so long between two looks, nobody knows what was in between
    breaker_s: float  # within this time after a restart there is no other


class Look(NamedTuple):
    """`at_s` by a clock that nobody sets. None: unknown."""

    at_s: float
    phase: str | None
    life: str  # another one is another process
    running: float | None
    tokens: float | None
    prompts: float | None
    power_w: float | None


class Still(NamedTuple):
    """Since when nothing moves: the first look and the last one."""

    since_s: float
    last_s: float
    life: str
    tokens: float
    prompts: float | None


def follow(still: Still | None, look: Look, rules: Rules) -> Still | None:
    """What stands still with this look; None where something moves, rests or is unknown."""
    if look.phase != "ready" or look.running is None or not look.running > 0 or look.tokens is None:
        return None
    if look.power_w is None or not 0 <= look.power_w < rules.power_w:  # NaN is no low power either
        return None
    began = Still(look.at_s, look.at_s, look.life, look.tokens, look.prompts)
    if still is None or (still.life, still.tokens, still.prompts) != (look.life, look.tokens, look.prompts):
        return began
    if not 0 <= look.at_s - still.last_s <= rules.gap_s:
        return began
    return still._replace(last_s=look.at_s)


def verdict(still: Still | None, restarts: Sequence[float], now_s: float, rules: Rules, before: str = FINE) -> str:
    """`hung`: restart it. `open`: it hangs, and was restarted not long ago: a person has to look.

    `restarts` and `now_s` are times of day. A restart that is yet to come, by a clock that was set back, counts. What
    was left to a person (`before`) stays so until something moves.
    """
    if still is None:
        return FINE
    if still.last_s - still.since_s < rules.after_s:
        return STILL
    return OPEN if before == OPEN or any(now_s - at_s < rules.breaker_s for at_s in restarts) else HUNG
