# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether an engine hangs, from one look to the next. Pure.

An engine hangs where, for `after_s` and in every look, requests run, no token comes, no prompt is taken, and the GPU
takes less than `power_w`. A long prefill takes more power, an idle server runs nothing, a server that loads is not
ready. A busy GPU that is held below `held_clock_mhz`, by a lock of its clocks or a fault of its power supply, takes
little power in a prefill too. What is unknown speaks for nothing: the time begins anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

FINE, STILL, HUNG, OPEN = "fine", "still", "hung", "open"
RESTING = ("ready", "waiting", "stopped", "failed")  # phases of a unit; in the other ones it starts


class Rules(NamedTuple):
    after_s: float
    power_w: float
    gap_s: float  # so long between two looks, nobody knows what was in between
    breaker_s: float  # within this time after a restart there is no other
    busy_percent: float
    held_clock_mhz: float


class Look(NamedTuple):
    """`at_s` by a clock that nobody sets. None: unknown."""

    at_s: float
    phase: str | None
    life: str  # another one is another process
    running: float | None
    tokens: float | None
    prompts: float | None
    power_w: float | None
    clock_mhz: float | None = None
    busy_percent: float | None = None


class Still(NamedTuple):
    """Since when nothing moves: the first look and the last one."""

    since_s: float
    last_s: float
    life: str
    tokens: float
    prompts: float | None


def held(look: Look, rules: Rules) -> bool:
    """Return whether the GPU is busy at a clock so low that its power does not tell whether it works."""
    if look.clock_mhz is None or look.busy_percent is None:
        return False
    return look.busy_percent >= rules.busy_percent and look.clock_mhz < rules.held_clock_mhz


def follow(still: Still | None, look: Look, rules: Rules) -> Still | None:
    """What stands still with this look; None where something moves, rests or is unknown."""
    if look.phase != "ready" or look.running is None or not look.running > 0 or look.tokens is None:
        return None
    if held(look, rules) or look.power_w is None or not 0 <= look.power_w < rules.power_w:  # NaN is no low power either
        return None
    began = Still(look.at_s, look.at_s, look.life, look.tokens, look.prompts)
    if still is None or (still.life, still.tokens, still.prompts) != (look.life, look.tokens, look.prompts):
        return began
    if not 0 <= look.at_s - still.last_s <= rules.gap_s:
        return began
    return still._replace(last_s=look.at_s)


def follow_all(looks: Sequence[Look], rules: Rules) -> Still | None:
    """What stands still with the last of these looks."""
    still = None
    for look in looks:
        still = follow(still, look, rules)
    return still


def stands(looks: Sequence[Look]) -> bool:
    """Return whether requests run in each look, and nothing comes out of them or is taken in, whatever the GPU does."""
    asked = all(look.running is not None and look.running > 0 for look in looks)
    return asked and len({(look.life, look.tokens, look.prompts) for look in looks}) == 1


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
