"""docs/security.md: what each unit of ours may do at most, by systemd's own count."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

from scripts.gates import ROOT
from scripts.pages.markdown import table

PAGE = ROOT / "docs" / "security.md"


def parts() -> dict[str, Iterator[str]]:
    """Return the table of bounds."""
    rows = ((f"`{row['unit']}`", f"{row['value']}", row["meaning"]) for row in catalog.load("units")["exposure"])
    return {"units": table(("unit", "at most", "what is left"), rows)}
