# SPDX-License-Identifier: GPL-3.0-or-later
"""The plug of a host behind four calls: state, off, on, watts. What it answers is bounded, and judged by type."""

from __future__ import annotations

import importlib
import time
from typing import Any, Protocol

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.power.setting import Setting

MOST_W = 100_000  # of a PDU with all its outlets; more is no figure
_POLL_S = 0.5


class PlugError(Exception):
    """A plug that does not do as asked, with the way out."""


class Plug(Protocol):
    """PlugError where there is no answer in time, or another than one of its kind. `watts`: None without a meter."""

    def state(self) -> bool: ...
    def off(self) -> None: ...
    def on(self) -> None: ...
    def watts(self) -> float | None: ...


def plug(setting: Setting) -> Plug:
    """The plug of that kind; a module of its own each, for one needs a library."""
    module = importlib.import_module(f"{__package__}.{setting.kind}")
    found: Plug = module.Plug(setting)
    return found


def turn(one: Plug, setting: Setting, *, on: bool) -> bool:
    """Switch it, and believe it when it says so itself. Returns whether that was a change."""
    if one.state() is on:
        return False
    if on:
        one.on()
    else:
        one.off()
    until = time.monotonic() + catalog.load("plugs")["switched_s"]["value"]
    while one.state() is not on:
        if time.monotonic() > until:
            raise PlugError(f"{setting.words}: it took the order, and is as before; look at the plug itself")
        time.sleep(_POLL_S)
    return True


def figure(setting: Setting, said: Any) -> float | None:
    """Watts as a plug said them; null is no meter."""
    if said is None:
        return None
    if isinstance(said, bool) or not isinstance(said, int | float) or not 0 <= said <= MOST_W:
        raise PlugError(f"{setting.words}: its watts are no figure; look at the plug itself")
    return float(said)
