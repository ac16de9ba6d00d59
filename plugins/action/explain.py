# SPDX-License-Identifier: GPL-3.0-or-later
"""Says of a host what was decided and why: settings with their origin, plan and resources of each role."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.documents import render as documents
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog, plan, settings
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.stop_requests import said_of
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import host, origins
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.own_action import OwnAction
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import secrets as vllm_secrets
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import service_entries

HIDDEN = vllm_secrets.HIDDEN
# Where anything may stand, a secret too; beside its refusal nobody is to read it.
_FREE: Mapping[str, Callable[[Any], Any]] = {
    "vllm_extra_args": vllm_secrets.words_shown,
    "vllm_environment": vllm_secrets.environment_shown,
    "vllm_image_serve_args": vllm_secrets.words_shown,
    "vllm_image_docker_options": vllm_secrets.words_shown,
}
LONG = 200  # characters of a value; a longer one is told by its size


class ActionModule(OwnAction):
    """Explain roles on one host."""

    def _act(self, task_vars: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        host.check_roles(options["roles"] or ())
        own = host.Host(self, task_vars)
        facts = own.facts or own.read_facts()
        # The facts of the other hosts are those of their last run: this one may be explained alone.
        view, rendered = own.render(options["roles"] or own.roles, facts, looking=True)
        wishes = {wish["unit"]: said_of(wish) for wish in facts.get("wishes") or []}
        roles = {made.role: _explained(made, view, task_vars["hostvars"], wishes) for made in rendered}
        return {"changed": False, "uncertain": list(view.unknown), "roles": roles}


def _explained(made: documents.Rendered, view: View, hostvars: Any, wishes: Mapping[str, str]) -> dict[str, Any]:
    options = catalog.declared_variables().roles[made.role]
    units = {resource.get("unit") for resource in made.resources}
    places = origins.of(list(options), hostvars, view.host)
    return {
        "settings": [
            {"name": name, "value": _value(name, option, view.variables), "origin": places[name]}
            for name, option in options.items()
        ],
        "plan": _plan(made.role, view),
        "refusals": made.refusals,
        "resources": [_resource(resource) for resource in made.resources],
        "wishes": {unit: said for unit, said in wishes.items() if unit in units},
    }


def _value(name: str, option: Mapping[str, Any], variables: Mapping[str, Any]) -> Any:
    given = settings.value(name, option, variables[name]) if name in variables else option.get("default")
    if name == service_entries.VARIABLE:
        if not isinstance(given, Mapping):
            return HIDDEN
        return {service: _without_secrets(entry) for service, entry in given.items()}
    if name in _FREE:
        return _FREE[name](given)
    return HIDDEN if option.get("no_log") and given else given


def _without_secrets(entry: Any) -> Any:
    """An entry of a service; what it must not say is told elsewhere, and not shown here."""
    if not isinstance(entry, Mapping):
        return HIDDEN
    return {key: value if service_entries.may_be_shown(entry, key) else HIDDEN for key, value in entry.items()}


def _plan(role: str, view: View) -> dict[str, Any] | None:
    """None where no plan can be made; the refusals say why."""
    try:
        return plan.shown(plan.of(role, view))
    except (plan.PlanError, plan.SettingsError):
        return None


def _resource(resource: Mapping[str, Any]) -> dict[str, Any]:
    """A resource without what is secret or long."""
    shown = dict(resource)
    for key, value in resource.items():
        if resource.get("secret") and key in documents.FILE_CONTENTS:
            shown[key] = HIDDEN
        elif isinstance(value, str) and len(value) > LONG:
            shown[key] = f"({value.count(chr(10))} lines, {len(value)} characters)"
    return shown


host.preload()
