"""A condition is true or false: ansible-core refuses one that is a text or a list, and only when it is asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from jinja2 import Environment, nodes

from tests.support.rig import ROOT

FILES = sorted([*(ROOT / "playbooks").glob("*.yml"), *(ROOT / "roles").glob("*/tasks/*.yml")])
KEYS = {"when", "until", "failed_when", "changed_when", "that"}


def is_truth(node: nodes.Node) -> bool:
    """A variable by its name may be one: what it holds is for the tests of its play."""
    if isinstance(node, nodes.And | nodes.Or):
        return is_truth(node.left) and is_truth(node.right)
    if isinstance(node, nodes.Filter):
        return node.name == "bool" or (node.name == "default" and bool(node.args) and is_truth(node.args[0]))
    if isinstance(node, nodes.Const):
        return isinstance(node.value, bool)
    return isinstance(node, nodes.Compare | nodes.Not | nodes.Test | nodes.Name | nodes.Getattr)


def conditions(part: Any) -> Iterator[str]:
    if isinstance(part, list):
        for each in part:
            yield from conditions(each)
    elif isinstance(part, dict):
        for key, value in part.items():
            if key in KEYS:
                yield from (each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str))
            yield from conditions(value)


def judged(text: str) -> bool:
    (output,) = Environment().parse(f"{{{{ {text} }}}}").body  # noqa: S701 - conditions, no page
    assert isinstance(output, nodes.Output)
    return is_truth(output.nodes[0])


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_condition_is_true_or_false(path: Any) -> None:
    assert [text for text in conditions(yaml.safe_load(path.read_text())) if not judged(text)] == []


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        *(("a and b | default('')", False), ("a | default([])", False), ("a | length", False), ("a or 'x'", False)),
        *(("a and b | default('', true) | length > 0", True), ("a.b | default(false)", True), ("a is defined", True)),
    ],
)
def test_what_is_seen(text: str, truth: bool) -> None:
    assert judged(text) == truth
