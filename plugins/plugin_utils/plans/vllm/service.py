# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of one service: how a host serves a model, by itself or as one rank of its cluster."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import addresses, catalog, programs
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.plan import PlanError, RolePlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View, digest
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.fabric import planner as fabric
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.fabric.addressing import Profile
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.fabric.planner import FabricPlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import container as vllm_container
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import known_before, service_entries
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import refusals as vllm_refusals
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import warm as vllm_warm
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.planned import Added
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.services import (
    CONTAINER,
    SHORT,
    VLLM,
    Names,
    Service,
)
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.settings import VllmSettings
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.warm import WarmCache
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import rules, serving_rules
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.engines import rules as engine_rules
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.engines import vllm
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.reading import FactsError
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.pull_fault import registry

LAUNCHER = "/usr/local/sbin/gb10-vllm"
PROGRAM = "programs/vllm_unit/main"  # what each unit runs, below plugins/module_utils
RAY_TOKEN = "/etc/gb10-fleet/ray.token"  # noqa: S105 - a path
RAY_START = "/usr/local/lib/gb10-fleet/gb10-ray-start"
_TIMING = ("heartbeat", "silence", "greeting", "retry", "gate", "stop", "gone", "door", "fault_memory")
# Of a unit's settings: figures of the catalog, what it reads in a log, by what a start is remembered, what others read.
_KNOWN_BY_THE_PROGRAM = (
    *("metrics", "serves"),
    *("disk_gib", "docker_said", "failures", "faults", "gone", "measured", "measures", "phases", "places", "remarks"),
    "timing",
)


@dataclass(frozen=True)
class Files:
    """Image and model, which are on the host before the unit needs them."""

    image: str
    name: str  # of the image on the hosts
    model: str
    revision: str
    exclude: tuple[str, ...]
    cache: str
    source: str  # somebody's own cache of the hub on the host
    environment: Mapping[str, Any]  # of the hub's tool
    fetch: bool  # once for the cluster, and over its fabric
    port: int
    draft: Mapping[str, str] | None  # model and revision of a second model
    loras: tuple[Mapping[str, str], ...]  # of adapters


@dataclass(frozen=True, kw_only=True)
class ServicePlan(RolePlan):
    """One model as a host serves it.

    What follows from the fabric of its cluster is empty where that has no plan.
    """

    name: str
    kind: str
    title: str  # of its engine, for people
    unit: str
    container: str
    config: str  # what the unit's program reads
    env_file: str  # of `secrets`
    flags_file: str  # of `added`
    guard_file: str
    join_file: str
    status_file: str
    members: tuple[str, ...]  # of the cluster, the head first
    rank: int
    model: str
    served_name: str
    names: tuple[str, ...]  # all that clients may ask for, this one first
    url: str  # where the head answers, asked on the head itself; the other ranks of a cluster have no API
    health: str  # the path there that answers 200 when it serves
    port: int
    ports: Mapping[str, int]  # all that it takes on this host, by their variables
    ready_timeout: int
    memory_gib: float  # what it takes of the host
    held_gib: float  # what a host gave for a start of exactly this; 0: none is known
    held_on: str  # that host
    on_demand: bool  # asleep until the first request
    socket: str  # which starts it then; empty where it always runs
    image_name: str
    files: Files
    registry_login: bool  # whether vllm_registry_* are for the registry of its image
    by_ray: bool
    folders: tuple[str, ...]  # of the host, that the container gets beside the caches
    compiled: str  # the one of this image and model that it compiles to, beside those of others; empty: it has none
    secrets: tuple[str, ...]  # the names of what is in the container's environment and in a file that only root reads
    restart_on: tuple[str, ...]  # the files that its unit reads, and that say what it serves
    at_next_start: tuple[str, ...]  # its program, and what that one knows by the catalog: no model stops for those
    added: tuple[Added, ...] = ()  # what nobody set, and the plan of the model says
    warm: WarmCache | None = None
    asks: Mapping[str, Any] = field(default_factory=dict)  # what vLLM itself is asked before the first start
    argv: tuple[str, ...] = ()
    join_for: str = ""  # what the secret of the cluster is for: another cluster, or other settings, have another
    join_kept: Mapping[str, str] = field(default_factory=dict)  # its digest as `sha256`, where all hosts have it
    program: Mapping[str, Any] = field(default_factory=dict)  # what the unit's program reads (programs/vllm_unit)


