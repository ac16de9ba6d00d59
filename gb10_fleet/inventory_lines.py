"""`gb10 plan --into`: the lines of a plan as a file of an inventory. What is there already is not overwritten."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

NAME = "gb10-plan.yml"
NO_YAML = "this line or the one before is no YAML; correct it"
_SERVICES = "vllm_services"
_SHOWN = 60  # characters of a value
_KINDS = ("", ".yml", ".yaml", ".json")


class Taken(Exception):
    """The inventory says something of it already, or cannot be written to."""


class Template(Taken):
    """A word that Ansible would run."""


def refuse_templates(said: object) -> None:
    """Much of what we write into an inventory is of hosts and of models, and a template runs on this machine.

    A text may also begin with marks of its own choice for a template: `#jinja2:variable_start_string:'[['`.
    """
    if isinstance(said, str) and (said.startswith("#jinja2:") or any(mark in said for mark in ("{{", "{%", "{#"))):
        raise Template(f"{said!r} would be a template, and no value that we write is one")
    parts = [*said, *said.values()] if isinstance(said, Mapping) else said if isinstance(said, list | tuple) else ()
    for each in parts:
        refuse_templates(each)


def write(inventory: Path, group: str, lines: Sequence[str], values: Mapping[str, Any], what: str) -> Path:
    """Into `group_vars/GROUP/` of the inventory, where Ansible reads it for that group. Returns the file.

    What the inventory says of this group already, and says the same, is left out.
    """
    refuse_templates(values)
    folder = inventory if inventory.is_dir() else inventory.parent
    file = folder / "group_vars" / group / NAME
    if file.exists():
        raise Taken(f"{file} is there already; remove it first")
    _refuse_services(folder, group, values)
    said, near = set(), _near(inventory, group)
    for known, way, name, value in _variables(folder, values.keys() - {_SERVICES}):
        whose = _whose(known.relative_to(folder), way)
        if value != values[name] and whose in near:
            of = f"for the {' '.join(whose)}" if whose else "there"
            raise Taken(
                f"{known} sets {name} already {of}, to {_shown(value)}, and the plan says {_shown(values[name])}; "
                "change it there, or take it out and say --into again"
            )
        if _is_of(group, known.relative_to(folder), way):
            said.add(name)
    lines = [line for line in lines if line.partition(":")[0] not in said]
    if mistake := yaml_mistake(inventory):
        raise Taken(mistake)
    if not any(group == key for path in _files(inventory) for _, key, _ in _entries(_read(path))):
        raise Taken(f"{inventory} has no group {group}; say --group NAME of the hosts that serve it")
    if single := next(
        (file.parent.with_suffix(kind) for kind in _KINDS[1:] if file.parent.with_suffix(kind).exists()), None
    ):
        raise Taken(f"{single} is there, and a folder {file.parent} would hide it; paste the lines into it")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as new:
            new.write("\n".join(["---", f"# {what}", *lines]) + "\n")
    except OSError as error:
        raise Taken(f"{error.filename}: {error.strerror}") from None
    return file


def _refuse_services(folder: Path, group: str, values: Mapping[str, Any]) -> None:
    """Of two vllm_services Ansible takes one whole, and beside them the short form is one more service."""
    for known, way, _name, value in _variables(folder, [_SERVICES]):
        file = known.relative_to(folder)
        near = group in way or any(_is_of(one, file, way) for one in (group, "sparks"))
        if not value or not (near or group in ("sparks", "all")):
            continue
        if _SERVICES in values:
            text = f"a second one would hide it; write the entry of {', '.join(values[_SERVICES])} below it there"
        else:
            text = "these lines would be one more service; say --service NAME, and write the entry below it there"
        raise Taken(f"{known} has {_SERVICES} already, and {text}")


def _whose(file: Path, way: tuple[str, ...]) -> tuple[str, str] | None:
    """The group or the host that a variable in this file, below these keys, is set for."""
    if file.parts[0] in ("group_vars", "host_vars"):
        return None if way else (file.parts[0].removesuffix("_vars"), file.with_suffix("").parts[1])
    if way[-1:] == ("vars",):
        return "group", way[-2] if way[1:] else "all"
    return ("host", way[-1]) if way[-2:-1] == ("hosts",) else None


def _near(inventory: Path, group: str) -> set[tuple[str, str]]:
    """Groups and hosts whose variables may win over those of this group: its hosts, and groups with one of them.

    Groups above it are not among them: it wins over those.
    """
    hosts: dict[str, set[str]] = {}
    children: dict[str, set[str]] = {}
    for file in _files(inventory):
        for way, name, value in _entries(_read(file)):
            if isinstance(value, Mapping) and (not way or way[-1] == "children"):
                hosts.setdefault(name, set()).update(map(str, value.get("hosts") or ()))
                children.setdefault(name, set()).update(map(str, value.get("children") or ()))

    def below(name: str, above: frozenset[str] = frozenset()) -> set[str]:
        deeper = children.get(name, set()) - above
        return {name}.union(*(below(child, above | {name}) for child in deeper))

    def members(name: str) -> set[str]:
        return set().union(*(hosts.get(each, set()) for each in below(name)))

    mine = members(group)
    groups = {each for each in hosts if each != "all" and group not in below(each) and members(each) & mine}
    named = {single for each in mine for single in (each, *_single(each))}
    return {("group", each) for each in {group, *groups}} | {("host", each) for each in named}


def names(folder: Path) -> set[str]:
    """Hosts and groups that are in any YAML of an inventory, or have a file of variables of their own."""
    said = [(way, name) for file in _files(folder) for way, name, _ in _entries(_read(file))]
    hosts = {each for way, name in said if way[-1:] == ("hosts",) for each in (name, *_single(name))}
    groups = {name for way, name in said if not way or way[-1] == "children"}
    files = [file for kind in ("host_vars", "group_vars") for file in (folder / kind).glob("*")]
    return hosts | groups | {name for file in files for name in (file.name, file.stem)}


def _single(host: str) -> Sequence[str]:
    """The hosts of a range such as `spark-[1:4]`, as Ansible counts them."""
    from ansible.errors import AnsibleError
    from ansible.plugins.inventory import expand_hostname_range

    try:
        return list(expand_hostname_range(host)) if "[" in host else []  # Ansible has no types for it
    except (AnsibleError, ValueError):  # Ansible itself will say so of this inventory
        return []


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _is_of(group: str, file: Path, way: tuple[str, ...]) -> bool:
    """Tell whether a variable in this file, below these keys, is one of all hosts of the group."""
    if file.parts[0] == "group_vars":
        return file.with_suffix("").parts[1] in (group, "all") and not way
    return way[-2:] in ((group, "vars"), ("all", "vars"))


def _variables(folder: Path, names: Iterable[str]) -> Iterator[tuple[Path, tuple[str, ...], str, Any]]:
    for path in _files(folder):
        for way, name, value in _entries(_read(path)):
            if name in names:
                yield path, way, name, value


def _files(inventory: Path) -> list[Path]:
    """Return what may be YAML of an inventory; of others (a script, INI) only Ansible knows what they say."""
    if inventory.is_file():
        return [inventory]
    return sorted(
        path
        for path in inventory.rglob("*")
        if path.is_file()
        and path.suffix in _KINDS
        and not any(part.startswith(".") for part in path.relative_to(inventory).parts)
    )


def yaml_mistake(inventory: Path) -> str | None:
    """The first place of an inventory that is no YAML; Ansible says only that it has failed to parse all of it."""
    for path in _files(inventory):
        try:
            yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506  # a SafeLoader, see below
        except yaml.MarkedYAMLError as error:
            at = error.problem_mark or error.context_mark
            where = f"{path}:{at.line + 1}:{at.column + 1}" if at else str(path)
            return f"{where}: {error.problem or error.context}: {NO_YAML}"
        except (OSError, ValueError, yaml.YAMLError):
            continue
    return None


def _read(path: Path) -> Any:
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506  # a SafeLoader, see below
    except (OSError, ValueError, yaml.YAMLError):
        return None


class _Loader(yaml.SafeLoader):
    """Takes `!vault` and `!unsafe` for what they are here: values that nobody looks at."""


_Loader.add_multi_constructor("!", lambda *_: None)


def _entries(content: Any, way: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str, Any]]:
    """Every key with its value, however deep, and the keys above it."""
    if isinstance(content, Mapping):
        for key, value in content.items():
            yield way, str(key), value
            yield from _entries(value, (*way, str(key)))
    for item in content if isinstance(content, list) else ():
        yield from _entries(item, way)
