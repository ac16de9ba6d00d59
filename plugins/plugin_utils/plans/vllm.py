# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of the role vllm: how a host serves a model, by itself or as one rank of its cluster."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import addresses, fabric, vllm_container, vllm_refusals
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.addressing import Profile
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.fabric import FabricPlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.plan import PlanError, RolePlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.view import View, digest
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm_settings import VllmSettings
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import rules, serving_rules
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.reading import FactsError

_TIMING = ("heartbeat", "silence", "greeting", "retry", "gate", "stop", "gone")


@dataclass(frozen=True)
class Files:
    """Image and model, which are on the host before the unit needs them."""

    image: str
    name: str  # of the image on the hosts
    model: str
    revision: str
    exclude: tuple[str, ...]
    cache: str
    environment: Mapping[str, Any]  # of the hub's tool
    fetch: bool  # once for the cluster, and over its fabric
    port: int
    draft: Mapping[str, str] | None  # model and revision of a second model


@dataclass(frozen=True, kw_only=True)
class VllmPlan(RolePlan):
    """How a host serves. What follows from the fabric of its cluster is empty where that has no plan."""

    members: tuple[str, ...]  # of the cluster, the head first
    rank: int
    served_name: str
    url: str  # where the head answers, asked on the head itself; the other ranks of a cluster have no API
    image_name: str
    files: Files
    by_ray: bool
    folders: tuple[str, ...]  # of the host, that the container gets beside the caches
    secrets: tuple[str, ...]  # the names of what is in the container's environment and in a file that only root reads
    argv: tuple[str, ...] = ()
    join_for: str = ""  # what the secret of the cluster is for: another cluster, or other settings, have another
    join_kept: str = ""  # its digest, where all hosts have it
    unit: Mapping[str, Any] = field(default_factory=dict)  # what the unit's program reads (programs/vllm_unit)


def plan(view: View) -> VllmPlan:
    """The plan for one host."""
    said = view.settings(VllmSettings)
    try:
        verdict = _judged(view, said)
    except FactsError as error:
        verdict = serving_rules.Verdict((serving_rules.Refusal("facts", f"vllm_model_facts: {error}."),))
    made = VllmPlan(
        refusals=(
            *vllm_refusals.refusals(view, said),
            *(each.text for each in verdict.refusals if each.id not in rules.FIRM),
        ),
        findings=verdict.findings,
        members=tuple(view.members),
        rank=view.rank,
        served_name=said.served_name,
        url=f"http://{addresses.asked_on_the_host(said.vllm_host)}:{said.vllm_port}",
        image_name=vllm_container.image_name(said.vllm_image),
        files=_files(said),
        by_ray=said.by_ray,
        folders=tuple(mount.partition(":")[0] for mount in said.vllm_mounts),
        secrets=(
            *(("VLLM_API_KEY",) if said.vllm_api_key else ()),
            *(("HF_TOKEN",) if said.vllm_huggingface_token and not said.vllm_fetch else ()),
        ),
    )
    if view.size == 1:
        return made if made.refusals else _started(view, said, made, None)
    try:
        joined = view.plan(fabric.plan)
    except PlanError as error:
        return replace(made, joint_refusals=(str(error),))
    if not joined.cabled:
        cables = "Say how they are cabled: pair, ring or switch."
        return replace(made, joint_refusals=(f"its cluster has {view.size} hosts and fabric_topology none. {cables}",))
    return made if made.refusals else _started(view, said, made, joined)


def _files(said: VllmSettings) -> Files:
    return Files(
        image=said.vllm_image,
        name=vllm_container.image_name(said.vllm_image),
        model=said.vllm_model,
        revision=said.vllm_model_revision or "main",
        exclude=said.vllm_model_exclude,
        cache=said.vllm_cache_directory,
        environment={**vllm_container.HUB_HOME, **said.vllm_environment},
        fetch=said.vllm_fetch,
        port=said.vllm_transfer_port,
        draft={"model": said.draft.model, "revision": said.draft.revision or "main"} if said.draft else None,
    )


def _judged(view: View, said: VllmSettings) -> serving_rules.Verdict:
    """What the rules of serving say; before the fabric is known, with words in the place of its addresses."""
    of_the_fabric = vllm_container.OF_ANY_FABRIC if view.size > 1 else {}
    ray = vllm_container.ray_words(said, "HOST", ()) if said.by_ray else []
    return serving_rules.judge(
        view,
        model=said.vllm_model,
        image=said.vllm_image,
        version=said.vllm_version,
        api_key=said.vllm_api_key,
        accepted=said.vllm_accept,
        args=vllm_container.serve_words(said, view.size, view.rank, "HEAD"),
        environment=vllm_container.environment(said, of_the_fabric),
        container=vllm_container.traits(vllm_container.docker_options(said, view.size), ray),
        revision=said.vllm_model_revision,
        facts=said.vllm_model_facts,
        cache=said.vllm_cache_directory,
        draft_facts=str(said.vllm_speculative.get("facts") or ""),
    )


