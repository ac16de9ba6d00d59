"""The table of attacks: each class once, and no attacker is left out."""

from __future__ import annotations

import json
import re
from pathlib import Path

from scripts import attacks
from scripts.gates import ROOT


def line(what: str, tries: int, wins: int) -> str:
    return json.dumps({"class": what, "tries": tries, "wins": wins})


def test_counts_of_a_class_add_up() -> None:
    counted = attacks.rows([line("races", 1000, 0), line("lines", 5, 1), line("races", 1000, 2)])
    assert counted == [
        {"class": "lines", "tries": 5, "wins": 1},
        {"class": "races", "tries": 2000, "wins": 2},
    ]
    head, lines, races = attacks.table(counted).splitlines()
    assert head.split() == ["class", "of", "attack", "tries", "wins"]
    assert (races.split(), lines.split()) == (["races", "2000", "2"], ["lines", "5", "1"])
    assert len({len(row) for row in (head, races, lines)}) == 1


def test_every_test_that_counts_attacks_is_run() -> None:
    counting = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("test_*.py")
        if re.search(r"^ +tally\(", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert len(counting) >= len(attacks.TESTS)
    for path in counting:
        assert any(Path(path).is_relative_to(chosen) for chosen in attacks.TESTS), (
            f"{path} is not in scripts/attacks.py"
        )
    for chosen in attacks.TESTS:
        assert (ROOT / chosen).exists()