def plan(service: Service) -> ServicePlan:
    """The plan of one service for one host."""
    view, settings = service.view, service.planned.settings
    if service.kind == CONTAINER:
        planned = _decided(service, tuple(vllm_refusals.of_a_container(view, settings, service.memory_gib)))
        return planned if planned.refusals else _of_a_container(service, planned)
    planned = _judged_by_vllm(service) if service.engine is vllm.ENGINE else _judged_by_engine(service)
    if view.size == 1:
        return planned if planned.refusals else _started(service, planned, None)
    try:
        joined = service.whole.plan(fabric.plan)
    except PlanError as error:
        return replace(planned, joint_refusals=(str(error),))
    if not joined.cabled:
        cables = "Say how they are cabled: pair, ring or switch."
        return replace(
            planned, joint_refusals=(f"its cluster has {view.size} hosts and fabric_topology none. {cables}",)
        )
    return planned if planned.refusals else _started(service, planned, joined)


def _judged_by_vllm(service: Service) -> ServicePlan:
    view, settings = service.view, service.planned.settings
    try:
        verdict = _judged(service, settings)
    except FactsError as error:
        verdict = serving_rules.Verdict((serving_rules.Refusal("facts", f"vllm_model_facts: {error}."),))
    of_rules = (each.text for each in verdict.refusals if each.id not in rules.FIRM)
    refusals = (*vllm_refusals.refusals(view, settings, service.memory_gib), *of_rules)
    return _decided(service, refusals, verdict.findings)


def _judged_by_engine(service: Service) -> ServicePlan:
    """Of another engine than vLLM: its own rules, beside what holds for any."""
    view, settings = service.view, service.said
    refusals = vllm_refusals.of_an_engine(view, settings, service.memory_gib, service.engine)
    said = engine_rules.judge(
        service.engine.name,
        settings.vllm_image,
        settings.vllm_version,
        _words(service, "HEAD"),
        view.size,
        settings.vllm_accept,
    )
    verdict = serving_rules.verdict(said)
    return _decided(service, (*refusals, *(each.text for each in verdict.refusals)), verdict.findings)


def _decided(service: Service, refusals: tuple[str, ...], findings: tuple[Mapping[str, Any], ...] = ()) -> ServicePlan:
    """Return what needs no fabric."""
    view, settings, names = service.view, service.planned.settings, service.names
    held_gib, held_on = known_before.held(service)
    token = "" if settings.vllm_fetch else settings.vllm_huggingface_token
    given = {service.engine.key_variable: settings.vllm_api_key, "HF_TOKEN": token} if service.kind == VLLM else {}
    secrets = tuple(name for name, value in given.items() if value)
    return ServicePlan(
        refusals=refusals,
        findings=findings,
        name=service.name,
        kind=service.kind,
        title=service.engine.title if service.kind == VLLM else "A container",
        unit=names.unit,
        container=names.container,
        config=names.config,
        env_file=names.secrets,
        flags_file=names.flags,
        guard_file=names.guard,
        join_file=names.join_key,
        status_file=names.status_file,
        members=tuple(view.members),
        rank=view.rank,
        model=settings.vllm_model or settings.served_name,
        served_name=settings.served_name,
        names=settings.names,
        url=f"http://{addresses.asked_on_the_host(settings.vllm_host)}:{settings.vllm_port}",
        health=service.health,
        port=settings.vllm_port,
        ports=_ports(view, settings),
        ready_timeout=settings.vllm_ready_timeout,
        on_demand=settings.vllm_on_demand,
        socket=names.socket if settings.vllm_on_demand else "",
        memory_gib=service.memory_gib or round(_share_gib(view, settings), 2),
        held_gib=held_gib,
        held_on=held_on,
        image_name=vllm_container.image_name(settings.vllm_image),
        # A refused environment may hold a secret, and a plan is shown.
        files=replace(files_of(service.said), environment={}) if refusals else files_of(service.said),
        registry_login=_logs_in(service, settings),
        by_ray=settings.by_ray,
        folders=tuple(mount.partition(":")[0] for mount in settings.vllm_mounts),
        compiled=vllm_container.compiled(settings, names),
        secrets=secrets,
        restart_on=(names.secrets, names.config, RAY_TOKEN, names.join_key, f"/etc/systemd/system/{names.unit}"),
        at_next_start=_at_next_start(names),
        added=service.planned.added,
        warm=None if refusals or service.kind == CONTAINER or not settings.warm else vllm_warm.plan(service),
        asks={} if refusals or service.kind == CONTAINER or service.engine is not vllm.ENGINE else _asks(service),
    )


