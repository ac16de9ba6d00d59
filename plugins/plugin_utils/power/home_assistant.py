# SPDX-License-Identifier: GPL-3.0-or-later
"""Home Assistant: its REST API, with a long-lived token. A switch, and where there is one the sensor of its power."""

from __future__ import annotations

from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.power import http_plug
from ansible_collections.gb10.fleet.plugins.plugin_utils.power.plug import PlugError, figure
from ansible_collections.gb10.fleet.plugins.plugin_utils.power.setting import Setting

_WATTS = {"W": 1, "kW": 1000}


class Plug:
    def __init__(self, setting: Setting) -> None:
        self._setting = setting

    def state(self) -> bool:
        said = http_plug.part(self._setting, self._ask(f"/api/states/{self._setting.outlet}"), "state")
        if said not in ("on", "off"):
            text = f"{self._setting.words}: it says neither on nor off; see in Home Assistant whether it is there"
            raise PlugError(text)
        return bool(said == "on")

    def off(self) -> None:
        self._turn("turn_off")

    def on(self) -> None:
        self._turn("turn_on")

    def watts(self) -> float | None:
        if not self._setting.watts:
            return None
        said = self._ask(f"/api/states/{self._setting.watts}")
        more = http_plug.part(self._setting, said, "attributes")
        unit = more.get("unit_of_measurement") if isinstance(more, dict) else None
        try:
            return figure(self._setting, float(http_plug.part(self._setting, said, "state")) * _WATTS[str(unit)])
        except (ValueError, TypeError, KeyError, OverflowError):
            text = f"{self._setting.words}: {self._setting.watts} says no watts; name a sensor in W or kW"
            raise PlugError(text) from None

    def _turn(self, service: str) -> None:
        outlet = str(self._setting.outlet)
        self._ask(f"/api/services/{outlet.partition('.')[0]}/{service}", {"entity_id": outlet})

    def _ask(self, path: str, data: Any = None) -> Any:
        told = {"Authorization": f"Bearer {self._setting.password()}"}
        return http_plug.document(self._setting, http_plug.ask(self._setting, path, data, told))
