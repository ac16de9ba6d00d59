# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The services of a host: what `vllm_services` says, each entry laid over the host's own `vllm_*`.

Each service sees its own view: the host's variables with its entry laid over them, and the hosts that it runs on. So
one planner (vllm_service.py) plans them all, and the short form `vllm_model` is a service without an entry.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import settings
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.settings import SettingsError
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm_settings import VllmSettings

VLLM, CONTAINER = "vllm", "container"
VARIABLE = "vllm_services"
SHORT = "vllm"  # the service that `vllm_model` and its siblings declare
# What an entry says beside the role's variables, each without the prefix.
_OF_A_SERVICE: catalog.Options = {
    "kind": {"type": "str", "choices": [VLLM, CONTAINER]},
    "hosts": {"type": "list", "elements": "str"},
    "span": {"type": "str", "choices": ["cluster", "host"]},
    "memory_gib": {"type": "float"},
}
# What an entry of another container than vLLM's says, and what it must say: nobody can work that out.
_OF_A_CONTAINER: catalog.Options = {"args": {"type": "list", "elements": "str"}, "health": {"type": "str"}}
_ASKED_OF_A_CONTAINER = ("image", "port", "served_model_name", "memory_gib")
_PATH = re.compile(r"/[A-Za-z0-9._/-]*\Z")
# What a model has for itself: an entry, which names a model, takes none of it from the host's own.
_OF_A_MODEL = ("model", "model_revision", "model_facts", "served_model_name", "speculative")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,29}[a-z0-9])?\Z")
_GIB = 1024**3


def is_secret(key: str) -> bool:
    """Whether a key of an entry overlays a secret of the role."""
    return bool(catalog.declared_variables().roles["vllm"].get(f"vllm_{key}", {}).get("no_log"))


def is_name(name: str) -> bool:
    """Whether an entry may be called so."""
    return name != SHORT and _NAME.match(name) is not None


@dataclass(frozen=True)
class Names:
    """How what belongs to a service is called on its hosts."""

    service: str

    @property
    def stem(self) -> str:
        return "vllm" if self.service == SHORT else f"vllm-{self.service}"

    @property
    def container(self) -> str:
        return f"gb10-{self.stem}"

    @property
    def unit(self) -> str:
        return f"{self.container}.service"

    @property
    def config(self) -> str:
        return f"/etc/gb10-fleet/{self.stem}.json"

    @property
    def secrets(self) -> str:
        """A file that only root reads, and Docker reads it for the container."""
        return f"/etc/gb10-fleet/{self.stem}.env"

    @property
    def guard(self) -> str:
        """Until when the page cache is dropped while the model loads."""
        return f"/etc/gb10-fleet/guard-{self.container}.env"

    @property
    def join_key(self) -> str:
        return f"/etc/gb10-fleet/join{self.stem.removeprefix('vllm')}.key"

    @property
    def status_file(self) -> str:
        return f"/run/{self.container}/status.json"

    @property
    def gid_file(self) -> str:
        return f"/run/{self.container}/gid.env"


@dataclass(frozen=True)
class Service:
    """A service on one host: its own view, and that of the host, which has the plan of the fabric."""

    name: str
    view: View
    whole: View
    memory_gib: float | None = None  # as its entry says it
    kind: str = VLLM
    health: str = "/health"

    @property
    def names(self) -> Names:
        return Names(self.name)

    @property
    def said(self) -> VllmSettings:
        return self.view.settings(VllmSettings)


def expand(view: View) -> tuple[Service, ...]:
    """The services of a host, in the order of the inventory. SettingsError where an entry is not as it must be."""
    said = view.settings(VllmSettings)
    wrong = list(_mistakes(view, said.vllm_services))
    if wrong:
        raise SettingsError("; ".join(wrong))
    none_named = "vllm_services" not in view.variables
    short = [Service(SHORT, view, view)] if said.vllm_model or none_named else []
    return (*short, *(_service(view, name, said.vllm_services[name]) for name in _here(view, view.host)))


def _service(view: View, name: str, entry: Mapping[str, Any]) -> Service:
    members = view.members if _spans(view, entry) else [view.host]
    own = {member: _laid_over(view, member, name, members) for member in members}
    narrowed = view.narrowed(own, members)
    memory_gib = float(entry["memory_gib"]) if "memory_gib" in entry else None
    return Service(name, narrowed, view, memory_gib, entry.get("kind", VLLM), entry.get("health", "/health"))


def _spans(view: View, entry: Mapping[str, Any]) -> bool:
    """Whether it runs over all hosts of the cluster, and not on each by itself."""
    alone = entry.get("span", "cluster") == "host" or entry.get("kind") == CONTAINER
    return view.size > 1 and not alone


def _here(view: View, member: str) -> Iterator[str]:
    """The names of the services that a member of the cluster has."""
    variables = view.variables_of(member)
    for name, entry in _entries(variables).items():
        wanted = entry.get("hosts")
        if wanted is None or {*wanted} & {member, *variables.get("group_names", ()), "all"}:
            yield name