def _started(view: View, said: VllmSettings, made: VllmPlan, joined: FabricPlan | None) -> VllmPlan:
    """With the one command of the unit, as a list that no shell and no systemd reads, and what the unit goes by.

    The hosts of a cluster meet on the fabric, so that nothing of vLLM's own traffic touches the LAN.
    """
    addresses_of = _addresses(joined) if joined else {}
    own = {**joined.mine.environment, "VLLM_HOST_IP": addresses_of[view.host]} if joined else {}
    gid = joined is not None and joined.fixed_gid_index
    environment = vllm_container.environment(said, own)
    argv = (
        *("/usr/bin/docker", "run", *vllm_container.docker_options(said, view.size)),
        *(word for name, value in environment.items() for word in ("--env", f"{name}={value}")),
        *vllm_container.files(said, secrets=bool(made.secrets), gid=gid),
        *_inside(view, said, made.image_name, addresses_of),
    )
    figures, log = catalog.load("units")["supervisor"], catalog.load("units")["vllm_log"]
    unit = {
        "container": vllm_container.NAME,
        "argv": list(argv),
        "image": made.image_name,
        "memory_gib": _memory_gib(view, said),
        "cache": vllm_container.written_to(said),
        "disk_gib": figures["cache_free"]["value"],
        "env_file": vllm_container.SECRETS if made.secrets else None,
        "gid_file": vllm_container.GID_FILE if gid else None,
        "rails": [_rail(profile) for profile in joined.mine.profiles] if joined else [],
        "join": _join(view, said, addresses_of) if joined else None,
        "timing": {name: figures[name]["value"] for name in _TIMING},
        "phases": [[each["phase"], each["value"]] for each in log["phases"]],
        "failures": [[each["verdict"], each["value"]] for each in log["failures"]],
        "gone": [each["value"] for each in log["gone"]],
    }
    if not joined:
        return replace(made, argv=argv, unit=unit)
    purpose = digest([unit["join"][name] for name in ("members", "port", "settings")])
    return replace(made, argv=argv, unit=unit, join_for=purpose, join_kept=_kept_key(view, purpose))


def _kept_key(view: View, purpose: str) -> str:
    """The digest of the secret that all hosts of the cluster have for this purpose; empty where they need a new one."""
    held = [(view.cluster_facts.get(member) or {}).get("join_key") or {} for member in view.members]
    digests = {each.get("sha256", "") for each in held if each.get("for") == purpose}
    return str(digests.pop()) if len(digests) == 1 and all(each == held[0] for each in held) else ""


def _inside(view: View, said: VllmSettings, image: str, addresses_of: Mapping[str, str]) -> list[str]:
    """What runs in the container. A node of Ray that is not the head runs what vLLM sends it, and serves nothing."""
    head = addresses_of.get(view.members[0], "")
    serve = ["serve", said.vllm_model, *vllm_container.serve_words(said, view.size, view.rank, head)]
    if not said.by_ray:
        return ["--entrypoint", "vllm", image, *serve]
    hosts = [addresses_of[member] for member in view.members]
    start = vllm_container.ray_words(said, addresses_of[view.host], hosts)
    return ["--entrypoint", "python3", image, *start, *(["--", "vllm", *serve] if view.rank == 0 else [])]


def _memory_gib(view: View, said: VllmSettings) -> int:
    """What must be free before a start: the share of the memory that vLLM takes, unless told otherwise."""
    share = view.facts["memory_bytes"] * said.vllm_gpu_memory_utilization / 1024**3
    return said.vllm_memory_gate_gib or math.ceil(share)


def _addresses(joined: FabricPlan) -> dict[str, str]:
    """Where all hosts of the cluster reach each of them."""
    return {name: host.control.address for name, host in joined.hosts.items() if host.control}


def _rail(profile: Profile) -> dict[str, Any]:
    return {name: getattr(profile, name) for name in ("netdev", "hca", "hca_port", "gid", "address")}


def _join(view: View, said: VllmSettings, addresses_of: Mapping[str, str]) -> dict[str, Any]:
    """How the ranks find each other, and what they compare before any of them starts."""
    return {
        "rank": view.rank,
        "members": [{"name": member, "address": addresses_of[member]} for member in view.members],
        "port": said.vllm_join_port,
        "key": vllm_container.JOIN_KEY,
        "settings": said.alike(),
    }
