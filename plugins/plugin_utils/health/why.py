# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a host is as it is: findings, a timeline, and the likeliest causes with how sure they are. Pure.

The causes and their weights are in catalog/health.yml. A cause is there when all its signs are; more signs make it
likelier. A score is a judgement, and no probability.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.checks import signs, timeline
from ansible_collections.gb10.fleet.plugins.module_utils.checks.judge import Judgement, judge
from ansible_collections.gb10.fleet.plugins.module_utils.checks.patient import DAY_S, Patient, Rules
from ansible_collections.gb10.fleet.plugins.module_utils.checks.timeline import Entry
from ansible_collections.gb10.fleet.plugins.module_utils.reading import unit_names as units
from ansible_collections.gb10.fleet.plugins.module_utils.reading.health import Load, Reading


@dataclass(frozen=True)
class Cause:
    """`signs`: what speaks for it, in words."""

    id: str
    score: float
    sure: str
    fact: str
    way_out: str
    signs: Sequence[str]


@dataclass(frozen=True)
class Answer:
    """Of one host; the likeliest cause comes first."""

    host: str
    at_s: float
    uptime_s: float | None
    causes: Sequence[Cause]
    judgement: Judgement
    timeline: Sequence[Entry]
    unknown: Mapping[str, str]
    load: Load | None = None  # of ours, where one was wished for
    cold_power: str = ""  # where a cold start may cure it, how that is done

    def as_dict(self) -> dict[str, Any]:
        return {
            "host": self.host,
            "at": timeline.utc(self.at_s),
            "uptime_s": self.uptime_s,
            "causes": [asdict(cause) for cause in self.causes],
            "findings": [finding.as_dict() for finding in self.judgement.findings],
            "unsure": dict(self.judgement.unsure),
            "timeline": [entry.as_dict() for entry in self.timeline],
            "unknown": dict(self.unknown),
            **({"load": dict(self.load)} if self.load else {}),
            **({"cold_power": self.cold_power} if self.cold_power else {}),
        }


def answer(host: str, reading: Reading, rules: Rules, days: float) -> Answer:
    """What to say of one reading; `days`: how far back the timeline goes."""
    patient, judgement = Patient(host, reading, rules), judge(host, reading, rules)
    entries = timeline.build(reading, since_s=0)
    found = rank(signs.of(patient, judgement.findings, entries), rules)
    since_s = reading["at_s"] - days * DAY_S
    shown = [entry for entry in entries if entry.at_s >= since_s]
    load = reading.get("load")
    return Answer(host, reading["at_s"], reading["uptime_s"], found, judgement, shown, reading["unknown"], load)


def rank(found: signs.Signs, rules: Rules) -> list[Cause]:
    """The causes for which the signs speak, the likeliest first. Equal ones keep the order of the catalog.

    What came first goes before what it led to, however sure that is.
    """
    weighed = [each for rule in rules.causes if (each := _weighed(rule, found, rules))]
    within_s = float(rules.limits["before_end_s"])
    scores = {
        each.rule["value"]: min(
            [each.score, *(other.score - rules.step for other in weighed if _led(other, each, within_s))]
        )
        for each in weighed
    }
    causes = [_cause(each, max(0.0, round(scores[each.rule["value"]], 2)), rules) for each in weighed]
    return sorted(causes, key=lambda cause: -cause.score)


@dataclass(frozen=True)
class _Weighed:
    """`began_s`: when the journal first tells of what the cause needs; None where it is no line of it."""

    rule: Mapping[str, Any]
    score: float
    signs: Sequence[signs.Sign]
    unit: str
    began_s: float | None
    lines: frozenset[str]


def _led(first: _Weighed, later: _Weighed, within_s: float) -> bool:
    """Return whether one began shortly before the other one, and they do not rest on the same lines."""
    if first.began_s is None or later.began_s is None or first.lines & later.lines:
        return False
    return 0 < later.began_s - first.began_s <= within_s


def _weighed(rule: Mapping[str, Any], found: signs.Signs, rules: Rules) -> _Weighed | None:
    """None where the cause lacks something that its sentence claims."""
    every, some = rule.get("all", ()), rule.get("any", ())
    now = [found.found[name] for name in (*every, *some) if name in found.found]
    if not now:
        return None
    began = min((sign.began_s for sign in now if sign.began_s is not None), default=None)
    fault_s = max(sign.at_s for sign in now) if began is None else began
    unit = next((sign.unit for sign in now if sign.unit), "")
    needs, choice = (_weighing(names, found, (fault_s, unit), rules) for names in (every, some))
    if len(needs) < len(every) or (some and not choice):
        return None
    more, less = (_weighing(rule.get(role, ()), found, (fault_s, unit), rules) for role in ("supports", "against"))
    score = round(min(1.0, max(0.0, rule["score"] + rules.step * (len(more) - len(less)))), 2)
    names = [name for name in (*every, *some) if name in found.found and found.found[name].began_s is not None]
    lines = frozenset(name.removeprefix("end_").removeprefix("log_") for name in names)
    return _Weighed(rule, score, [*needs, *choice, *more], unit or units.long_name(units.SHORT), began, lines)


def _cause(found: _Weighed, score: float, rules: Rules) -> Cause:
    word = next(level["word"] for level in rules.sure if score >= level["least"])
    told = dict.fromkeys(sign.text for sign in found.signs)
    rule, way_out = found.rule, found.rule["way_out"].replace("{unit}", shlex.quote(found.unit))
    return Cause(rule["value"], score, word, rule["fact"], way_out, list(told))


def _weighing(names: Sequence[str], found: signs.Signs, fault: tuple[float, str], rules: Rules) -> list[signs.Sign]:
    """A change counts where it came shortly before the fault began; everything else where it is there.

    `fault`: when it began, and the unit that it is about.
    """
    within_s = float(rules.limits["change_days"]) * DAY_S
    seen = [
        found.before(name, fault[0], within_s, fault[1]) if name in timeline.CHANGES.values() else found.found.get(name)
        for name in names
    ]
    return [sign for sign in seen if sign is not None]
