# SPDX-License-Identifier: GPL-3.0-or-later
"""The one way to read catalog/*.yml and what the roles declare."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import yaml

Options = dict[str, dict[str, Any]]

EVIDENCE = ("source", "date", "confidence")
# libyaml's is ten times as fast, and not everywhere.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DATE = re.compile(r"20[0-9]{2}-(0[1-9]|1[0-2])(-(0[1-9]|[12][0-9]|3[01]))?\Z")
# The roles that a host gets, in the order of work, unless gb10_roles says less.
ROLES = (
    *("kernel_parameters", "driver", "coherence", "docker"),
    *("container_toolkit", "page_cache", "memory_protection", "clock_lock", "monitoring", "accounts"),
    *("fabric", "firewall", "vllm", "gateway", "watchdog", "flight_recorder"),
)
# What only the rules of serving read; as long as all others together.
OF_SERVING = frozenset({"image_recipes", "image_rules", "images", "model_facts", "models", "recipes", "rules", "sm"})
# What our playbooks register, and what no inventory sets.
REGISTERED = frozenset({"gb10_plan", "gb10_explained"})
# Roles whose names are common words: others have variables that begin so, and only near misses are refused. Why:
# docs/decisions/names.md
COMMON_WORDS = frozenset(
    {"accounts", "benchmark", "docker", "driver", "fabric", "firewall", "gateway", "monitoring", "reboot", "watchdog"}
)
# Variables that belong to no single role.
COLLECTION_VARIABLES: Options = {
    "gb10_hosts": {"type": "str"},
    "gb10_cluster": {"type": "str"},
    "gb10_accept": {"type": "dict", "default": {}},
    "gb10_evidence_directory": {"type": "path"},
    "gb10_layouts": {"type": "dict", "default": {}},
    "gb10_layouts_by_timer": {"type": "bool", "default": False},
    "gb10_minimum_free_gib": {"type": "dict", "default": {}},
    "gb10_roles": {"type": "list", "elements": "str", "choices": list(ROLES), "default": list(ROLES)},
    "gb10_notify": {"type": "raw"},
    "gb10_orphans": {"type": "str", "choices": ["show", "remove"], "default": "show"},
    "gb10_power_plug": {"type": "dict", "no_log": True},
    "gb10_recap": {"type": "str", "choices": ["all", "changed"], "default": "all"},
    "gb10_release_evidence": {"type": "bool", "default": False},
    "gb10_reserved": {"type": "str"},
    "gb10_seed_keys": {"type": "list", "elements": "str", "default": []},
    "gb10_seed_mac": {"type": "str"},
    "gb10_seed_network": {"type": "dict", "default": {}},
    "gb10_seed_password_hash": {"type": "str", "no_log": True},
    "gb10_seed_serial": {"type": "str"},
    "gb10_seed_system": {"type": "dict", "default": {}},
    "gb10_switch": {"type": "dict", "default": {}},
    "gb10_switch_allow_apply": {"type": "bool", "default": False},
    "gb10_switch_apply_password": {"type": "str", "no_log": True},
    "gb10_switch_password": {"type": "str", "no_log": True},
    "gb10_unreachable_max": {"type": "str", "default": "0"},
}


class CatalogError(Exception):
    """A catalog or argument specification that cannot be read, or that claims something without evidence."""


def collection_root() -> Path:
    """The collection's folder: of a checkout, of an installed collection or of the wheel."""
    return Path(__file__).parents[3]


@cache
def collection_version() -> str:
    """Of an installed collection (MANIFEST.json is its index) or a checkout (galaxy.yml); "unknown" in a bare wheel."""
    for name, path in (("MANIFEST.json", ("collection_info", "version")), ("galaxy.yml", ("version",))):
        file = collection_root() / name
        if file.exists():
            node: Any = read(file)  # JSON is YAML
            for key in path:
                node = node[key]
            return str(node)
    return "unknown"


@cache
def load(name: str, root: Path | None = None) -> dict[str, Any]:
    """The content of catalog/<name>.yml, read once; every entry that has a `value` also has its evidence."""
    path = (root or collection_root()) / "catalog" / f"{name}.yml"
    content = read(path)
    for where, entry in _entries(content, path.name):
        missing = [key for key in EVIDENCE if not entry.get(key)]
        if missing:
            raise CatalogError(f"{where}: the value {entry['value']!r} has no {', '.join(missing)}")
        if not _DATE.match(str(entry["date"])):
            raise CatalogError(f"{where}.date: {entry['date']!r} is not a date like 2026-11-21")
    return content


def plain_yaml(text: str) -> Any:
    return yaml.load(text, Loader=_LOADER)  # noqa: S506 - both are safe loaders


def read(path: Path) -> dict[str, Any]:
    """A YAML file of ours with a mapping at the top."""
    try:
        content = plain_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CatalogError(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, ValueError) as error:  # the latter of 2026-13-01, which looks like a date
        raise CatalogError(f"{path}: not YAML: {error}") from error
    if not isinstance(content, dict):
        raise CatalogError(f"{path}: expected a mapping at the top")
    plain: dict[str, Any] = _plain(content)
    return plain


def _plain(node: Any) -> Any:
    """Dates as ISO text, so that what comes from the catalog can go into JSON."""
    if isinstance(node, dict):
        return {key: _plain(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_plain(value) for value in node]
    return node.isoformat() if isinstance(node, date) else node


def _entries(node: Any, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every mapping with a `value`, with the path that leads to it."""
    if isinstance(node, dict):
        if "value" in node:
            yield where, node
        for key, value in node.items():
            yield from _entries(value, f"{where}.{key}")
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _entries(value, f"{where}[{index}]")


@dataclass(frozen=True)
class Declared:
    """What the roles accept: `{role: {variable: specification}}`, and the variables of the collection as a whole."""

    roles: dict[str, Options]
    collection: Options = field(default_factory=lambda: dict(COLLECTION_VARIABLES))

    @cached_property
    def variables(self) -> Options:
        """All variables with their specification (type, choices, default, required)."""
        merged = dict(self.collection)
        for options in self.roles.values():
            merged.update(options)
        return merged

    @property
    def prefixes(self) -> tuple[str, ...]:
        """What a variable meant for us starts with."""
        return ("gb10_", *(f"{role}_" for role in self.roles))

    @cached_property
    def own_prefixes(self) -> tuple[str, ...]:
        """What nobody else's variable starts with."""
        return tuple(prefix for prefix in self.prefixes if prefix.rstrip("_") not in COMMON_WORDS)


@cache
def declared_variables() -> Declared:
    """The main options of every roles/*/meta/argument_specs.yml, read once."""
    roles = {}
    for path in sorted(collection_root().glob("roles/*/meta/argument_specs.yml")):
        main = read(path).get("argument_specs", {}).get("main", {})
        roles[path.parents[1].name] = dict(main.get("options") or {})
    return Declared(roles)