def _asks(service: Service) -> dict[str, Any]:
    """Return what vLLM is asked. The head asks for its cluster."""
    return {} if service.view.rank else known_before.question(service)


def _logs_in(service: Service, settings: VllmSettings) -> bool:
    """The host's own account is of the registry of its vllm_image: another registry never gets to see it.

    Who names no vllm_image says by the images of the services which registry that is, where they are of one.
    """
    given, own = service.whole.variables, service.whole.settings(VllmSettings).vllm_image
    entries = service_entries.of(given)
    if "registry_username" in entries.get(service.name, {}):
        return bool(settings.vllm_registry_username)
    images = [own] if "vllm_image" in given or given.get("vllm_model") else []
    if "vllm_image" not in given:
        images += [str(each.get("image", own)) for each in entries.values() if "registry_username" not in each]
    return bool(settings.vllm_registry_username) and set(map(registry, images)) == {registry(settings.vllm_image)}


def _ports(view: View, settings: VllmSettings) -> dict[str, int]:
    """Only the first host of a cluster has the API."""
    in_use = settings.ports_in_use(view.size)
    return {name: port for name, port in in_use.items() if view.rank == 0 or name != "vllm_port"}


def _at_next_start(names: Names) -> tuple[str, ...]:
    """Another version of this collection changes these, and not what is served."""
    imported = programs.modules_of(PROGRAM)
    return (
        *(f"{names.config}#{key}" for key in _KNOWN_BY_THE_PROGRAM),
        LAUNCHER,
        *(programs.installed("vllm_unit", module) for module in imported),
        RAY_START,
    )


def files_of(settings: VllmSettings) -> Files:
    """Image and model of a service."""
    return Files(
        image=settings.vllm_image,
        name=vllm_container.image_name(settings.vllm_image),
        model=settings.vllm_model,
        revision=settings.vllm_model_revision or "main",
        exclude=settings.vllm_model_exclude,
        cache=settings.vllm_cache_directory,
        source=settings.vllm_cache_source,
        environment={**vllm_container.HUB_HOME, **settings.vllm_environment},
        fetch=settings.vllm_fetch,
        port=settings.vllm_transfer_port,
        draft={"model": settings.draft.model, "revision": settings.draft.revision or "main"}
        if settings.draft
        else None,
        loras=tuple({"model": each.model, "revision": each.revision or "main"} for each in settings.adapters),
    )


def _judged(service: Service, settings: VllmSettings) -> serving_rules.Verdict:
    """Return what the rules of serving say; before the fabric is known, with words in the place of its addresses."""
    view = service.view
    of_the_fabric = vllm_container.OF_ANY_FABRIC if view.size > 1 else {}
    ray = vllm_container.ray_words(settings, "HOST", ()) if settings.by_ray else []
    return serving_rules.judge(
        view,
        model=settings.vllm_model,
        image=settings.vllm_image,
        version=settings.vllm_version,
        api_key=settings.vllm_api_key,
        accepted=settings.vllm_accept,
        args=vllm_container.serve_words(settings, view.size, view.rank, "HEAD"),
        environment=vllm_container.environment(vllm.ENGINE, settings, of_the_fabric),
        container=vllm_container.traits(vllm_container.docker_options(settings, view.size), ray),
        revision=settings.vllm_model_revision,
        facts=settings.vllm_model_facts,
        cache=settings.vllm_cache_directory,
        draft_facts=str(settings.vllm_speculative.get("facts") or ""),
        by_hand=settings.vllm_environment,
        starts=known_before.starts(service),
        asked=known_before.said(service),
    )


