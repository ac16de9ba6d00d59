"""Comments and docstrings name only files that exist: a name that a move left behind sends the reader nowhere."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.check import source_files

FILES = source_files()
# Each path and each folder, and every end of it, for a comment may leave out the folders that it stands in.
ENDS = {
    "/".join(path.parts[start:stop])
    for path in FILES
    for stop in range(1, len(path.parts) + 1)
    for start in range(stop)
}
# A path is ours by its first folder. What lies below inventory/ is for the reader to write.
OURS = {path.parts[0] for path in FILES if len(path.parts) > 1} - {"inventory"} | {"module_utils", "plugin_utils"}
NAME = re.compile(r"(?<![\w./~<$-])\w[\w.-]*(?:/[\w.-]+)*")
PLACEHOLDER = re.compile(r"(^|/)[A-Z]+(\.\w+)?(/|$)")  # as in catalog/NAME.yml


def missing(text: str) -> list[str]:
    """Return the names of Python files, and the paths below our folders, that lead to no file."""
    names = [found.rstrip(".") for found in NAME.findall(text)]
    ours = [name for name in names if name.endswith(".py") or name.partition("/")[0] in OURS]
    return [name for name in ours if name not in ENDS and not PLACEHOLDER.search(name)]


def remarks(path: Path) -> Iterator[str]:
    """Yield the comments of a file, and the docstrings where it is Python."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from re.findall(r"(?m)^\s*# .*", text)
        return
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    yield from (token.string for token in tokens if token.type == tokenize.COMMENT)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""


@pytest.mark.parametrize("suffix", [".py", ".yml", ".toml", ".cfg"])
def test_what_a_comment_names_exists(suffix: str) -> None:
    found = [
        f"{path}: {name}"
        for path in FILES
        if path.suffix == suffix
        for remark in remarks(path)
        for name in missing(remark)
    ]
    assert not found, f"no such file, say its new name: {'; '.join(found)}"


def test_a_name_of_no_file_is_found() -> None:
    said = "As in gone.py and plugins/module_utils/gone, not as in scripts/check.py, catalog/NAME.yml or 3 Gb/s."
    assert missing(said) == ["gone.py", "plugins/module_utils/gone"]
