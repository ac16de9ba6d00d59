# SPDX-License-Identifier: GPL-3.0-or-later
"""The services of a host: what `vllm_services` says, each entry laid over the host's own `vllm_*`.

Each service sees its own view: the host's variables with its entry laid over them, and the hosts that it runs on. So
one planner (service.py) plans them all, and the short form `vllm_model` is a service without an entry.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ansible_collections.gb10.fleet.plugins.module_utils.system import asking
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.settings import SettingsError
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import service_entries
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.settings import VllmSettings
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.engines.engine import Engine
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.engines.known import ENGINES

if TYPE_CHECKING:
    from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.planned import Planned

VLLM, CONTAINER, SHORT = service_entries.VLLM, service_entries.CONTAINER, service_entries.SHORT
VARIABLE = service_entries.VARIABLE
# What a model has for itself: an entry, which names a model, takes none of it from the host's own.
_OF_A_MODEL = (
    *("model", "model_revision", "model_move", "model_exclude", "model_facts", "served_model_name", "speculative"),
    *("lora", "further_names"),
    *("extra_args", "max_model_len", "tensor_parallel_size", "memory_gate_gib"),
)
# What a host says of vLLM itself; of another engine its entry says it.
_OF_VLLM = ("version", "accept", "environment")
_GIB = 1024**3
# What containers that serve fetched files may write to on the host, each to a folder of its service, image and model,
# which Docker makes there. What is in it is code: in one for all, each would run that of all the others.
COMPILED = "/var/cache/gb10-compiled"


@dataclass(frozen=True)
class Names:
    """Names of all that belongs to a service on its hosts."""

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
    def compiled(self) -> str:
        """Where what its images and models compiled has a folder for each of them.

        No container has ever written there: before, each had all of `COMPILED/STEM`, and a link in it could lead out.
        """
        return f"{COMPILED}/by-image/{self.stem}"

    @property
    def secrets(self) -> str:
        """A file that only root reads, and Docker reads it for the container."""
        return f"/etc/gb10-fleet/{self.stem}.env"

    @property
    def flags(self) -> str:
        """What the plan of the model added, for a person to read; no unit reads it."""
        return f"/etc/gb10-fleet/{self.stem}.flags"

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
    def socket(self) -> str:
        """Whose first request starts it, where it sleeps until then."""
        return f"gb10-wake@{self.stem}.socket"

    @property
    def serving(self) -> str:
        """There while its container listens: the gateway's leave to send requests."""
        return f"/run/{self.container}/{asking.SERVING}"

    @property
    def entrance(self) -> str:
        """Return where the gateway reaches that socket."""
        return f"/run/gb10-wake/{self.stem}.sock"

    @property
    def gid_file(self) -> str:
        return f"/run/{self.container}/gid.env"


@dataclass(frozen=True)
class Service:
    """A service on one host: its own view, and that of the host, which has the plan of the fabric."""

    name: str
    view: View
    whole: View
    siblings: tuple[str, ...]  # the hosts of the cluster that each serve the same by themselves, this one among them
    memory_gib: float | None = None  # as its entry says it
    kind: str = VLLM
    health: str = "/health"
    engine: Engine = ENGINES[VLLM]
    own: Mapping[str, Any] = field(default_factory=dict)  # what its entry says to this engine alone

    @property
    def names(self) -> Names:
        return Names(self.name)

    @property
    def said(self) -> VllmSettings:
        return self.view.settings(VllmSettings)

    @property
    def planned(self) -> Planned:
        """Return what the plan of the model adds to what was said, and the settings with it."""
        # Imported where a host serves: what the rules of serving rest on takes a while to read.
        from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import planned

        if self.engine is not ENGINES[VLLM]:  # the plan of a model is one of vLLM
            return planned.Planned(self.said)
        return self.view.plan(planned.of)


def expand(view: View) -> tuple[Service, ...]:
    """The services of a host, in the order of the inventory. SettingsError where an entry is not as it must be."""
    wrong = list(service_entries.mistakes(view.variables)) or list(_of_others(view)) or list(_mistakes(view))
    if wrong:
        raise SettingsError("; ".join(wrong))
    settings = view.settings(VllmSettings)
    none_named = VARIABLE not in view.variables
    short = [Service(SHORT, view, view, (view.host,))] if settings.vllm_model or none_named else []
    entries = service_entries.of(view.variables)
    return (*short, *(_service(view, name, entries[name]) for name in _here(view, view.host)))


def declared_names(view: View) -> frozenset[str]:
    """Return what the inventory calls the services of the fleet; one that is on another host has a name here too."""
    hosts = view.inventory.values() if view.inventory else map(view.variables_of, view.members)
    return frozenset(name for variables in hosts for name in _names(variables))


def _names(variables: Mapping[str, Any]) -> Iterator[str]:
    yield from service_entries.of(variables)
    if variables.get("vllm_model"):
        yield SHORT


