# SPDX-License-Identifier: GPL-3.0-or-later
"""The watts of the wall: for `gb10 top`, which asks all plugs now and then, and for Prometheus."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.programs.metrics.exposition import escaped
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.power.plug import PlugError, plug
from ansible_collections.gb10.fleet.plugins.plugin_utils.power.setting import Setting, WrongPlug

_AT_ONCE = 16


class Wall:
    """By host, the watts of its plug. Those of a plug that hosts share are of all of them, and stand at none."""

    def __init__(self, plugs: Mapping[str, Setting]) -> None:
        places = [one.place for one in plugs.values()]
        self._plugs = {name: one for name, one in plugs.items() if places.count(one.place) == 1}
        self._watts: dict[str, float] = {}

    def look(self) -> None:
        """Ask each once. One that does not answer has no figure: top goes on without it."""
        if not self._plugs:
            return
        with ThreadPoolExecutor(min(_AT_ONCE, len(self._plugs))) as pool:
            found = dict(zip(self._plugs, pool.map(_watts, self._plugs.values()), strict=True))
        self._watts = {name: watts for name, watts in found.items() if watts is not None}

    def follow(self) -> None:
        """Ask again and again, beside whatever else this process does; ends with it."""
        if self._plugs:
            threading.Thread(target=self._go_on, daemon=True).start()

    def _go_on(self) -> None:
        pause = threading.Event()
        while True:
            self.look()
            pause.wait(catalog.load("plugs")["wall_every_s"]["value"])

    def of(self, host: str) -> dict[str, Any]:
        watts = self._watts.get(host)
        return {} if watts is None else {"wall_w": watts}


def _watts(setting: Setting) -> float | None:
    try:
        return plug(setting).watts()
    except (PlugError, WrongPlug):
        return None


def exposition(found: Mapping[str, tuple[bool | None, float | None]], places: Mapping[str, Any]) -> str:
    """Plugs as Prometheus reads them. Hosts behind one plug have one sample, which names them all."""
    mine = {name: ",".join(other for other in found if places[other] == places[name]) for name in found}
    on = {mine[name]: float(bool(state)) for name, (state, __) in found.items()}
    watts = {mine[name]: figure for name, (__, figure) in found.items() if figure is not None}
    lines = []
    for name, about, samples in (
        ("gb10_plug_on", "1 where the plug of a host is on.", on),
        ("gb10_wall_watts", "Power of a host at the wall, as its plug says.", watts),
    ):
        if samples:
            lines += [f"# HELP {name} {about}", f"# TYPE {name} gauge"]
            lines += [f'{name}{{host="{escaped(host)}"}} {value:.10g}' for host, value in samples.items()]
    return "\n".join([*lines, ""])
