# SPDX-License-Identifier: GPL-3.0-or-later
"""What the controller shows and writes. Imports nothing of Ansible: the command `gb10` starts with it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from ansible_collections.gb10.fleet.plugins.module_utils.system.folders import Planted, planted_above

LATEST = "latest"
_CELL = 500  # characters
_WIDE = 48  # of the cells of a column: a path of 100 had each line of a run wrap on most screens
_Name = TypeVar("_Name")
_Row = TypeVar("_Row")


def printable(text: str, keep: str = "") -> str:
    """What a host says must not steer the terminal that shows it: control characters in Python's notation."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in text)


def cleaned(value: Any, keep: str = "") -> Any:
    """The same of everything in an answer of a host."""
    if isinstance(value, str):
        return printable(value, keep)
    if isinstance(value, dict):
        return {printable(key): cleaned(item, keep) for key, item in value.items()}
    return [cleaned(item, keep) for item in value] if isinstance(value, list) else value


def some(names: Sequence[str], most: int = 3) -> str:
    """The first of these names, and how many more there are: a fleet's would fill the screen."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def shares(of: Mapping[_Name, Sequence[_Row]], most: int) -> tuple[dict[_Name, Sequence[_Row]], int]:
    """The first rows of each, so many together, and how many are left out: who has many gives way to all others."""
    left, shown = most, dict[_Name, Sequence[_Row]]()
    for number, name in enumerate(sorted(of, key=lambda each: len(of[each]))):
        shown[name] = of[name][: -(-left // (len(of) - number))]  # rounded up: it has fewer than those behind it
        left -= len(shown[name])
    return {name: shown[name] for name in of}, sum(map(len, of.values())) - (most - left)


def counted(number: int, word: str) -> str:
    return f"1 {word}" if number == 1 else f"{number} {word}s"


def host_count(number: int) -> str:
    return counted(number, "host")


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """A table of plain text: a line for each row. A wide cell moves what stands behind it, and no other line."""
    rows = [[cell if len(cell) <= _CELL else f"{cell[:_CELL]}..." for cell in row] for row in rows]
    lengths = (map(len, column) for column in zip(*rows, strict=True))
    widths = [max((length for length in column if length <= _WIDE), default=0) for column in lengths]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def machine_name(product: Mapping[str, Any]) -> str:
    """What a machine says it is, by its facts: in DMI, or in the file of DGX OS where its firmware says nothing."""
    said = product["dmi_name"] or product["dmi_family"] or (product["dgx_release"] or {}).get("DGX_NAME")
    return str(said).replace("_", " ") if said else "a machine whose firmware names no product"


def write(path: Path, text: str, *, secret: bool = False) -> None:
    """Replace a file: whole or not at all. A secret is its owner's alone, from its first moment on."""
    new = path.with_name(f".{path.name}-{os.getpid()}")
    new.unlink(missing_ok=True)
    try:
        with created(new, 0o600 if secret else 0o666) as file:
            file.write(text.encode())
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def created(path: Path, mode: int) -> BinaryIO:
    """A new file to write. It is opened once: a folder may be somebody else's, who puts a link there in between.

    Planted where a folder above it is such that its owner may have waited for us.
    """
    if theirs := planted_above(path.absolute().parent):
        raise Planted(theirs)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb")


def point_latest(target: Path) -> None:
    """The link `latest` beside a folder leads to it, from one moment to the next."""
    link = target.with_name(f".{LATEST}-{os.getpid()}")
    link.unlink(missing_ok=True)  # of a process that was killed; in a container they all have the same id
    link.symlink_to(target.name)
    link.replace(target.with_name(LATEST))
