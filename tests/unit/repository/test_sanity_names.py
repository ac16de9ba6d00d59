"""What ansible-test's pylint would say of plugins, in a second: the whole of it runs in `make test-all`."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TRAVEL = ("module_utils", "modules")


def faults(tree: ast.AST, travels: bool) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == "_":
            yield node.lineno, "call it `__`: ansible-test forbids `_`, which is a translation to others"
        if isinstance(node, ast.Name) and node.id in ("foo", "bar", "baz"):
            yield node.lineno, f"{node.id} says nothing: ansible-test forbids it"
        if not travels or not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called == "print":
            yield node.lineno, "write to sys.stdout: ansible-test forbids print in what travels"
        if called == "sys.exit":
            yield node.lineno, "raise SystemExit: ansible-test forbids sys.exit in what travels"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("for _ in x: pass", "`__`"),
        ("bar = 1", "says nothing"),
        ("print(1)", "sys.stdout"),
        ("sys.exit(1)", "SystemExit"),
    ],
)
def test_a_fault_is_seen(text, words):
    ((line, said),) = faults(ast.parse(text), travels=True)
    assert line == 1 and words in said


def test_no_plugin_has_one():
    found = [
        f"{path.relative_to(ROOT)}:{line}: {words}"
        for path in sorted((ROOT / "plugins").rglob("*.py"))
        for line, words in faults(ast.parse(path.read_text()), path.relative_to(ROOT).parts[1] in TRAVEL)
    ]
    assert not found, "\n".join(found)
