# SPDX-License-Identifier: GPL-3.0-or-later
"""How an operator gives a consent (docs/consent.md): one sentence for every message that asks for one."""

from __future__ import annotations


def give(*names: str) -> str:
    """Return what to do, for good or for one run; it stands behind what the consent is for."""
    said, once = " and ".join(f"{name}: true" for name in names), " ".join(f"-e {name}=true" for name in names)
    return f"set {said} in the inventory, or for one run add {once} (with gb10: -- {once})"