def _entries(variables: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    said = variables.get("vllm_services", {})
    return said if isinstance(said, Mapping) else {}


def _laid_over(view: View, member: str, name: str, members: Sequence[str]) -> dict[str, Any]:
    """What an entry changes of the variables of one member; the names of the entry's own keys stay away."""
    entry = _entries(view.variables_of(member)).get(name, {})
    options = catalog.declared_variables().roles["vllm"]
    ours = {f"vllm_{key}": options[f"vllm_{key}"].get("default") for key in _OF_A_MODEL}
    ours |= {f"vllm_{key}": value for key, value in entry.items() if f"vllm_{key}" in options}
    if entry.get("kind") == CONTAINER:
        ours |= {"vllm_extra_args": entry.get("args", []), "vllm_host": "127.0.0.1", "vllm_fetch": False}
    if "memory_gib" in entry and view.own_facts:  # a router knows the host by its variables alone
        ours["vllm_gpu_memory_utilization"] = _share(view, float(entry["memory_gib"]), members)
    return {**ours, "vllm_services": {}}


def _share(view: View, memory_gib: float, members: Sequence[str]) -> float:
    """What vLLM is told instead of GiB: of the smallest host, because all hosts of a cluster are told the same."""
    known: list[int] = [facts["memory_bytes"] for member, facts in view.cluster_facts.items() if member in members]
    return math.floor(memory_gib * _GIB / min(known) * 1000) / 1000


def _mistakes(view: View, said: Mapping[Any, Any]) -> Iterator[str]:
    for name, entry in said.items():
        where = f"vllm_services.{name}"
        if not is_name(str(name)):
            yield (
                f"{where}: a service is named by up to 31 small letters, digits and '-', and {SHORT} is the one of "
                "vllm_model. Choose another name."
            )
        elif not isinstance(entry, Mapping):
            yield f"{where} is {entry!r}, and must be a mapping, for example {{model: openai/gpt-oss-20b, port: 8001}}."
        elif wrong := list(_of_keys(where, entry)):
            yield from wrong
        else:
            yield from _of_hosts(view, where, str(name), entry)


def _of_keys(where: str, entry: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the keys of an entry, each by its whole name."""
    declared = catalog.declared_variables().roles["vllm"]
    options = {name.removeprefix("vllm_"): option for name, option in declared.items() if name != "vllm_services"}
    container = entry.get("kind") == CONTAINER
    options |= {**_OF_A_SERVICE, **(_OF_A_CONTAINER if container else {})}
    strange = [str(key) for key in entry if key not in options]
    if strange:
        yield (
            f"{where} has {', '.join(strange)}, which is no variable of the role vllm without its prefix, and none of "
            f"{', '.join(_OF_A_SERVICE)}."
        )
    known = {key: value for key, value in entry.items() if key in options}
    yield from settings.mistakes({f"{where}.{key}": options[key] for key in known}, _prefixed(where, known))
    if container:
        yield from _of_a_container(where, entry)
    elif not entry.get("model"):
        yield f"{where}.model is missing. Name the Hugging Face id of the model to serve."
    if {"memory_gib", "gpu_memory_utilization"} <= entry.keys():
        yield f"{where} has memory_gib and gpu_memory_utilization, which say the same. Leave one out."


def _of_a_container(where: str, entry: Mapping[str, Any]) -> Iterator[str]:
    missing = [key for key in _ASKED_OF_A_CONTAINER if not entry.get(key)]
    if missing:
        yield f"{where} is of kind container and has no {', '.join(missing)}. Nobody can work that out: say it."
    if entry.get("span") == "cluster":
        yield f"{where}.span is cluster, and only vLLM runs over several hosts. Leave it out."
    if entry.get("model"):
        yield f"{where}.model is what vLLM fetches. A container brings its own, or gets it by mounts: leave it out."
    if not _PATH.match(str(entry.get("health", "/health"))):
        yield f"{where}.health is {entry['health']!r}. Name the path that answers 200 when it serves, such as /health."


def _prefixed(where: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{where}.{key}": value for key, value in entry.items()}


def _of_hosts(view: View, where: str, name: str, entry: Mapping[str, Any]) -> Iterator[str]:
    """Hosts that do not exist, and a service of a cluster that is not on all of its hosts."""
    groups = view.variables.get("groups", {})
    known = {*groups, *(host for members in groups.values() for host in members)}
    unknown = [host for host in entry.get("hosts", ()) if groups and host not in known]
    if unknown:
        yield f"{where}.hosts names {', '.join(unknown)}, and the inventory has no such host or group."
    missing = [member for member in view.members if name not in _here(view, member)]
    if view.host not in missing and _spans(view, entry) and missing:
        yield (
            f"{where} spans the cluster, and {', '.join(missing)} has no such service. Declare it on all hosts of the "
            "cluster, or set its span to host."
        )