def _started(service: Service, planned: ServicePlan, joined: FabricPlan | None) -> ServicePlan:
    """With the one command of the unit, as a list that no shell and no systemd reads, and what the unit goes by.

    The hosts of a cluster meet on the fabric, so that nothing of vLLM's own traffic touches the LAN.
    """
    view, settings, names = service.view, service.planned.settings, service.names
    hosts = joined.hosts if joined else {}
    addresses_of = {name: host.control.address for name, host in hosts.items() if host.control}
    own = {**joined.mine.environment, service.engine.address_variable: addresses_of[view.host]} if joined else {}
    gid = joined is not None and joined.fixed_gid_index
    environment = vllm_container.environment(service.engine, settings, own)
    argv = (
        *("/usr/bin/docker", "run", *vllm_container.docker_options(settings, view.size, names.container)),
        *service.engine.options,
        *(word for name, value in environment.items() for word in ("--env", f"{name}={value}")),
        *vllm_container.files(settings, names, secrets=bool(planned.secrets), gid=gid),
        *_inside(service, planned.image_name, addresses_of),
    )
    log = _log(service.engine.log)
    program = {
        **_program(service, planned, argv),
        "cache": vllm_container.written_to(settings),
        "env_file": names.secrets if planned.secrets else None,
        "gid_file": names.gid_file if gid else None,
        "warm": vllm_warm.wish(planned.warm) if planned.warm else None,
        "rails": [_rail(profile) for profile in joined.mine.profiles] if joined else [],
        "join": _join(service, addresses_of) if joined else None,
        "phases": [[each["phase"], each["value"]] for each in log["phases"]],
        "failures": _verdicts(log["failures"]),
        "places": _verdicts(log["places"]),
        "remarks": _verdicts(log["remarks"]),
        "measures": known_before.about(view, settings) if service.engine is vllm.ENGINE else {},
        "measured": [each["value"] for each in log["measured"]],
        "gone": [each["value"] for each in log["gone"]],
        **_told(service, planned),
    }
    if not joined:
        return replace(planned, argv=argv, program=program)
    purpose = digest([program["join"][name] for name in ("members", "port", "settings")])
    return replace(planned, argv=argv, program=program, join_for=purpose, join_kept=_kept_key(service, purpose))


def _of_a_container(service: Service, planned: ServicePlan) -> ServicePlan:
    """Another server than vLLM, with the same confinement. Its log says nothing to us, so its health is asked."""
    settings, names = service.said, service.names
    argv = (
        *("/usr/bin/docker", "run", *vllm_container.docker_options(settings, 1, names.container)),
        *(word for name, value in settings.vllm_environment.items() for word in ("--env", f"{name}={value}")),
        *(word for mount in settings.vllm_mounts for word in ("--volume", mount)),
        *(planned.image_name, *settings.vllm_extra_args),
    )
    nothing: dict[str, Any] = {"env_file": None, "gid_file": None, "warm": None, "rails": [], "join": None}
    unread: dict[str, Any] = {"phases": [], "failures": [], "places": [], "remarks": [], "measures": {}}
    unread |= {"measured": [], "gone": []}
    program = {**_program(service, planned, argv), "cache": "/var/lib/docker", **nothing, **unread, **_serves(planned)}
    return replace(planned, argv=argv, program=program)


def _program(service: Service, planned: ServicePlan, argv: tuple[str, ...]) -> dict[str, Any]:
    """Return what the unit goes by, whatever it runs."""
    units, settings = catalog.load("units"), service.planned.settings
    figures = units["supervisor"]
    return {
        "service": service.name,
        "container": planned.container,
        "argv": list(argv),
        "image": planned.image_name,
        # What must be free before a start: the share of the memory that vLLM takes, unless told otherwise.
        "memory_gib": settings.vllm_memory_gate_gib or math.ceil(_share_gib(service.view, settings)),
        "disk_gib": figures["cache_free"]["value"],
        "load_s": planned.ready_timeout,
        "api": _api(service),
        "ready_url": f"{planned.url}{planned.health}" if _is_asked(service) else None,
        "faults": figures["faults"]["value"],
        "timing": {name: figures[name]["value"] for name in _TIMING},
        "docker_said": _verdicts(units["docker_said"]["run"]),
    }


