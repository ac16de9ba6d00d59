"""The tables of variables in the READMEs of the roles, from meta/argument_specs.yml."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.catalog import read

from scripts.gates import ROOT
from scripts.pages import markdown

_MARKUP = re.compile(r"\b([BCEOV])\(([^)]*)\)")


def parts() -> dict[Path, dict[str, Iterator[str]]]:
    """Return the parts of each README."""
    return {
        path.parents[1] / "README.md": {"variables": _table(read(path)["argument_specs"]["main"].get("options") or {})}
        for path in sorted(ROOT.glob("roles/*/meta/argument_specs.yml"))
    }


def _table(options: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    if not options:
        yield "This role has no variables."
        return
    rows = ((f"`{name}`", option["type"], _default(option), _meaning(option)) for name, option in options.items())
    yield from markdown.table(("variable", "type", "default", "meaning"), rows)


def _default(option: Mapping[str, Any]) -> str:
    if "default" not in option:
        return "required" if option.get("required") else "-"
    text = yaml.safe_dump(option["default"], default_flow_style=True, width=float("inf"))
    return f"`{text.removesuffix('...' + chr(10)).strip()}`".replace("'", '"')


def _meaning(option: Mapping[str, Any]) -> str:
    """Return the description, with Ansible's markup as Markdown and names of documents as links."""
    said = option["description"]
    return _MARKUP.sub(_markdown, said if isinstance(said, str) else " ".join(said))


def _markdown(found: re.Match[str]) -> str:
    kind, text = found.groups()
    if kind == "B":
        return f"**{text}**"
    if text.startswith("README.md#"):
        return f"[below]({text.removeprefix('README.md')})"
    if re.match(r"docs/[\w/-]+\.md", text):
        return f"[{text.partition('#')[0]}](../../{text})"
    return f"`{text}`"
