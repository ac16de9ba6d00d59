"""`python -m scripts.counts [COMMIT [COMMIT]]`: how large the house is, as one table.

It counts text, so that another commit counts the same way. Without a commit it reads the working tree.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatch
from itertools import zip_longest

import yaml

from scripts.check import source_files
from scripts.gates import ROOT

Tree = Mapping[str, str]  # path: text
Row = tuple[str, str]

TEXTS = (".py", ".yml", ".md", ".j2")
SHOWN = 10  # of the longest files and functions
RECIPES = ("kind of resource", "role", "rule of serving", "model", "metric", "variable of a role")

# Where `fabric_mtu` goes: by its name as code uses it (a key, an attribute, an argument), or its planned value under
# another name. What is read from a host (`link.mtu`, `report.mtu`) is a fact and no plan.
USED = re.compile(
    r"""["']fabric_mtu["']|\.fabric_mtu\b|=fabric_mtu\b|^ *fabric_mtu:"""
    r"""|\b(?:item|profile|resource|self)(?:\.mtu\b|\[["']mtu["']\])|\{\{ rail\.mtu|check_mtu\(mtu|number\("mtu\"""",
    re.MULTILINE,
)
ROOMS = ("roles", "plugins/plugin_utils", "plugins/module_utils")
# What a chain of filters consists of; every other operator ends it.
PART = re.compile(r"[(\[{]|[)\]}]|\||,|~|[=!<>]=?|\b(?:and|or|if|else|not|in)\b")
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
BRACES = re.compile(r"\{[{%](.*?)[}%]\}", re.DOTALL)


def tree_of(commit: str | None) -> dict[str, str]:
    """The texts of a commit, or of the working tree."""
    if commit is None:
        paths = [path for path in source_files() if path.suffix in TEXTS]
        return {str(path): (ROOT / path).read_text(encoding="utf-8") for path in paths}
    command = ["git", "archive", "--format=tar", commit]
    packed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    texts = {}
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() and member.name.endswith(TEXTS) else None
            if content is not None:
                texts[member.name] = content.read().decode()
    return texts


def files(tree: Tree, *patterns: str) -> list[str]:
    """A `*` of a pattern also fits a slash."""
    return sorted(path for path in tree if any(fnmatch(path, pattern) for pattern in patterns))


def mtu(tree: Tree) -> Iterator[Row]:
    """Files that use `fabric_mtu` or pass its value on, in each room; and those that only advise it in a message."""
    paths = [path for path in files(tree, *(f"{room}/*" for room in ROOMS)) if not path.endswith(".md")]
    used = [path for path in paths if USED.search(tree[path])]
    advised = [path for path in paths if path not in used and "fabric_mtu" in tree[path]]
    yield "fabric_mtu: files, from the inventory to host and evidence", str(len(used) + len(advised))
    for room in ROOMS:
        yield f"fabric_mtu: of these in {room}", str(len(files(dict.fromkeys(used, ""), f"{room}/*")))
    yield "fabric_mtu: of these only in a message", str(len(advised))


def scalars(text: str) -> Iterator[tuple[str, yaml.ScalarNode]]:
    """Each scalar of a YAML file, with the key that it stands under."""

    def walk(key: str, node: yaml.Node) -> Iterator[tuple[str, yaml.ScalarNode]]:
        if isinstance(node, yaml.ScalarNode):
            yield key, node
        elif isinstance(node, yaml.SequenceNode):
            for item in node.value:
                yield from walk(key, item)
        elif isinstance(node, yaml.MappingNode):
            for name, value in node.value:
                yield from walk(name.value, value)

    root = yaml.compose(text)
    yield from walk("", root) if root is not None else ()


def expressions(text: str) -> Iterator[str]:
    """The Jinja of a YAML file, without what stands in quotes. A `when` needs no braces."""
    for key, node in scalars(text):
        bare = key == "when" and "{{" not in node.value
        for found in [node.value] if bare else BRACES.findall(node.value):
            yield QUOTED.sub("''", found)


def chain(expression: str) -> int:
    """The most filters that follow one another on one value."""
    longest, levels = 0, [0]
    for part in PART.findall(expression):
        if part in "([{":
            levels.append(0)
        elif part in ")]}":
            del levels[1 if len(levels) == 1 else -1 :]
        elif part == "|":
            levels[-1] += 1
            longest = max(longest, levels[-1])
        else:
            levels[-1] = 0
    return longest


