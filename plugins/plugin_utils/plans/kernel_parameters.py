# SPDX-License-Identifier: GPL-3.0-or-later
"""Which kernel parameters a host gets, with their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.plan import RolePlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.settings import RoleSettings
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View


@dataclass(frozen=True)
class KernelParametersSettings(RoleSettings, role="kernel_parameters"):
    kernel_parameters_extra: Mapping[str, Any]
    kernel_parameters_allow_kho_off: bool


@dataclass(frozen=True, kw_only=True)
class KernelParametersPlan(RolePlan):
    """`sysctls` are those of the catalog, then the operator's own, of which one may replace one of the catalog.

    `kho_off`: what GRUB's menu gets for the kernel that runs; empty where nothing is asked for or allowed.
    """

    sysctls: Mapping[str, str]
    kho_allowed: bool
    kho_off: str


def plan(view: View) -> KernelParametersPlan:
    settings = view.settings(KernelParametersSettings)
    extra, allowed = settings.kernel_parameters_extra, settings.kernel_parameters_allow_kho_off
    ours = {name: entry["value"] for name, entry in catalog.load("kernel_parameters")["set"].items()}
    chosen = {**{name: value for name, value in ours.items() if name not in extra}, **extra}
    wanted = _wanted(view)
    return KernelParametersPlan(
        sysctls={name: str(value) for name, value in chosen.items()},
        kho_allowed=allowed,
        kho_off=wanted if allowed else "",
        findings=(_kho_on(view, wanted, allowed),) if wanted and view.facts.get("kho_off") is False else (),
    )


def _wanted(view: View) -> str:
    """The parameter without which the kernel that runs is of no use to a cluster; empty for all others."""
    kernel = view.facts.get("kernel") or ""
    rules = catalog.load("releases")["kernel_parameters"]
    return next((rule["parameter"] for rule in rules if kernel.startswith(rule["kernel"])), "")


def _kho_on(view: View, wanted: str, allowed: bool) -> Mapping[str, Any]:
    way_out = "reboot it (playbook gb10.fleet.reboot), then measure the rails (`gb10 validate`)"
    return {
        "id": "kho_on",
        "severity": "warn",
        "fact": f"kernel {view.facts['kernel']} runs without {wanted}: RDMA cannot register all memory, and no start"
        " on several hosts works",
        "way_out": way_out if allowed else f"set kernel_parameters_allow_kho_off: true, run site.yml, {way_out}",
        "accepted": None,
    }
