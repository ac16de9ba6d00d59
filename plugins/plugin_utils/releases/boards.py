# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose board a host is, by what SMBIOS says of its vendor. Pure; catalog/products.yml has the makers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

_SEEN = ("measured", "community")


def maker(board_vendor: str | None) -> Mapping[str, Any] | None:
    """The first maker whose name begins a word of it; None for a vendor that the catalog does not know."""
    said = f" {board_vendor or ''}".lower()
    boards: list[dict[str, Any]] = catalog.load("products")["boards"]
    return next((board for board in boards if f" {board['vendor']}".lower() in said), None)


def named(board_vendor: str | None, makers: Iterable[str]) -> bool:
    """Return whether one of these names is the board's: its maker's, or a part of what SMBIOS says."""
    said = (board_vendor or "").lower()
    found = maker(board_vendor)
    own = found["maker"].lower() if found else None
    return any(each.lower() == own or (each and each.lower() in said) for each in makers)


def known(name: str) -> bool:
    """Whether `named` may find a board of the catalog by it: a maker, or a part of what SMBIOS says of the vendor."""
    said = name.strip().lower()
    rows: list[dict[str, Any]] = catalog.load("products")["boards"]
    return maker(said) is not None or any(said and said in f"{row['maker']}\n{row['vendor']}".lower() for row in rows)


def by_nvidia(board_vendor: str | None) -> bool:
    """Return whether it is the chip maker's own board, however SMBIOS writes that; all others are partners' boards."""
    return "nvidia" in (board_vendor or "").lower()


def told(board_vendor: str | None) -> dict[str, Any]:
    """For answers: the maker, and whether anybody has shown that such a board says so."""
    found = maker(board_vendor)
    return {
        "vendor": board_vendor,
        "maker": found["maker"] if found else None,
        "seen": found is not None and found["confidence"] in _SEEN,
    }


def doubt(board: Mapping[str, Any]) -> str | None:
    """What is not known of a board, in words; None where its kind was seen."""
    if board["seen"]:
        return None
    if board["maker"]:
        return f"the board is {board['maker']}'s by the usual name of this maker; nobody has published a dump of one"
    return f"the maker of this board ({board['vendor'] or 'SMBIOS names none'}) is not in catalog/products.yml"
