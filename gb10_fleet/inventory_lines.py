"""`gb10 plan --into`: the lines of a plan as a file of an inventory. What is there already is not overwritten."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

NAME = "gb10-plan.yml"
_KINDS = ("", ".yml", ".yaml", ".json")


class Taken(Exception):
    """The inventory says something of it already, or cannot be written to."""


def write(inventory: Path, group: str, lines: Sequence[str], names: Iterable[str], what: str) -> Path:
    """Into `group_vars/GROUP/` of the inventory, where Ansible reads it for that group. Returns the file."""
    folder = inventory if inventory.is_dir() else inventory.parent
    file = folder / "group_vars" / group / NAME
    for known, name in _variables(folder, set(names)):
        raise Taken(f"{known} sets {name} already; change it there, or take it out and say --into again")
    if not any(group in _keys(_read(path)) for path in _files(inventory)):
        raise Taken(f"{inventory} has no group {group}; say --group NAME of the hosts that serve it")
    if single := next(
        (file.parent.with_suffix(kind) for kind in _KINDS[1:] if file.parent.with_suffix(kind).exists()), None
    ):
        raise Taken(f"{single} is there, and a folder {file.parent} would hide it; paste the lines into it")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as new:
            new.write("\n".join(["---", f"# {what}", *lines]) + "\n")
    except FileExistsError:
        raise Taken(f"{file} is there already; remove it first") from None
    except OSError as error:
        raise Taken(f"{error.filename}: {error.strerror}") from None
    return file


def _variables(folder: Path, names: set[str]) -> Iterator[tuple[Path, str]]:
    for path in _files(folder):
        for name in _keys(_read(path)) & names:
            yield path, name


def _files(inventory: Path) -> list[Path]:
    """What may be YAML of an inventory; of others (a script, INI) only Ansible knows what they say."""
    if inventory.is_file():
        return [inventory]
    return sorted(
        path
        for path in inventory.rglob("*")
        if path.is_file() and path.suffix in _KINDS and not any(part.startswith(".") for part in path.parts)
    )


def _read(path: Path) -> Any:
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506  # a SafeLoader, see below
    except (OSError, ValueError, yaml.YAMLError):
        return None


class _Loader(yaml.SafeLoader):
    """Takes `!vault` and `!unsafe` for what they are here: values that nobody looks at."""


_Loader.add_multi_constructor("!", lambda *_: None)


def _keys(content: Any) -> set[str]:
    if isinstance(content, Mapping):
        return {str(key) for key in content} | {key for value in content.values() for key in _keys(value)}
    return {key for item in content for key in _keys(item)} if isinstance(content, list) else set()
