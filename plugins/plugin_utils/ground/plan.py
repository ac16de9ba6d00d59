# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a role for one host: what was decided, and what speaks against it.

A role that decides something has a module here, `plans/<role>.py`, with a pure function `plan(view) -> <Role>Plan`.
Its result is the only place of the decision: the role's resources, its tasks, the rules and the proof read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.settings import SettingsError
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View

__all__ = ["PlanError", "RolePlan", "SettingsError", "of", "serves_tasks_only", "shown"]


class PlanError(ValueError):
    """The inventory or the machines of a cluster do not allow a plan; the text names host, fact and way out."""


@dataclass(frozen=True, kw_only=True)
class RolePlan:
    """Base of every plan. It holds no secret: a plan may be shown.

    Each refusal is a text with fact and way out; a role with refusals has no resources. `joint_refusals` depend on the
    facts of the other members of the cluster, so they count only where those are of this run. `findings` stop nothing:
    each is {id, severity, fact, way_out, accepted}.
    """

    refusals: tuple[str, ...] = ()
    joint_refusals: tuple[str, ...] = ()
    findings: tuple[Mapping[str, Any], ...] = ()


def of(role: str, view: View) -> RolePlan:
    """The plan of a role; of one that decides nothing an empty one. PlanError where none can be made."""
    planner = _planner(role)
    return view.plan(planner) if planner else RolePlan()


def serves_tasks_only(role: str) -> bool:
    """Tell whether a role plans for its own tasks and declares no resources: it is none of those that a host gets."""
    return role not in catalog.ROLES and role in catalog.declared_variables().roles and _planner(role) is not None


def shown(plan: Any) -> dict[str, Any]:
    """A plan, or a part of one, as plain data: for results and for people."""
    shown: dict[str, Any] = _shown(plan)
    return shown


def _shown(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _shown(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {key: _shown(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_shown(item) for item in (sorted(value) if isinstance(value, (set, frozenset)) else value)]
    return value


@cache
def _planner(role: str) -> Callable[[View], RolePlan] | None:
    """Imported where a host has the role: what the rules of serving rest on takes a while to read."""
    plans = Path(__file__).parents[1] / "plans"
    name = next((name for name in (role, f"{role}/planner") if (plans / f"{name}.py").is_file()), None)
    if name is None:
        return None
    package = __name__.rpartition(".ground.")[0]
    planner: Callable[[View], RolePlan] = import_module(f"{package}.plans.{name.replace('/', '.')}").plan
    return planner
