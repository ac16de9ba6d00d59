# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which kernel parameters a host gets, with their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.plan import RolePlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.settings import RoleSettings
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.view import View


@dataclass(frozen=True)
class KernelParametersSettings(RoleSettings, role="kernel_parameters"):
    kernel_parameters_extra: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class KernelParametersPlan(RolePlan):
    """`sysctls` are those of the catalog, then the operator's own, of which one may replace one of the catalog."""

    sysctls: Mapping[str, str]


def plan(view: View) -> KernelParametersPlan:
    extra = view.settings(KernelParametersSettings).kernel_parameters_extra
    ours = {name: entry["value"] for name, entry in catalog.load("kernel_parameters")["set"].items()}
    chosen = {**{name: value for name, value in ours.items() if name not in extra}, **extra}
    return KernelParametersPlan(sysctls={name: str(value) for name, value in chosen.items()})
