"""What a host is, reading/ alone asks: nobody else names a source that has its reader there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PLUGINS = Path(__file__).parents[3] / "plugins"
READER = PLUGINS / "module_utils/reading"
# In a text of the code, by itself or in a command: words about a source, as in a finding, are none.
SOURCES = {
    "nvidia-smi": (r"nvidia-smi\Z|--query-(gpu|compute-apps)", "gpu.py"),
    "/proc/meminfo": (r"proc/meminfo", "memory.py"),
    "vLLM's metrics": (r"(?<![\w/.-])vllm:([\w(]|\Z)", "counters.py"),
    "RDMA devices": (r"class/infiniband\Z", "rdma.py"),
}
# Files that name one all the same, and why.
EXCEPTIONS = {
    ("module_utils/programs/metrics/families.py", "nvidia-smi"): "the page of metrics says where each comes from",
    ("module_utils/programs/metrics/families.py", "/proc/meminfo"): "the page of metrics says where each comes from",
    ("module_utils/programs/metrics/families.py", "RDMA devices"): "the page of metrics says where each comes from",
    (
        "module_utils/programs/watchdog/main.py",
        "nvidia-smi",
    ): "keeps all that it says as evidence, and reads none of it",
    ("module_utils/fabric/gids.py", "RDMA devices"): "proves over a root of its own what the kernel's GID table holds",
}


def texts(source: str) -> Iterator[str]:
    """The strings of a program, without its docstrings."""
    tree = ast.parse(source)
    described = {
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in described:
            yield node.value


def named() -> set[tuple[str, str]]:
    """Return which file outside of reading/ names which source."""
    return {
        (str(path.relative_to(PLUGINS)), source)
        for half in ("module_utils", "plugin_utils")
        for path in (PLUGINS / half).rglob("*.py")
        if READER not in path.parents
        for text in texts(path.read_text(encoding="utf-8"))
        for source, (sign, _reader) in SOURCES.items()
        if re.search(sign, text)
    }


def test_nobody_but_its_reader_names_a_source() -> None:
    more = named() - set(EXCEPTIONS)
    assert not more, "\n".join(
        f"{file} names {source}: call module_utils/reading/{SOURCES[source][1]}" for file, source in sorted(more)
    )


def test_no_exception_is_left_over() -> None:
    assert set(EXCEPTIONS) <= named()


@pytest.mark.parametrize("source", SOURCES)
def test_the_reader_of_a_source_is_there(source: str) -> None:
    sign, reader = SOURCES[source]
    assert any(re.search(sign, text) for text in texts((READER / reader).read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('run(["nvidia-smi", "-L"])', "nvidia-smi"),
        ('run(f"nvidia-smi --query-gpu={fields}")', "nvidia-smi"),
        ('text = read(root / "proc/meminfo")', "/proc/meminfo"),
        ('name = "vllm:num_requests_running"', "vLLM's metrics"),
        ('fact = "nvidia-smi hangs"', None),
        ('image = "gb10-fleet/vllm:1"', None),
        ('"""Counts vllm:num_requests_running."""', None),
    ],
)
def test_the_signs_tell_a_use_from_words(line: str, found: str | None) -> None:
    signs = [source for source, (sign, _) in SOURCES.items() if any(re.search(sign, text) for text in texts(line))]
    assert signs == ([found] if found else [])
