"""`python -m scripts.sglang_cli VERSION=FOLDER...`: SGLang's flags by version, as catalog/sglang_cli.json.

FOLDER has the released source (`pip download sglang==VERSION --no-deps`, unpacked). It is read, never imported or run:
the calls of add_argument, and the annotated fields that newer versions make flags of. Of each flag the file says which
of the versions that were read lack it.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from scripts.gates import ROOT

_OFFER = "EntryClass"
CATALOG = ROOT / "catalog" / "sglang_cli.json"
SOURCE = (
    "sglang/srt/server_args.py and sglang/srt/arg_groups of each release on the Python package index, read 2026-11-28"
)


def main(argv: list[str]) -> int:
    """Write the file anew, of all folders that are named."""
    folders = {version: Path(folder) for version, _, folder in (each.partition("=") for each in argv)}
    found = {version: flags(folder) for version, folder in folders.items()}
    newest = folders[next(reversed(folders))]
    names = sorted({flag for known in found.values() for flag in known})
    text = {
        "source": SOURCE,
        "versions": list(found),
        "architectures": sorted(architectures(newest)),  # of the last version that is named
        "choices": since({version: choices(folder) for version, folder in folders.items()}),
        "flags": {name: [version for version in found if name not in found[version]] for name in names},
    }
    lines = (
        json.dumps(text, indent=None)
        .replace('"choices": {', '\n"choices": {\n')
        .replace("]}, ", "]},\n")
        .replace('"flags": {', '\n"flags": {\n')
        .replace("], ", "],\n")
        .replace("]}}", "]}}\n")
    )
    CATALOG.write_text(lines, encoding="utf-8")
    return 0


def flags(root: Path) -> frozenset[str]:
    """Return all flags of one release."""
    return frozenset(flag for tree in _trees(root) for node in ast.walk(tree) for flag in _of_node(node))


def choices(root: Path) -> dict[str, list[str]]:
    """Return the values of flags that take some alone, where the source has them as one list of texts."""
    trees, found = _trees(root), dict[str, list[str]]()
    named = {
        node.targets[0].id: texts
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and (texts := _list(node.value, {}))
    }
    for node in (node for tree in trees for node in ast.walk(tree)):
        asked = [
            word.value
            for call in ast.walk(node)
            if isinstance(call, ast.Call)
            for word in call.keywords
            if word.arg == "choices"
        ]
        if asked and (texts := _list(asked[0], named)):
            found |= dict.fromkeys(_of_node(node), texts)
    return found


def since(by_version: dict[str, dict[str, list[str]]]) -> dict[str, dict[str, list[str] | None]]:
    """Return of each flag its values by the version that they are new in."""
    found: dict[str, dict[str, list[str] | None]] = {}
    for version, known in by_version.items():
        for flag in sorted({*known, *found}):
            before = next(reversed(found.get(flag, {"": None}).values()))
            if known.get(flag) != before:
                found.setdefault(flag, {})[version] = known.get(flag)
    return found


def _trees(root: Path) -> list[ast.Module]:
    folder = root / "sglang" / "srt"
    files = [folder / "server_args.py", *sorted((folder / "arg_groups").rglob("*.py"))]
    return [ast.parse(path.read_text(encoding="utf-8")) for path in files]


def _list(node: ast.expr, named: dict[str, list[str]]) -> list[str]:
    """Return a list of texts, or one by its name; empty: the source makes it in another way."""
    if isinstance(node, ast.Name):
        return named.get(node.id, [])
    if not isinstance(node, ast.List):
        return []
    texts = [each.value for each in node.elts if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return texts if len(texts) == len(node.elts) else []


def architectures(root: Path) -> frozenset[str]:
    """Return the models that a release has: what each of its files offers as EntryClass."""
    files = sorted((root / "sglang" / "srt" / "models").rglob("*.py"))
    nodes = (node for path in files for node in ast.parse(path.read_text(encoding="utf-8")).body)
    offered = (node.value for node in nodes if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == _OFFER)
    return frozenset(node.id for value in offered for node in ast.walk(value) if isinstance(node, ast.Name))


def _of_node(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
        yield from _texts(node.args)
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and _is_flag(node.annotation):
        yield from _of_field(node.target.id, node.annotation)


def _is_flag(annotation: ast.expr) -> bool:
    """Tell whether a field is written A[type, help] or A[type, Arg(...)]."""
    return (
        isinstance(annotation, ast.Subscript) and isinstance(annotation.value, ast.Name) and annotation.value.id == "A"
    )


def _of_field(name: str, annotation: ast.expr) -> Iterator[str]:
    keywords = {
        word.arg: word.value
        for call in ast.walk(annotation)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Arg"
        for word in call.keywords
    }
    if "no_cli" in keywords:
        return
    named = keywords.get("cli_name")
    yield str(named.value) if isinstance(named, ast.Constant) else f"--{name.replace('_', '-')}"
    aliases = keywords.get("aliases")
    yield from _texts(aliases.elts if isinstance(aliases, ast.List) else [])


def _texts(nodes: list[ast.expr]) -> Iterator[str]:
    yield from (
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("--")
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