def _log(name: str) -> Mapping[str, Any]:
    """Return what the unit looks for in a log. Of another engine than vLLM that is how a start ends."""
    known = catalog.load("units")
    nothing: dict[str, Any] = {"phases": [], "remarks": [], "measured": [], "gone": []}
    failures = [*catalog.load("engines")["failures"], *known["vllm_log"]["failures"]]  # CUDA says the same to each
    return known[name] if name else {**nothing, "failures": failures, "places": known["vllm_log"]["places"]}


def _told(service: Service, planned: ServicePlan) -> dict[str, Any]:
    """Return what the programs of a host read of vLLM in its command line and its metrics; of another it is told."""
    if service.engine is vllm.ENGINE:
        return {}
    return {**_serves(planned), "metrics": service.engine.metrics._asdict()}


def _serves(planned: ServicePlan) -> dict[str, Any]:
    return {"serves": {"model": planned.model, "name": planned.served_name}}


def _verdicts(table: Iterable[Mapping[str, str]]) -> list[list[str]]:
    return [[each["verdict"], each["value"]] for each in table]


def _api(service: Service) -> dict[str, Any] | None:
    """Return where it takes requests: those of a cluster its head takes.

    At a name of DNS no gateway stands in front of it.
    """
    address = addresses.on_the_host(service.said.vllm_host)
    if service.view.rank or not addresses.is_address(address):
        return None
    return {"address": address, "port": service.said.vllm_port}


def _kept_key(service: Service, purpose: str) -> dict[str, str]:
    """The digest of the secret that all hosts of the cluster have for this purpose; none where they need a new one."""
    view = service.view
    held = [_held(service.name, view.cluster_facts.get(member) or {}) for member in view.members]
    digests = {each.get("sha256", "") for each in held if each.get("for") == purpose}
    kept = str(digests.pop()) if len(digests) == 1 and all(each == held[0] for each in held) else ""
    return {"sha256": kept} if kept else {}


def _held(name: str, facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a host says of its secret of a service."""
    found = facts.get("join_key") if name == SHORT else (facts.get("join_keys") or {}).get(name)
    return found or {}


def _inside(service: Service, image: str, addresses_of: Mapping[str, str]) -> list[str]:
    """Return what runs in the container.

    A node of Ray that is not the head runs what vLLM sends it, and serves nothing.
    """
    view, settings = service.view, service.planned.settings
    head = addresses_of.get(view.members[0], "")
    engine = service.engine
    serve = _words(service, head)
    if not settings.by_ray:
        return [*vllm_container.started(settings, engine.program), *serve]
    hosts = [addresses_of[member] for member in view.members]
    start = vllm_container.ray_words(settings, addresses_of[view.host], hosts)
    named = ["--unit", service.names.container] if service.name != SHORT else []
    return [
        *vllm_container.started(settings, "python3"),
        *start,
        *named,
        *(["--", engine.program, *serve] if view.rank == 0 else []),
    ]


def _words(service: Service, head: str) -> list[str]:
    view, settings = service.view, service.planned.settings
    memory_gib = service.memory_gib or _share_gib(view, settings)
    return vllm_container.words(service.engine, settings, view.size, view.rank, head, service.own, memory_gib)


def _is_asked(service: Service) -> bool:
    """Tell whether it is asked if it serves: its log does not say so. Of a rank without an API its head does."""
    return service.kind == CONTAINER or (not service.engine.log and service.view.rank == 0)


def _share_gib(view: View, settings: VllmSettings) -> float:
    share: float = view.facts["memory_bytes"] * settings.vllm_gpu_memory_utilization / 1024**3
    return share


def _rail(profile: Profile) -> dict[str, Any]:
    return {name: getattr(profile, name) for name in ("netdev", "hca", "hca_port", "gid", "address")}


def _join(service: Service, addresses_of: Mapping[str, str]) -> dict[str, Any]:
    """Return how the ranks find each other, and what they compare before any of them starts."""
    view, settings = service.view, service.planned.settings
    return {
        "rank": view.rank,
        "members": [{"name": member, "address": addresses_of[member]} for member in view.members],
        "port": settings.vllm_join_port,
        "key": service.names.join_key,
        "settings": settings.alike(),
    }