def _service(view: View, name: str, entry: Mapping[str, Any]) -> Service:
    members = view.members if _spans(view, entry) else [view.host]
    own = {member: _laid_over(view, member, name, members) for member in members}
    narrowed = view.narrowed(own, members)
    memory_gib = float(entry["memory_gib"]) if "memory_gib" in entry else None
    here = (view.host,) if _spans(view, entry) else tuple(each for each in view.members if name in _here(view, each))
    engine = service_entries.engine_of(entry)
    own = {key: entry[key] for key in engine.keys if key in entry}
    health = entry.get("health", "/health")
    return Service(name, narrowed, view, here, memory_gib, entry.get("kind", VLLM), health, engine, own)


def _spans(view: View, entry: Mapping[str, Any]) -> bool:
    """Tell whether it runs over all hosts of the cluster, and not on each by itself."""
    alone = entry.get("span", "cluster") == "host" or entry.get("kind") == CONTAINER
    alone = alone or not service_entries.engine_of(entry).address_variable
    return view.size > 1 and not alone


def _here(view: View, member: str) -> Iterator[str]:
    """The names of the services that a member of the cluster has."""
    return service_entries.here(view.variables_of(member), member)


def _laid_over(view: View, member: str, name: str, members: Sequence[str]) -> dict[str, Any]:
    """Return what an entry changes of the variables of one member; the names of the entry's own keys stay away."""
    entry = service_entries.of(view.variables_of(member)).get(name, {})
    options = catalog.declared_variables().roles["vllm"]
    ours = {f"vllm_{key}": options[f"vllm_{key}"].get("default") for key in _OF_A_MODEL}
    ours |= {f"vllm_{key}": value for key, value in entry.items() if f"vllm_{key}" in options}
    if entry.get("kind") == CONTAINER:
        ours |= {"vllm_extra_args": entry.get("args", []), "vllm_host": "127.0.0.1", "vllm_fetch": False}
    engine = service_entries.engine_of(entry)
    if engine is not ENGINES[VLLM]:  # what the host says to vLLM is not for it
        ours |= {f"vllm_{key}": options[f"vllm_{key}"].get("default") for key in engine.refuses}
        ours |= {f"vllm_{key}": options[f"vllm_{key}"].get("default") for key in _OF_VLLM if key not in entry}
    if engine.files:
        ours["vllm_model_exclude"] = engine.files(entry)
    if "memory_gib" in entry and view.own_facts:  # a router knows the host by its variables alone
        ours["vllm_gpu_memory_utilization"] = _share(view, float(entry["memory_gib"]), members)
    return {**ours, "vllm_services": {}}


def _share(view: View, memory_gib: float, members: Sequence[str]) -> float:
    """Return what vLLM is told instead of GiB: of the smallest host, because all hosts of a cluster are told the same.

    Who said in an earlier run that it has less than that is not counted: `_too_much` asks it in this one.
    """
    wanted = memory_gib * _GIB
    counted: list[int] = [
        facts["memory_bytes"]
        for member, facts in view.cluster_facts.items()
        if member in members and (member not in view.unknown or facts["memory_bytes"] > wanted)
    ]
    return math.floor(wanted / min(counted) * 1000) / 1000


def _of_others(view: View) -> Iterator[str]:
    """Yield what is wrong with the entries of the other hosts of the cluster, each by its host."""
    for member in view.members:
        if member != view.host:
            yield from (f"{member}: {text}" for text in service_entries.mistakes(view.variables_of(member)))


def _mistakes(view: View) -> Iterator[str]:
    """Yield what is wrong with the entries on this host and in its cluster."""
    for member in view.members:
        yield from _too_much(view, member)
    for name, entry in service_entries.of(view.variables).items():
        yield from _of_hosts(view, f"{VARIABLE}.{name}", name, entry)


def _too_much(view: View, member: str) -> Iterator[str]:
    """More memory than a host has at all. Of the others only what they said in this run counts."""
    facts, entries = view.cluster_facts.get(member), service_entries.of(view.variables_of(member))
    if not facts or not view.own_facts or member in view.unknown:
        return
    for name in _here(view, member):
        if "memory_gib" not in entries[name]:
            continue
        has, memory_gib = facts["memory_bytes"] / _GIB, float(entries[name]["memory_gib"])
        if memory_gib > has:
            yield f"{VARIABLE}.{name}.memory_gib is {memory_gib:g}, and {member} has {has:.1f} GiB. Give it less."


def _of_hosts(view: View, where: str, name: str, entry: Mapping[str, Any]) -> Iterator[str]:
    """Hosts that do not exist, and a service of a cluster that is not on all of its hosts."""
    groups = view.variables.get("groups", {})
    known = {*groups, *(host for members in groups.values() for host in members)}
    unknown = [str(host) for host in entry.get("hosts", ()) if groups and str(host) not in known]
    if unknown:
        yield f"{where}.hosts names {', '.join(unknown)}, and the inventory has no such host or group."
    engines = {str(service_entries.of(view.variables_of(each)).get(name, {}).get("engine")) for each in view.members}
    if _spans(view, entry) and len(engines - {"None"}) > 1:
        yield f"{where} spans the cluster, and its hosts do not agree on engine. Set it once, on the group."
    missing = [member for member in view.members if name not in _here(view, member)]
    if view.host not in missing and _spans(view, entry) and missing:
        yield (
            f"{where} spans the cluster, and {', '.join(missing)} has no such service. Declare it on all hosts of the "
            "cluster, or set its span to host."
        )