def desired(tree: Tree) -> Iterator[Row]:
    """Each role's list of resources: lines, pipes of Jinja, longest chain of filters."""
    total = [0, 0, 0]
    for path in files(tree, "roles/*/desired.yml", "roles/*/state.yml"):
        found = list(expressions(tree[path]))
        numbers = (
            len(tree[path].splitlines()),
            sum(one.count("|") for one in found),
            max(map(chain, found), default=0),
        )
        yield f"resources of {path.split('/')[1]}: lines, pipes, chain", " ".join(f"{number:4}" for number in numbers)
        total = [total[0] + numbers[0], total[1] + numbers[1], max(total[2], numbers[2])]
    yield "resources of all roles: lines, pipes, longest chain", " ".join(f"{number:4}" for number in total)


def jinja_in_vars(tree: Tree) -> Iterator[Row]:
    """Lines of roles/*/vars that belong to a value with Jinja in it."""
    count = 0
    for path in files(tree, "roles/*/vars/*.yml"):
        lines = tree[path].splitlines()
        for _, node in scalars(tree[path]):
            if "{{" in node.value or "{%" in node.value:
                block = node.style in ("|", ">")
                taken = lines[node.start_mark.line + block : node.end_mark.line + (not block)]
                count += sum(1 for line in taken if line.strip())
    yield "lines of Jinja in roles/*/vars", str(count)


def concepts(tree: Tree) -> Iterator[Row]:
    """Rows of the first table of words."""
    text = tree.get("docs/glossary.md") or tree.get("docs/architecture.md", "").partition("## Words")[2]
    table = re.search(r"^\|.*\n\|[-| ]+\n((?:\|.*\n)*)", text, re.MULTILINE)
    yield "words of our own in the glossary", str(len(table[1].splitlines()) if table else 0)


def recipes(tree: Tree) -> Iterator[Row]:
    """Steps of each recipe in CONTRIBUTING.md that name a file."""
    for name in RECIPES:
        title = rf"^### An? {name}(?: or [^\n]*)?\n(.*?)(?=^#|\Z)"
        part = re.search(title, tree.get("CONTRIBUTING.md", ""), re.MULTILINE | re.DOTALL)
        steps = re.findall(r"^\d+\. (.*(?:\n {3}.*)*)", part[1], re.MULTILINE) if part else []
        count = sum(1 for step in steps if re.search(r"`[^`\s]*(?:/|\.\w+)[^`\s]*`|\b[Ff]ragment", step))
        yield f"steps with a file for a new {name}", str(count) if part else "not written"


def longest(tree: Tree) -> Iterator[Row]:
    """The longest files and functions of plugins/ and gb10_fleet/."""
    lengths: list[tuple[int, str]] = []
    functions: list[tuple[int, str]] = []
    for path in files(tree, "plugins/*.py", "gb10_fleet/*.py"):
        short = path.removeprefix("plugins/")
        lengths.append((len(tree[path].splitlines()), short))
        for node in ast.walk(ast.parse(tree[path])):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions.append(((node.end_lineno or 0) - node.lineno + 1, f"{short.split('/')[-1]}:{node.name}"))
    for about, found in (("file", lengths), ("function", functions)):
        for place, (lines, name) in enumerate(sorted(found, key=lambda one: (-one[0], one[1]))[:SHOWN], 1):
            yield f"longest {about} {place}", f"{lines:4} {name}"


def words(tree: Tree) -> Iterator[Row]:
    for path in ("README.md", "docs/architecture.md"):
        yield f"words of {path}", str(len(tree.get(path, "").split()))


PARTS: tuple[Callable[[Tree], Iterator[Row]], ...] = (mtu, desired, jinja_in_vars, concepts, words, recipes, longest)


def counts(tree: Tree) -> dict[str, str]:
    return {name: value for part in PARTS for name, value in part(tree)}


def table(columns: Mapping[str, Mapping[str, str]]) -> str:
    """One column for each tree, in the order of the last one's rows."""
    names = list(dict.fromkeys(name for found in reversed(list(columns.values())) for name in found))
    rows = [("", *columns), *((name, *(found.get(name, "-") for found in columns.values())) for name in names)]
    widths = [max(map(len, column)) for column in zip_longest(*rows, fillvalue="")]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commits", nargs="*", metavar="COMMIT", help="default: the working tree")
    commits: list[str | None] = parser.parse_args().commits or [None]
    print(table({commit or "working tree": counts(tree_of(commit)) for commit in commits}))


if __name__ == "__main__":
    main()
