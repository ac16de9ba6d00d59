"""scripts/counts.py on a small tree that was made up for it."""

from __future__ import annotations

import pytest

from scripts import counts

STATE = """\
vars:
  few: >-
    {{ spark.packages | select('match', 'a|b') | list
       | first }}
resources:
  - package: perftest
    when: few | length or (few | first | upper | lower)
"""
TREE = {
    "roles/fabric/state.yml": STATE,
    "roles/fabric/defaults/main.yml": "fabric_mtu: 9000\n",
    "roles/fabric/README.md": "fabric_mtu: 9000\n",  # a document is no step of the way
    "roles/fabric/vars/main.yml": "plain: 1\nfolded: >-\n  {{ a\n  | b }}\n\n# a comment\nother: '{{ c }}'\n",
    "plugins/plugin_utils/page.py": "def page(profile):\n    return profile['mtu']\n",
    "plugins/module_utils/advice.py": 'WAY_OUT = "set fabric_mtu to 9000"\n',
    "plugins/module_utils/facts.py": "def read(link):\n\n    return link.mtu\n",
    "docs/architecture.md": (
        "# Map\n\n## Words\n\n| word | means |\n|---|---|\n| a | b |\n| c | d |\n\n| no | word |\n|---|---|\n| e |\n"
    ),
    "README.md": "three plain words\n",
    "CONTRIBUTING.md": (
        "### A model\n\n1. `catalog/models.yml`: its\n   geometry.\n2. Think.\n3. A fragment.\n\n"
        "### A role\n\n1. Nothing.\n\n### A metric or an alert\n\n1. A fragment.\n"
    ),
}


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    return counts.counts(TREE)


def test_the_way_of_the_mtu_is_counted_by_room(found: dict[str, str]) -> None:
    about = "fabric_mtu: "
    assert [value for name, value in found.items() if name.startswith(about)] == ["3", "1", "1", "0", "1"]


def test_pipes_in_quotes_are_no_filters_and_an_operator_ends_a_chain(found: dict[str, str]) -> None:
    assert found["resources of fabric: lines, pipes, chain"].split() == ["7", "7", "3"]


@pytest.mark.parametrize(
    "expression, filters",
    [("a", 0), ("a | b | c", 2), ("a | b(c | d | e) | f", 2), ("a | b or c | d", 1), ("(a | b) | c", 1), ("a) | b", 1)],
)
def test_chain(expression: str, filters: int) -> None:
    assert counts.chain(expression) == filters


@pytest.mark.parametrize(
    "name, value",
    [
        ("lines of Jinja in roles/*/vars", "3"),
        ("words of our own in the glossary", "2"),
        ("words of README.md", "3"),
        ("steps with a file for a new model", "2"),
        ("steps with a file for a new role", "0"),
        ("steps with a file for a new metric", "1"),
        ("steps with a file for a new kind of resource", "not written"),
        ("longest file 1", "   3 module_utils/facts.py"),
        ("longest function 2", "   2 page.py:page"),
    ],
)
def test_one_count(found: dict[str, str], name: str, value: str) -> None:
    assert found[name] == value


def test_the_glossary_of_its_own_comes_before_the_one_in_the_map() -> None:
    glossary = "# Words\n\n| word | means |\n|---|---|\n| a | b |\n"
    assert counts.counts({**TREE, "docs/glossary.md": glossary})["words of our own in the glossary"] == "1"


def test_two_trees_stand_side_by_side_and_what_one_lacks_is_a_dash() -> None:
    assert counts.table({"old": {"a": "1", "gone": "22"}, "new": {"a": "3", "more": "4"}}).splitlines() == [
        "      old  new",
        "a     1    3",
        "more  -    4",
        "gone  22   -",
    ]
