"""Words and readings that nobody here had seen: each fault has its name, and a sound machine's has none."""

from __future__ import annotations

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.health.why import answer

from tests.support.fresh_readings import ELEVENTH, SIXTH, TENTH, TWELFTH
from tests.support.health import RULES, problem
from tests.support.unseen import rows, told
from tests.support.unseen_readings import SETS, Case

_SETS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
ROWS = [row for name in _SETS.split() for row in rows(name)]
CASES = [case for cases in (*SETS, SIXTH, TENTH, ELEVENTH, TWELFTH) for case in cases]


@pytest.mark.parametrize(("kind", "said", "right"), ROWS, ids=[f"{kind}-{said[:60]}" for kind, said, _right in ROWS])
def test_words_of_machines_are_told_for_what_they_are(kind: str, said: str, right: str) -> None:
    assert told(kind, said) in (right.split() or [""])


@pytest.mark.parametrize("case", CASES, ids=[f"{case.kind}-{case.source[:60]}" for case in CASES])
def test_a_whole_host_is_judged_for_what_it_is(case: Case) -> None:
    assert problem(case.record) is None
    found = answer("spark-a", case.record, RULES, 14)  # type: ignore[arg-type]
    causes = [cause.id for cause in found.causes]
    loud = {finding.id for finding in found.judgement.findings if finding.severity != "info"} | set(causes)
    silent, right = case.right.startswith("? "), set(case.right.removeprefix("? ").split())
    assert bool(loud & right) is not silent if right else loud == set(), f"{case.source}: {sorted(loud)}" + (
        "; it is told now: take the ? away, and say so in docs/health.md" * silent
    )
    if case.first != "-":
        assert "".join(causes[:1]) in (case.first.split() or [""])
