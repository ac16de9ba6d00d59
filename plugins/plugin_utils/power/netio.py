# SPDX-License-Identifier: GPL-3.0-or-later
"""PDUs of NETIO: their JSON API over HTTP, with basic authentication."""

from __future__ import annotations

import base64
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.power import http_plug
from ansible_collections.gb10.fleet.plugins.plugin_utils.power.plug import PlugError, figure
from ansible_collections.gb10.fleet.plugins.plugin_utils.power.setting import Setting

_PATH = "/netio.json"


class Plug:
    def __init__(self, setting: Setting) -> None:
        self._setting = setting

    def state(self) -> bool:
        said = http_plug.part(self._setting, self._outlet(), "State")
        if said not in (0, 1):
            raise PlugError(f"{self._setting.words}: it says neither on nor off; look at the PDU itself")
        return bool(said)

    def off(self) -> None:
        self._ask({"Outputs": [{"ID": self._setting.outlet, "Action": 0}]})

    def on(self) -> None:
        self._ask({"Outputs": [{"ID": self._setting.outlet, "Action": 1}]})

    def watts(self) -> float | None:
        return figure(self._setting, self._outlet().get("Load"))

    def _outlet(self) -> dict[str, Any]:
        outlets = http_plug.part(self._setting, self._ask(), "Outputs")
        for one in outlets if isinstance(outlets, list) else ():
            if isinstance(one, dict) and one.get("ID") == self._setting.outlet:
                return one
        raise PlugError(f"{self._setting.words}: it has no such outlet; correct outlet")

    def _ask(self, data: Any = None) -> Any:
        told = base64.b64encode(f"{self._setting.user}:{self._setting.password()}".encode()).decode()
        reply = http_plug.ask(self._setting, _PATH, data, {"Authorization": f"Basic {told}"})
        return http_plug.document(self._setting, reply)
