"""What a person is told to look for in the journal: by what journald says of a line, and no login can."""

from __future__ import annotations

import re

from scripts.gates import ROOT

ASKED = re.compile(r"journalctl\b[^`\n|;]*")
# Of a program's name, and of a tag that a line gives itself, any login has as many as it likes.
CLAIMED = re.compile(r" _COMM=| (?:-t|--identifier)[ =]")


def test_no_line_is_looked_for_by_what_any_login_may_call_itself() -> None:
    kinds = ("*.md", "docs/**/*.md", "roles/*/README.md", "catalog/*.yml", "plugins/**/*.py", "gb10_fleet/**/*.py")
    files = [file for kind in kinds for file in ROOT.glob(kind)]
    told = [(file, each) for file in files for each in ASKED.findall(file.read_text(encoding="utf-8"))]
    assert len(told) > 50
    assert [one for one in told if CLAIMED.search(one[1]) and "_SYSTEMD_UNIT=" not in one[1]] == []
