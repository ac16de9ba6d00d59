"""Links of Markdown files, where the file is read elsewhere than in a checkout: on the site, or in a package."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from scripts.gates import ROOT

_LINK = re.compile(r"\]\(([^)#:\s]+)(#[^)]*)?\)")  # to a file; one with a scheme, or within the page, is left alone
_PICTURES = {".png", ".svg"}


def relink(text: str, source: Path, address: Callable[[Path], str | None]) -> str:
    """`address` says for each file of the checkout what a link to it becomes; None leaves the link as it is."""

    def link(match: re.Match[str]) -> str:
        path = (ROOT / source.parent / match[1]).resolve().relative_to(ROOT)
        found = address(path)
        return match[0] if found is None else f"]({found}{match[2] or ''})"

    return _LINK.sub(link, text)


def on_the_forge(path: Path, repository: str, ref: str) -> str:
    """Where a file of the checkout can be read: pictures as they are, all others as a page."""
    return f"{repository}/{'raw' if path.suffix in _PICTURES else 'blob'}/{ref}/{path}"
